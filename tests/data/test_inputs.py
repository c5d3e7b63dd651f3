import csv
import json
import os
import random
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from transduce.config import TextConfig
from transduce.data.inputs import (
    FilteredPairs,
    RepetitionFinder,
    TrainingText,
    choose_held_out,
    is_blank,
    may_be_held_out,
)
from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text import Cleaner

words = st.sampled_from(["", " ", "a", "b", "c", "d e", "f"])
pair_lists = st.lists(st.tuples(words, words), max_size=30)


def has_text(pair: tuple[str, str]) -> bool:
    return not is_blank(pair)


@given(pair_lists, st.integers(1, 10), st.randoms())
def test_a_choice_among_the_distinct_pairs_with_text_whatever_their_order(
    corpus: list[tuple[str, str]], count: int, random: object
) -> None:
    chosen = choose_held_out(corpus, count, has_text)
    eligible = {pair for pair in corpus if not is_blank(pair)}
    assert len(chosen) == len(set(chosen)) == min(count, len(eligible))
    assert set(chosen) <= eligible
    shuffled = corpus.copy()
    random.shuffle(shuffled)
    assert choose_held_out(shuffled, count, has_text) == chosen


@given(pair_lists, st.integers(1, 9))
def test_a_larger_choice_begins_with_the_smaller(corpus: list[tuple[str, str]], count: int) -> None:
    assert choose_held_out(corpus, count + 1, has_text)[:count] == choose_held_out(corpus, count, has_text)


@given(pair_lists)
def test_of_text_with_spaces_words_decide_what_is_held_out(corpus: list[tuple[str, str]]) -> None:
    cleaner, words = Cleaner(TextConfig(max_ratio=1.0, max_pieces=1)), Cleaner(TextConfig(max_ratio=1.0, max_pieces=1))
    for pair in corpus:
        expected = words.keeps(*pair, *(len(side.split()) for side in pair), is_repeated=False)
        assert may_be_held_out(pair, cleaner) == may_be_held_out((f">>x<< {pair[0]}", pair[1]), cleaner, (">>x<<",))
        assert may_be_held_out(pair, cleaner) == expected
    assert cleaner.counts == {rule: 3 * count for rule, count in words.counts.items()}


short_words = st.sampled_from(["a", "b", "ab", "", "é"])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(short_words, short_words), max_size=40))
def test_of_equal_pairs_all_but_the_first_repeat(pairs: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        finder = RepetitionFinder(Path(folder))
        assert list(finder.record(pairs)) == pairs
        assert finder.find_repeats().tolist() == [pair in pairs[:index] for index, pair in enumerate(pairs)]


def test_repetitions_are_found_however_far_apart(tmp_path: Path) -> None:
    chance = random.Random(3)  # noqa: S311 nothing here is secret
    numbers = [chance.randrange(20_000) for _ in range(25_000)]
    finder = RepetitionFinder(tmp_path)
    for _ in finder.record((str(number), "x") for number in numbers):
        pass
    seen: set[int] = set()
    expected = [number in seen or bool(seen.add(number)) for number in numbers]
    assert finder.find_repeats().tolist() == expected


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for num_pairs in (10_000, 30_000):
        (tmp_path / str(num_pairs)).mkdir()
        finder = RepetitionFinder(tmp_path / str(num_pairs))
        tracemalloc.start()
        for _ in finder.record((str(number), "x") for number in range(num_pairs)):
            pass
        repeats = finder.find_repeats()
        peaks.append(tracemalloc.get_traced_memory()[1] - repeats.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


corpora = st.lists(st.lists(st.tuples(words, words), max_size=20), min_size=1, max_size=3)


@given(corpora, st.integers(1, 5))
def test_it_shares_no_side_with_what_is_held_out_and_loses_nothing_else(
    corpora: list[list[tuple[str, str]]], count: int
) -> None:
    pairs = [pair for corpus in corpora for pair in corpus]
    held_out = choose_held_out(pairs, count, has_text)
    sources, targets = {source for source, _ in held_out}, {target for _, target in held_out}
    num_pairs, filtered = [len(corpus) for corpus in corpora], FilteredPairs.make({}, len(pairs))
    training = TrainingText(corpora, num_pairs, held_out, np.zeros(len(pairs), bool), filtered)
    assert list(training) == list(training)
    left_out = [pair for pair in pairs if pair[0] in sources or pair[1] in targets]
    assert sorted([*training, *left_out]) == sorted(pairs)
    assert not {source for source, _ in training} & sources
    assert not {target for _, target in training} & targets


@given(corpora)
def test_every_pair_keeps_its_mark_of_repetition(corpora: list[list[tuple[str, str]]]) -> None:
    pairs = [pair for corpus in corpora for pair in corpus]
    repeats = [pair in pairs[:index] for index, pair in enumerate(pairs)]
    held_out = choose_held_out(pairs, 1, has_text)
    num_pairs, filtered = [len(corpus) for corpus in corpora], FilteredPairs.make({}, len(pairs))
    training = TrainingText(corpora, num_pairs, held_out, np.array(repeats, bool), filtered)
    for number in range(len(corpora)):
        before = [pair for corpus in corpora[:number] for pair in corpus]
        seen = [*before]
        for pair, again in training.iterate_corpus(number):
            assert again == (pair in seen)
            seen.append(pair)


@pytest.mark.parametrize("num_pairs", [1, 3])
def test_a_corpus_that_has_changed_is_noticed(num_pairs: int) -> None:
    filtered = FilteredPairs.make({}, num_pairs)
    training = TrainingText([[("a", "b")] * 2], [num_pairs], [], np.zeros(num_pairs, bool), filtered)
    with pytest.raises(CorpusError, match="corpus 1 of 1: has changed while it was read"):
        list(training)


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
