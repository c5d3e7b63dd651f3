"""Files that hold both sides of every pair: tab-separated columns, or one JSON object a line."""

import json
from collections.abc import Iterator
from pathlib import Path

from transduce.errors import ConfigError, CorpusError
from transduce.text.lines import read_lines

Pair = tuple[str, str]


def read_tsv(path: Path, columns: tuple[str, str]) -> Iterator[Pair]:
    """The pairs of a file whose columns have one tab between them; nothing is quoted or escaped.

    Args:
        path: plain or compressed.
        columns: numbers of the source's and the target's column, from 1.

    Raises:
        ConfigError: A column is not a number from 1 on.
        CorpusError: A line has too few columns; see also `read_lines`.
    """
    for column in columns:
        if not (column.isascii() and column.isdigit() and int(column) > 0):
            raise ConfigError(f'data.columns: "{column}" must be the number of a column in {path}, from 1, as in "2"')
    source, target = (int(column) - 1 for column in columns)
    needed = max(source, target) + 1
    for number, line in enumerate(read_lines(path), start=1):
        values = line.split("\t")
        if len(values) < needed:
            raise CorpusError(
                f"{path}, line {number}: has {len(values)} of the {needed} columns that are needed, "
                f"with one tab between columns: {_excerpt(line)}; correct the line, or choose others by data.columns"
            )
        yield values[source], values[target]


def read_json_lines(path: Path, keys: tuple[str, str]) -> Iterator[Pair]:
    """The pairs of a file with one JSON object a line.

    Args:
        path: plain or compressed.
        keys: of the source's and the target's text.

    Raises:
        CorpusError: A line is not a JSON object, lacks a key or has something else than text there; see also
            `read_lines`.
    """
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: must be a JSON object, but is {_excerpt(line)} ({error})") from None
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: must be a JSON object, but is {_excerpt(line)}")
        yield _text(record, keys[0], place), _text(record, keys[1], place)


def _text(record: dict[str, object], key: str, place: str) -> str:
    if key not in record:
        found = ", ".join(map(repr, record)) or "no keys"
        raise CorpusError(f"{place}: must have the key {key!r}, but has {found}; choose keys by data.columns")
    value = record[key]
    if not isinstance(value, str):
        raise CorpusError(f"{place}: {key!r} must be text, but is {_excerpt(json.dumps(value))}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can write half of a UTF-16 pair; no UTF-8 file can hold it.
        raise CorpusError(f"{place}: {key!r} has half of a surrogate pair, which is no character: {value!a:.80}")
    return value


def _excerpt(line: str) -> str:
    return repr(line) if len(line) <= 60 else f"{line[:60]!r}…"
