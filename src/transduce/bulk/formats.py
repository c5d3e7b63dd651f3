"""Formats of files that are translated in bulk: how they are cut into blocks, and how a translation is written."""

import json
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, runtime_checkable

from transduce.bulk.blocks import Block
from transduce.bulk.inputs import InputFile
from transduce.bulk.parquet import ParquetFormat
from transduce.documents import FORMATS
from transduce.errors import ConfigError, CorpusError
from transduce.text import LONE_SURROGATE, compress, decompress, read_stream, split_name
from transduce.text.formats.columns import list_names
from transduce.text.json_objects import RepeatedKeyError, make_object

_DOCUMENTS = FORMATS.keys() - {".txt"}


@runtime_checkable
class FileFormat(Protocol):
    """Reads files of one format in blocks, and writes them with translations; every file has at least one block."""

    def read_blocks(self, file: InputFile, size: int) -> Iterator[Block]:
        """The blocks of a file, of `size` lines, rows or records each; the last one may be shorter.

        Raises:
            CorpusError: the file breaks a rule of the format; names the line or row.
        """
        ...

    def write_block(self, block: Block, translations: Sequence[str], file: InputFile) -> bytes:
        """The content of the file of a block, of which `translations` has an output for each of its lines.

        Raises:
            CorpusError: a record cannot take the translation.
        """
        ...

    def join_blocks(self, blocks: Sequence[Path], path: Path) -> None:
        """Write the files of all blocks, in order, as one file."""
        ...


def choose_file_format(name: str, column: str | None, translation_column: str, *, json_input: bool) -> FileFormat:
    """The format of a file, by the ending of its name; what has no other format is text, a line after the other.

    Args:
        name: name of the file; its last ending may be that of a compression.
        column: the column or key of what is translated.
        translation_column: the column or key of the translation.
        json_input: whether each line is a JSON object with options, and the output a line of text.

    Raises:
        ConfigError: the format needs a column, or has none, or cannot have one of that name.
        CorpusError: files of this format are not translated.
    """
    _, ending, compression = split_name(PurePosixPath(name))
    ending = ending.lower()
    if ending in {".csv", ".tmx", ".zip"}:
        raise CorpusError(f"{name}: {ending} is not translated in bulk: convert it to .tsv, .jsonl or .parquet")
    if ending in _DOCUMENTS:
        raise CorpusError(
            f"{name}: is a document, not lines of text, and would be damaged: translate it by "
            f"`transduce translate-file`{', decompressed' if compression else ''}"
        )
    if json_input or ending not in {".tsv", ".json", ".jsonl", ".ndjson", ".parquet"}:
        _check_lines(name, ending, column, json_input=json_input)
        return TextFormat()
    if column is None:
        raise ConfigError(f"{name}: say by --column which column, key or number of a column is translated")
    if ending == ".tsv":
        if set(translation_column) & set("\t\n\r"):
            raise ConfigError(
                f"--translation-column {translation_column!r}: has a tab or a line end, which would break the rows of "
                f"{name}: give another name"
            )
        return TsvFormat(column, translation_column)
    if ending == ".parquet":
        if compression:
            raise CorpusError(f"{name}: Parquet compresses its columns itself: decompress the file first")
        return ParquetFormat(column, translation_column)
    return JsonFormat(column, translation_column)


def _check_lines(name: str, ending: str, column: str | None, *, json_input: bool) -> None:
    """Refuse options that name a column of a file whose lines are translated, and --json-input for other formats."""
    if json_input and ending in {".tsv", ".parquet"}:
        raise ConfigError(f"--json-input: {name} has no lines of JSON: leave it out, and name a column by --column")
    if json_input and column is not None:
        raise ConfigError(f"--column {column}: with --json-input, the key text is translated: leave one of them out")
    if column is not None:
        raise ConfigError(f"--column {column}: {name} is text without columns: leave it out, or rename the file")


