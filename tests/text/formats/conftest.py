from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.text import open_parallel_corpus


@pytest.fixture(scope="session")
def read_pairs() -> Callable[..., list[tuple[str, str]]]:
    """The pairs in a file or folder with both sides."""

    def read(
        path: Path, columns: tuple[str, str] | None = None, languages: tuple[str, str] = ("", ""), **options: str
    ) -> list[tuple[str, str]]:
        return list(open_parallel_corpus(path.parent, None, None, path.name, columns, languages, **options))

    return read
