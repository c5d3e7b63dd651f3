import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from transduce.config import DataConfig, TextConfig
from transduce.data import find_prepared_folder, find_prepared_tokenizer, find_prepared_validation, prepare
from transduce.errors import ConfigError, CorpusError, RunError, WriteError
from transduce.text import Tokenizer

Corpus = list[tuple[str, str]]


def test_cleaning_is_counted_rule_by_rule(
    preparation: Any, make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None]
) -> None:
    pairs = make_corpus(100)
    make_corpus(5, "valid", seed=1)
    valid = {"validation_source": "valid.source", "validation_target": "valid.target"}
    clean = preparation(**valid).cleaning
    write_corpus([*pairs, ("", "ba"), ("do", " "), pairs[3], pairs[4]])
    dirty = preparation(**valid).cleaning
    difference = {rule: dirty[rule] - clean[rule] for rule in dirty if dirty[rule] != clean[rule]}
    assert sorted(difference.values()) == [2, 2]
    assert dirty["kept"] == clean["kept"] == 100


def test_nothing_kept_is_an_error_with_the_counts(
    preparation: Any, write_corpus: Callable[..., None], make_corpus: Callable[..., Corpus]
) -> None:
    write_corpus([("ba", "do")] * 3 + [("", "fi")] * 7)
    make_corpus(50, "other")
    tokenizer = preparation(source="other.source", target="other.target").folder / "tokenizer.model"
    preparation.cache = preparation.folder / "elsewhere"
    with pytest.raises(CorpusError, match=r"none of the 10 pairs .*held_out 1, like_held_out 2.*kept 0"):
        preparation(TextConfig(tokenizer=str(tokenizer)))
    assert not preparation.cache.exists()


