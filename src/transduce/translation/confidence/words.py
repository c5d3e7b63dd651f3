"""The words of a line or of a hypothesis, and the pieces that each of them is made of."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.errors import UserError
from transduce.text import Tokenizer

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


_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SILENT = ("</s>", "<pad>")
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most."""


def score_words(pieces: Sequence[str], token_scores: Sequence[float]) -> list[tuple[str, list[float]]]:
    """The words of the decoded text, as `str.split` divides it, each with the log-probabilities of its pieces.

    A piece that spells a space alone belongs to the word behind it; bytes that spell one character all belong to it.
    """
    if len(pieces) != len(token_scores):
        raise UserError(f"{len(pieces)} pieces and {len(token_scores)} scores: give those of the same hypothesis")
    owners: list[tuple[str, Sequence[int]]] = []  # every character, and the numbers of the pieces that spell it
    for numbers, characters in _spell_pieces(pieces):
        owners += [(character, numbers) for character in characters]
    visible = {number for character, numbers in owners if not character.isspace() for number in numbers}
    words, begin = [], 0
    for match in re.finditer(r"\S+", "".join(character for character, _ in owners)):
        spaces, letters = owners[begin : match.start()], owners[match.start() : match.end()]
        own = {number for _, numbers in letters for number in numbers}
        own |= {number for _, numbers in spaces for number in numbers if number not in visible}
        words.append((match[0], [token_scores[number] for number in sorted(own)]))
        begin = match.end()
    return words


def _spell_pieces(pieces: Sequence[str]) -> Iterator[tuple[Sequence[int], str]]:
    """The text of the pieces part by part, as `Tokenizer.decode` has it, with the numbers of its pieces."""
    heard = [number for number, piece in enumerate(pieces) if piece not in _SILENT]
    begin = 0
    while begin < len(heard):
        first = pieces[heard[begin]]
        spelled = _read_bytes([pieces[number] for number in heard[begin : begin + _LONGEST_CHARACTER]])
        if spelled:
            text, size = _read_character(spelled)
        else:
            text, size = " \u2047 " if first == "<unk>" else first.replace("\u2581", " "), 1
        yield heard[begin : begin + size], text
        begin += size


def _read_bytes(pieces: Sequence[str]) -> bytes:
    found = bytearray()
    for piece in pieces:
        match = _BYTE.fullmatch(piece)
        if match is None:
            break
        found.append(int(match[1], 16))
    return bytes(found)


def _read_character(spelled: bytes) -> tuple[str, int]:
    """The character that the bytes begin with, and how many it takes; a byte that begins none is one by itself."""
    for size in range(1, len(spelled) + 1):
        with suppress(UnicodeDecodeError):
            return spelled[:size].decode(), size
    return "\ufffd", 1
