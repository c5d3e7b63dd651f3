"""Parquet files in bulk translation: every row gets one more column."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.bulk.blocks import Block
from transduce.bulk.inputs import InputFile
from transduce.errors import CorpusError, TransduceError
from transduce.text.formats.arrow import explain_arrow_errors, is_text
from transduce.text.formats.columns import list_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

_COMPRESSION = b"transduce compression"
"""Key in the metadata of a translated block for the compression that the complete file gets."""

_WRITTEN = {"UNCOMPRESSED": "NONE"} | {name: name for name in ("SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD")}
"""For each compression that pyarrow reports of a file it reads, the name that pyarrow takes for writing it."""


class ParquetFormat:
    """Reads Parquet files in blocks of rows, and writes them with one more column, the translation, as the last.

    A text of several lines is translated line by line; the translation of a null is null. The file has the compression
    of its texts again. The file of a block is a stream of Arrow.
    """

    def __init__(self, column: str, translation_column: str) -> None:
        self._column, self._translation_column = column, translation_column

    def read_blocks(self, file: InputFile, size: int) -> Iterator[Block]:
        """Read a file in blocks of `size` rows; a block has also the lines of their texts, to be translated."""
        with file.open_binary() as raw, _explain_read_errors(file.path):
            from pyarrow import parquet  # noqa: PLC0415 - an optional package

            with parquet.ParquetFile(raw, pre_buffer=False) as table:
                schema, num_rows = table.schema_arrow, table.metadata.num_rows
                self._check_schema(schema, file)
                compression = self._find_compression(table.metadata)
                batches = table.iter_batches(size, use_threads=False)
                first, number = 1, 0
                for batch in _cut_batches(batches, schema, size):
                    batch.validate(full=True)  # reading does not check places in memory
                    texts = batch.column(schema.get_field_index(self._column)).to_pylist()
                    kept = [None if text is None else text.split("\n") for text in texts]
                    lines = [line for text in kept for line in text or ()]
                    numbers = [row for row, text in enumerate(kept, first) for _ in text or ()]
                    counts = [None if text is None else len(text) for text in kept]
                    share = (first - 1 + batch.num_rows) / num_rows if num_rows else 1.0
                    yield Block(number, first, lines, numbers, (batch, counts, compression), share)
                    first, number = first + batch.num_rows, number + 1

    def _check_schema(self, schema: "pa.Schema", file: InputFile) -> None:
        if schema.names.count(self._column) != 1:
            raise CorpusError(
                f"{file.path}: one column must have the name {self._column!r}, but they are "
                f"{list_names(schema.names)}: choose it by --column"
            )
        kind = schema.field(self._column).type
        if not is_text(kind):
            raise CorpusError(f"{file.path}: the column {self._column!r} must be text, but is {kind}: choose another")
        if self._translation_column in schema.names:
            raise CorpusError(
                f"{file.path}: has the column {self._translation_column!r} already: choose another name by "
                "--translation-column"
            )

    def _find_compression(self, metadata: "parquet.FileMetaData") -> str:
        """The compression of the texts; another one if it is unknown, or of a kind that is no longer written."""
        groups = [metadata.row_group(0)] if metadata.num_row_groups else []
        columns = [group.column(place) for group in groups for place in range(group.num_columns)]
        found = [one.compression for one in columns if one.path_in_schema == self._column]
        return next((_WRITTEN[one] for one in found if one in _WRITTEN), "SNAPPY")

    def write_block(self, block: Block, translations: Sequence[str], file: InputFile) -> bytes:  # noqa: ARG002 - FileFormat
        """Write the rows of a block, with the column of translations, as a stream of Arrow."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package

        batch, counts, compression = block.records
        rest = iter(translations)
        texts = [None if count is None else "\n".join(islice(rest, count)) for count in counts]
        schema = batch.schema.append(pa.field(self._translation_column, pa.string()))
        schema = schema.with_metadata({**(schema.metadata or {}), _COMPRESSION: compression})
        translated = pa.RecordBatch.from_arrays([*batch.columns, pa.array(texts, pa.string())], schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(translated)
        return bytes(sink.getvalue())

    def join_blocks(self, blocks: Sequence[Path], path: Path) -> None:
        """Write the rows of all blocks, in order, as one Parquet file."""
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        from pyarrow import parquet  # noqa: PLC0415 - an optional package

        with blocks[0].open("rb") as file, pa.ipc.open_stream(file) as first:
            schema, metadata = first.schema, dict(first.schema.metadata or {})
        compression = metadata.pop(_COMPRESSION, b"SNAPPY").decode()
        schema = schema.with_metadata(metadata)
        # pyarrow itself opens only paths that are UTF-8.
        with path.open("wb") as joined, parquet.ParquetWriter(joined, schema, compression=compression) as writer:
            for block in blocks:
                with block.open("rb") as file, pa.ipc.open_stream(file) as batches:
                    for batch in batches:
                        writer.write_batch(batch.replace_schema_metadata(metadata))


def _cut_batches(batches: "Iterator[pa.RecordBatch]", schema: "pa.Schema", size: int) -> "Iterator[pa.RecordBatch]":
    """Batches of exactly `size` rows, the last one smaller, however the file is divided; at least one batch."""
    import pyarrow as pa  # noqa: PLC0415 - an optional package

    empty = pa.RecordBatch.from_pylist([], schema=schema)
    waiting, is_first = pa.Table.from_batches([empty]), True
    for batch in batches:
        waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
        while waiting.num_rows >= size:
            yield _merge(waiting.slice(0, size), empty)
            waiting, is_first = waiting.slice(size), False
    if waiting.num_rows or is_first:
        yield _merge(waiting, empty)


def _merge(table: "pa.Table", empty: "pa.RecordBatch") -> "pa.RecordBatch":
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty


@contextmanager
def _explain_read_errors(path: str) -> Iterator[None]:
    """Turn errors of reading a Parquet file, and the error that pyarrow is not installed, into Transduce's own."""
    with explain_arrow_errors(path, "not Parquet"):
        try:
            yield
        except OSError as error:
            if error.errno is None:  # of pyarrow, not of a disk or a network
                raise
            raise TransduceError(f"{path}: cannot be read ({error}): give the same command again") from error
