"""Word alignment: the source word that the decoder attends to when it predicts or reads a target word.

Heads are compared by gold alignments, or by a lexical model.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, chain, compress, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import Bundle, read_calibration
from transduce.data import Batch
from transduce.errors import ConfigError, CorpusError
from transduce.model import Transformer, as_transformer, cross_attention_weights
from transduce.text import WITHOUT_SPACES, Pair, Tokenizer, read_lines
from transduce.text.glossary import is_border
from transduce.translation.confidence.lexical_model import LexicalModel
from transduce.translation.confidence.scoring import ForcedDecoder, number_blocks

_PURPOSE = "aligning words (for alignments, glossaries, protected text and markup)"


@dataclass(frozen=True)
class AlignmentHead:
    """The attention head that alignments are read from.

    Numbers are from 0 here and in calibration.json; `parse` and `str` use numbers from 1, as do `transduce inspect` and
    the page.

    Args:
        layer: number of the decoder layer, from 0.
        head: number of the head, from 0; None is the mean of all heads of the layer.
        offset: 0: a token is aligned by the attention at the position that predicts it; 1: at the next position, which
            reads it.
    """

    layer: int
    head: int | None = None
    offset: int = 0

    @classmethod
    def load(cls, bundle: Bundle) -> "AlignmentHead | None":
        """The head that the calibration of a bundle names; None if it names none.

        Raises:
            BundleError: its calibration.json is damaged or belongs to another model.
        """
        calibration = read_calibration(bundle)
        return None if calibration is None or calibration.alignment is None else cls(**dict(calibration.alignment))

    @classmethod
    def parse(cls, text: str) -> "AlignmentHead":
        """The head of a text as `str` writes it: "2.1" is head 1 of layer 2, "2" the mean of layer 2, "2.1+1" offset 1.

        Raises:
            ConfigError: the text has another form.
        """
        found = re.fullmatch(r"([1-9]\d{0,3})(?:\.([1-9]\d{0,3}))?(\+1)?", text, flags=re.ASCII)
        if found is None:
            raise ConfigError(
                f"head = {text!r}: must be LAYER.HEAD, or LAYER for the mean of its heads, numbered from 1, optionally "
                "followed by +1 for the attention of the next position, as in 2.1+1"
            )
        layer, head, offset = found.groups()
        return cls(int(layer) - 1, None if head is None else int(head) - 1, 0 if offset is None else 1)

    def __str__(self) -> str:
        return f"{self.layer + 1}{'' if self.head is None else f'.{self.head + 1}'}{'+1' if self.offset else ''}"


class Link(NamedTuple):
    """A target word and its source word, both by number from 0; weight is the share of the attention, up to 1."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class Alignment:
    """The words of a pair, separated by white space, and at most one link for each word of the target.

    If the pair `is_long`, the model does not read both texts as wholes, and there are no links.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]
    is_long: bool = False

    def __str__(self) -> str:
        """Pharaoh's format, as in "0-0 2-1": source word, target word."""
        return " ".join(f"{link.source}-{link.target}" for link in self.links)

    def as_json(self) -> dict[str, Any]:
        """The words of both sides, and the links between their numbers."""
        return {"source": self.source, "target": self.target, "alignment": [link._asdict() for link in self.links]}


@dataclass(frozen=True)
class Words:
    """A line split into words.

    Args:
        words: as `str.split` divides the line.
        pieces: for each word, the ids of its pieces; none for an invisible word.
    """

    words: tuple[str, ...]
    pieces: tuple[tuple[int, ...], ...]

    @property
    def ids(self) -> list[int]:
        """The ids of the line, without `</s>`."""
        return list(chain.from_iterable(self.pieces))


