"""Word alignment: the source word that the decoder attends to when it predicts or reads a target word."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.bundle import Bundle, read_calibration
from transduce.data import Batch
from transduce.errors import ConfigError
from transduce.model import Transformer, cross_attention_weights
from transduce.text import Tokenizer
from transduce.translation.confidence.scoring import ForcedDecoder, Pair, number_blocks


@dataclass(frozen=True)
class AlignmentHead:
    """The attention head that alignments are read from.

    Numbers are from 0 here and in calibration.json, which programs read; what people write and read, by `parse` and
    `str`, is numbered from 1, as by `transduce inspect` and on the page.

    Args:
        layer: of the decoder, from 0.
        head: from 0; None is the mean of all heads of the layer.
        offset: 0 where a token is aligned by the attention that predicts it, 1 by the attention of the next position,
            which has read it.
    """

    layer: int
    head: int | None = None
    offset: int = 0

    @classmethod
    def load(cls, bundle: Bundle) -> "AlignmentHead | None":
        """The head that the calibration of a bundle names; None if it names none.

        Raises:
            BundleError: its calibration.json is damaged, or another model's.
        """
        calibration = read_calibration(bundle)
        return None if calibration is None or calibration.alignment is None else cls(**dict(calibration.alignment))

    @classmethod
    def parse(cls, text: str) -> "AlignmentHead":
        """The head that `str` writes so: "2.1" is the second layer's first; "2" its mean; "+1" behind it, offset 1.

        Raises:
            ConfigError: it is no such text.
        """
        found = re.fullmatch(r"([1-9]\d{0,3})(?:\.([1-9]\d{0,3}))?(\+1)?", text, flags=re.ASCII)
        if found is None:
            raise ConfigError(
                f"head = {text!r}: must be LAYER.HEAD, or LAYER for the mean of its heads, numbered from 1, and behind "
                f"it +1 for the attention of the next position, as in 2.1+1"
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
    """The words of a pair, as white space divides the lines, and at most one link for each word of the target."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]

    def __str__(self) -> str:
        """Pharaoh's format, as in "0-0 2-1": source word, target word."""
        return " ".join(f"{link.source}-{link.target}" for link in self.links)

    def as_json(self) -> dict[str, Any]:
        """The words of both sides, and the links between their numbers."""
        return {"source": self.source, "target": self.target, "alignment": [link._asdict() for link in self.links]}


Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Words:
    """A line divided into words.

    Args:
        words: as `str.split` divides the line.
        pieces: for each word, the ids of its pieces; none for a word that shows nothing.
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


def divide_lines(encode: Encode, lines: Sequence[str]) -> list[Words]:
    """Divide lines into words with their pieces; `encode` gives the pieces of many texts at once.

    No piece reaches across white space, SentencePiece's rule for what it trains; so words are encoded one by one, and
    which word a piece belongs to is never guessed from "▁", which Unicode's spaces and odd characters would mislead.
    """
    divided = [tuple(line.split()) for line in lines]
    encoded = iter(encode(list(chain.from_iterable(divided))))
    return [Words(words, tuple(map(tuple, islice(encoded, len(words))))) for words in divided]


def sum_by_words(
    weights: Float[Tensor, "batch heads target source"],
    sources: Sequence[Words],
    targets: Sequence[Words],
    offset: int,
) -> Float[Tensor, "batch heads target_words source_words"]:
    """Attention between words, the sum of that between their pieces; 0 where a line has fewer words than others.

    Args:
        weights: of pieces; row t belongs to the position that predicts piece t of the target.
        sources: the line of each row of the batch; `</s>` behind its pieces is in no word.
        targets: the same for the target.
        offset: how many rows after the one that predicts it a piece's row is: 0, or 1 for the row that reads it.
    """
    of_source = _make_membership(sources, weights.size(3)).to(weights)
    of_target = _make_membership(targets, weights.size(2)).roll(offset, dims=1).to(weights)
    return of_target.transpose(1, 2)[:, None] @ weights @ of_source[:, None]


def _make_membership(lines: Sequence[Words], length: int) -> Float[Tensor, "batch {length} words"]:
    """1 where a piece is part of a word; the last position, of `</s>` or padding, is part of none."""
    most = max(1, *(len(line.words) for line in lines))
    word = torch.full((len(lines), length), most)
    for row, line in zip(word, lines, strict=True):
        numbers = [number for number, pieces in enumerate(line.pieces) for _ in pieces]
        row[: len(numbers)] = torch.tensor(numbers)
    return F.one_hot(word, most + 1)[..., :most].float()


def align_stream(decoder: ForcedDecoder, pairs: Iterable[Pair], head: AlignmentHead) -> Iterator[Alignment]:
    """The alignment of each pair of a stream, in order, holding only some thousand pairs; see `align_pairs`."""
    for first_line, block in number_blocks(pairs):
        yield from align_pairs(decoder, block, head, first_line)


def align_pairs(
    decoder: ForcedDecoder, pairs: Sequence[Pair], head: AlignmentHead, first_line: int = 1
) -> list[Alignment]:
    """The alignment of each pair of source and target text, from the attention of one head (paper 3.2.3).

    A word of the target is linked with the word of the source that has most of its attention, summed over the pieces of
    both; what goes to the source's `</s>` counts for no word. Blank lines, and words that the tokenizer makes no pieces
    of, have no link. `choose_head` tells which head to take. Errors call the first pair `first_line`.

    Raises:
        ConfigError: the model has no such head.
        UserError: a side is longer than the learned positions of the model; names the line.
    """
    return _align_words(decoder, *divide_pairs(decoder.tokenizer, pairs), head, first_line)


def align_fitting_pairs(
    decoder: ForcedDecoder, pairs: Sequence[Pair], head: AlignmentHead | None
) -> list[Alignment | None]:
    """The alignment of each pair; None if the model does not read both texts as wholes. See `align_pairs`.

    Without a head, it is the mean of those of the last layer.
    """
    head = head or AlignmentHead(decoder.model.config.num_decoder_layers - 1)
    sources, targets = divide_pairs(decoder.tokenizer, pairs)
    fits = [decoder.fits(source.ids, target.ids) for source, target in zip(sources, targets, strict=True)]
    aligned = iter(_align_words(decoder, [*compress(sources, fits)], [*compress(targets, fits)], head))
    return [next(aligned) if is_aligned else None for is_aligned in fits]


def _align_words(
    decoder: ForcedDecoder, sources: Sequence[Words], targets: Sequence[Words], head: AlignmentHead, first_line: int = 1
) -> list[Alignment]:
    check_head(decoder.model, head)
    links: list[tuple[Link, ...]] = [()] * len(sources)
    source_ids = [decoder.tokenizer.as_source(words.ids) for words in sources]
    target_ids = [decoder.tokenizer.as_target(words.ids) for words in targets]
    with decoder.batches(source_ids, target_ids, first_line) as batches:
        for indices, batch in batches:
            sides = [sources[index] for index in indices], [targets[index] for index in indices]
            by_word = sum_by_words(_weights(decoder.model, batch, head), *sides, head.offset)[:, 0]
            weights, best = by_word.max(dim=-1)
            for index, row_weights, row_best in zip(indices, weights.tolist(), best.tolist(), strict=True):
                links[index] = _links(row_best, row_weights, targets[index])
    return [
        Alignment(source.words, target.words, found)
        for source, target, found in zip(sources, targets, links, strict=True)
    ]


def check_head(model: Transformer, head: AlignmentHead) -> None:
    """Check that the decoder has the head."""
    num_layers, num_heads = model.config.num_decoder_layers, model.config.num_heads
    if not (0 <= head.layer < num_layers and 0 <= (head.head or 0) < num_heads and head.offset in {0, 1}):
        raise ConfigError(
            f"head = {str(head)!r}: must be one that the decoder has: layers 1 to {num_layers}, "
            f"in each of them heads 1 to {num_heads}, offset 0 or 1"
        )


def _weights(model: Transformer, batch: Batch, head: AlignmentHead) -> Float[Tensor, "batch 1 target source"]:
    layers = cross_attention_weights(model, batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    weights = next(islice(layers, head.layer, None))
    return weights.mean(dim=1, keepdim=True) if head.head is None else weights[:, head.head, None]


def _links(best: Sequence[int], weights: Sequence[float], target: Words) -> tuple[Link, ...]:
    """The links of one pair; padding and words without pieces have no weight, and no link."""
    counted = zip(best, weights, target.pieces, strict=False)
    return tuple(
        Link(source, word, weight / len(pieces)) for word, (source, weight, pieces) in enumerate(counted) if weight > 0
    )
