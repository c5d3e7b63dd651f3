"""Stores that fsspec reads and writes by URL, such as S3."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, BinaryIO

from transduce.errors import ConfigError, CorpusError, TransduceError


def is_url(path: object) -> bool:
    """Whether a path is the URL of a store."""
    return isinstance(path, str) and "://" in path


def find_store(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path within it.

    Raises:
        ConfigError: the package for such URLs is not installed.
        CorpusError: there is none.
    """
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


def open_url(url: str) -> BinaryIO:
    """The bytes of a file in a store.

    Raises:
        CorpusError, TransduceError: see `convert_store_errors`.
    """
    store, path = find_store(url)
    with convert_store_errors(url):
        return BufferedReader(store.open(path, "rb"))


def identify_url(url: str) -> tuple[int, str]:
    """Size in bytes of a file in a store, and what changes with its content, as far as the store knows.

    Raises:
        CorpusError, TransduceError: see `convert_store_errors`.
    """
    store, path = find_store(url)
    with convert_store_errors(url):
        return identify(store, path)


def identify(store: Any, path: str) -> tuple[int, str]:  # noqa: ANN401 - a file system of fsspec has no types
    """Size in bytes of a file, by its path within a store, and what changes with its content.

    Raises:
        FileNotFoundError: there is none.
    """
    # What was listed before is not good enough to tell whether a file has changed.
    store.invalidate_cache()
    information = store.info(path)
    known = next((information[key] for key in ("ETag", "etag", "mtime", "LastModified") if key in information), "")
    return int(information["size"] or 0), str(known)


@contextmanager
def convert_store_errors(url: str) -> Iterator[None]:
    """Convert the errors of stores in this block, whose packages raise exceptions of any kind, to those of `errors.py`.

    Raises:
        CorpusError: there is no such file, or it may not be read or written.
        TransduceError: the store does not answer.
    """
    try:
        yield
    except TransduceError:
        raise
    except FileNotFoundError:
        raise CorpusError(f"{url}: there is no such file: check the URL") from None
    except PermissionError as error:
        raise CorpusError(f"{url}: may not be read or written ({error}): check your credentials") from None
    except Exception as error:
        raise TransduceError(f"{url}: the store does not answer ({type(error).__name__}: {error})") from error
