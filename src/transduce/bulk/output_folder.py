"""The folder of a bulk translation: blocks are written whole and once, and joined into files that replace nothing.

    out/name.txt                          the translation of a file, once all its blocks are there
    out/.transduce-bulk/plan.json         what decides the output, see `make_plan`
    out/.transduce-bulk/lock              held by the process that writes here
    out/.transduce-bulk/000012/           what belongs to the file of this number
        000000003                         the translation of a block
        joined                            all of them, before they are put into their place
        finished.json                     size and time of the joined file: by these it is known as ours

A file is written under the name `unfinished`, flushed to the disk and renamed. One process at a time writes here.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from transduce.bulk.inputs import InputFile
from transduce.bulk.plan import check_plan, write_plan
from transduce.errors import OutputError
from transduce.storage import check_writable, flush_to_disk, lock_folder, make_write_error

WORKING_FOLDER = ".transduce-bulk"
"""Name of the folder of plan and blocks in the output folder."""

PLAN, _LOCK, _UNFINISHED, _JOINED, FINISHED = "plan.json", "lock", "unfinished", "joined", "finished.json"

_FILE_NUMBER = re.compile(r"\d{6,}", re.ASCII)
"""Name of the folder of blocks of an input file."""


class OutputFolder:
    """The blocks and finished files of a translation; made by `open_output_folder`, which holds the lock."""

    def __init__(self, folder: Path, files: Sequence[InputFile]) -> None:
        self._folder = folder
        self._files = files
        self._work = folder / WORKING_FOLDER

    def is_finished(self, number: int) -> bool:
        """Whether a file is in its place; one that was joined and not put there yet is put there.

        Raises:
            OutputError: another file is in its place, or finished.json is damaged.
            WriteError: it cannot be put there.
        """
        folder, place = self._find_folder(number), self.find_place(number)
        with suppress(FileNotFoundError):
            known = read_finished((folder / FINISHED).read_bytes(), folder / FINISHED)
            if os.path.lexists(place):
                if place.is_file() and _identify(place) == known:
                    self._remove_blocks(number)
                    return True
                raise OutputError(f"{place}: was changed after it was translated: move it, or choose another folder")
            if (folder / _JOINED).is_file() and _identify(folder / _JOINED) == known:
                self._put_in_place(number)
                return True
            # The finished file was removed: it is made again.
            (folder / FINISHED).unlink()
        if os.path.lexists(place):
            raise OutputError(f"{place}: is there already, and is not replaced: move it, or choose another folder")
        return False

    def find_place(self, number: int) -> Path:
        """The path in the output folder that the translation of an input file gets when it is complete."""
        return self._folder / self._files[number].name

    def has_block(self, number: int, block: int) -> bool:
        """Whether the translation of a block of an input file was written before.

        Args:
            number: number of the input file, from 0, as in the other methods.
            block: number of the block in that file.
        """
        return self._find_block(number, block).is_file()

    def write_block(self, number: int, block: int, content: bytes) -> None:
        """Write the translation of a block.

        Raises:
            WriteError: it cannot be written, as on a full disk.
        """
        with _convert_write_errors(self._find_block(number, block)):
            self._find_folder(number).mkdir(exist_ok=True)
            _write_whole(self._find_block(number, block), lambda unfinished: _write_bytes(unfinished, content))

    def finish(self, number: int, num_blocks: int, join: Callable[[Sequence[Path], Path], None]) -> None:
        """Join the translated blocks of an input file to one file, and move it to `find_place(number)`.

        Raises:
            OutputError: another file is there by now.
            WriteError: it cannot be written, as on a full disk.
        """
        folder = self._find_folder(number)
        blocks = [self._find_block(number, block) for block in range(num_blocks)]
        with _convert_write_errors(self.find_place(number)):
            _write_whole(folder / _JOINED, lambda unfinished: join(blocks, unfinished))
            known = json.dumps(_identify(folder / _JOINED)).encode()
            _write_whole(folder / FINISHED, lambda unfinished: _write_bytes(unfinished, known))
        self._put_in_place(number)

    def _put_in_place(self, number: int) -> None:
        joined, place = self._find_folder(number) / _JOINED, self.find_place(number)
        with _convert_write_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                _move_without_replacing(joined, place)
            except FileExistsError:
                raise OutputError(
                    f"{place}: is there already, and is not replaced: move it, and give the same command again"
                ) from None
            flush_to_disk(place.parent)
        self._remove_blocks(number)

    def _remove_blocks(self, number: int) -> None:
        for path in self._find_folder(number).iterdir():
            if path.name != FINISHED:
                path.unlink(missing_ok=True)

    def _find_folder(self, number: int) -> Path:
        return self._work / f"{number:06}"

    def _find_block(self, number: int, block: int) -> Path:
        return self._find_folder(number) / f"{block:09}"


def read_finished(content: bytes, path: Path | str) -> list[Any]:
    """The size of a joined file and what changes with its content, from the bytes of its finished.json.

    Args:
        content: the bytes.
        path: path or URL of the finished.json, for the message.

    Raises:
        OutputError: it is damaged.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and len(found) == 2:
        return found
    raise OutputError(
        f"{path}: is damaged: remove it and, if the file is complete, its translation, which is made again"
    )


def find_begun_files(names: Iterable[str]) -> set[int]:
    """The numbers of input files whose folders of blocks have these names; other names are ignored.

    Desktops and programs that synchronise folders make others, such as "000000 (copy)".
    """
    return {int(name) for name in names if _FILE_NUMBER.fullmatch(name)}


@contextmanager
def open_output_folder(folder: Path, files: Sequence[InputFile], plan: Mapping[str, Any]) -> Iterator[OutputFolder]:
    """The folder of a translation with this plan, locked; made if it is not there, else the translation goes on.

    Raises:
        OutputError: the folder has the translation of another plan, which the message compares, or cannot be written.
        BusyError: another process is writing there.
        WriteError: its disk is full.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is not a folder: give the name of a folder")
    work = folder / WORKING_FOLDER
    check_writable(work / PLAN)
    with _convert_write_errors(work):
        work.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, work / _LOCK):
        _record_plan(work, plan, folder)
        yield OutputFolder(folder, files)


def _record_plan(work: Path, plan: Mapping[str, Any], folder: Path) -> None:
    content = write_plan(plan)
    path = work / PLAN
    if path.is_file():
        begun = find_begun_files(one.parent.name for one in work.glob("[0-9]*/*") if one.name != _UNFINISHED)
        if check_plan(path.read_bytes(), content, folder, work, begun):
            return
    with _convert_write_errors(path):
        _write_whole(path, lambda unfinished: _write_bytes(unfinished, content))


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, and rename it: it is there as a whole, or not at all."""
    unfinished = path.with_name(_UNFINISHED)
    try:
        write(unfinished)
        flush_to_disk(unfinished)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)  # on a full disk, its room is needed
        raise


def _move_without_replacing(path: Path, place: Path) -> None:
    """Rename a file, unless there is another one.

    Raises:
        FileExistsError: there is.
    """
    try:
        place.hardlink_to(path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS}:
            raise
        # The file system has no hard links. Between the two steps another program could still put a file there.
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, "exists", str(place)) from None
        shutil.move(path, place)
        return
    path.unlink()


def _identify(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


@contextmanager
def _convert_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise make_write_error(path, error) from error
