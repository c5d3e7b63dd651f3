from pathlib import Path

import pytest

from transduce.data.folder import complete_folder, scratch_folder


def test_appears_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with complete_folder(path) as folder:
        (folder / "file").write_bytes(b"content")
        assert not path.exists()
    assert (path / "file").read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_failure_leaves_nothing_not_even_parents(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with complete_folder(tmp_path / "a" / "b" / "folder") as folder:
            (folder / "file").write_bytes(b"content")
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_parents_in_use_stay(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "a" / "b", "scratch"):
        (tmp_path / "a" / "other").touch()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "other"]


def test_parents_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with scratch_folder(tmp_path / "cache", "scratch"):
        pass
    assert (tmp_path / "cache").is_dir()


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with complete_folder(path) as slow:
        (slow / "file").write_bytes(b"slow")
        with complete_folder(path) as fast:
            (fast / "file").write_bytes(b"fast")
    assert (path / "file").read_bytes() == b"fast"
    assert list(tmp_path.iterdir()) == [path]
