"""Input files of a bulk translation: found by patterns, on this machine or in a store that fsspec reads."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from transduce.bulk.stores import convert_store_errors, find_store, identify_url, is_url, open_url
from transduce.errors import CorpusError


@dataclass(frozen=True)
class InputFile:
    """A file to be translated.

    Args:
        path: absolute path, or URL.
        name: path of its translation, relative to the output folder, with "/" between folders.
        size: bytes.
        version: changes when the content does: time of the last change in nanoseconds, or what a store says of it.
    """

    path: str
    name: str
    size: int
    version: str

    @contextmanager
    def open_binary(self) -> Iterator[BinaryIO]:
        """The bytes of the file.

        Raises:
            CorpusError: the file cannot be opened.
            TransduceError: a store does not answer.
        """
        with open_url(self.path) if is_url(self.path) else _open_file(self.path) as file:
            yield file

    def check_unchanged(self) -> None:
        """Check that the file is still the one that was found.

        Raises:
            CorpusError: it was changed or removed.
        """
        try:
            size, version = identify_url(self.path) if is_url(self.path) else _identify_file(self.path)
        except OSError:
            size, version = -1, ""
        if (size, version) != (self.size, self.version):
            raise CorpusError(
                f"{self.path}: was changed while it was being translated: give another output folder for the new file"
            )


def find_input_files(patterns: Sequence[str], output: Path | str) -> list[InputFile]:
    """The files that patterns match, in the order of their names.

    A pattern is a path or URL, in which `*`, `?` and `[...]` stand for parts of names, and `**` for any folders. The
    name of an output is the path of its input relative to the folder in which all patterns begin. Files in an output
    folder within that folder are left out.

    Args:
        patterns: paths or URLs.
        output: the output folder, or its URL.

    Raises:
        CorpusError: a pattern matches no file or is a folder, or the name of a file cannot be that of an output.
        ConfigError: the package that reads URLs of this kind is not installed.
    """
    found: dict[str, None] = {}
    bases = []
    for pattern in patterns:
        base, matches = _match_url(pattern) if is_url(pattern) else _match_files(pattern)
        paths = _leave_out(matches, base, output)
        if not paths:
            raise CorpusError(f"{pattern}: no file matches: check the path and the folder it is relative to")
        bases.append(base)
        found.update(dict.fromkeys(paths))
    base = _find_common_folder(bases)
    files: dict[str, InputFile] = {}
    for path in sorted(found):
        name = path.removeprefix(base).lstrip("/")
        if ".." in PurePosixPath(name).parts or not name:
            raise CorpusError(f"{path}: no file of the output folder can have its name: rename it")
        size, version = identify_url(path) if is_url(path) else _identify_file(path)
        files[name] = InputFile(path, name, size, version)
    return list(files.values())


def _match_files(pattern: str) -> tuple[str, list[str]]:
    """The folder in which a pattern begins, and the absolute paths that it matches."""
    whole = os.path.abspath(pattern)  # noqa: PTH100 - Path.resolve follows links, whose own names count
    path = Path(whole)
    if path.is_dir():
        raise CorpusError(f"{pattern}: is a folder: give its files, as in {Path(pattern, '*')}")
    if path.is_file():
        return str(path.parent), [whole]
    if Path(pattern).is_absolute():
        base, wildcards = _cut_before_wildcard(whole), whole
    else:  # the name of the current folder is no pattern, whatever characters it has
        base = os.path.abspath(_cut_before_wildcard(pattern))  # noqa: PTH100 - see above
        wildcards = os.path.abspath(Path(glob.escape(str(Path.cwd())), pattern))  # noqa: PTH100 - see above
    matches = glob.glob(wildcards, recursive=True)  # noqa: PTH207 - Path.glob: relative ones only
    return base, [one for one in matches if Path(one).is_file()]


def _leave_out(paths: Sequence[str], base: str, output: Path | str) -> list[str]:
    """The paths that do not lie in the output folder, if that lies within the folder in which their pattern begins."""
    whole, separator = (str(output).rstrip("/"), "/") if is_url(output) else (os.path.abspath(output), os.sep)  # noqa: PTH100 - see above
    is_within = whole.startswith(base + separator)
    return [path for path in paths if not (is_within and path.startswith(whole + separator))]


def _cut_before_wildcard(pattern: str) -> str:
    parts = pattern.split("/")
    first = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:first])


def _find_common_folder(bases: Sequence[str]) -> str:
    if len(set(bases)) == 1:
        return bases[0]
    common = [base.split("/") for base in bases]
    length = next(
        (place for place, parts in enumerate(zip(*common, strict=False)) if len(set(parts)) > 1),
        min(map(len, common)),
    )
    return "/".join(common[0][:length])


def _open_file(path: str) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise CorpusError(f"{path}: cannot be opened ({error.strerror}): check its permissions") from None


def _identify_file(path: str) -> tuple[int, str]:
    status = Path(path).stat()
    return status.st_size, str(status.st_mtime_ns)


def _match_url(pattern: str) -> tuple[str, list[str]]:
    store, path = find_store(pattern)
    with convert_store_errors(pattern):
        names = store.glob(path) if glob.has_magic(path) else [path]
        paths = sorted(store.unstrip_protocol(name) for name in names if store.isfile(name))
    whole = store.unstrip_protocol(path)
    return _cut_before_wildcard(whole), paths
