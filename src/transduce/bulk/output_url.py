"""The output folder of a bulk translation in a store such as S3, where an object is there as a whole or not at all.

    s3://bucket/out/name.txt                                  the translation of a file, once all its blocks are there
    s3://bucket/out/.transduce-bulk/plan.json                 what decides the output, see `make_plan`
    s3://bucket/out/.transduce-bulk/000012/000000003-5120     a translated block, with its number of bytes
    s3://bucket/out/.transduce-bulk/000012/finished.json      size and version of the finished file

Nothing is kept on this machine, so that any other may go on. There are no locks: two processes with the same command do
the same work twice, and write the same.
"""

import errno
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transduce.bulk.inputs import InputFile
from transduce.bulk.output_folder import FINISHED, PLAN, WORKING_FOLDER, find_begun_files, read_finished
from transduce.bulk.plan import check_plan, write_plan
from transduce.bulk.stores import convert_store_errors, find_store, identify
from transduce.errors import CorpusError, OutputError
from transduce.storage import make_write_error
from transduce.text import LONE_SURROGATE

_ON_ITS_WAY = "on its way"
"""The version in finished.json while a joined file is being uploaded, before the store has given it one."""

_COMPARED_BYTES = 2**20

_BLOCK_NAME = re.compile(r"(?P<block>\d{9,})-(?P<size>\d+)", re.ASCII)
"""Name of a translated block; other names, as of copies that a desktop makes, are ignored."""


class OutputUrl:
    """The blocks and finished files of a translation; offers what `OutputFolder` does.

    Args:
        url: URL of the output folder.
        files: the input files.

    Raises:
        ConfigError: the package for such URLs is not installed.
        CorpusError: the name of an input file is not UTF-8.
    """

    def __init__(self, url: str, files: Sequence[InputFile]) -> None:
        self._url, self._files = url.rstrip("/"), files
        for file in files:
            if LONE_SURROGATE.search(file.name):
                raise CorpusError(f"{file.path}: its name is not UTF-8, as names in a store must be: rename the file")
        self._store, root = find_store(self._url)
        self._root = root.rstrip("/")
        self._work = f"{self._root}/{WORKING_FOLDER}"
        self._blocks: dict[int, dict[int, str]] = {}
        """For each file that was asked for, the paths of its blocks."""

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Record the plan of a translation, or go on with it.

        Raises:
            OutputError: the folder has the translation of another plan, which the message compares.
            CorpusError, TransduceError: see `convert_store_errors`, also in the other methods.
        """
        content, path = write_plan(plan), f"{self._work}/{PLAN}"
        with convert_store_errors(self._url):
            before = self._read(path)
            if before is not None:
                self._store.invalidate_cache()
                folders = {found.rsplit("/", 2)[1] for found in self._store.find(self._work)}
                begun = find_begun_files(folders)
                work = f"{self._url}/{WORKING_FOLDER}"
                if check_plan(before, content, self._url, work, begun):
                    return
            self._write(path, content)

    def is_finished(self, number: int) -> bool:
        """Whether a file is in its place.

        Raises:
            OutputError: another file is in its place, or finished.json is damaged.
        """
        place = self._find_place(number)
        with convert_store_errors(f"{self._url}/{self._files[number].name}"):
            found = self._identify(place)
            if found is None:
                return False
            record = self._read(f"{self._find_folder(number)}/{FINISHED}")
            path = f"{self._url}/{WORKING_FOLDER}/{number:06}/{FINISHED}"
            known = None if record is None else read_finished(record, path)
            if known == found:
                self._remove_blocks(number)
                return True
            if known == [found[0], _ON_ITS_WAY]:
                return False  # `finish` compares it with the blocks
        raise self._make_error(number)

    def has_block(self, number: int, block: int) -> bool:
        """Whether the translation of a block of an input file was written before, with all its bytes."""
        if number not in self._blocks:
            with convert_store_errors(self._url):
                self._blocks[number] = {}
                for path, information in self._find(number).items():
                    name = _BLOCK_NAME.fullmatch(path.rpartition("/")[2])
                    if name is not None and name["size"] == str(information["size"]):
                        self._blocks[number][int(name["block"])] = path
        return block in self._blocks[number]

    def write_block(self, number: int, block: int, content: bytes) -> None:
        """Write the translation of a block."""
        path = f"{self._find_folder(number)}/{block:09}-{len(content)}"
        with convert_store_errors(self._url):
            self._write(path, content)
        self._blocks[number][block] = path

    def finish(self, number: int, num_blocks: int, join: Callable[[Sequence[Path], Path], None]) -> None:
        """Join the translated blocks of an input file to one file, in a temporary folder, and upload it.

        Raises:
            OutputError: another file is in its place by now.
            WriteError: the temporary folder cannot be written, as on a full disk.
        """
        url = f"{self._url}/{self._files[number].name}"
        with TemporaryDirectory(prefix="transduce-bulk-") as name:
            joined = Path(name, "joined")
            blocks = [Path(name, str(block)) for block in range(num_blocks)]
            with convert_store_errors(url):
                for block, path in enumerate(blocks):
                    try:
                        self._store.get_file(self._blocks[number][block], str(path))
                    except OSError as error:
                        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                            raise make_write_error(path, error) from error
                        raise
            try:
                join(blocks, joined)
            except OSError as error:
                raise make_write_error(joined, error) from error
            with convert_store_errors(url):
                self._put_in_place(number, joined)

    def _put_in_place(self, number: int, joined: Path) -> None:
        place, record = self._find_place(number), f"{self._find_folder(number)}/{FINISHED}"
        if self._identify(place) is None:
            self._write(record, json.dumps([joined.stat().st_size, _ON_ITS_WAY]).encode())
            try:
                # S3 does not replace another one then.
                self._make_folder_if_missing(place, lambda: self._store.put_file(str(joined), place, mode="create"))
            except FileExistsError:
                raise self._make_error(number) from None
        elif not self._has_content(place, joined):
            raise self._make_error(number)
        self._write(record, json.dumps(self._identify(place)).encode())
        self._remove_blocks(number)

    def _has_content(self, path: str, expected: Path) -> bool:
        with self._store.open(path, "rb") as file, expected.open("rb") as other:
            while True:
                ours, theirs = other.read(_COMPARED_BYTES), file.read(_COMPARED_BYTES)
                if ours != theirs:
                    return False
                if not ours:
                    return True

    def _make_error(self, number: int) -> OutputError:
        return OutputError(
            f"{self._url}/{self._files[number].name}: is there already, and was not translated by this command or was "
            "changed since; it is not replaced: move it, or choose another folder"
        )

    def _identify(self, path: str) -> list[object] | None:
        try:
            return list(identify(self._store, path))
        except FileNotFoundError:
            return None

    def _write(self, path: str, content: bytes) -> None:
        self._make_folder_if_missing(path, lambda: self._store.pipe_file(path, content))

    def _make_folder_if_missing(self, path: str, write: Callable[[], object]) -> None:
        """Write a file, and make its folder before if that is missing in a store that has folders, as a disk does.

        What a path begins with is never made: it may be a bucket, whose name may be a mistake.
        """
        try:
            write()
        except FileNotFoundError:
            parent = path.rpartition("/")[0]
            first = "/" * path.startswith("/") + path.lstrip("/").partition("/")[0]
            if not self._store.exists(first):
                raise
            self._store.makedirs(parent, exist_ok=True)
            write()

    def _read(self, path: str) -> bytes | None:
        try:
            return bytes(self._store.cat_file(path))
        except FileNotFoundError:
            return None

    def _find(self, number: int) -> dict[str, Any]:
        """The paths of the blocks of an input file, with what the store knows of each."""
        self._store.invalidate_cache()
        found: dict[str, Any] = self._store.find(self._find_folder(number), detail=True)
        return {path: known for path, known in found.items() if not path.endswith(f"/{FINISHED}")}

    def _remove_blocks(self, number: int) -> None:
        if paths := list(self._find(number)):
            self._store.rm(paths)

    def _find_place(self, number: int) -> str:
        return f"{self._root}/{self._files[number].name}"

    def _find_folder(self, number: int) -> str:
        return f"{self._work}/{number:06}"
