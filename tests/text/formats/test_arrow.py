import json
import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from transduce.errors import ConfigError, CorpusError, MissingExtraError
from transduce.text import open_parallel_corpus

Pairs = list[tuple[str, str]]
ReadPairs = Callable[..., Pairs]
# Without line ends at the end of a text, which are no part of it.
TEXTS = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.rstrip("\r\n"))
KINDS = st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
LANGUAGES = ("en", "de")


def make_table(pairs: Pairs, kind: pa.DataType = pa.string(), *, nested: bool = False) -> pa.Table:  # noqa: B008
    """A table with the columns en and de, or with the column translation, and one of numbers."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    numbers = pa.array(range(len(pairs)), pa.int64())
    if nested:
        records = [{"de": target, "en": source} for source, target in pairs]
        kind = pa.struct([("de", pa.string()), ("en", pa.string())])
        return pa.table({"id": numbers, "translation": pa.array(records, kind)})
    return pa.table({"id": numbers, "de": pa.array(targets, kind), "en": pa.array(sources, kind)})


def save_dataset(folder: Path, *shards: pa.Table, names: list[str] | None = None) -> Path:
    """A folder as `save_to_disk` of Hugging Face's `datasets` writes it."""
    folder.mkdir(parents=True)
    names = names or [f"data-{number:05}-of-{len(shards):05}.arrow" for number in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, shard.schema) as stream:
            stream.write_table(shard, max_chunksize=1000)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "6f1a7b2c", "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "dataset_info.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_paths_need_not_be_utf_8(read_pairs: ReadPairs, tmp_path: Path) -> None:
    folder, pairs = tmp_path / os.fsdecode(b"caf\xe9"), [("a", "b"), ("c", "d")]
    saved = save_dataset(tmp_path / "saved", make_table(pairs))
    parquet.write_table(make_table(pairs), saved / "a.parquet")
    saved.rename(folder)
    assert read_pairs(folder / "a.parquet", languages=LANGUAGES) == pairs
    assert read_pairs(folder, languages=LANGUAGES) == pairs


@given(st.lists(st.tuples(TEXTS, TEXTS)), KINDS, st.booleans(), st.sampled_from(["none", "snappy", "zstd"]))
def test_parquet_comes_back_as_it_was_written(
    read_pairs: ReadPairs,
    tmp_path_factory: pytest.TempPathFactory,
    pairs: Pairs,
    kind: pa.DataType,
    nested: bool,
    compression: str,
) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.Parquet"
    parquet.write_table(make_table(pairs, kind, nested=nested), path, row_group_size=3, compression=compression)
    assert read_pairs(path, languages=LANGUAGES) == pairs
    assert read_pairs(path, ("de", "en"), LANGUAGES) == [(target, source) for source, target in pairs]


@given(st.lists(st.lists(st.tuples(TEXTS, TEXTS)), max_size=3), KINDS, st.booleans())
def test_a_saved_data_set_comes_back_as_it_was_written(
    read_pairs: ReadPairs,
    tmp_path_factory: pytest.TempPathFactory,
    shards: list[Pairs],
    kind: pa.DataType,
    nested: bool,
) -> None:
    tables = [make_table(pairs, kind, nested=nested) for pairs in shards]
    folder = save_dataset(tmp_path_factory.mktemp("arrow") / "saved", *tables)
    pairs = [pair for shard in shards for pair in shard]
    assert read_pairs(folder, languages=LANGUAGES) == pairs
    assert read_pairs(folder, ("de", "en"), LANGUAGES) == [(target, source) for source, target in pairs]


def test_line_ends_at_the_end_of_a_text_are_left_out(read_pairs: ReadPairs, tmp_path: Path) -> None:
    table = make_table([("a\n", "b\r\n"), ("\nc\nd", "\n")])
    parquet.write_table(table, tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", save_dataset(tmp_path / "saved", table)):
        assert read_pairs(path, languages=LANGUAGES) == [("a", "b"), ("\nc\nd", "")]


def test_rows_of_many_batches_stay_in_order(read_pairs: ReadPairs, tmp_path: Path) -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(2_500)]
    parquet.write_table(make_table(pairs, nested=True), tmp_path / "a.parquet", row_group_size=1_300)
    assert read_pairs(tmp_path / "a.parquet", languages=LANGUAGES) == pairs
    folder = save_dataset(tmp_path / "saved", make_table(pairs[:1_200]), make_table(pairs[1_200:]))
    assert read_pairs(folder, languages=LANGUAGES) == pairs


