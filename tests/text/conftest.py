import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from transduce.text import Tokenizer, read_lines

SYLLABLES = ("ba", "do", "fi", "ku", "le", "mo", "nar", "pes", "rit", "sul", "tä", "vo", "ze", "ßch")


def made_up_sentences(number: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(200)]
    return [" ".join(chance.choices(words, k=chance.randint(2, 9))) + "." for _ in range(number)]


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    return made_up_sentences(500)


@pytest.fixture(scope="session")
def tokenizer(corpus: list[str]) -> Tokenizer:
    return Tokenizer.train(corpus, 400, "bpe")


@pytest.fixture(scope="session")
def foreign_model(corpus: list[str]) -> Callable[..., bytes]:
    """The bytes of a SentencePiece model that somebody else trained with other options."""

    def make(**options: Any) -> bytes:
        model = io.BytesIO()
        ours = {"vocab_size": 330, "model_type": "bpe", "byte_fallback": True, "unk_id": 0, "eos_id": 1, "bos_id": -1}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=model, minloglevel=2, **(ours | options)
        )
        return model.getvalue()

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], Path]:
    """Writes a file in `tmp_path` and returns its path."""

    def make(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.fixture
def lines_of(write: Callable[[str, bytes | str], Path]) -> Callable[[str, bytes | str], list[str]]:
    """The lines of a file with this content."""

    def read(name: str, content: bytes | str) -> list[str]:
        return list(read_lines(write(name, content)))

    return read
