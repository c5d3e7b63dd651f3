"""The words of a line, and the pieces that each of them is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.text import Tokenizer

Encode = Callable[[Sequence[str]], list[list[int]]]


@dataclass(frozen=True)
class Words:
    """A line.

    Args:
        words: what white space divides it into, as `str.split` does.
        pieces: for each word, the ids of its pieces; none for a word that shows nothing.
    """

    words: tuple[str, ...]
    pieces: tuple[tuple[int, ...], ...]

    @property
    def ids(self) -> list[int]:
        """Those of the line, without `</s>`."""
        return list(chain.from_iterable(self.pieces))


def divide_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> tuple[list[Words], list[Words]]:
    """The words of both sides of each pair."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    return divide(tokenizer.encode_all, sources), divide(tokenizer.encode_targets, targets)


def divide(encode: Encode, lines: Sequence[str]) -> list[Words]:
    """Each line with the pieces of its words, which `encode` gives for many texts at once.

    No piece reaches across white space, SentencePiece's rule for what it trains; so words are encoded one by one, and
    which word a piece belongs to is never guessed from "▁", which Unicode's spaces and odd characters would mislead.
    """
    divided = [tuple(line.split()) for line in lines]
    encoded = iter(encode(list(chain.from_iterable(divided))))
    return [Words(words, tuple(map(tuple, islice(encoded, len(words))))) for words in divided]


def summed_by_words(
    weights: Float[Tensor, "batch heads target source"],
    sources: Sequence[Words],
    targets: Sequence[Words],
    offset: int,
) -> Float[Tensor, "batch heads target_words source_words"]:
    """Attention between words: the sum of that between their pieces; 0 where a line has fewer words than others.

    Args:
        weights: of pieces; row t belongs to the position that predicts piece t of the target.
        sources: the line of each row of the batch; `</s>` behind its pieces is in no word.
        targets: the same for the target.
        offset: how many rows after the one that predicts it a piece's row is: 0, or 1 for the row that reads it.
    """
    of_source = _membership(sources, weights.size(3)).to(weights)
    of_target = _membership(targets, weights.size(2)).roll(offset, dims=1).to(weights)
    return of_target.transpose(1, 2)[:, None] @ weights @ of_source[:, None]


def _membership(lines: Sequence[Words], length: int) -> Float[Tensor, "batch {length} words"]:
    """1 where a piece is part of a word; the last position, of `</s>` or padding, is part of none."""
    most = max(1, *(len(line.words) for line in lines))
    word = torch.full((len(lines), length), most)
    for row, line in zip(word, lines, strict=True):
        numbers = [number for number, pieces in enumerate(line.pieces) for _ in pieces]
        row[: len(numbers)] = torch.tensor(numbers)
    return F.one_hot(word, most + 1)[..., :most].float()