def test_kept_text_is_stored_only_for_bpe_dropout(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    corpus = make_corpus(100)
    assert (preparation().folder / "kept.jsonl").read_bytes() == b""
    prepared = preparation(TextConfig(vocabulary=320, bpe_dropout=0.1))
    lines = (prepared.folder / "kept.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    kept = [tuple(json.loads(line)) for line in lines]
    assert kept == preparation.texts(prepared)
    assert Counter(kept) + Counter(prepared.validation) == Counter(corpus)


def test_what_is_stored_is_the_text_that_was_kept(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    pairs, validation = make_corpus(200), make_corpus(20, "valid", seed=1)
    prepared = preparation(validation_source="valid.source", validation_target="valid.target")
    assert preparation.texts(prepared) == pairs
    assert prepared.validation == validation
    assert prepared.cleaning["kept"] == 200
    assert sum(prepared.cleaning.values()) == 200
    assert set(prepared.digests) == {"train.source", "train.target", "valid.source", "valid.target", "all"}
    assert preparation.entries() == [prepared.folder.name] == [prepared.digests["all"][:16]]


def test_held_out_pairs_share_no_sentence_with_training(
    preparation: Any, write_corpus: Callable[..., None], make_corpus: Callable[..., Corpus]
) -> None:
    made = make_corpus(120)
    # Two sources for a target, and two targets for a source; neighbours in this order are about as long.
    sources, targets = zip(*sorted(made, key=lambda pair: len(pair[0])), strict=True)
    corpus = [*made, *zip(sources[40:80], targets[41:81], strict=True)]
    write_corpus(corpus)
    prepared = preparation()
    assert len(prepared.validation) == 16
    assert set(prepared.validation) <= set(corpus)
    kept = preparation.texts(prepared)
    for side in (0, 1):
        assert not {pair[side] for pair in prepared.validation} & {pair[side] for pair in kept}
    alike = prepared.cleaning["like_held_out"]
    assert prepared.cleaning["held_out"] == 16
    assert 16 + alike + prepared.cleaning["kept"] == len(corpus)
    assert alike
    assert f"{alike} more share a sentence with a held-out pair, and are left out of training." in (preparation.said)


def test_what_training_would_leave_out_is_not_held_out(
    preparation: Any, write_corpus: Callable[..., None], make_corpus: Callable[..., Corpus]
) -> None:
    made = make_corpus(60)
    copies = [(source, source) for source, _ in make_corpus(60, seed=1)]
    long = [(" ".join([source] * 90), target) for source, target in make_corpus(30, seed=2)]
    in_one_word = [(source.replace(" ", "") * 90, target) for source, target in make_corpus(30, seed=3)]
    write_corpus([*made, *copies, *long, *in_one_word])
    prepared = preparation()
    assert 0 < len(prepared.validation) <= 18
    assert set(prepared.validation) <= set(made)
    (said,) = (text for text in preparation.said if "are left out" in text)
    assert "of those held out exceed the limits under [text]" in said

    write_corpus(in_one_word)
    with pytest.raises(CorpusError, match="that were held out for validation is within the limits"):
        preparation()
    write_corpus(copies)
    with pytest.raises(CorpusError, match="none of the 60 pairs of training text can be held out"):
        preparation()
    assert preparation.entries() == [prepared.folder.name]


def test_a_tenth_of_the_different_pairs_is_held_out(
    preparation: Any, write_corpus: Callable[..., None], make_corpus: Callable[..., Corpus]
) -> None:
    write_corpus(make_corpus(100) * 8)
    prepared = preparation()
    assert len(prepared.validation) == len(set(prepared.validation)) == 10
    assert prepared.cleaning["kept"] >= 80


def test_held_out_is_at_most_what_was_asked(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(200)
    assert len(preparation(held_out=3).validation) == 3


def test_the_second_time_nothing_is_made_again(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    first = preparation()
    before = {path: path.stat() for path in sorted(first.folder.rglob("*"))}
    second = preparation()
    assert {path: path.stat() for path in sorted(first.folder.rglob("*"))} == before
    assert len(preparation.said) == 1
    assert "found" in preparation.said[0]
    assert (second.validation, second.cleaning, second.digests) == (first.validation, first.cleaning, first.digests)
    assert second.tokenizer.model_bytes == first.tokenizer.model_bytes
    assert preparation.texts(second) == preparation.texts(first)


def test_preparing_elsewhere_gives_the_same_bytes(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    first = preparation()
    preparation.cache = preparation.folder / "elsewhere"
    second = preparation()
    assert second.folder.name == first.folder.name
    names = [path.relative_to(first.folder) for path in sorted(first.folder.rglob("*")) if path.is_file()]
    assert len(names) == 7
    for name in names:
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes()


@pytest.mark.parametrize("name", ["train/ids.bin", "tokenizer.model", "validation.jsonl", "prepared.json"])
def test_damaged_results_are_made_again(preparation: Any, make_corpus: Callable[..., Corpus], name: str) -> None:
    make_corpus(100)
    path = preparation().folder / name
    content = path.read_bytes()
    for damaged in (b"", content[:-7], bytes([content[0] ^ 1]) + content[1:]):
        path.write_bytes(damaged)
        preparation()
        assert "damaged" in preparation.said[0]
        assert path.read_bytes() == content


def test_counts_that_cannot_be_those_of_the_ids_are_damage(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    make_corpus(100)
    path = preparation().folder / "prepared.json"
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace('"kept": ', '"kept": 1'), encoding="utf-8")
    preparation()
    assert "damaged" in preparation.said[0]
    assert path.read_text(encoding="utf-8") == content


def test_damage_is_noticed_in_files_that_are_known(
    preparation: Any, make_corpus: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.storage.digests._CLOCK_TICK", 0)
    make_corpus(100)
    preparation()
    path = preparation().folder / "train" / "ids.bin"
    assert str(path) in (preparation.cache / "digests.json").read_text(encoding="utf-8")
    content = path.read_bytes()
    for damaged in (content[:-2], bytes([content[0] ^ 1]) + content[1:]):
        path.write_bytes(damaged)
        preparation()
        assert "damaged" in preparation.said[0]
        assert path.read_bytes() == content


@pytest.mark.parametrize("spoil", [lambda text: text + b"one more\n", lambda text: b"\xff" + text])
def test_text_that_breaks_a_rule_writes_nothing(
    preparation: Any, make_corpus: Callable[..., Corpus], spoil: Callable[[bytes], bytes]
) -> None:
    make_corpus(100)
    make_corpus(10, "valid", seed=1)
    files = {"validation_source": "valid.source", "validation_target": "valid.target"}
    for name in ("train.target", "valid.source"):
        path = preparation.folder / name
        content = path.read_bytes()
        path.write_bytes(spoil(content))
        with pytest.raises(CorpusError, match=name):
            preparation(**files)
        path.write_bytes(content)
    assert not preparation.cache.parent.exists()


def test_blank_validation_pairs_are_left_out_aloud(
    preparation: Any, make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None]
) -> None:
    make_corpus(100)
    files = {"validation_source": "valid.source", "validation_target": "valid.target"}
    write_corpus([("ba", "do"), ("", "fi"), ("ku", " ")], "valid")
    assert preparation(**files).validation == [("ba", "do")]
    assert any("2 of 3 validation pairs" in sentence for sentence in preparation.said)
    write_corpus([("", "fi")], "valid")
    with pytest.raises(CorpusError, match=r"valid\.source"):
        preparation(**files)


def test_a_given_tokenizer_is_used_as_it_is(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    trained = preparation()
    make_corpus(100, seed=5)
    text = TextConfig(tokenizer=str(trained.folder / "tokenizer.model"))
    prepared = preparation(text)
    assert prepared.tokenizer.model_bytes == trained.tokenizer.model_bytes
    assert text.tokenizer in prepared.digests
    with pytest.raises(ConfigError, match=r"none\.model"):
        preparation(TextConfig(tokenizer="none.model"))


def test_a_tokenizer_with_two_models_is_kept_with_the_ids(
    preparation: Any, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    pairs = make_corpus(100)
    joint = preparation().tokenizer
    pieces = joint.pieces(range(2, joint.pad_id))
    # For targets, other ids than for sources.
    separate = Tokenizer.with_vocabulary(
        joint.model_bytes, joint.model_bytes, ["<unk>", "</s>", *pieces[:300]], "two", source_only=pieces[300:]
    )
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name, content in separate.files.items():
        (folder / name).write_bytes(content)
    text = TextConfig(tokenizer=str(folder), drop_duplicates=False, max_ratio=100.0)
    prepared = preparation(text)
    kept = [pair for pair in pairs if pair not in prepared.validation]
    assert prepared.tokenizer.files == separate.files
    assert {str(folder / name) for name in separate.files} <= prepared.digests.keys()
    for row, (source, target) in enumerate(kept):
        source_ids, target_ids = (side.tolist() for side in prepared.train.pair(row))
        assert source_ids == [*separate.encode(source), 1]
        assert target_ids == [*separate.encode_targets([target])[0], 1]
    assert any(0 in prepared.train.pair(row)[1] for row in range(len(kept)))
    assert preparation(text).folder == prepared.folder
    assert "found" in preparation.said[0]
    (prepared.folder / "vocabulary.json").unlink()
    assert preparation(text).tokenizer.files == separate.files
    assert "damaged" in preparation.said[0]
    (folder / "vocabulary.json").write_bytes((folder / "vocabulary.json").read_bytes().replace(b"true", b"false"))
    assert preparation(text).folder != prepared.folder
    (folder / "tokenizer.model").unlink()
    with pytest.raises(ConfigError, match=r"a folder with tokenizer\.model"):
        preparation(text)


def test_the_folder_of_one_model_is_as_good_as_the_model(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    trained = preparation()
    make_corpus(100, seed=5)
    by_file, by_folder = (
        preparation(TextConfig(tokenizer=str(path))) for path in (trained.folder / "tokenizer.model", trained.folder)
    )
    assert by_file.folder == by_folder.folder


def test_fitted_vocabulary_is_small_for_little_text(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    prepared = preparation(TextConfig(vocabulary="fitted"))
    assert prepared.tokenizer.vocabulary < 1000
    assert prepared.train.record.vocabulary == prepared.tokenizer.vocabulary


@pytest.mark.parametrize("num_bytes", [2000, 20_000])
def test_a_full_disk_leaves_nothing(
    preparation: Any, make_corpus: Callable[..., Corpus], largest_file: Callable[[int], Any], num_bytes: int
) -> None:
    path = preparation.folder / "train.tsv"
    path.write_bytes(preparation.as_tsv(make_corpus(500)))
    assert path.stat().st_size > num_bytes
    for pairs in ("train.tsv", "-"):
        with (
            path.open("rb") as preparation.standard_input,
            pytest.raises(WriteError, match=r"^data\.cache: .*run/\.cache \(File too large\): .*choose another folder"),
            largest_file(num_bytes),
        ):
            preparation(pairs=pairs)
        assert not preparation.cache.parent.exists()


@pytest.mark.parametrize("cache", ["closed", "closed/within"])
def test_a_cache_that_may_not_be_written_is_a_setting(make_corpus: Callable[..., Corpus], cache: str) -> None:
    (pairs, user) = make_corpus(20), os.geteuid()
    with TemporaryDirectory() as name:  # pytest's own are closed to others
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir(mode=0o555)
        (folder / "train.tsv").write_text(
            "".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8"
        )
        data = DataConfig(folder=name, pairs="train.tsv")
        if user == 0:  # who may write everywhere
            os.seteuid(65534)
        try:
            with pytest.raises(ConfigError, match=rf"^data\.cache: .*{cache} \(Permission denied\): make it writable"):
                prepare(data, TextConfig(vocabulary=320), folder / cache, report=lambda _: None)
        finally:
            os.seteuid(user)


def test_one_pair_cannot_do_both(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(1)
    with pytest.raises(CorpusError, match="a single pair cannot be used for both training and validation"):
        preparation()


A, B = {"source": "a.source", "target": "a.target"}, {"source": "b.source", "target": "b.target", "weight": 0.5}


@pytest.fixture
def two(make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None]) -> tuple[Corpus, Corpus]:
    """Two corpora with 20 pairs in common; the second has ten of its own twice."""
    first, second = make_corpus(100, "a", seed=1), make_corpus(80, "b", seed=2)
    second += [*first[:20], *second[:10]]
    write_corpus(second, "b")
    return first, second


def prepare_corpora(preparation: Any, *corpora: dict[str, Any], **data: Any) -> Any:
    return preparation(source=None, corpora=list(corpora), **data)


def test_together_they_are_what_one_corpus_with_all_their_text_is(
    preparation: Any, two: tuple[Corpus, Corpus], write_corpus: Callable[..., None]
) -> None:
    first, second = two
    write_corpus([*first, *second])
    one, several = preparation(), prepare_corpora(preparation, A, B)
    assert one.folder != several.folder
    assert several.cleaning == one.cleaning
    assert several.validation == one.validation
    for name in ("tokenizer.model", "train/ids.bin", "train/offsets.bin"):
        assert (several.folder / name).read_bytes() == (one.folder / name).read_bytes()


def test_each_has_its_own_counts_and_the_first_keeps_what_both_have(
    preparation: Any, two: tuple[Corpus, Corpus]
) -> None:
    prepared = prepare_corpora(preparation, A, B, held_out=1)
    (first, second), (held_out,) = prepared.corpora, prepared.validation
    assert [(corpus.name, corpus.weight) for corpus in prepared.corpora] == [
        ("a.source a.target", 1.0),
        ("b.source b.target", 0.5),
    ]
    num_held_out = [corpus.count(held_out) for corpus in two]
    left_out = [[corpus.cleaning[rule] for rule in ("held_out", "like_held_out")] for corpus in prepared.corpora]
    assert list(map(sum, left_out)) == num_held_out
    assert sum(first for first, _ in left_out) == 1
    assert first.cleaning["kept"] == 100 - num_held_out[0]
    assert second.cleaning["kept"] + second.cleaning["duplicate"] == 110 - num_held_out[1]
    kept = preparation.texts(prepared)
    assert kept[: first.cleaning["kept"]] == [pair for pair in two[0] if pair != held_out]
    assert len(kept) == len(set(kept))


def test_held_out_pairs_share_no_sentence_with_any_corpus(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    prepared = prepare_corpora(preparation, A, B)
    assert len(prepared.validation) == 18  # a tenth of those that are different
    assert set(prepared.validation) & set(two[0])
    assert set(prepared.validation) & set(two[1])
    kept = preparation.texts(prepared)
    for side in (0, 1):
        assert not {pair[side] for pair in prepared.validation} & {pair[side] for pair in kept}


def test_one_of_weight_one_is_the_corpus_without_a_list(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    assert prepare_corpora(preparation, A).folder == preparation(**A).folder


def test_other_weights_need_no_other_ids_and_another_order_does(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    before = prepare_corpora(preparation, A, B)
    after = prepare_corpora(preparation, A, {**B, "weight": 3.0})
    assert after.folder == before.folder
    assert [corpus.weight for corpus in after.corpora] == [1.0, 3.0]
    assert prepare_corpora(preparation, B, A).folder != before.folder


def test_columns_may_be_those_of_one_corpus(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    lines = "".join(f"{number}\t{target}\t{source}\n" for number, (source, target) in enumerate(two[1]))
    (preparation.folder / "b.tsv").write_text(lines, encoding="utf-8")
    (preparation.folder / "a.tsv").write_bytes(preparation.as_tsv(two[0]))
    prepared = prepare_corpora(preparation, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "columns": ["3", "2"]})
    assert preparation.texts(prepared) == preparation.texts(prepare_corpora(preparation, A, B))
    swapped = prepare_corpora(preparation, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "columns": ["2", "3"]})
    assert swapped.folder != prepared.folder
    with pytest.raises(ConfigError, match=r'^columns in data\.corpora: "x" must be a column number'):
        prepare_corpora(preparation, {"pairs": "a.tsv"}, {"pairs": "b.tsv", "columns": ["x", "3"]})


def test_a_mistake_names_the_corpus_and_writes_nothing(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    (preparation.folder / "b.target").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"b\.source has 110 lines and .*b\.target has 0"):
        prepare_corpora(preparation, A, B)
    (preparation.folder / "b.source").write_text("", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"b\.source and .*b\.target: empty"):
        prepare_corpora(preparation, A, B)
    assert not preparation.cache.exists()


def write_tsv(folder: Path, name: str, pairs: list[tuple[str, str]]) -> str:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return name


def test_exchanged_sides_give_the_text_of_the_other_direction(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    pairs = make_corpus(60)
    exchanged = write_tsv(preparation.folder, "exchanged.tsv", [(target, source) for source, target in pairs])
    swapped, given = preparation(swap_sides=True), preparation(pairs=exchanged)
    assert swapped.folder != given.folder
    assert swapped.validation == given.validation
    for name in ("tokenizer.model", "train/ids.bin", "train/offsets.bin"):
        assert (swapped.folder / name).read_bytes() == (given.folder / name).read_bytes()


def test_a_tag_is_the_first_token_of_every_source_of_its_corpus(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    prepared = prepare_corpora(preparation, A, {**B, "tag": ">>bt<<"}, held_out=20)
    tokenizer, store = prepared.tokenizer, prepared.train
    (tag,) = tokenizer.encode(">>bt<<")
    starts = [int(store.pair(index)[0][0]) == tag for index in range(len(store))]
    num_first = prepared.corpora[0].cleaning["kept"]
    assert starts == [False] * num_first + [True] * (len(store) - num_first)
    # Held-out sources keep theirs, which says what to do; no other piece has learned its letters.
    assert {source.startswith(">>bt<< ") for source, _ in prepared.validation} == {True, False}
    assert not [piece for piece in tokenizer.pieces(range(tokenizer.pad_id)) if ">>" in piece and piece != ">>bt<<"]


def test_what_is_held_out_is_in_training_behind_no_tag(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    others = "".join(f"{target} {target}\n" for _, target in two[0])
    (preparation.folder / "b.target").write_text(others, encoding="utf-8")
    again = {"source": "a.source", "target": "b.target", "tag": ">>law<<"}
    prepared = prepare_corpora(preparation, A, again, held_out=20)
    held_out, kept = (
        {source.removeprefix(">>law<< ") for source, _ in pairs}
        for pairs in (prepared.validation, preparation.texts(prepared))
    )
    assert held_out
    assert not held_out & kept


def test_a_tag_changes_nothing_in_cleaning(preparation: Any, two: tuple[Corpus, Corpus], write_corpus: Any) -> None:
    made = two[1][:60]
    blank = [("", target) for _, target in made[:7]]
    copies = [(source, source) for source, _ in made[7:12]]
    long = [(" ".join([source] * 90), target) for source, target in made[12:15]]
    write_corpus([*made, *blank, *copies, *long], "b")
    text = TextConfig(tokenizer=str(preparation(**A).folder / "tokenizer.model"))
    counts = [
        [corpus.cleaning for corpus in preparation(text, source=None, corpora=[A, {**B, **tag}], held_out=3).corpora]
        for tag in ({"synthetic": True}, {"synthetic": True, "tag": ">>bt<<"})
    ]
    assert counts[0] == counts[1]
    assert [counts[0][1][rule] for rule in ("blank", "copy", "too_long")] == [7, 5, 3]
    # Nor are such pairs held out.
    write_corpus([*made[:30], *blank, *copies], "b")
    prepared = prepare_corpora(preparation, {**B, "tag": ">>bt<<"}, held_out=40)
    untagged = {(source.removeprefix(">>bt<< "), target) for source, target in prepared.validation}
    assert untagged
    assert untagged <= set(made)


def test_a_tag_without_a_token_is_reported(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    tokenizer = preparation(**A).folder / "tokenizer.model"
    for _ in range(2):  # when the text is prepared, and when it is found
        preparation(TextConfig(tokenizer=str(tokenizer)), source=None, corpora=[A, {**B, "tag": ">>bt<<"}])
        (said,) = (one for one in preparation.said if one.startswith("warning: "))
        assert "no token for >>bt<<" in said
    tagged = prepare_corpora(preparation, A, {**B, "tag": ">>bt<<"}).folder / "tokenizer.model"
    assert not [one for one in preparation.said if one.startswith("warning: ")]
    preparation(TextConfig(tokenizer=str(tagged)), source=None, corpora=[A, {**B, "tag": ">>bt<<"}])
    assert not [one for one in preparation.said if one.startswith("warning: ")]


def test_the_sides_of_all_given_text_are_exchanged(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    made = {"synthetic": True, "tag": ">>bt<<"}
    given = [A, {**B, **made}]
    exchanged = [
        {"source": one["target"], "target": one["source"], **{key: one[key] for key in one.keys() - A.keys()}}
        for one in given
    ]
    swapped = prepare_corpora(preparation, *given, swap_sides=True)
    expected = prepare_corpora(preparation, *exchanged)
    assert preparation.texts(swapped) == preparation.texts(expected)
    assert swapped.validation == expected.validation


def test_the_languages_of_synthetic_text_are_exchanged_with_its_sides(
    preparation: Any, make_corpus: Callable[..., Corpus]
) -> None:
    make_corpus(60, "a")
    pairs = make_corpus(30, "made", seed=3)
    write_tsv(preparation.folder, "made.tsv", [("de", "en"), *((target, source) for source, target in pairs)])
    languages = {"source_language": "de", "target_language": "en", "swap_sides": True}  # those of the model
    prepared = prepare_corpora(preparation, A, {"pairs": "made.tsv", "synthetic": True}, **languages)
    assert preparation.texts(prepared)[-30:] == [(target, source) for source, target in pairs]


SCRIPTS = {"Chinese": range(0x4E00, 0x4F00), "Thai": range(0x0E01, 0x0E2F), "Japanese": range(0x3042, 0x3094)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_long_sentences_without_spaces_are_held_out_like_short_ones(
    preparation: Any, make_corpus: Callable[..., Corpus], write_corpus: Callable[..., None], script: str
) -> None:
    characters = list(map(chr, SCRIPTS[script]))
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    pairs = [(source, "".join(chance.choices(characters, k=3 * len(source.split())))) for source, _ in make_corpus(300)]
    long = [pair for pair in pairs if len(pair[0].split()) > 8]
    write_corpus(pairs)
    text = TextConfig(vocabulary="fitted")
    held_out = preparation(text).validation
    assert len(held_out) == 30
    expected = len(long) / 10
    assert expected / 2 < len(set(held_out) & set(long)) < expected * 2
    write_corpus(long)
    assert len(preparation(text).validation) == len(long) // 10


def test_no_pair_that_a_model_has_made_is_held_out(preparation: Any, two: tuple[Corpus, Corpus]) -> None:
    first, second = two
    prepared = prepare_corpora(preparation, A, {**B, "synthetic": True}, held_out=90)
    assert len(prepared.validation) == len(first) // 10
    assert set(prepared.validation) <= set(first)
    kept = prepared.corpora[1].cleaning
    shared = sum(
        source in {one for one, _ in prepared.validation} or target in {one for _, one in prepared.validation}
        for source, target in second
    )
    assert kept["held_out"] + kept["like_held_out"] == shared


def test_made_text_comes_last(preparation: Any) -> None:
    with pytest.raises(ValueError, match="put those with synthetic last"):
        prepare_corpora(preparation, {**A, "synthetic": True}, B)


@pytest.mark.parametrize("tag", ["bt", "<bt>", ">>b t<<", ">><<"])
def test_a_tag_has_its_form(preparation: Any, tag: str) -> None:
    with pytest.raises(ValueError, match="tag"):
        prepare_corpora(preparation, {**A, "tag": tag})


def test_the_validation_text_is_found_again(preparation: Any, make_corpus: Callable[..., Corpus]) -> None:
    make_corpus(100)
    prepared = preparation()
    digest = prepared.digests["all"]
    assert find_prepared_validation(preparation.cache, digest) == prepared.validation
    assert find_prepared_validation(preparation.cache, "0" * 64) is None
    assert find_prepared_validation(preparation.cache / "nowhere", digest) is None
    path = prepared.folder / "validation.jsonl"
    path.write_text('["other", "text"]\n', encoding="utf-8")
    assert find_prepared_validation(preparation.cache, digest) is None
    (prepared.folder / "prepared.json").write_text("{", encoding="utf-8")
    assert find_prepared_validation(preparation.cache, digest) is None


@pytest.mark.parametrize("digest", ["", "../../elsewhere", "/", "0" * 63, "0" * 64 + "\n"])
def test_what_is_no_digest_leads_nowhere(tmp_path: Path, digest: str) -> None:
    assert find_prepared_tokenizer(tmp_path, digest) is None
    assert find_prepared_validation(tmp_path, digest) is None
    with pytest.raises(RunError, match="64 hexadecimal digits"):
        find_prepared_folder(tmp_path, {"all": digest})
