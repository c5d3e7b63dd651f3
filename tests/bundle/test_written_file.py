from pathlib import Path

import pytest

from transduce.bundle import written_file


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    with written_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_is_half_written_goes(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")

    def half_write() -> None:
        with written_file(path) as beside:
            beside.write_text("ne", encoding="utf-8")
            raise error

    with pytest.raises(type(error)):
        half_write()
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_stands_in_the_way_stays(tmp_path: Path) -> None:
    for name in ("file", "file.tmp"):
        (tmp_path / name).mkdir()
        with pytest.raises(OSError), written_file(tmp_path / "file") as beside:  # noqa: PT011 - which one, the system decides
            beside.write_bytes(b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file.tmp"]
