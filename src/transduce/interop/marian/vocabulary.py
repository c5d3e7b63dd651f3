"""Marian's vocabularies: a list of pieces with their numbers as YAML or JSON, or a SentencePiece model."""

import json
from collections.abc import Sequence
from pathlib import Path

from transduce.errors import BundleError
from transduce.interop.marian.yaml import quoted, read_numbered
from transduce.text.sentencepiece_model import open_model

SENTENCEPIECE = ".spm"
"""What makes Marian take a vocabulary for a SentencePiece model, and divide texts itself."""

_LISTS = {".yml", ".yaml", ".json"}

_REMEDY = "give the vocabulary that the model was trained with"


def write_vocabulary(path: Path, pieces: Sequence[str]) -> None:
    """Write `pieces` with their numbers as YAML."""
    lines = [f"{quoted(piece)}: {number}\n" for number, piece in enumerate(pieces)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_vocabulary(path: Path, num_rows: int) -> list[str]:
    """The piece of each of `num_rows` rows; one without a piece is called by its number.

    Raises:
        BundleError: it cannot be read, is none, or has a piece twice or two for one row.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}); {_REMEDY}") from None
    if path.suffix not in _LISTS:
        processor = open_model(content, str(path), _REMEDY)
        numbers = [(processor.id_to_piece(number), number) for number in range(processor.get_piece_size())]
    else:
        numbers = _numbers(content, path)
    rows: dict[int, str] = {}
    for piece, number in numbers:
        if number in rows:
            raise BundleError(f"{path}: {piece!r} and {rows[number]!r} have one number, {number}; {_REMEDY}")
        rows[number] = piece
    pieces = [rows.get(number) or nameless(number) for number in range(num_rows)]
    if len(set(pieces)) < num_rows:
        twice = next(piece for place, piece in enumerate(pieces) if piece in pieces[:place])
        raise BundleError(f"{path}: has the piece {twice!r} twice; {_REMEDY}")
    if missing := {"<unk>", "</s>"}.difference(pieces):
        raise BundleError(f"{path}: has no {min(missing)!r} among its first {num_rows:,} pieces; {_REMEDY}")
    return pieces


def nameless(number: int) -> str:
    """What stands for a piece in a row without one: no text has it."""
    return f"<id {number}>"


def in_marian_order(model: bytes) -> bytes:
    """A SentencePiece model of ours with `</s>` as 0 and `<unk>` as 1; it divides texts into the same pieces.

    Pieces are messages one after the other, each behind a byte 10 and its length, and begin the file.
    """
    first = _end_of_piece(model, 0)
    second = _end_of_piece(model, first)
    return model[first:second] + model[:first] + model[second:]


def _numbers(content: bytes, path: Path) -> list[tuple[str, int]]:
    try:
        text = content.decode("utf-8")
        if path.suffix != ".json":
            return list(read_numbered(text, str(path)))
        found = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BundleError(f"{path}: is no vocabulary: {error}; {_REMEDY}") from None
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise BundleError(f"{path}: is no JSON object of pieces with their numbers; {_REMEDY}")
    return list(found.items())


def _end_of_piece(model: bytes, start: int) -> int:
    """Behind the message at `start`: its length is a number of 7 bits a byte, the last one below 128."""
    length, place = 0, start + 1
    while True:
        length |= (model[place] & 0x7F) << (7 * (place - start - 1))
        place += 1
        if model[place - 1] < 0x80:
            return place + length
