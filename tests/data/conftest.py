import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from transduce.config import DataConfig, TextConfig
from transduce.data import PreparedData, prepare

SYLLABLES = ("ba", "do", "fi", "ku", "le", "mo", "nar", "pes", "rit", "sul", "ta", "vo", "ze", "ch")
TEXT = TextConfig(vocabulary=320)


def make_pair(source: random.Random) -> tuple[str, str]:
    """Two sentences of as many words each, so that their lengths are never far apart."""
    num_words = source.randint(2, 12)
    words = ["".join(source.choices(SYLLABLES, k=source.randint(2, 3))) for _ in range(2 * num_words)]
    return " ".join(words[:num_words]), " ".join(words[num_words:])


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., list[tuple[str, str]]]:
    """Writes `train.source` and `train.target` in `tmp_path` and returns their pairs."""

    def make(num_pairs: int, name: str = "train", seed: int = 0) -> list[tuple[str, str]]:
        source = random.Random(seed)  # noqa: S311 nothing here is secret
        pairs = [make_pair(source) for _ in range(num_pairs)]
        write_pairs(tmp_path, pairs, name)
        return pairs

    return make


@pytest.fixture
def write_corpus(tmp_path: Path) -> Callable[..., None]:
    def write(pairs: list[tuple[str, str]], name: str = "train") -> None:
        write_pairs(tmp_path, pairs, name)

    return write


def write_pairs(folder: Path, pairs: list[tuple[str, str]], name: str) -> None:
    for side, suffix in enumerate(("source", "target")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8", newline="\n")


class Preparation:
    """Prepares what lies in a folder and remembers what was said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "run" / ".cache"
        self.said: list[str] = []
        self.standard_input: BinaryIO | None = None

    def __call__(self, text: TextConfig = TEXT, **data: Any) -> PreparedData:
        if not {"pairs", "source"} & set(data):
            data |= {"source": "train.source", "target": "train.target"}
        self.said.clear()
        return prepare(
            DataConfig(folder=str(self.folder), **data),
            text,
            self.cache,
            standard_input=self.standard_input,
            report=self.said.append,
        )

    def entries(self) -> list[str]:
        """The folders in the cache."""
        return sorted(path.name for path in self.cache.iterdir() if path.is_dir())

    def texts(self, prepared: PreparedData) -> list[tuple[str, str]]:
        """The training pairs, read back from their ids."""
        store, decode, end = prepared.train, prepared.tokenizer.decode, prepared.tokenizer.end_id
        sides = [tuple(side.tolist() for side in store.pair(index)) for index in range(len(store))]
        assert {ids[-1] for pair in sides for ids in pair} == {end}
        return [(decode(source_ids[:-1]), decode(target_ids[:-1])) for source_ids, target_ids in sides]

    def as_tsv(self, pairs: list[tuple[str, str]]) -> bytes:
        return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


@pytest.fixture
def preparation(tmp_path: Path) -> Preparation:
    return Preparation(tmp_path)


@pytest.fixture
def largest_file() -> Callable[[int], object]:
    """A block in which no file can grow beyond so many bytes: what a full disk does, done by the kernel."""

    @contextmanager
    def limit(num_bytes: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit
