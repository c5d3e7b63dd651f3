"""Tables with a pair in each row: TSV, whose header is optional, and CSV, which has one."""

import csv
import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock

from transduce.errors import ConfigError, CorpusError
from transduce.text.corpus import Pair, ParallelCorpus
from transduce.text.formats.columns import (
    SideSelection,
    choose_columns,
    find_column,
    get_column_name,
    is_header,
    list_names,
    shorten,
)
from transduce.text.lines import read_lines

NUM_JUDGED = 100
"""Number of lines, from the first, that decide whether a column contains only numbers."""

MAX_CELL_LENGTH = 1 << 22
"""Maximum number of characters in a cell of a CSV file; of more, a quotation mark is missing."""

_limit_lock = Lock()

_NUMBER = re.compile(r"\s*[-+]?\d+([.,]\d+)*([eE][-+]?\d+)?\s*")

ColumnIndices = tuple[int, int]
"""The indices of the columns of source and target, from 0."""


def open_tsv(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a file whose columns have one tab between them; nothing is quoted or escaped.

    A first row that names the columns is left out. Columns are given by their numbers from 1, or by names in that row;
    by default they are those that such a row names (`choose_columns`), or else the first two.

    Raises (while it is read):
        ConfigError: a column is neither a number from 1 on nor a name in the first row.
        CorpusError: the first row names columns, but not which are source and target; names and texts are in quotation
            marks; there are more than two columns without names, and the first or second contains only numbers; a line
            has too few columns, or another number of columns than the first line. See also `read_lines`.
    """
    return ParallelCorpus(
        str(path), (path,), partial(_read_tsv, path, selection), partial(_describe_tsv_header, path, selection)
    )


def _read_tsv(path: Path, selection: SideSelection) -> Iterator[Pair]:
    indices, has_header = _find_tsv_columns(path, selection)
    yield from islice(_read_tsv_rows(path, indices, selection), int(has_header), None)


def _describe_tsv_header(path: Path, selection: SideSelection) -> str:
    indices, has_header = _find_tsv_columns(path, selection)
    if not has_header:
        return ""
    source, target = next(_read_tsv_rows(path, indices, selection))
    return (
        f"its first row, {source!r} and {target!r}, is a header and is left out; if it is a pair, move it to another "
        "row"
    )


def _find_tsv_columns(path: Path, selection: SideSelection) -> tuple[ColumnIndices, bool]:
    """The columns of source and target, and whether the first row names them."""
    row = next(read_lines(path), "").split("\t")
    if selection.columns is None:
        chosen = choose_columns(row, selection, str(path))
        if chosen is not None:
            _refuse_quotes(path, chosen)
        if chosen is None and len(row) > 2:
            _refuse_numbers(path, selection)
        return chosen or (0, 1), chosen is not None
    found = [_find_tsv_column(column, row, path, selection) for column in selection.columns]
    (source, source_is_named), (target, target_is_named) = found
    if source == target:
        first, second = selection.columns
        raise ConfigError(f"{selection.setting}: {first!r} and {second!r} are the same column of {path}: give two")
    if source_is_named or target_is_named:
        return (source, target), True
    return (source, target), max(source, target) < len(row) and is_header(row[source], row[target], selection.languages)


def _refuse_quotes(path: Path, chosen: ColumnIndices) -> None:
    """Refuse a table whose names and first texts are in quotation marks, which would be read as parts of the texts."""
    cells = [
        cell for line in islice(read_lines(path), 2) for index, cell in enumerate(line.split("\t")) if index in chosen
    ]
    if len(cells) == 4 and all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in cells):
        raise CorpusError(
            f"{path}: its names and texts are in quotation marks, and nothing is quoted in TSV: save it without "
            "quotation marks, or as CSV"
        )


def _refuse_numbers(path: Path, selection: SideSelection) -> None:
    """Refuse a table whose first or second column contains only numbers, such as line numbers or scores.

    The first line is not judged if there are others, as it may name the columns in unknown words.
    """
    first, *others = (line.split("\t") for line in islice(read_lines(path), NUM_JUDGED))
    for index, name in enumerate(("first", "second")):
        cells = [row[index] for row in others or [first] if index < len(row)]
        if cells and all(map(_NUMBER.fullmatch, cells)):
            raise CorpusError(
                f"{path}: has {len(first)} columns without names, and the {name} one has numbers alone, as "
                f"{shorten(cells[0])}: say by {selection.setting} which columns are source and target, numbered from 1"
            )


def _find_tsv_column(column: str, row: list[str], path: Path, selection: SideSelection) -> tuple[int, bool]:
    """The index of a given column, and whether it is given by name."""
    if column.isascii() and column.isdigit() and int(column) > 0:
        return int(column) - 1, False
    names = list(map(get_column_name, row))
    rule = f'a column number in {path}, from 1, as in "2", or a name in its first row'
    return find_column(column, names, selection, rule), True


def _read_tsv_rows(path: Path, indices: ColumnIndices, selection: SideSelection) -> Iterator[Pair]:
    source, target = indices
    needed = max(indices) + 1
    expected = 0
    for number, line in enumerate(read_lines(path), start=1):
        values = line.split("\t")
        expected = expected or len(values)
        if len(values) < needed:
            raise CorpusError(
                f"{path}, line {number}: has {len(values)} of {needed} required columns, separated by single tabs: "
                f"{shorten(line)}; correct the line, or choose other columns by {selection.setting}"
            )
        if len(values) != expected:
            raise CorpusError(
                f"{path}, line {number}: has {len(values)} columns, but the first line has {expected}: "
                f"{shorten(line)}; replace a tab that is part of a text by a space, and add a tab for each column that "
                "is missing"
            )
        yield values[source], values[target]


def open_csv(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a file of comma-separated values (RFC 4180), whose first row names the columns.

    Columns are given by name; by default they follow from all names (`choose_columns`). Quoted cells may contain commas
    and line ends; those at the end of a text are no part of it.

    Raises (while it is read):
        ConfigError: a given column is not named in the first row.
        CorpusError: the names do not say which columns are source and target, a row has more or fewer cells than the
            first, a cell has more than `MAX_CELL_LENGTH` characters, quotation marks are missing, or semicolons stand
            for commas; see also `read_lines`.
    """
    return ParallelCorpus(str(path), (path,), partial(_read_csv, path, selection), is_by_language=True)


def _read_csv(path: Path, selection: SideSelection) -> Iterator[Pair]:
    first = next(iter(read_lines(path)), "")
    if ";" in first and "," not in first:
        raise CorpusError(
            f"{path}: its cells are separated by semicolons, not by commas: {shorten(first)}; save it with commas, or "
            "with tabs as TSV"
        )
    rows = _read_csv_rows(path)
    _, header = next(rows, (1, []))
    if not header:
        return
    source, target = _find_csv_columns(header, path, selection)
    for line, row in rows:
        if len(row) != len(header):
            raise CorpusError(
                f"{path}, line {line}: has {len(row)} cells, but the first row has {len(header)}: "
                f"{shorten(','.join(row))}; correct it: a cell that contains a comma must be in quotation marks"
            )
        yield row[source].rstrip("\r\n"), row[target].rstrip("\r\n")


def _find_csv_columns(header: list[str], path: Path, selection: SideSelection) -> ColumnIndices:
    names = list(map(get_column_name, header))
    if selection.columns is None:
        if (chosen := choose_columns(names, selection, str(path))) is None:
            raise CorpusError(
                f"{path}: its first row must name the columns, separated by commas, but has {list_names(names)}: name "
                f"them by language or as source and target, or choose two names by {selection.setting}"
            )
        return chosen
    rule = f"a name in the first row of {path}"
    source, target = (find_column(column, names, selection, rule) for column in selection.columns)
    return source, target


def _read_csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of the line in which it begins; blank lines are left out."""
    reader = csv.reader(read_lines(path, keep_ends=True), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = _read_csv_row(reader)
        except csv.Error as error:
            if "field limit" in str(error):
                raise CorpusError(
                    f"{path}, line {line}: has a cell of more than {MAX_CELL_LENGTH:,} characters, and no text of that "
                    "length is used: leave it out, or add the quotation mark that is missing at the end of a cell"
                ) from None
            raise CorpusError(
                f"{path}, line {line}: is not CSV ({error}): put a cell that contains a comma, a quotation mark or a "
                "line end into quotation marks, and double those within it"
            ) from None
        if row is None:
            return
        if row:
            yield line, row


def _read_csv_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row; None behind the last one."""
    with _limit_lock:
        limit = csv.field_size_limit(MAX_CELL_LENGTH)  # for the whole process, so that it is only changed for a row
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)
