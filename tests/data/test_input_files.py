import csv
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from pyarrow import parquet

from transduce.config import TextConfig
from transduce.errors import ConfigError, CorpusError, UserError

Corpus = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"source_language": "en"}, True),
        ({"cache": "anywhere"}, True),
        ({"held_out": 7}, False),
        ({"text": TextConfig(vocabulary=321)}, False),
        ({"text": TextConfig(vocabulary=320, max_pieces=255)}, False),
    ],
)
def test_the_key_covers_the_settings_that_matter(
    preparation: Any, make_corpus: Callable[..., Corpus], change: dict[str, Any], same: bool
) -> None:
    make_corpus(100)
    assert (preparation().folder == preparation(**change).folder) == same


def test_a_changed_byte_in_a_file_gives_another_key(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    first = preparation()
    path = preparation.folder / "train.target"
    content = path.read_bytes()
    path.write_bytes(content[:10] + bytes([content[10] ^ 1]) + content[11:])
    second = preparation()
    assert first.folder != second.folder
    assert first.digests["train.source"] == second.digests["train.source"]
    assert first.digests["train.target"] != second.digests["train.target"]


def test_a_missing_file_is_named(preparation: Any) -> None:
    with pytest.raises(CorpusError, match=r"none\.tsv"):
        preparation(pairs="none.tsv")


def test_no_training_text_is_an_error(preparation: Any) -> None:
    with pytest.raises(UserError, match="source and target"):
        preparation(source=None)


def test_a_pipe_is_refused_rather_than_waited_for(preparation: Any) -> None:
    os.mkfifo(preparation.folder / "pipe.tsv")
    with pytest.raises(CorpusError, match=r"pipe\.tsv"):
        preparation(pairs="pipe.tsv")


def test_standard_input_gives_what_a_file_gives(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    path = preparation.folder / "train.tsv"
    path.write_bytes(preparation.as_tsv(make_corpus(100)))
    from_file = preparation(pairs="train.tsv")
    with path.open("rb") as preparation.standard_input:
        piped = preparation(pairs="-")
    assert preparation.texts(piped) == preparation.texts(from_file)
    assert piped.validation == from_file.validation
    assert piped.digests["-"] == from_file.digests["train.tsv"]
    assert preparation.entries() == sorted([piped.folder.name, from_file.folder.name])
    with path.open("rb") as preparation.standard_input:
        preparation(pairs="-")
    assert "found" in preparation.said[0]
    assert len(preparation.entries()) == 2


def test_a_header_is_left_out_and_that_is_said(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    rows = preparation.as_tsv(make_corpus(100))
    (preparation.folder / "bare.tsv").write_bytes(rows)
    (preparation.folder / "named.tsv").write_bytes(b"source\ttarget\n" + rows)
    bare = preparation(pairs="bare.tsv")
    assert not [said for said in preparation.said if "first row" in said]
    named = preparation(pairs="named.tsv")
    assert preparation.texts(named) == preparation.texts(bare)
    assert named.validation == bare.validation
    assert preparation.said[0].startswith("named.tsv: its first row, 'source' and 'target', is a header and is")
    with (preparation.folder / "named.tsv").open("rb") as preparation.standard_input:
        piped = preparation(pairs="-")
    assert preparation.texts(piped) == preparation.texts(bare)
    assert preparation.said[0].startswith("standard input: its first row")


def test_a_row_that_is_a_header_in_one_language_pair_alone_decides_the_key(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    rows = b"is\tes\n" + preparation.as_tsv(make_corpus(100))
    (preparation.folder / "train.tsv").write_bytes(rows)
    counts = {
        source: sum(preparation(pairs="train.tsv", source_language=source, target_language="es").cleaning.values())
        for source in ("is", "en")
    }
    assert counts == {"is": 100, "en": 101}


def test_languages_that_choose_columns_decide_the_key(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    pairs = make_corpus(100)
    (preparation.folder / "train.tsv").write_bytes(b"en\tde\n" + preparation.as_tsv(pairs))
    there, back = (
        preparation(pairs="train.tsv", source_language=source, target_language=target)
        for source, target in (("en", "de"), ("de", "en"))
    )
    assert there.folder != back.folder
    assert {*there.validation} < {*pairs}
    assert {*back.validation} < {(target, source) for source, target in pairs}


def test_languages_decide_the_key_of_json_whatever_the_case_of_its_ending(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    rows = [{"translation": {"en": source, "de": target}} for source, target in make_corpus(100)]
    (preparation.folder / "train.JSON").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    folders = {
        preparation(pairs="train.JSON", source_language=source, target_language=target).folder
        for source, target in (("en", "de"), ("de", "en"))
    }
    assert len(folders) == 2


def test_a_wrong_column_of_standard_input_is_not_said_of_a_file(preparation: Any) -> None:
    path = preparation.folder / "train.tsv"
    path.write_bytes(b"a\tb\n")
    with (
        path.open("rb") as preparation.standard_input,
        pytest.raises(ConfigError, match="a column number in standard input,"),
    ):
        preparation(pairs="-", columns=("x", "y"))


def test_broken_standard_input_leaves_nothing(preparation: Any) -> None:
    path = preparation.folder / "broken.tsv"
    path.write_bytes(b"a\tb\nno second column\n")
    with path.open("rb") as preparation.standard_input, pytest.raises(CorpusError):
        preparation(pairs="-")
    preparation.standard_input = None
    with pytest.raises(CorpusError, match="standard input"):
        preparation(pairs="-")
    assert not preparation.cache.parent.exists()


LANGUAGES = {"source_language": "en", "target_language": "de"}


def write_csv(path: Path, pairs: Corpus) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("de", "en"), *((target, source) for source, target in pairs)])


def write_tmx(path: Path, pairs: Corpus) -> None:
    root = ET.Element("tmx", version="1.4")
    body = ET.SubElement(root, "body")
    for pair in pairs:
        unit = ET.SubElement(body, "tu")
        for language, text in zip(("en-GB", "de-DE"), pair, strict=True):
            ET.SubElement(ET.SubElement(unit, "tuv", {"xml:lang": language}), "seg").text = text
    ET.ElementTree(root).write(path, "utf-8")


def write_zip(path: Path, pairs: Corpus) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for side, language in enumerate(("en", "de")):
            archive.writestr(f"Made.de-en.{language}", "".join(f"{pair[side]}\n" for pair in pairs))


def make_nested_table(pairs: Corpus) -> pa.Table:
    return pa.table({"translation": [{"de": target, "en": source} for source, target in pairs]})


def write_parquet(path: Path, pairs: Corpus) -> None:
    parquet.write_table(make_nested_table(pairs), path)


def write_dataset(path: Path, pairs: Corpus) -> None:
    path.mkdir()
    for name, part in (("one.arrow", pairs[:40]), ("two.arrow", pairs[40:])):
        table = make_nested_table(part)
        with pa.OSFile(str(path / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    state = {"_data_files": [{"filename": "one.arrow"}, {"filename": "two.arrow"}]}
    (path / "state.json").write_text(json.dumps(state), encoding="utf-8")


FORMATS: dict[str, Callable[[Path, Corpus], None]] = {
    "a.csv": write_csv,
    "a.tmx": write_tmx,
    "a.zip": write_zip,
    "a.parquet": write_parquet,
    "saved": write_dataset,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_what_two_files_give(
    preparation: Any, make_corpus: Callable[..., Corpus], name: str
) -> None:
    pairs = make_corpus(100)
    expected = preparation()
    FORMATS[name](preparation.folder / name, pairs)
    found = preparation(pairs=name, **LANGUAGES)
    assert preparation.texts(found) == preparation.texts(expected)
    assert found.validation == expected.validation
    assert found.digests.keys() == {name, "all"}
    preparation(pairs=name, **LANGUAGES)
    assert "found" in preparation.said[0]
    swapped = preparation(pairs=name, source_language="de", target_language="en")
    assert swapped.folder != found.folder
    assert {*swapped.validation} < {(target, source) for source, target in pairs}


def test_the_digest_of_a_data_set_covers_all_files_that_are_read(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    folder = preparation.folder / "saved"
    write_dataset(folder, make_corpus(100))
    first = preparation(pairs="saved", **LANGUAGES)
    (folder / "cache-1.arrow").write_bytes(b"what a program has put aside")
    assert preparation(pairs="saved", **LANGUAGES).digests == first.digests
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != "cache-1.arrow"}
    assert [path.name for path in contents] == ["one.arrow", "state.json", "two.arrow"]
    found = [first.digests["saved"]]
    for path, content in contents.items():
        path.write_bytes(content + b" " if path.suffix == ".json" else content.replace(b"ba", b"bu", 1))
        found.append(preparation(pairs="saved", **LANGUAGES).digests["saved"])
        path.write_bytes(content)
    assert len(set(found)) == 4
    assert preparation(pairs="saved", **LANGUAGES).digests == first.digests


def test_units_that_lack_a_language_are_left_out_and_that_is_said(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    path = preparation.folder / "a.tmx"
    write_tmx(path, make_corpus(100))
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace('"de-DE"', '"fr"', 3), encoding="utf-8")
    prepared = preparation(pairs="a.tmx", **LANGUAGES)
    assert preparation.said[0].startswith("a.tmx: 3 of its 100 translation units do not have both 'en-gb' and 'de-de'")
    assert sum(prepared.cleaning.values()) == 97


def test_validation_text_has_columns_of_its_own(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    pairs, validation = make_corpus(100), make_corpus(10, "valid", seed=1)
    (preparation.folder / "train.tsv").write_bytes(b"".join(b"0\t" + preparation.as_tsv([pair]) for pair in pairs))
    rows = [{"a": target, "b": source} for source, target in validation]
    (preparation.folder / "valid.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = {"pairs": "train.tsv", "validation_pairs": "valid.jsonl", "columns": ("2", "3")}
    with pytest.raises(CorpusError, match=r"must have the key '2', .*choose keys by data\.validation_columns"):
        preparation(**given)
    prepared = preparation(**given, validation_columns=("b", "a"))
    assert prepared.validation == validation
    swapped = preparation(**given, validation_columns=("a", "b"))
    assert swapped.folder != prepared.folder
    assert swapped.validation == [(target, source) for source, target in validation]


def test_one_file_may_be_read_with_different_columns(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    pairs = make_corpus(100)
    rows = preparation.as_tsv([("source", "target"), *pairs])
    (preparation.folder / "a.tsv").write_bytes(b"".join(b"0\t" + row for row in rows.splitlines(keepends=True)))
    given = {"pairs": "a.tsv", "validation_pairs": "a.tsv"}
    prepared = preparation(**given, columns=("2", "3"), validation_columns=("3", "2"))
    assert prepared.validation == [(target, source) for source, target in pairs]
    assert preparation(**given, columns=("2", "3")).folder != prepared.folder
