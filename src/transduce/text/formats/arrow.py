"""Tables of Apache Arrow: Parquet files, and data sets that Hugging Face's `datasets` saved to disk.

Texts are in two columns, or, as in the data sets of Hugging Face, in two fields of the column "translation".
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from transduce.errors import CorpusError, MissingExtraError
from transduce.text.corpus import Pair, ParallelCorpus
from transduce.text.formats.columns import (
    SideSelection,
    choose_columns,
    choose_languages,
    find_column,
    list_names,
    shorten,
)
from transduce.text.lines import check_file

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_A_TIME = 1000
_BUFFER = 1 << 18

_TRANSLATION = "translation"

Side: TypeAlias = tuple[str, ...]
"""Where the texts of one side are: a column, or a column and one of its fields."""


def open_parquet(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a Parquet file, of which only the two columns are read, some thousand rows at a time.

    Columns are given by name; by default they follow from the names of all columns of text (`choose_columns`), or are
    the languages in "translation" (`choose_languages`). Line ends at the end of a text are no part of it.

    Raises (while it is read):
        ConfigError: a given column is not there.
        CorpusError: the file is damaged or not Parquet, the source is unknown, or a value is not text.
        MissingExtraError: pyarrow is not installed.
    """
    return ParallelCorpus(str(path), (path,), partial(_read_parquet, path, selection), is_by_language=True)


def _read_parquet(path: Path, selection: SideSelection) -> Iterator[Pair]:
    with explain_arrow_errors(path):
        from pyarrow import parquet  # noqa: PLC0415 - an optional package

        # Otherwise, the columns of a whole row group are read at once.
        with path.open("rb") as opened, parquet.ParquetFile(opened, buffer_size=_BUFFER, pre_buffer=False) as file:
            sides = _choose_sides(file.schema_arrow, path, selection)
            columns = [".".join(side) for side in sides]
            row = 1
            # Without threads, a process can be forked later.
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
                yield from _read_batch(batch, sides, path, row)
                row += batch.num_rows


_STATE = "state.json"
_SPLITS = "dataset_dict.json"


def is_saved_dataset(folder: Path) -> bool:
    """Whether `datasets` has saved a data set, or several splits of one, in the folder."""
    return any((folder / name).is_file() for name in (_STATE, _SPLITS))