class _LineFormat:
    """A format whose translated blocks, as lines of text, only have to be written one after the other."""

    def join_blocks(self, blocks: Sequence[Path], path: Path) -> None:
        """Write the files of all blocks, in order, as one file."""
        with path.open("wb") as joined:
            for block in blocks:
                with block.open("rb") as file:
                    shutil.copyfileobj(file, joined)


class TextFormat(_LineFormat):
    """Text: line n of the output is the translation of line n."""

    def read_blocks(self, file: InputFile, size: int) -> Iterator[Block]:
        """Read a file in blocks of `size` lines."""
        with file.open_binary() as raw:
            for number, lines in enumerate(_cut(_read_lines(raw, file), size)):
                first = 1 + number * size
                yield Block(number, first, lines, range(first, first + len(lines)), share=_find_share(raw, file))

    def write_block(self, block: Block, translations: Sequence[str], file: InputFile) -> bytes:  # noqa: ARG002 - FileFormat
        """Make a line of each translation."""
        return _write_lines(translations, file)


class JsonFormat(_LineFormat):
    """JSON lines: every object gets one more key, and is otherwise left as it is, byte for byte.

    A text of several lines is translated line by line; the translation of a null is null. Blank lines at the end of a
    file are passed over.
    """

    def __init__(self, column: str, translation_column: str) -> None:
        self._key, self._translation_key = column, translation_column

    def read_blocks(self, file: InputFile, size: int) -> Iterator[Block]:
        """Read the JSON objects of a file in blocks of `size`, each with the lines of the texts that are translated."""
        with file.open_binary() as raw:
            for number, records in enumerate(_cut(_read_records(raw, file), size)):
                first = 1 + number * size
                texts = [self._read(record, f"{file.path}, line {line}") for line, record in enumerate(records, first)]
                lines = [line for text in texts for line in text or ()]
                numbers = [line for line, text in enumerate(texts, first) for _ in text or ()]
                kept = [
                    (record, None if text is None else len(text)) for record, text in zip(records, texts, strict=True)
                ]
                yield Block(number, first, lines, numbers, kept, _find_share(raw, file))

    def _read(self, record: str, place: str) -> list[str] | None:
        """The lines of the text in a record; None if it is null."""
        try:
            found = json.loads(record, object_pairs_hook=make_object)
        except RepeatedKeyError as error:
            raise CorpusError(f"{place}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise CorpusError(f"{place}: must be a JSON object, but is {record[:60]!r} ({error}): correct it") from None
        if not isinstance(found, dict):
            raise CorpusError(f"{place}: must be a JSON object, but is {record[:60]!r}: correct it")
        if self._key not in found:
            raise CorpusError(
                f"{place}: must have the key {self._key!r}, but has {list_names(found)}: choose it by --column"
            )
        if self._translation_key in found:
            raise CorpusError(
                f"{place}: has the key {self._translation_key!r} already: choose another by --translation-column"
            )
        text = found[self._key]
        if text is None:
            return None
        if not isinstance(text, str):
            raise CorpusError(f"{place}: {self._key!r} must be text, but is {json.dumps(text)[:60]}: correct it")
        if LONE_SURROGATE.search(text):
            raise CorpusError(f"{place}: {self._key!r} has an unpaired surrogate, which is not a character: correct it")
        return text.split("\n")

    def write_block(self, block: Block, translations: Sequence[str], file: InputFile) -> bytes:
        """Write the objects of a block, each with its translation under one more key."""
        rest, written = iter(translations), []
        for record, num_lines in block.records:
            before = record.rstrip().removesuffix("}").rstrip()
            comma = "" if before.endswith("{") else ", "
            text = None if num_lines is None else "\n".join(islice(rest, num_lines))
            added = json.dumps({self._translation_key: text}, ensure_ascii=False)
            written.append(f"{before}{comma}{added[1:]}")
        return _write_lines(written, file)


class TsvFormat(_LineFormat):
    """Columns with one tab between them, nothing quoted: every line gets one more column, the last.

    A column is given by its number from 1, where every line is translated, or by its name in the first line, which then
    says how many columns every line has.
    """

    def __init__(self, column: str, translation_column: str) -> None:
        self._column, self._translation_column = column, translation_column
        self._has_header = not (column.isascii() and column.isdigit() and int(column) > 0)

    def read_blocks(self, file: InputFile, size: int) -> Iterator[Block]:
        """Read the rows of a file in blocks of `size`, each with the texts of the column that is translated."""
        with file.open_binary() as raw:
            lines = _read_lines(raw, file)
            header = next(lines, None) if self._has_header else None
            position = self._find_position(header, file)
            num_named = None if header is None else 1 + header.count("\t")
            for number, rows in enumerate(_cut(lines, size)):
                first = 1 + (header is not None) + number * size
                texts = [
                    _get_cell(row, position, num_named, f"{file.path}, line {line}")
                    for line, row in enumerate(rows, first)
                ]
                kept = (header if number == 0 else None, rows)
                numbers = range(first, first + len(rows))
                yield Block(number, first, texts, numbers, kept, _find_share(raw, file))

    def _find_position(self, header: str | None, file: InputFile) -> int:
        if not self._has_header:
            return int(self._column) - 1
        names = [] if header is None else header.split("\t")
        if names and names.count(self._column) != 1:
            raise CorpusError(
                f"{file.path}: one column of its first line must have the name {self._column!r}, but they are "
                f"{list_names(names)}: choose it by --column, by name or by number"
            )
        if self._translation_column in names:
            raise CorpusError(
                f"{file.path}: has the column {self._translation_column!r} already: choose another name by "
                "--translation-column"
            )
        return names.index(self._column) if names else 0

    def write_block(self, block: Block, translations: Sequence[str], file: InputFile) -> bytes:
        """Write the rows of a block, each with its translation in one more column."""
        header, rows = block.records
        written = [] if header is None else [f"{header}\t{self._translation_column}"]
        written += [f"{row}\t{translation}" for row, translation in zip(rows, translations, strict=True)]
        return _write_lines(written, file)


def _get_cell(row: str, position: int, num_named: int | None, place: str) -> str:
    """The text of a row in one column; the row must have `num_named` columns, as many as a header names, if any."""
    cells = row.split("\t")
    if num_named is not None and len(cells) != num_named:
        raise CorpusError(
            f"{place}: has {len(cells)} columns, but the first line has {num_named}: replace a tab that is part of a "
            "text by a space, and add a tab for each column that is missing"
        )
    if position >= len(cells):
        raise CorpusError(
            f"{place}: has {len(cells)} columns, and column {position + 1} is to be translated: correct it"
        )
    return cells[position]


def _read_lines(raw: BinaryIO, file: InputFile) -> Iterator[str]:
    with decompress(raw, file.path) as stream:
        yield from read_stream(stream, file.path)


def _read_records(raw: BinaryIO, file: InputFile) -> Iterator[str]:
    """The lines of a file of JSON objects, without blank lines at its end."""
    first_blank = 0
    for number, line in enumerate(_read_lines(raw, file), start=1):
        if number == 1 and line.lstrip().startswith("["):
            raise CorpusError(
                f"{file.path}, line 1: must be a JSON object, but begins an array: convert the file to an object per "
                "line, as in: jq -c '.[]'"
            )
        if not line.strip():
            first_blank = first_blank or number
            continue
        if first_blank:
            raise CorpusError(
                f"{file.path}, line {first_blank}: must be a JSON object, not blank: blank lines may come at the end "
                "alone; remove it"
            )
        yield line


def _cut(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` lines, the last one shorter; one empty list if there are no lines."""
    block = list(islice(lines, size))
    yield block
    while block := list(islice(lines, size)):
        yield block


def _find_share(raw: BinaryIO, file: InputFile) -> float:
    return 1.0 if raw.closed else raw.tell() / max(1, file.size)


def _write_lines(lines: Sequence[str], file: InputFile) -> bytes:
    return compress("".join(f"{line}\n" for line in lines).encode(), file.path)
