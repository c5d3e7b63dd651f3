import os
from importlib import import_module
from pathlib import Path
from uuid import UUID

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
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError), written_file(tmp_path / "file") as beside:  # noqa: PT011 - which one, the system decides
        beside.write_bytes(b"")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_file_of_the_user_has_the_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("file.tmp", "file.transduce-tmp-000000000000"):
        (tmp_path / name).write_text("mine", encoding="utf-8")
    with written_file(tmp_path / "file") as one, written_file(tmp_path / "file") as other:
        assert one != other
    # Not even if chance were to choose it.
    monkeypatch.setattr(import_module("transduce.bundle.written_file"), "uuid4", lambda: UUID(int=0))
    with pytest.raises(FileExistsError), written_file(tmp_path / "file") as beside:
        beside.write_bytes(b"")
    assert {path.name for path in tmp_path.iterdir() if path.read_bytes() == b"mine"} == {
        *("file.tmp", "file.transduce-tmp-000000000000")
    }


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for place in (tmp_path / "other" / "there", tmp_path / "other" / "new"):
        link = tmp_path / f"to {place.name}"
        link.symlink_to(place)
        with written_file(link) as beside:
            assert beside.parent == place.parent  # on another disk, it could not be renamed
            beside.write_text("new", encoding="utf-8")
        assert link.readlink() == place
        assert place.read_text(encoding="utf-8") == "new"


def test_permissions_are_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with written_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_of_any_length_that_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    with written_file(path) as beside:
        beside.write_text("new", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "new"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with written_file(pipe) as place:
        place.write_bytes(b"new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
