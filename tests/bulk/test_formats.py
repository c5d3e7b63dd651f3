import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import DataType, array, chunked_array, large_string, parquet, string, string_view, table

from transduce.bulk.formats import FileFormat, JsonFormat, TextFormat, TsvFormat, choose_file_format
from transduce.bulk.inputs import find_input_files
from transduce.bulk.parquet import ParquetFormat
from transduce.errors import ConfigError, CorpusError

Translate = Callable[..., bytes]


@pytest.fixture
def translate(tmp_path: Path) -> Translate:
    """What a format makes of a file with blocks of two records, if each text is translated into capitals."""

    def write(one: FileFormat, name: str, content: bytes | None = None) -> bytes:
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        (file,) = find_input_files([str(path)], tmp_path / "out")
        paths = []
        for block in one.read_blocks(file, 2):
            paths.append(tmp_path / f"block-{block.number}")
            paths[-1].write_bytes(one.write_block(block, [line.upper() for line in block.lines], file))
        assert block.share == 1.0
        one.join_blocks(paths, tmp_path / "joined")
        return (tmp_path / "joined").read_bytes()

    return write


def test_text(translate: Translate) -> None:
    assert translate(TextFormat(), "text", "\ufeffa\r\n\nb\nc d\n\ne".encode()) == b"A\n\nB\nC D\n\nE\n"
    assert translate(TextFormat(), "text", b"") == b""


def test_a_json_object_keeps_every_byte(translate: Translate) -> None:
    lines = [
        '{"id":1.50, "s":"a","s2" : [1e5]}',
        ' {"s": "b\\u00e4\\n\\nc"  } ',
        '{"s": null}',
        '{"s": ""}\r',
        '{"n": {"s": 1}, "s": "\\"}"}',
    ]
    written = translate(JsonFormat("s", "t"), "a.jsonl", "\n".join(lines).encode())
    assert written.decode().splitlines() == [
        '{"id":1.50, "s":"a","s2" : [1e5], "t": "A"}',
        ' {"s": "b\\u00e4\\n\\nc", "t": "BÄ\\n\\nC"}',
        '{"s": null, "t": null}',
        '{"s": "", "t": ""}',
        '{"n": {"s": 1}, "s": "\\"}", "t": "\\"}"}',
    ]
    assert all(json.loads(line) for line in written.splitlines())
    assert translate(JsonFormat("s", "t"), "a.jsonl", b"") == b""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", r"must be a JSON object, but is '\[1\]'"),
        ('{"x": "a"}', r"must have the key 's', but has 'x': choose it by --column"),
        ('{"s": 1}', "'s' must be text, but is 1"),
        ('{"s": "a", "t": "b"}', "has the key 't' already: choose another by --translation-column"),
        ('{"s": "a", "s": "b"}', "has the key 's' twice: give it once"),
        ('{"s": "\\ud800"}', "unpaired surrogate"),
    ],
)
def test_what_is_wrong_in_json_is_named(line: str, message: str, translate: Translate) -> None:
    with pytest.raises(CorpusError, match=rf"a\.jsonl, line 3: .*{message}"):
        translate(JsonFormat("s", "t"), "a.jsonl", f'{{"s": "a"}}\n{{"s": "b"}}\n{line}\n'.encode())


def test_blank_lines_of_json_may_come_at_the_end(translate: Translate) -> None:
    assert translate(JsonFormat("s", "t"), "a.jsonl", b'{"s": "a"}\n\n \n') == b'{"s": "a", "t": "A"}\n'
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 2: must be a JSON object, not blank: .* at the end alone"):
        translate(JsonFormat("s", "t"), "a.jsonl", b'{"s": "a"}\n\n\n{"s": "b"}\n')


@pytest.mark.parametrize("content", [b'[{"s": "a"}]', b' [\n{"s": "a"}\n]\n'])
def test_an_array_is_refused_with_the_remedy(content: bytes, translate: Translate) -> None:
    with pytest.raises(CorpusError, match=r"a\.json, line 1: .* begins an array: .* jq -c '\.\[\]'"):
        translate(JsonFormat("s", "t"), "a.json", content)


def test_a_table_gets_a_column(translate: Translate) -> None:
    rows = b"id\ts\n1\ta\n2\t\n3\tb c\r\n"
    assert translate(TsvFormat("s", "t"), "a.tsv", rows) == b"id\ts\tt\n1\ta\tA\n2\t\t\n3\tb c\tB C\n"
    assert translate(TsvFormat("1", "t"), "a.tsv", b"a\tx\nb\ty\n\nc") == b"a\tx\tA\nb\ty\tB\n\t\nc\tC\n"
    assert translate(TsvFormat("s", "t"), "a.tsv", b"id\ts") == b"id\ts\tt\n"
    assert translate(TsvFormat("s", "t"), "a.tsv", b"") == b""


@pytest.mark.parametrize(
    ("column", "rows", "message"),
    [
        ("2", b"a\tb\nc\n", "line 2: has 1 columns, and column 2 is to be translated"),
        ("a", b"a\tb\nc\td\ne\tf\tg\n", "line 3: has 3 columns, but the first line has 2: replace a tab"),
        ("a", b"a\tb\nc\n", "line 2: has 1 columns, but the first line has 2"),
        ("x", b"a\tb\n", r"must have the name 'x', but they are 'a', 'b'"),
        ("a", b"a\tt\n", "has the column 't' already"),
        ("a", b"a\n\xff\n", "line 2, byte 1 of the line: the byte 0xff is not UTF-8"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(column: str, rows: bytes, message: str, translate: Translate) -> None:
    with pytest.raises(CorpusError, match=message):
        translate(TsvFormat(column, "t"), "a.tsv", rows)


@pytest.mark.parametrize("kind", [string(), large_string(), string_view()], ids=str)
def test_parquet_keeps_columns_types_and_nulls(kind: DataType, translate: Translate, tmp_path: Path) -> None:
    texts = ["a", None, "b\nc", "", "d" * 100]
    given = table({"id": [1, 2, 3, 4, 5], "s": array(texts, kind), "other": array(texts, kind)})
    for group_size in (1, 2, 3, 5):  # blocks do not depend on how the file is divided
        parquet.write_table(given, tmp_path / "a.parquet", row_group_size=group_size)
        translate(ParquetFormat("s", "t"), "a.parquet")
        found = parquet.read_table(tmp_path / "joined")
        assert found.schema.names == ["id", "s", "other", "t"]
        assert found.schema.types == [*given.schema.types, string()]
        assert found.drop(["t"]).equals(given)
        assert found["t"].to_pylist() == ["A", None, "B\nC", "", "D" * 100]
    parquet.write_table(given.slice(0, 0), tmp_path / "a.parquet")
    translate(ParquetFormat("s", "t"), "a.parquet")
    assert parquet.read_table(tmp_path / "joined").num_rows == 0


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none", {"id": "snappy", "s": "brotli"}])
def test_parquet_keeps_the_compression_of_its_texts(compression: Any, translate: Translate, tmp_path: Path) -> None:
    given = table({"id": [1, 2, 3], "s": ["a", "b", "c"], "n": [[1], [], [2]]}, metadata={"made": "by hand"})
    parquet.write_table(given, tmp_path / "a.parquet", compression=compression)
    translate(ParquetFormat("s", "t"), "a.parquet")

    def find_compressions(path: Path) -> dict[str, str]:
        group = parquet.read_metadata(path).row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        return {one.path_in_schema: one.compression for one in columns}

    before = find_compressions(tmp_path / "a.parquet")
    assert find_compressions(tmp_path / "joined") == dict.fromkeys([*before, "t"], before["s"])
    assert parquet.read_schema(tmp_path / "joined").metadata == given.schema.metadata


def test_categories_in_parquet_are_text(translate: Translate, tmp_path: Path) -> None:
    texts = chunked_array([array(one).dictionary_encode() for one in (["a", None, "b", "a"], ["c", "a"])])
    parquet.write_table(table({"s": texts}), tmp_path / "a.parquet", row_group_size=3)
    translate(ParquetFormat("s", "t"), "a.parquet")
    found = parquet.read_table(tmp_path / "joined")
    assert found["s"].to_pylist() == texts.to_pylist()
    assert found.schema.types == [texts.type, string()]
    assert found["t"].to_pylist() == ["A", None, "B", "A", "C", "A"]


def test_lines_of_one_text_have_its_number(tmp_path: Path) -> None:
    parquet.write_table(table({"s": ["a", None, "b\nc", "d"]}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"s": "a"}\n{"s": "b\\n\\nc"}\n{"s": "d"}\n', encoding="utf-8")
    (tmp_path / "a.tsv").write_text("s\na\nb\n", encoding="utf-8")
    (tmp_path / "text").write_text("a\nb\nc\n", encoding="utf-8")

    def find_numbers(one: FileFormat, name: str) -> list[list[int]]:
        (file,) = find_input_files([str(tmp_path / name)], tmp_path / "out")
        return [[*block.numbers] for block in one.read_blocks(file, 2)]

    assert find_numbers(ParquetFormat("s", "t"), "a.parquet") == [[1], [3, 3, 4]]
    assert find_numbers(JsonFormat("s", "t"), "a.jsonl") == [[1, 2, 2, 2], [3]]
    assert find_numbers(TsvFormat("s", "t"), "a.tsv") == [[2, 3]]
    assert find_numbers(TextFormat(), "text") == [[1, 2], [3]]


def test_what_is_wrong_in_parquet_is_named(translate: Translate, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"a\.parquet: damaged, truncated or not Parquet"):
        translate(ParquetFormat("s", "t"), "a.parquet", b"PAR1 or not")
    with pytest.raises(CorpusError, match=r"a\.parquet: damaged, truncated or not Parquet"):
        translate(ParquetFormat("s", "t"), "a.parquet", b"PAR1" + bytes(999) + b"PAR1")
    parquet.write_table(table({"s": [1], "t": ["a"]}), tmp_path / "b.parquet")
    for column, other, message in (
        ("x", "y", "must have the name 'x'"),
        ("s", "y", "must be text, but is int64"),
        ("t", "t", "has the column 't' already"),
    ):
        with pytest.raises(CorpusError, match=message):
            translate(ParquetFormat(column, other), "b.parquet")


def test_the_name_says_the_format() -> None:
    def choose(name: str, column: str | None = "s", **options: bool) -> type:
        return type(choose_file_format(name, column, "t", **{"json_input": False, **options}))

    assert choose("a.jsonl") == choose("a.b.JSON.gz") == choose("a.ndjson.zst") == JsonFormat
    assert choose("a.tsv.xz") == TsvFormat
    assert choose("a.parquet") == ParquetFormat
    assert choose("a.txt.gz", None) == choose("tsv", None) == choose(".gz", None) == TextFormat
    assert choose("a.jsonl", None, json_input=True) == TextFormat
    for name in ("a.csv", "a.tmx.gz", "a.parquet.gz"):
        with pytest.raises(CorpusError, match=name):
            choose(name)
    for name in ("a.srt", "a.VTT", "a.html", "a.htm.gz", "a.docx"):
        with pytest.raises(CorpusError, match=rf"{name}: is a document, .* by `transduce translate-file`"):
            choose(name, None)
    with pytest.raises(ConfigError, match=r"a\.tsv: say by --column"):
        choose("a.tsv", None)
    with pytest.raises(ConfigError, match="--column s: with --json-input, the key text is translated"):
        choose("a.jsonl", json_input=True)
    for name in ("a.parquet", "a.tsv.gz"):
        with pytest.raises(ConfigError, match=f"--json-input: {name} has no lines of JSON"):
            choose(name, None, json_input=True)
