import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest
from safetensors import SafetensorError

from transduce.bundle import check_output_file, check_writable, failed_writing, is_marked, write_output_file
from transduce.errors import OutputError, WriteError

OLD, NEW = b"<mark> old", b"<mark> new"


def is_own(path: Path) -> bool:
    return is_marked(path, b"<mark>")


def write(path: Path, *, force: bool = False) -> None:
    write_output_file(path, NEW, is_own, "page", force=force)


@pytest.mark.parametrize("before", [None, b"", OLD])
def test_what_is_new_empty_or_of_its_own_kind_is_written(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_bytes(before)
    write(path)
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("through", [False, True])
def test_anything_else_is_replaced_only_if_forced(tmp_path: Path, *, through: bool) -> None:
    real = tmp_path / "real"
    real.write_text("mine", encoding="utf-8")
    path = real
    if through:
        path = tmp_path / "link"
        path.symlink_to(real)
    with pytest.raises(OutputError, match=r"is no page, and is not replaced unasked: .* --force"):
        write(path)
    assert real.read_text(encoding="utf-8") == "mine"
    write(path, force=True)
    assert real.read_bytes() == NEW
    assert path.is_symlink() == through


def test_the_mark_counts_near_the_beginning_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a long letter" * 1000 + OLD)
    assert not is_own(tmp_path / "file")


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path, *, force: bool) -> None:
    with pytest.raises(OutputError, match="is a folder"):
        write(tmp_path, force=force)


def test_a_disk_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "disk"  # only root makes real ones
    path.write_bytes(OLD)
    monkeypatch.setattr(Path, "is_block_device", lambda one: one == path)
    with pytest.raises(OutputError, match="is a disk"):
        write(path, force=True)
    assert path.read_bytes() == OLD


def test_links_that_name_each_other_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(OutputError, match="one: cannot be written"):
        check_output_file(one, is_own, "page", force=False)


def test_a_file_above_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot be written \(Not a directory\): see to it .* or choose another"):
        check_writable(tmp_path / "file" / "below" / "it")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_what_is_read_only_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o444)
    with pytest.raises(OutputError, match="is read-only"):
        write(path, force=True)
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(OutputError, match="Permission denied"):
            check_writable(tmp_path / "new")
    finally:
        tmp_path.chmod(0o755)


def test_nothing_is_left_of_looking(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_device_says_so() -> None:
    with pytest.raises(WriteError, match=r"/dev/full: could not be written .*No space left on device; make room"):
        write(Path("/dev/full"))


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    size = 1 << 20  # more than a pipe holds

    def leave(path: Path) -> bool:
        pytest.fail(f"{path} was read")

    Timer(0.2, os.close, [reader]).start()
    with pytest.raises(BrokenPipeError):
        write_output_file(pipe, b"x" * size, leave, "page", force=False)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (lambda: OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room there"),
        (lambda: SafetensorError("I/O error: full (os error 28)"), "No space left on device; make room there"),
        (lambda: OSError(errno.EROFS, "Read-only"), "Read-only file system; see to it that it can be written"),
        (lambda: SafetensorError("unknown"), "unknown; see to it that it can be written"),
    ],
)
def test_a_failure_says_file_reason_and_remedy(error: Callable[[], Exception], words: str) -> None:
    assert str(failed_writing(Path("page"), error())).startswith(
        f"page: could not be written and is as it was before: {words}"
    )
