"""Input files of a bulk translation: found by patterns, on this machine or in a store that fsspec reads."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from transduce.errors import ConfigError, CorpusError, TransduceError


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
        with _open_url(self.path) if _is_url(self.path) else _open_file(self.path) as file:
            yield file

    def check_unchanged(self) -> None:
        """Check that the file is still the one that was found.

        Raises:
            CorpusError: it was changed or removed.
        """
        try:
            size, version = _identify_url(self.path) if _is_url(self.path) else _identify_file(self.path)
        except OSError:
            size, version = -1, ""
        if (size, version) != (self.size, self.version):
            raise CorpusError(
                f"{self.path}: was changed while it was being translated: give another output folder for the new file"
            )


def find_input_files(patterns: Sequence[str], output: Path) -> list[InputFile]:
    """The files that patterns match, in the order of their names.

    A pattern is a path or URL, in which `*`, `?` and `[...]` stand for parts of names, and `**` for any folders. The
    name of an output is the path of its input relative to the folder in which all patterns begin. Files in an output
    folder within that folder are left out.

    Args:
        patterns: paths or URLs.
        output: the output folder.

    Raises:
        CorpusError: a pattern matches no file, is a folder, or two files would have the same output.
        ConfigError: the package that reads URLs of this kind is not installed.
    """
    found: dict[str, None] = {}
    bases = []
    for pattern in patterns:
        base, paths = _match_url(pattern) if _is_url(pattern) else _match_files(pattern, output)
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
        size, version = _identify_url(path) if _is_url(path) else _identify_file(path)
        files[name] = InputFile(path, name, size, version)
    return list(files.values())


def _match_files(pattern: str, output: Path) -> tuple[str, list[str]]:
    """The folder in which a pattern begins, and the absolute paths that it matches."""
    whole = os.path.abspath(pattern)  # noqa: PTH100 - Path.resolve follows links, whose own names count
    path = Path(whole)
    if path.is_dir():
        raise CorpusError(f"{pattern}: is a folder: give its files, as in {Path(pattern, '*')}")
    is_pattern = not path.is_file()
    base = _cut_before_wildcard(whole) if is_pattern else str(path.parent)
    matches = glob.glob(whole, recursive=True) if is_pattern else [whole]  # noqa: PTH207 - Path.glob: relative ones only
    ours = os.path.abspath(output) + os.sep  # noqa: PTH100 - see above
    is_ours_within = ours.startswith(base + os.sep) and ours != base + os.sep
    return base, [one for one in matches if Path(one).is_file() and not (is_ours_within and one.startswith(ours))]


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


def _is_url(path: str) -> bool:
    return "://" in path


def _match_url(pattern: str) -> tuple[str, list[str]]:
    store, path = _find_store(pattern)
    with _report_store(pattern):
        names = store.glob(path) if glob.has_magic(path) else [path]
        paths = sorted(store.unstrip_protocol(name) for name in names if store.isfile(name))
    whole = store.unstrip_protocol(path)
    return _cut_before_wildcard(whole), paths


def _open_url(url: str) -> BinaryIO:
    store, path = _find_store(url)
    with _report_store(url):
        return cast("BinaryIO", store.open(path, "rb"))


def _identify_url(url: str) -> tuple[int, str]:
    store, path = _find_store(url)
    with _report_store(url):
        # What was listed before is not good enough to tell whether a file has changed.
        store.invalidate_cache()
        information = store.info(path)
    known = next((information[key] for key in ("ETag", "etag", "mtime", "LastModified") if key in information), "")
    return int(information["size"] or 0), str(known)


def _find_store(url: str) -> tuple[Any, str]:
    """The fsspec file system that reads a URL, and the path of the file within it."""
    try:
        import fsspec  # noqa: PLC0415 - slow to load, and only URLs need it

        store, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"{url}: needs fsspec with the package for such URLs ({error}): for s3:// pip install s3fs"
        ) from None
    except ValueError as error:
        raise CorpusError(f"{url}: cannot be read ({error}): give a path, or a URL such as s3://bucket/name") from None
    return store, path


@contextmanager
def _report_store(url: str) -> Iterator[None]:
    """Turn the errors of stores into ours: their packages raise what they like."""
    try:
        yield
    except FileNotFoundError:
        raise CorpusError(f"{url}: there is no such file: check the URL") from None
    except PermissionError as error:
        raise CorpusError(f"{url}: may not be read ({error}): check your credentials") from None
    except Exception as error:
        raise TransduceError(f"{url}: the store does not answer ({type(error).__name__}: {error})") from error