def test_the_order_of_the_tables_is_that_of_the_state(tmp_path: Path) -> None:
    tables = make_table([("a", "A")]), make_table([("b", "B")])
    folder = save_dataset(tmp_path / "saved", *tables, names=["z.arrow", "a.arrow"])
    save_dataset(tmp_path / "other", make_table([("c", "C")]))
    (tmp_path / "other" / "data-00000-of-00001.arrow").rename(folder / "cache-17.arrow")
    corpus = open_parallel_corpus(tmp_path, None, None, "saved/", None, LANGUAGES)
    assert list(corpus) == [("a", "A"), ("b", "B")]
    assert corpus.files == (folder / "state.json", folder / "z.arrow", folder / "a.arrow")


def test_only_the_two_columns_are_read(read_pairs: ReadPairs, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(make_table([("a", "A"), ("b", "B")]), path, compression="none")
    column = parquet.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.path_in_schema == "id"
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)
    with pytest.raises(OSError, match=r"."):
        parquet.read_table(path)
    assert read_pairs(path, languages=LANGUAGES) == [("a", "A"), ("b", "B")]


def test_memory_does_not_grow_with_a_parquet_file(tmp_path: Path) -> None:
    line = "a sentence of some forty characters, with the number"
    pairs = [(f"{line} {number * 7919 % 10_007}", f"{line} {number}") for number in range(30_000)]
    path = tmp_path / "a.parquet"  # of one row group
    parquet.write_table(make_table(pairs), path, compression="none", use_dictionary=False, data_page_size=10_000)
    before = pa.total_allocated_bytes()
    largest = 0
    tracemalloc.start()
    for _ in open_parallel_corpus(tmp_path, None, None, "a.parquet", None, LANGUAGES):
        largest = max(largest, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest + peak < 1_300_000 < path.stat().st_size / 2


@pytest.mark.parametrize(
    ("columns", "languages", "expected"),
    [
        (["en", "de"], ("", ""), (0, 1)),
        (["de", "en"], ("en", "de"), (1, 0)),
        (["id", "German", "English"], ("en", "de"), (2, 1)),
        (["score", "target", "source"], ("", ""), (2, 1)),
    ],
)
def test_columns_are_found_by_name_as_those_of_tables(
    read_pairs: ReadPairs, tmp_path: Path, columns: list[str], languages: tuple[str, str], expected: tuple[int, int]
) -> None:
    parquet.write_table(pa.table({name: ["ABC"[index]] for index, name in enumerate(columns)}), tmp_path / "a.parquet")
    [pair] = read_pairs(tmp_path / "a.parquet", languages=languages)
    assert pair == ("ABC"[expected[0]], "ABC"[expected[1]])


NESTED = {
    "translation": pa.array([{"en": "x", "de": "y"}], pa.struct([("en", pa.string()), ("de", pa.string())])),
}


@pytest.mark.parametrize(
    ("table", "columns", "languages", "message"),
    [
        ({"a": ["x"], "b": ["y"]}, None, LANGUAGES, "has the columns 'a', 'b', and their names do not say which"),
        (
            {"id": ["x"], "en": ["y"], "de": ["z"]},
            None,
            ("", ""),
            "cannot tell which of the columns 'id' .*data.columns",
        ),
        ({"en": ["x"], "de": [1]}, None, LANGUAGES, r"which must be text \('de' is int64\): choose two by"),
        ({"en": ["x"], "de": ["y"]}, ("en", "fr"), ("", ""), '"fr" must be a column of .*which has .en., .de.'),
        ({"en": ["x"], "de": [[1]]}, ("en", "de"), ("", ""), "'de' must be text, but is list<"),
        ({"en": ["x"], "de": [7]}, ("en", "de"), ("", ""), "'de' must be text, but is int64: choose others by data"),
        (NESTED, None, ("", ""), "its .translation. has 'en', 'de', and the source is unknown: give --source-l"),
        (NESTED, None, ("en", "fr"), "its .translation. must have the languages 'en' and 'fr', but has 'en', 'de'"),
        (NESTED, ("en", "fr"), ("", ""), '"fr" must be a language in "translation" of .*which has .en., .de.'),
        ({"translation": [{"en": "x", "de": 7}]}, ("en", "de"), ("", ""), "'de' must be text, but is int64"),
        ({"translation": ["x"]}, None, LANGUAGES, "has the columns 'translation'"),
    ],
)
def test_columns_that_are_not_there_or_not_text_are_errors(
    read_pairs: ReadPairs,
    tmp_path: Path,
    table: dict[str, Any],
    columns: tuple[str, str] | None,
    languages: tuple[str, str],
    message: str,
) -> None:
    arrow = pa.table(table)
    parquet.write_table(arrow, tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", save_dataset(tmp_path / "saved", arrow)):
        with pytest.raises((ConfigError, CorpusError), match=message):
            read_pairs(path, columns, languages)


def test_two_columns_of_one_name_are_refused(read_pairs: ReadPairs, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["en", "de", "en"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        ConfigError, match=r"validation_columns: \"en\" must be a column of .* has 2 columns of that name"
    ):
        read_pairs(tmp_path / "a.parquet", ("en", "de"), setting="data.validation_columns")


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("row", [1, 1_001, 1_500])
def test_a_row_without_text_is_an_error_with_its_number(
    read_pairs: ReadPairs, tmp_path: Path, nested: bool, row: int
) -> None:
    pairs: list[Any] = [("a", "b")] * 1_600
    pairs[row - 1] = ("a", None)
    table = make_table(pairs, nested=nested)
    parquet.write_table(table, tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", save_dataset(tmp_path / "saved", table.slice(0, 700), table.slice(700))):
        with pytest.raises(CorpusError, match=rf"{path.name}, row {row:}: 'de' must be text, but is null"):
            read_pairs(path, languages=LANGUAGES)


def test_a_row_without_translation_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    kind = pa.struct([("de", pa.string()), ("en", pa.string())])
    table = pa.table({"translation": pa.array([{"de": "a", "en": "b"}, None], kind)})
    for path in (save_dataset(tmp_path / "saved", table), save_dataset(tmp_path / "sliced", table.slice(1))):
        with pytest.raises(
            CorpusError, match=rf"row {2 if path.name == 'saved' else 1}: 'en' must be text, but is null"
        ):
            read_pairs(path, languages=LANGUAGES)


def test_what_is_not_utf_8_is_an_error_with_its_row(read_pairs: ReadPairs, tmp_path: Path) -> None:
    wrong = pa.array([b"a"] * 1_200 + [b"Caf\xe9"] + [b"b"] * 50, pa.binary()).view(pa.string())
    table = pa.table({"en": wrong, "de": ["b"] * len(wrong)})
    parquet.write_table(table, tmp_path / "a.parquet")
    for path in (tmp_path / "a.parquet", save_dataset(tmp_path / "saved", table)):
        with pytest.raises(CorpusError, match=rf"{path.name}, row 1201: 'en' is damaged \(.*UTF8"):
            read_pairs(path, languages=LANGUAGES)


def test_places_outside_of_the_text_are_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    offsets = pa.py_buffer((0).to_bytes(4, "little") + (9).to_bytes(4, "little") + (3).to_bytes(4, "little"))
    wrong = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
    folder = save_dataset(tmp_path / "saved", pa.table({"en": wrong, "de": ["b", "c"]}))
    with pytest.raises(CorpusError, match=r"saved, row 1: 'en' is damaged"):
        read_pairs(folder, languages=LANGUAGES)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.999])
def test_a_file_that_is_cut_off_is_an_error(read_pairs: ReadPairs, tmp_path: Path, share: float) -> None:
    pairs = [(f"source {number}", f"target {number}") for number in range(5_000)]
    path = tmp_path / "a.parquet"
    parquet.write_table(make_table(pairs), path)
    folder = save_dataset(tmp_path / "saved", make_table(pairs))
    for file in (path, folder / "data-00000-of-00001.arrow"):
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(CorpusError, match=rf"{file.name}: damaged, truncated or of another format"):
            read_pairs(path if file == path else folder, languages=LANGUAGES)


def test_a_name_of_a_column_that_is_not_utf_8_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", pa.table({"en": ["a"], "de": ["b"], "score": ["c"]}))
    file = folder / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes().replace(b"score", b"sc\xffre"))
    with pytest.raises(CorpusError, match=r"data-.*arrow: damaged, truncated or of another format \('utf-8' codec"):
        read_pairs(folder, languages=LANGUAGES)


def test_other_contents_are_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    for content in (b"", b"plain text\n" * 99, b"PAR1" + bytes(999) + b"PAR1"):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(CorpusError, match=r"a\.parquet: damaged, truncated or of another format"):
            read_pairs(tmp_path / "a.parquet", languages=LANGUAGES)


def test_a_state_with_a_name_that_no_file_can_have_is_an_error(read_pairs: ReadPairs, tmp_path: Path) -> None:
    folder = save_dataset(tmp_path / "saved", make_table([("a", "A")]))
    state = folder / "state.json"
    state.write_text(state.read_text(encoding="utf-8").replace("data-", "x" * 20_000), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"names the file 'xxx.*, which is not in its folder") as raised:
        read_pairs(folder, languages=LANGUAGES)
    assert len(str(raised.value)) < 1000


def test_splits_are_named_and_one_of_them_is_to_be_given(read_pairs: ReadPairs, tmp_path: Path) -> None:
    save_dataset(tmp_path / "saved" / "train", make_table([("a", "A")]))
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"saved: has the splits 'train', 'test': give .*, as in .*saved/train$"):
        read_pairs(tmp_path / "saved", languages=LANGUAGES)
    assert read_pairs(tmp_path / "saved" / "train", languages=LANGUAGES) == [("a", "A")]
    (tmp_path / "saved" / "dataset_dict.json").write_text(f'{{"splits": ["{"x" * 20_000}"]}}', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"saved: has the splits 'xxx.*, as in .*saved/train$") as raised:
        read_pairs(tmp_path / "saved", languages=LANGUAGES)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", "{", r"state\.json: is damaged \(JSONDecodeError"),
        ("state.json", "\ud800", r"state\.json: is damaged"),
        ("state.json", "{}", r"state\.json: is damaged \(KeyError\('_data_files'\)\)"),
        ("state.json", "[]", r"state\.json: is damaged \(TypeError"),
        ("state.json", '{"_data_files": [{"filename": 7}]}', r"state\.json: is damaged, as its names"),
        ("state.json", '{"_data_files": [{"filename": "none.arrow"}]}', r"none\.arrow: there is no such file"),
        ("state.json", '{"_data_files": [{"filename": "../a.arrow"}]}', r"'\.\./a\.arrow', which is not in its folder"),
        ("state.json", '{"_data_files": [{"filename": "/a.arrow"}]}', r"'/a\.arrow', which is not in its folder"),
        ("state.json", '{"_data_files": [{"filename": ".."}]}', r"saved/\.\. is a folder"),
        ("state.json", '{"_data_files": []}', r"saved: empty; at least one pair is needed"),
        ("dataset_dict.json", '{"splits": 7}', r"dataset_dict\.json: is damaged, as its names are not texts"),
    ],
)
def test_a_damaged_folder_is_an_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "a.arrow").write_bytes(b"")
    (tmp_path / "saved" / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(CorpusError, match=message):
        open_parallel_corpus(tmp_path, None, None, "saved", None, LANGUAGES).check()


def test_a_missing_package_is_named(read_pairs: ReadPairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(make_table([("a", "A")]), tmp_path / "a.parquet")
    folder = save_dataset(tmp_path / "saved", make_table([("a", "A")]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for path in (tmp_path / "a.parquet", folder):
        with pytest.raises(
            MissingExtraError, match=rf"{path.name}.* needs .*'pyarrow'.*pip install 'transduce\[data\]'"
        ):
            read_pairs(path, languages=LANGUAGES)
