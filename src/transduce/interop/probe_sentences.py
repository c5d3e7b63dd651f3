"""The sentences that a parity proof translates: from a file, or generated from the vocabulary of the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np

from transduce.errors import CorpusError
from transduce.text import Tokenizer, read_lines
from transduce.text.corpus import escape_surrogates
from transduce.translation import ForcedDecoder

NUM_SENTENCES = 200
_MAX_WORDS = 30
_SEED = 20170612  # arbitrary but fixed: probes are reproducible

EDGES = (
    "{a}",
    "7",
    "  {a}  {b}   {c} ",
    "{a} 1999 {b} 3.14 {c} 12,345,678.90 %",
    "{A} {B} {C}",
    "{a}{b}{c}",
    "{a}, {b}; \"{c}\" ({a}) - {b}: '{c}'!?...",
    "☃ {a} 漢字 {b} Ωμέγα 🙂",
    "\N{LATIN SMALL LETTER E}\N{COMBINING ACUTE ACCENT}{a} \N{NO-BREAK SPACE} {b}",
    "https://{a}.org/{b}?c={c}&d=1#e {a}@{b}.com",
    "{a} " * 12,
)
"""Edge cases beside the texts made of words alone: {a}, {b} and {c} are words of the vocabulary."""


@dataclass(frozen=True)
class Probe:
    """The sentences of a proof.

    Args:
        texts: none is blank, and none is longer than the model reads at once.
        origin: a description of where the texts come from.
        references: reference translations of the texts, if there are any.
    """

    texts: tuple[str, ...]
    origin: str
    references: tuple[str, ...] | None = None


def make_probe(
    decoder: ForcedDecoder, path: Path | None = None, reference: Path | None = None, num_sentences: int = NUM_SENTENCES
) -> Probe:
    """The probe for a model: the first sentences of a file that are not too long, or sentences from its vocabulary.

    Raises:
        CorpusError: the file cannot be read, or has no such sentence.
    """
    max_pieces = min(decoder.search.max_pieces, decoder.model.max_length - 1)
    if path is None:
        return make_vocabulary_probe(decoder.tokenizer, max_pieces, num_sentences)
    return read_probe(decoder.tokenizer, max_pieces, path, reference, num_sentences)


def make_vocabulary_probe(tokenizer: Tokenizer, max_pieces: int, num_sentences: int = NUM_SENTENCES) -> Probe:
    """Sentences of words that are single pieces of the vocabulary, and edge cases; deterministic for a tokenizer.

    One begins with each tag of the tokenizer. None has more than `max_pieces` pieces, and one has so many.
    """
    chance = np.random.default_rng(_SEED)
    words = _collect_words(tokenizer)
    made = islice(_generate_sentences(words, chance, tokenizer, max_pieces), num_sentences)
    return Probe(tuple(made), "made of the model's vocabulary")


def read_probe(
    tokenizer: Tokenizer, max_pieces: int, path: Path, reference: Path | None, num_sentences: int = NUM_SENTENCES
) -> Probe:
    """The first sentences of a file, plain or compressed, one per line, that have from 1 to `max_pieces` pieces.

    `reference` is a file with the translation of each line, if given.

    Raises:
        CorpusError: a file cannot be read, has no such sentence, or the two differ in number of lines.
    """
    chosen: list[tuple[str, str]] = []
    num_lines = num_references = 0
    for text, translation in zip_longest(read_lines(path), () if reference is None else read_lines(reference)):
        num_lines, num_references = num_lines + (text is not None), num_references + (translation is not None)
        if len(chosen) < num_sentences and text and text.strip() and 1 <= len(tokenizer.encode(text)) <= max_pieces:
            chosen.append((text, translation or ""))
    if reference is not None and num_lines != num_references:
        raise CorpusError(
            f"{path} has {num_lines:,} lines, {reference} {num_references:,}: line n of one must translate line n "
            f"of the other"
        )
    if not chosen:
        raise CorpusError(f"{path}: has no sentence of 1 to {max_pieces} pieces: give another --probe")
    sources, translations = zip(*chosen, strict=True)
    name = escape_surrogates(path.name)
    origin = f"{len(chosen):,} of {num_lines:,} lines of {name}, the first of 1 to {max_pieces} pieces"
    return Probe(sources, origin, None if reference is None else translations)


def _collect_words(tokenizer: Tokenizer) -> list[str]:
    """Words that are one piece of the vocabulary; all pieces if the language has no spaces."""
    pieces = tokenizer.pieces(range(2, tokenizer.pad_id))
    words = [piece[1:] for piece in pieces if piece.startswith("▁") and len(piece) > 2 and piece[1:].isalpha()]
    whole = [word for word, ids in zip(words, tokenizer.encode_all(words), strict=True) if len(ids) == 1]
    if len(whole) > 1:
        return whole
    return [text for piece in pieces if (text := piece.replace("▁", "")) and text.isprintable()]


def _generate_sentences(
    words: Sequence[str], chance: np.random.Generator, tokenizer: Tokenizer, max_pieces: int
) -> Iterator[str]:
    def choose_words(count: int) -> list[str]:
        return [words[place] for place in chance.integers(len(words), size=count)]

    def fits(text: str) -> bool:
        return 1 <= len(tokenizer.encode(text)) <= max_pieces

    longest = ""
    for word in choose_words(max_pieces):
        if not fits(f"{longest} {word}"):
            break
        longest = f"{longest} {word}".strip()
    a, b, c = choose_words(3)
    edges = [edge.format(a=a, b=b, c=c, A=a.upper(), B=b.capitalize(), C=c.title()) for edge in EDGES]
    tagged = [f"{tag} {' '.join(choose_words(3))}" for tag in tokenizer.tags]
    yield from filter(fits, [longest, *edges, *tagged])
    while True:
        text = " ".join(choose_words(int(chance.integers(1, _MAX_WORDS + 1))))
        while not fits(text) and " " in text:
            text = text[: text.rindex(" ")]
        yield text