def divide_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> tuple[list[Words], list[Words]]:
    """The words of both sides of each pair."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return divide_lines(tokenizer.encode_all, sources), divide_lines(tokenizer.encode_targets, targets)


def divide_lines(encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str]) -> list[Words]:
    """Split lines into words with their pieces; `encode` gives the pieces of many texts at once.

    No piece reaches across white space, SentencePiece's rule for what it trains; so words are encoded one by one, and
    the word of a piece is not inferred from "▁", which fails for unusual spaces and characters of Unicode.
    """
    divided = [tuple(line.split()) for line in lines]
    encoded = iter(encode(list(chain.from_iterable(divided))))
    return [Words(words, tuple(map(tuple, islice(encoded, len(words))))) for words in divided]


def divide_lines_by_pieces(
    tokenizer: Tokenizer, encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str]
) -> list[Words]:
    """Split lines as `divide_lines` does, and words of scripts without spaces further, into what one piece spells."""
    divided = []
    for line in divide_lines(encode, lines):
        parts = [
            part
            for word, ids in zip(line.words, line.pieces, strict=True)
            for part in (_divide_word(word, ids, tokenizer) if WITHOUT_SPACES.search(word) else [(word, ids)])
        ]
        divided.append(Words(tuple(part for part, _ in parts), tuple(ids for _, ids in parts)))
    return divided


_BYTE_INSIDE = re.compile("<0x[89AB][0-9A-F]>")
"""A piece that is a byte of a character in UTF-8, but not its first."""


def _divide_word(word: str, ids: Sequence[int], tokenizer: Tokenizer) -> list[tuple[str, tuple[int, ...]]]:
    """Divide a word where a piece begins and a word may begin, too; not if its pieces spell another text."""
    sizes = [
        0 if _BYTE_INSIDE.fullmatch(piece) else 1 if piece.startswith("<0x") else len(piece.replace("▁", ""))
        for piece in tokenizer.pieces(ids)
    ]
    if sum(sizes) != len(word):
        return [(word, tuple(ids))]
    starts = [0, *accumulate(sizes)]
    first = [number for number, size in enumerate(sizes) if size and starts[number] and is_border(word, starts[number])]
    return [(word[starts[one] : starts[end]], tuple(ids[one:end])) for one, end in pairwise([0, *first, len(sizes)])]


def sum_by_words(
    weights: Float[Tensor, "batch heads target source"], sources: Sequence[Words], targets: Sequence[Words], offset: int
) -> Float[Tensor, "batch heads target_words source_words"]:
    """Attention between words, the sum of that between their pieces; 0 where a line has fewer words than others.

    Args:
        weights: attention weights between pieces; row t belongs to the position that predicts piece t of the target.
        sources: the line of each row of the batch; the `</s>` after its pieces is in no word.
        targets: the target line of each row of the batch; `</s>` is in no word.
        offset: 0 to use the row that predicts a piece, 1 for the next row, which reads it.
    """
    of_source = _make_membership(sources, weights.size(3)).to(weights)
    of_target = _make_membership(targets, weights.size(2)).roll(offset, dims=1).to(weights)
    return of_target.transpose(1, 2)[:, None] @ weights @ of_source[:, None]


def _make_membership(lines: Sequence[Words], length: int) -> Float[Tensor, "batch {length} words"]:
    """1 where a piece is part of a word; the last position, of `</s>` or padding, is part of none."""
    max_words = max(1, *(len(line.words) for line in lines))
    word = torch.full((len(lines), length), max_words, device="cpu")
    for row, line in zip(word, lines, strict=True):
        numbers = [number for number, pieces in enumerate(line.pieces) for _ in pieces]
        row[: len(numbers)] = torch.tensor(numbers, device="cpu")
    return F.one_hot(word, max_words + 1)[..., :max_words].float()


def align_stream(decoder: ForcedDecoder, pairs: Iterable[Pair], head: AlignmentHead) -> Iterator[Alignment]:
    """The alignment of each pair of a stream, in order, holding only a few thousand pairs; see `align_pairs`.

    Pairs may be longer than those that the model usually reads: see `ForcedDecoder.can_read`.
    """
    for _, block in number_blocks(pairs):
        yield from align_divided_pairs(decoder, *divide_pairs(decoder.tokenizer, block), head, decoder.can_read)


def align_pairs(decoder: ForcedDecoder, pairs: Sequence[Pair], head: AlignmentHead | None) -> list[Alignment]:
    """The alignment of each pair of source and target text, from the attention of one head (paper 3.2.3).

    A word of the target is linked with the word of the source that has most of its attention, summed over the pieces of
    both; attention to the source's `</s>` counts for no word. Blank lines, and words without pieces, have no link, and
    neither has a pair that the model does not read as a whole. `choose_head` selects a head; without one, it is the
    mean of those of the last layer.

    Raises:
        ConfigError: the model has no such head.
    """
    return align_divided_pairs(decoder, *divide_pairs(decoder.tokenizer, pairs), head)


def align_divided_pairs(
    decoder: ForcedDecoder,
    sources: Sequence[Words],
    targets: Sequence[Words],
    head: AlignmentHead | None,
    can_read: Callable[[Sequence[int], Sequence[int]], bool] | None = None,
) -> list[Alignment]:
    """The alignment of pairs that are divided into words, or into other groups of pieces; see `align_pairs`.

    `can_read` says of the ids of a pair, without `</s>`, whether it is aligned; default: `ForcedDecoder.fits`.
    """
    head = head or AlignmentHead(decoder.model.config.num_decoder_layers - 1)
    can_read = can_read or decoder.fits
    fits = [can_read(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]
    aligned = iter(_align_words(decoder, [*compress(sources, fits)], [*compress(targets, fits)], head))
    return [
        next(aligned) if is_aligned else Alignment(source.words, target.words, (), is_long=True)
        for source, target, is_aligned in zip(sources, targets, fits, strict=True)
    ]


def _align_words(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words], head: AlignmentHead
) -> list[Alignment]:
    model = as_transformer(decoder.model, _PURPOSE)
    check_head(model, head)
    links: list[tuple[Link, ...]] = [()] * len(sources)
    with _make_batches(decoder, sources, targets) as batches:
        for indices, batch in batches:
            sides = [sources[index] for index in indices], [targets[index] for index in indices]
            by_piece = next(islice(_compute_layer_weights(model, batch), head.layer, None))
            by_piece = by_piece.mean(dim=1, keepdim=True) if head.head is None else by_piece[:, head.head, None]
            weights, best = sum_by_words(by_piece, *sides, head.offset)[:, 0].max(dim=-1)
            for index, row_weights, row_best in zip(indices, weights.tolist(), best.tolist(), strict=True):
                # Padding and words without pieces have no weight, and no link.
                counted = enumerate(zip(row_best, row_weights, targets[index].pieces, strict=False))
                links[index] = tuple(
                    Link(source, word, weight / len(pieces)) for word, (source, weight, pieces) in counted if weight > 0
                )
    return [
        Alignment(source.words, target.words, found)
        for source, target, found in zip(sources, targets, links, strict=True)
    ]


def _make_batches(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words]
) -> AbstractContextManager[Iterator[tuple[list[int], Batch]]]:
    tokenizer = decoder.tokenizer
    source_ids = [tokenizer.as_source(words.ids) for words in sources]
    return decoder.make_batches(source_ids, [tokenizer.as_target(words.ids) for words in targets])


def check_head(model: Transformer, head: AlignmentHead) -> None:
    """Check that the decoder has the head."""
    num_layers, num_heads = model.config.num_decoder_layers, model.config.num_heads
    if not (0 <= head.layer < num_layers and 0 <= (head.head or 0) < num_heads and head.offset in {0, 1}):
        raise ConfigError(
            f"head = {str(head)!r}: no such head: the decoder has layers 1 to {num_layers}, each with heads 1 to "
            f"{num_heads}, and offsets 0 and 1"
        )


def _compute_layer_weights(model: Transformer, batch: Batch) -> Iterator[Float[Tensor, "batch heads target source"]]:
    return cross_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)


WordPair = tuple[int, int]
"""The numbers of a source word and of a target word, from 0."""


@dataclass(frozen=True)
class GoldAlignment:
    """A human word alignment (Och & Ney 2003): sure links, and possible ones, which include the sure ones."""

    sure: frozenset[WordPair]
    possible: frozenset[WordPair]


def read_gold_alignments(path: Path, num_pairs: int) -> list[GoldAlignment]:
    """Read one alignment per line in Pharaoh's format: "0-0 2-1" are sure links, "2?1" and "2p1" possible.

    Raises:
        CorpusError: the file cannot be read, has a different number of lines than the text, or a link has another form.
    """
    lines = list(read_lines(path))  # read to the end, so that an invalid link leaves no file open
    alignments = [_parse_line(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    if len(alignments) != num_pairs:
        raise CorpusError(
            f"{path} has {len(alignments)} lines and its text has {num_pairs} pairs: there must be one line for each"
        )
    return alignments


def _parse_line(line: str, place: str) -> GoldAlignment:
    sure, possible = set(), set()
    for link in line.split():
        parts = re.fullmatch(r"(\d{1,6})([-?p])(\d{1,6})", link, flags=re.ASCII)
        if parts is None:
            raise CorpusError(
                f"{place}: {link!r} must be a sure link, as in 0-0 (source word, target word, from 0), "
                f"or a possible one, as in 2?1"
            )
        source, kind, target = parts.groups()
        possible.add((int(source), int(target)))
        if kind == "-":
            sure.add((int(source), int(target)))
    return GoldAlignment(frozenset(sure), frozenset(possible))


NUM_PAIRS = 1000
"""Maximum number of pairs on which heads are measured."""

Gain = Float[np.ndarray, "_ _"]
"""The gain of each possible link of a pair: [source words, target words], which differ from pair to pair."""

MIN_PROBABILITY = 1e-3
"""The minimum probability of a link: lower values carry no information, and would outweigh correct links."""


def choose_head(qualities: Mapping[AlignmentHead, float]) -> AlignmentHead:
    """The best of the heads that `measure_heads` has measured; of equally good ones the first."""
    return max(qualities, key=lambda head: qualities[head])


def measure_heads(
    decoder: ForcedDecoder, pairs: Iterable[Pair], gold: Sequence[GoldAlignment] | None = None
) -> dict[AlignmentHead, float]:
    """The quality of the word alignment of each head of the decoder, and of the mean of each layer, at either offset.

    Higher is better. With `gold` it is 1 - alignment error rate (Och & Ney 2003). Without, it is the mean over all
    links of log t(target word | source word) + log t(source word | target word), in nats, by IBM Model 1 fitted on the
    same pairs (Brown et al. 1993). Only the first 1,000 pairs are used; they should be held out from training. Those
    that are too long for the model (`ForcedDecoder.can_read`) are left out.

    Raises:
        CorpusError: no pair that is read has words on both sides, or `gold` has another length or a link to a word that
            does not exist.
    """
    measured = list(islice(pairs, NUM_PAIRS))
    if gold is not None and len(gold[:NUM_PAIRS]) != len(measured):
        raise CorpusError(f"{len(measured)} pairs and {len(gold)} gold alignments: there must be one for each")
    divided = zip(*divide_pairs(decoder.tokenizer, measured), strict=True)
    kept = [(line, *pair) for line, pair in enumerate(divided) if decoder.can_read(pair[0].ids, pair[1].ids)]
    sources, targets = [source for _, source, _ in kept], [target for _, _, target in kept]
    if gold is None:
        gains, num_sure = _make_lexical_gains(sources, targets), 0
    else:
        gains = [_make_gold_gain(*one, gold[one[0]]) for one in kept]
        num_sure = sum(len(gold[line].sure) for line, _, _ in kept)
    num_links = sum(gain.shape[1] for gain in gains if gain.size)
    if not num_links:
        lacking = "has words on both sides" if kept or not measured else "is short enough to be read as a whole"
        raise CorpusError(f"none of {len(measured)} pairs {lacking}: use other pairs, or give a head")
    sums = _sum_gains(decoder, sources, targets, gains)
    num_heads = decoder.model.config.num_heads
    return {
        AlignmentHead(layer, None if head == num_heads else head, offset): float(total) / (num_links + num_sure)
        for (layer, offset, head), total in np.ndenumerate(sums)
    }


def _sum_gains(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words], gains: Sequence[Gain]
) -> Float[np.ndarray, "layers 2 candidates"]:
    """The sum of the gains of all links, for each layer, offset, and head or mean of heads."""
    model = as_transformer(decoder.model, _PURPOSE)
    config = model.config
    sums = np.zeros((config.num_decoder_layers, 2, config.num_heads + 1))
    with _make_batches(decoder, sources, targets) as batches:
        for indices, batch in batches:
            sides = [sources[index] for index in indices], [targets[index] for index in indices]
            for layer, weights in enumerate(_compute_layer_weights(model, batch)):
                candidates = torch.cat([weights, weights.mean(dim=1, keepdim=True)], dim=1)
                for offset in (0, 1):
                    linked = sum_by_words(candidates, *sides, offset).argmax(dim=-1).cpu().numpy()
                    for index, row in zip(indices, linked, strict=True):
                        gain = gains[index]
                        num_words = gain.shape[1] if gain.size else 0  # the others are padding
                        sums[layer, offset] += gain[row[:, :num_words], np.arange(num_words)].sum(axis=1)
    return sums


def _make_gold_gain(line: int, source: Words, target: Words, expected: GoldAlignment) -> Gain:
    """1 for a possible link, 2 for a sure one; `line` is from 0."""
    gain = np.zeros((len(source.words), len(target.words)))
    for link in (*expected.possible, *expected.sure):
        if link[0] >= gain.shape[0] or link[1] >= gain.shape[1]:
            raise CorpusError(
                f"gold alignment, line {line + 1}: {link[0]}-{link[1]} must be a source and a target word, from 0, "
                f"of a pair with {gain.shape[0]} and {gain.shape[1]} words"
            )
        gain[link] += 1
    return gain


def _make_lexical_gains(sources: Sequence[Words], targets: Sequence[Words]) -> list[Gain]:
    """Logarithms of t in both directions.

    Either alone is biased: t(source word | target word) is high for any frequent source word, and t(target word |
    source word) for any rare one.
    """
    pairs = [
        ([*map(_normalize_word, source.words)], [*map(_normalize_word, target.words)])
        for source, target in zip(sources, targets, strict=True)
    ]
    forward = LexicalModel.fit(pairs)
    backward = LexicalModel.fit([(target, source) for source, target in pairs])
    return [
        np.log(np.maximum(forward.make_table(source, target), MIN_PROBABILITY))
        + np.log(np.maximum(backward.make_table(target, source).T, MIN_PROBABILITY))
        for source, target in pairs
    ]


def _normalize_word(word: str) -> str:
    """The word in lower case without surrounding punctuation, unless it is only punctuation, to make the most of few
    pairs.
    """
    folded = word.casefold()
    return re.sub(r"^\W+|\W+$", "", folded) or folded
