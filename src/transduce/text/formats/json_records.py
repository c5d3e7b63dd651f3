"""Pairs as JSON objects: one per line, or in one array."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from transduce.errors import CorpusError
from transduce.text.corpus import LONE_SURROGATE, Pair, ParallelCorpus
from transduce.text.formats.columns import SideSelection, choose_languages, find_language_names, list_names, shorten
from transduce.text.json_objects import RepeatedKeyError, make_object
from transduce.text.lines import read_lines


def open_json(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a file with one JSON object per line, with blank lines at its end at most, or with one JSON array.

    An object has its texts under two keys, or, as in the data sets of Hugging Face, by language in its "translation":
    {"translation": {"en": "A dog.", "de": "Ein Hund."}}. The keys are the given columns; by default "source" and
    "target", or else the two languages, in "translation" or in the object itself. Line ends at the end of a text are no
    part of it.

    Raises (while it is read):
        CorpusError: a record is not a JSON object, lacks a key, has one twice, has a value that is not text, or has
            several texts of which the source is unknown; see also `read_lines`.
    """
    return ParallelCorpus(str(path), (path,), partial(_read_json, path, selection), is_by_language=True)


def _read_json(path: Path, selection: SideSelection) -> Iterator[Pair]:
    for place, record in _read_records(path):
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: must be a JSON object, not {shorten(json.dumps(record))}")
        texts, (source, target) = _find_texts(record, selection, place)
        yield _get_text(texts, source, selection, place), _get_text(texts, target, selection, place)


def _read_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Read every JSON value of the file, with the place where it ends."""
    lines = read_lines(path)
    first_blank, num_records = 0, 0
    for number, line in enumerate(lines, start=1):
        if not num_records and line.lstrip().startswith("["):
            yield from _read_items(path, number, line, lines)
            return
        if not line.strip():
            first_blank = first_blank or number
            continue
        if first_blank:
            raise CorpusError(
                f"{path}, line {first_blank}: must be a JSON object, not blank: blank lines may come at the end alone"
            )
        place = f"{path}, line {number}"
        try:
            record = json.loads(line, object_pairs_hook=make_object)
        except RepeatedKeyError as error:
            raise CorpusError(f"{place}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: must be a JSON object, not {shorten(line)} ({error})") from None
        num_records += 1
        yield place, record


def _read_items(path: Path, line: int, text: str, lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Read the items, one at a time, of the array that begins in `text`, line number `line`, and goes on in `lines`."""
    item, position, needs_comma, num_more = 1, text.index("[") + 1, False, 1
    while True:
        begin, position = position, _SPACE.match(text, position).end()  # type: ignore[union-attr] # it always matches
        line += text.count("\n", begin, position)
        place, next_character = f"{path}, line {line}, item {item} of its array", text[position : position + 1]
        if next_character == "]":
            break
        if next_character and needs_comma:
            if next_character != ",":
                found = shorten(text[position : position + 61])
                raise CorpusError(f"{place}: must follow a comma, but found {found}")
            position, needs_comma = position + 1, False
        elif next_character and (read := _read_item(text, position, place)) is not None:
            line += text.count("\n", position, read[1])
            yield f"{path}, line {line}, item {item} of its array", read[0]
            position, item, needs_comma, num_more = read[1], item + 1, True, 1
        else:
            # Twice as many each time: an item of many lines is parsed again and again.
            more = list(islice(lines, num_more))
            if not more:
                raise CorpusError(f"{path}: its JSON array is not closed: download or create the file again")
            text, position, num_more = "\n".join([text[position:], *more]), 0, num_more * 2
    if text[position + 1 :].strip() or any(rest.strip() for rest in lines):
        raise CorpusError(f"{path}: has text after its JSON array: give one array, or one object per line")


def _read_item(text: str, position: int, place: str) -> tuple[Any, int] | None:
    """The item of an array at `position`, and the position after it; None if the item continues on the next line."""
    try:
        return _DECODER.raw_decode(text, position)
    except RepeatedKeyError as error:
        raise CorpusError(f"{place}: {error}") from None
    except (ValueError, RecursionError) as error:
        # An error at the very end means that the item continues: JSON strings cannot contain line ends.
        if getattr(error, "pos", 0) >= len(text.rstrip()) - 1:
            return None
        found = shorten(text[position : position + 61])
        raise CorpusError(f"{place}: must be a JSON object, not {found} ({error})") from None


_DECODER = json.JSONDecoder(object_pairs_hook=make_object)
_SPACE = re.compile(r"\s*")


def _find_texts(
    record: dict[str, Any], selection: SideSelection, place: str
) -> tuple[Mapping[str, Any], tuple[str, str]]:
    """The object with the texts, the record or its "translation", and the keys of source and target there."""
    keys = selection.columns or ("source", "target")
    if all(key in record for key in keys):
        return record, keys
    by_language = record.get("translation")
    if isinstance(by_language, dict):
        return by_language, choose_languages(by_language.keys(), selection, place)
    if selection.columns is not None or not selection.has_languages:
        return record, keys
    if all(language in record for language in selection.languages):
        return record, selection.languages
    names = find_language_names(record.keys(), selection.languages)
    # One of the two, if it is there, tells that keys are languages: the error is about the other.
    return record, names or (selection.languages if any(one in record for one in selection.languages) else keys)


def _get_text(record: Mapping[str, object], key: str, selection: SideSelection, place: str) -> str:
    if key not in record:
        found = list_names(record) if record else "no keys"
        raise CorpusError(f"{place}: must have the key {key!r}, but has {found}; choose keys by {selection.setting}")
    value = record[key]
    if not isinstance(value, str):
        raise CorpusError(f"{place}: {key!r} must be text, but is {shorten(json.dumps(value))}")
    if LONE_SURROGATE.search(value):
        raise CorpusError(f"{place}: {key!r} contains an unpaired surrogate, which is not a character: {value!a:.80}")
    return value.rstrip("\r\n")