def open_saved_dataset(folder: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a folder that `save_to_disk` of Hugging Face's `datasets` wrote; columns are as in `open_parquet`.

    Raises:
        CorpusError: the folder has several splits, or a file is missing or damaged.

    Raises (while it is read):
        ConfigError, CorpusError, MissingExtraError: as in `open_parquet`.
    """
    if not (folder / _STATE).is_file():
        splits = _read_names(folder / _SPLITS, lambda content: content["splits"])
        raise CorpusError(
            f"{folder}: has the splits {list_names(splits)}: give the folder of one of them, as in "
            f"{folder / next((name for name in splits if len(name) <= _MAX_NAME), 'train')}"
        )
    names = _read_names(folder / _STATE, lambda content: [file["filename"] for file in content["_data_files"]])
    if foreign := [name for name in names if Path(name).name != name or len(name) > _MAX_NAME]:
        raise CorpusError(
            f"{folder / _STATE}: names the file {shorten(foreign[0])}, which is not in its folder: save the data set "
            "again"
        )
    tables = tuple(folder / name for name in names)
    for table in tables:
        check_file(table)
    read = partial(_read_tables, tables, folder, selection)
    return ParallelCorpus(str(folder), (folder / _STATE, *tables), read, is_by_language=True)


_MAX_NAME = 255
"""Characters of the longest name that a file can have."""


def _read_names(path: Path, find: Callable[[Any], object]) -> list[str]:
    try:
        names = find(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise CorpusError(f"{path}: is damaged ({error!r:.200}): save the data set again") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorpusError(f"{path}: is damaged, as its names are not texts: save the data set again")
    return names


def _read_tables(tables: tuple[Path, ...], folder: Path, selection: SideSelection) -> Iterator[Pair]:
    row = 1
    for table in tables:
        with explain_arrow_errors(table):
            import pyarrow as pa  # noqa: PLC0415 - an optional package

            with table.open("rb") as file, pa.ipc.open_stream(file) as batches:
                sides = _choose_sides(batches.schema, folder, selection)
                for batch in batches:
                    yield from _read_batch(batch, sides, folder, row)
                    row += batch.num_rows


@contextmanager
def explain_arrow_errors(path: Path | str, mismatch: str = "of another format") -> Iterator[None]:
    """Turn pyarrow's errors about a file, and the error that pyarrow is not installed, into Transduce's own.

    `mismatch` says what the file may be if it is neither damaged nor truncated.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional package
    except ImportError:
        raise MissingExtraError("pyarrow", "data", f"reading {path}") from None
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: the name of a column
        raise CorpusError(
            f"{path}: damaged, truncated or {mismatch} ({_shorten_reason(error)}): download or create it again"
        ) from None


def _shorten_reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _choose_sides(schema: "pa.Schema", path: Path, selection: SideSelection) -> tuple[Side, Side]:
    from pyarrow import types  # noqa: PLC0415 - an optional package

    has_translation = schema.names.count(_TRANSLATION) == 1 and types.is_struct(schema.field(_TRANSLATION).type)
    by_language = list(schema.field(_TRANSLATION).type) if has_translation else []
    columns = selection.columns or _choose_columns(schema, by_language, path, selection)
    prefix: Side = ()
    fields, rule = list(schema), f"a column of {path}"
    if has_translation and not all(column in schema.names for column in columns):
        prefix = (_TRANSLATION,)
        fields, rule = by_language, f'a language in "{_TRANSLATION}" of {path}'
    for column in columns:
        found = fields[find_column(column, [field.name for field in fields], selection, rule)]
        if not is_text(found.type):
            raise CorpusError(
                f"{path}: the column {column!r} must be text, but is {found.type}: choose others by {selection.setting}"
            )
    return (*prefix, columns[0]), (*prefix, columns[1])


def _choose_columns(
    schema: "pa.Schema", by_language: "list[pa.Field]", path: Path, selection: SideSelection
) -> tuple[str, str]:
    """The names of two columns of text; where these do not say what they are, those of two of `by_language`."""
    texts = [field.name if is_text(field.type) else "" for field in schema]
    if (chosen := choose_columns(texts, selection, str(path))) is not None:
        return texts[chosen[0]], texts[chosen[1]]
    if by_language:
        return choose_languages([field.name for field in by_language], selection, str(path))
    others = ", ".join(f"{field.name!r} is {field.type}" for field in schema if not is_text(field.type))
    raise CorpusError(
        f"{path}: has the columns {list_names(schema.names)}, and their names do not say which are source and target"
        f"{f', which must be text ({others})' if others else ''}: {selection.remedy}"
    )


def is_text(kind: "pa.DataType") -> bool:
    """Whether the values of a column of this type are texts; these may be categories of pandas."""
    from pyarrow import types  # noqa: PLC0415 - an optional package

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _read_batch(batch: "pa.RecordBatch", sides: tuple[Side, Side], path: Path, first_row: int) -> Iterator[Pair]:
    """The pairs of some rows, of which the first has the number `first_row`, from 1."""
    source, target = (_read_side(batch, side, path, first_row) for side in sides)
    for row, pair in enumerate(zip(source, target, strict=True), start=first_row):
        for text, side in zip(pair, sides, strict=True):
            if text is None:
                raise CorpusError(
                    f"{path}, row {row}: {side[-1]!r} must be text, but is null: leave out the rows that lack a text"
                )
        yield pair[0].rstrip("\r\n"), pair[1].rstrip("\r\n")


def _read_side(batch: "pa.RecordBatch", side: Side, path: Path, first_row: int) -> list[Any]:
    """The texts of one side; None where there is no text."""
    from pyarrow import ArrowInvalid  # noqa: PLC0415 - an optional package

    column = batch.column(side[0])
    try:
        # Reading does not check places in memory, nor UTF-8.
        column.validate(full=True)
    except ArrowInvalid as error:
        rows = range(first_row, first_row + len(column))
        row = next((row for row in rows if not _is_valid(column.slice(row - first_row, 1))), first_row)
        raise CorpusError(
            f"{path}, row {row}: {side[-1]!r} is damaged ({_shorten_reason(error)}): create the file again"
        ) from None
    for field in side[1:]:
        # A text is null, too, where all of its "translation" is.
        column = column.flatten()[column.type.get_field_index(field)]
    texts: list[Any] = column.to_pylist()
    return texts


def _is_valid(column: "pa.Array") -> bool:
    from pyarrow import ArrowInvalid  # noqa: PLC0415 - an optional package

    try:
        column.validate(full=True)
    except ArrowInvalid:
        return False
    return True
