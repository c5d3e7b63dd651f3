"""The words of a hypothesis, and the log-probabilities of the pieces that each is made of."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from transduce.errors import UserError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SILENT = ("</s>", "<pad>")
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8, at most."""


def scored_words(pieces: Sequence[str], token_scores: Sequence[float]) -> list[tuple[str, list[float]]]:
    """The words of the decoded text, as `str.split` divides it, each with the log-probabilities of its pieces.

    A piece that spells a space alone belongs to the word behind it; bytes that spell one character all belong to it.

    Raises:
        UserError: there is not one log-probability for each piece.
    """
    if len(pieces) != len(token_scores):
        raise UserError(f"{len(pieces)} pieces and {len(token_scores)} scores: give those of the same hypothesis")
    owners: list[tuple[str, Sequence[int]]] = []  # every character, and the numbers of the pieces that spell it
    for numbers, characters in _spelled(pieces):
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


def _spelled(pieces: Sequence[str]) -> Iterator[tuple[Sequence[int], str]]:
    """What the pieces spell, part by part, and the numbers of the pieces that spell it, as `Tokenizer.decode` does."""
    heard = [number for number, piece in enumerate(pieces) if piece not in _SILENT]
    begin = 0
    while begin < len(heard):
        first = pieces[heard[begin]]
        spelled = _bytes([pieces[number] for number in heard[begin : begin + _LONGEST_CHARACTER]])
        if spelled:
            text, size = _first_character(spelled)
        else:
            text, size = " \u2047 " if first == "<unk>" else first.replace("\u2581", " "), 1
        yield heard[begin : begin + size], text
        begin += size


def _bytes(pieces: Sequence[str]) -> bytes:
    """What the first of the pieces spell, as far as they are single bytes."""
    found = bytearray()
    for piece in pieces:
        match = _BYTE.fullmatch(piece)
        if match is None:
            break
        found.append(int(match[1], 16))
    return bytes(found)


def _first_character(spelled: bytes) -> tuple[str, int]:
    """The character that the bytes begin with, and how many it takes; a byte that begins none is one by itself."""
    for size in range(1, len(spelled) + 1):
        with suppress(UnicodeDecodeError):
            return spelled[:size].decode(), size
    return "\ufffd", 1
