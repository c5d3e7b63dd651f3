"""What the tokenizer makes of the text: pieces for a word, and characters that it spells in bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transduce.config import TextConfig
from transduce.doctor.corpus.texts import Text
from transduce.doctor.findings import Finding, format_pairs, grade
from transduce.errors import CorpusError
from transduce.text import Tokenizer, fit_vocabulary_size

MAX_TOKENIZED_PAIRS = 20_000
"""Pairs from which a tokenizer is trained and by which it is measured; training would take up to 500,000, and then
knows more rare words."""

MAX_BYTES = 0.02
"""Share of pieces that are single bytes from which it is a finding: characters that the tokenizer lacks."""


@dataclass(frozen=True)
class Tokenization:
    """What the tokenizer makes of one side of a text."""

    text: str
    side: str
    pieces_per_word: float
    """Pieces for a word between white space."""
    characters_per_piece: float
    byte_share: float
    """Share of the pieces that are single bytes of a character."""
    unknown_share: float
    """Share of `<unk>`, into which all characters fall that a tokenizer without bytes lacks."""
    too_long: float
    """Share of the lines that have more than `text.max_pieces` pieces, which training leaves out."""
    num_lines: int
    """Lines that were measured."""
    rows_too_long: tuple[int, ...]
    """Pairs whose line is too long."""
    rows_with_bytes: tuple[int, ...]
    """Pairs whose line has such bytes or `<unk>`."""


def open_tokenizer(
    config: TextConfig, sample: Mapping[int, tuple[str, str]], num_pairs: int
) -> tuple[Tokenizer | None, str]:
    """The tokenizer that the settings name, or else one trained from a sample as training would; and what it is.

    None, and why, if there is no text to train one from.

    Raises:
        UserError: the file cannot be read or is not a tokenizer.
    """
    if config.tokenizer is not None:
        return Tokenizer.load(Path(config.tokenizer)), config.tokenizer
    vocabulary = fit_vocabulary_size(num_pairs) if config.vocabulary == "fitted" else config.vocabulary
    sentences = (line for pair in sample.values() for line in pair if line.strip())
    try:
        tokenizer = Tokenizer.train(sentences, vocabulary, config.algorithm, shrink=True)
    except CorpusError as error:
        return None, f"none: {error}"
    return tokenizer, f"trained from {len(sample):,} pairs, with {tokenizer.vocabulary:,} token ids"


def measure_tokenization(
    text: Text, sample: Mapping[int, tuple[str, str]], tokenizer: Tokenizer | None, config: TextConfig
) -> list[Tokenization]:
    """What the tokenizer makes of the pairs of a sample; nothing if there is none."""
    if tokenizer is None:
        return []
    pieces = tokenizer.pieces(range(tokenizer.vocabulary - 1))
    is_byte = np.array([piece.startswith("<0x") and len(piece) == 6 for piece in pieces] + [False])
    measured = []
    for position, (side, encode) in enumerate((("source", tokenizer.encode_all), ("target", tokenizer.encode_targets))):
        lines = [pair[position] for pair in sample.values()]
        encoded = encode(lines)
        ids = np.concatenate([np.array(line, np.int64) for line in encoded]) if encoded else np.zeros(0, np.int64)
        num_words = sum(len(line.split()) for line in lines)
        unknown = ids == tokenizer.unknown_id
        lacking = set(np.flatnonzero(is_byte).tolist()) | {tokenizer.unknown_id}
        numbered = list(zip(sample, encoded, strict=True))
        rows = [row for row, line in numbered if not lacking.isdisjoint(line)]
        too_long = [row for row, line in numbered if len(line) > config.max_pieces]
        measured.append(
            Tokenization(
                text=text.name,
                side=side,
                pieces_per_word=len(ids) / max(1, num_words),
                characters_per_piece=sum(map(len, lines)) / max(1, len(ids)),
                byte_share=float(is_byte[ids].mean()) if len(ids) else 0.0,
                unknown_share=float(unknown.mean()) if len(ids) else 0.0,
                too_long=len(too_long) / max(1, len(lines)),
                num_lines=len(lines),
                rows_too_long=tuple(too_long),
                rows_with_bytes=tuple(rows),
            )
        )
    return measured


def find_bad_tokenization(text: Text, measured: list[Tokenization]) -> Iterator[Finding]:
    """Find characters that the tokenizer lacks, and lines of more pieces than `text.max_pieces`."""
    for one in measured:
        lacking = one.byte_share + one.unknown_share
        if lacking >= MAX_BYTES:
            rows = np.array(one.rows_with_bytes, np.int64)
            yield Finding(
                name="characters_without_piece",
                severity="serious" if one.unknown_share >= MAX_BYTES else "minor",
                text=text,
                summary=f"of the pieces of the {one.side}s, {one.byte_share:.1%} are single bytes and "
                f"{one.unknown_share:.1%} <unk>: the tokenizer lacks the characters",
                advice="if they are meant, use a tokenizer that has them (text.tokenizer), or a larger "
                "text.vocabulary; often it is a wrong encoding or another language",
                rows=rows,
                estimated=round(len(rows) / max(1, one.num_lines) * len(text)),
            )
        if one.too_long >= 0.01:
            yield Finding(
                name="too_long_lines",
                severity=grade(one.too_long, 0.0, 0.1),
                text=text,
                summary=f"about {format_pairs(round(one.too_long * len(text)), one.too_long)} have a {one.side} of "
                f"more pieces than text.max_pieces{', which training leaves out' if text.is_training else ''}",
                advice="split these lines into sentences, or raise text.max_pieces",
                rows=np.array(one.rows_too_long, np.int64),
                estimated=round(one.too_long * len(text)),
            )
