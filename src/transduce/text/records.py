"""Files that hold both sides of every pair: tab-separated columns, or JSON objects."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transduce.errors import ConfigError, CorpusError
from transduce.text.header import is_header
from transduce.text.lines import read_lines

Pair = tuple[str, str]


def read_tsv(path: Path, columns: tuple[str, str], languages: tuple[str, str] = ("", "")) -> Iterator[Pair]:
    """The pairs of a file whose columns have one tab between them; nothing is quoted or escaped.

    A first row that names the columns is left out; see `tsv_header`.

    Args:
        path: plain or compressed.
        columns: numbers of the source's and the target's column, from 1.
        languages: codes of source and target; "" for one that is not known.

    Raises:
        ConfigError: A column is not a number from 1 on.
        CorpusError: A line has too few columns; see also `read_lines`.
    """
    rows = _rows(path, columns)
    if (first := next(rows, None)) is None:
        return
    if not is_header(*first, languages):
        yield first
    yield from rows


def tsv_header(path: Path, columns: tuple[str, str], languages: tuple[str, str]) -> Pair | None:
    """The first row of such a file if it names the columns; see `is_header`. Arguments and errors are `read_tsv`'s."""
    first = next(_rows(path, columns), None)
    return first if first is not None and is_header(*first, languages) else None


def _rows(path: Path, columns: tuple[str, str]) -> Iterator[Pair]:
    """The two columns of every row."""
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


def read_json(path: Path, columns: tuple[str, str] | None, languages: tuple[str, str]) -> Iterator[Pair]:
    """The pairs of a file with one JSON object a line, or with one JSON array of objects.

    An object has its texts under two keys, or, as in the data sets of Hugging Face, by language in its "translation":
    {"translation": {"en": "A dog.", "de": "Ein Hund."}}.

    Args:
        path: plain or compressed.
        columns: the keys of source and target, in the object or in its "translation"; unless given, "source" and
            "target", or `languages` in "translation".
        languages: codes of source and target; "" for one that is not known.

    Raises:
        CorpusError: A record is no JSON object, lacks a key, has something else than text there, or does not say which
            of its texts is the source; see also `read_lines`.
    """
    for place, record in _records(path):
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: must be a JSON object, but is {_excerpt(json.dumps(record))}")
        texts, keys = _texts(record, columns, languages, place)
        yield _text(texts, keys[0], place), _text(texts, keys[1], place)


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """Every value in the file, with the place where it ends."""
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.lstrip().startswith("["):
            yield from _items(path, line, lines)
            return
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: must be a JSON object, but is {_excerpt(line)} ({error})") from None
        yield place, record


def _items(path: Path, text: str, lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The items of the array that begins in `text`, the first line, and goes on in `lines`; read one at a time."""
    line, item, position, needs_comma = 1, 1, text.index("[") + 1, False
    while True:
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr] # it always matches
        place, next_character = f"{path}, line {line}, item {item} of its array", text[position : position + 1]
        if next_character == "]":
            break
        if next_character and needs_comma:
            if next_character != ",":
                found = _excerpt(text[position : position + 61])
                raise CorpusError(f"{place}: must have a comma before it, but there is {found}")
            position, needs_comma = position + 1, False
        elif next_character and (read := _item(text, position, place)) is not None:
            yield place, read[0]
            position, item, needs_comma = read[1], item + 1, True
        else:
            more = next(lines, None)
            if more is None:
                raise CorpusError(f"{path}: its JSON array has no end: get or make the file anew")
            text, position, line = f"{text[position:]}\n{more}", 0, line + 1
    if text[position + 1 :].strip() or any(rest.strip() for rest in lines):
        raise CorpusError(f"{path}: has more behind the end of its JSON array: one array is read, or one object a line")


def _item(text: str, position: int, place: str) -> tuple[Any, int] | None:
    """The item of an array that begins at `position`, and the position behind it; None if it goes on in the next line.

    Raises:
        CorpusError: it is not JSON.
    """
    try:
        return json.JSONDecoder().raw_decode(text, position)
    except (ValueError, RecursionError) as error:
        # Wrong at the very end means that it goes on: no string of JSON holds the end of a line.
        if getattr(error, "pos", 0) >= len(text.rstrip()) - 1:
            return None
        found = _excerpt(text[position : position + 61])
        raise CorpusError(f"{place}: must be a JSON object, but is {found} ({error})") from None


_SPACE = re.compile(r"\s*")


def _texts(
    record: dict[str, Any], columns: tuple[str, str] | None, languages: tuple[str, str], place: str
) -> tuple[Mapping[str, Any], tuple[str, str]]:
    """What holds the texts, the record or its "translation", and the keys of source and target there."""
    keys = columns or ("source", "target")
    by_language = record.get("translation")
    if not isinstance(by_language, dict) or all(key in record for key in keys):
        return record, keys
    if columns is not None or all(key in by_language for key in keys):
        return by_language, keys
    if "" in languages or languages[0] == languages[1]:
        raise CorpusError(
            f'{place}: its "translation" has {", ".join(map(repr, by_language)) or "no languages"}, and nothing says '
            f"which is the source: give --source-language and --target-language (data.source_language and "
            f"data.target_language)"
        )
    if missing := [language for language in languages if language not in by_language]:
        raise CorpusError(
            f'{place}: its "translation" must have the languages {languages[0]!r} and {languages[1]!r}, but has '
            f"{', '.join(map(repr, by_language)) or 'none'}: if {missing[0]!r} has another name there, give both names "
            f"by data.columns"
        )
    return by_language, languages


def _text(record: Mapping[str, object], key: str, place: str) -> str:
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
