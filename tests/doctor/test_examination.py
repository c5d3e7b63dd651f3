import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.doctor import Examination, examine_corpus
from transduce.errors import ConfigError, CorpusError

FITTED = TextConfig(vocabulary="fitted")
Pairs = list[tuple[str, str]]


def write(folder: Path, name: str, pairs: Pairs) -> dict[str, str]:
    """Two files, by the fields that name them."""
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8", newline="\n")
    return {"source": f"{name}.source", "target": f"{name}.target"}


@pytest.fixture
def examine(tmp_path: Path) -> Callable[..., Examination]:
    def run(training: Pairs, validation: Pairs | None = None, test: Pairs | None = None, **data: Any) -> Examination:
        given = write(tmp_path, "train", training)
        if validation is not None:
            given |= {f"validation_{key}": name for key, name in write(tmp_path, "valid", validation).items()}
        corpus = None if test is None else CorpusConfig(**write(tmp_path, "test", test))
        return examine_corpus(DataConfig(folder=str(tmp_path), **given, **data), FITTED, corpus, report=lambda _: None)

    return run


def found(examination: Examination) -> dict[str, set[int]]:
    """The pairs of each finding about the training text."""
    rows: dict[str, set[int]] = {}
    for finding in examination.findings:
        if finding.text.name == "training":
            rows.setdefault(finding.name, set()).update(finding.rows.tolist())
    return rows


def replace_word(line: str, at: int, word: str) -> str:
    words = line.split()
    words[at] = word
    return " ".join(words)


@pytest.mark.parametrize("size", [6_000, pytest.param(30_000, marks=pytest.mark.exhaustive)])
def test_everything_that_is_planted_is_found_in_its_place(
    examine: Callable[..., Examination], invented: Callable[..., Pairs], size: int
) -> None:
    pairs, test = invented(size), invented(1000, seed=2)
    part, late = (size // 6, size // 6 + 400), size - 1500
    free = [row for row in range(late) if not part[0] <= row < part[1]]
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    chance.shuffle(free)
    count = size // 60
    mispaired, swapped, damaged, similar = (free[number * count : (number + 1) * count] for number in range(4))
    original = invented(size)
    for row, other in zip(mispaired, mispaired[1:] + mispaired[:1], strict=True):
        pairs[row] = pairs[row][0], original[other][1]
    for row in swapped:
        pairs[row] = pairs[row][::-1]
    for row in damaged:
        pairs[row] = pairs[row][0], f"{pairs[row][1]} über".encode().decode("cp1252")
    for row, other in zip(similar, free[-count:], strict=True):
        pairs[row] = replace_word(original[other][0], 1, "gugun"), replace_word(original[other][1], 1, "gugos")
    targets = [target for _, target in pairs]
    targets[slice(*part)] = [targets[part[1] - 1], *targets[part[0] : part[1] - 1]]
    del targets[late]
    training = [(source, target) for (source, _), target in zip(pairs, targets, strict=False)]

    examination = examine(training, test=[*original[-700:-500], *test[200:]])

    rows = found(examination)
    assert rows["shifted_lines"] == {*range(*part), *range(late, size - 1)}
    (training_figures, _) = examination.figures
    assert [(one.start, one.end, one.shift) for one in training_figures.pairing.segments] == [
        (0, part[0], 0),
        (part[0], part[1], 1),
        (part[1], late, 0),
        (late, size - 1, -1),
    ]
    assert rows["mojibake"] == set(damaged)
    assert rows["swapped_pairs"] <= set(swapped)
    assert len(rows["swapped_pairs"]) >= 0.97 * count
    long = {row for row in (*similar, *free[-count:]) if len(training[row][0].split()) >= 6}
    assert len(rows["near_duplicates"] & long) >= 0.97 * len(long)  # some lines are damaged, too
    assert len(rows["near_duplicates"]) <= 2.2 * count
    (mispairing,) = (finding for finding in examination.findings if finding.name == "mispaired_lines")
    assert mispairing.num_pairs == pytest.approx(count, rel=0.2)
    right = rows["mispaired_lines"] & set(mispaired)
    assert len(right) >= 0.9 * len(rows["mispaired_lines"])
    assert len(right) >= 0.75 * count
    (leakage,) = (finding for finding in examination.findings if finding.name == "leakage")
    assert (leakage.text.name, leakage.severity, leakage.num_pairs) == ("test", "serious", 200)
    assert rows.keys() <= {
        "shifted_lines",
        "mojibake",
        "swapped_pairs",
        "near_duplicates",
        "mispaired_lines",
        "different_endings",
    }
    assert examination.is_serious
    for finding in examination.findings:
        for sample in finding.shown_samples:
            assert all(reference.key in examination.pairs for reference in sample)


def test_a_good_text_has_no_finding(examine: Callable[..., Examination], invented: Callable[..., Pairs]) -> None:
    examination = examine(invented(2000), invented(200, seed=2), invented(200, seed=3))
    assert examination.findings == ()
    assert not examination.is_serious
    assert examination.remarks == ()
    training, validation, test = examination.figures
    assert [figures.text.name for figures in examination.figures] == ["training", "validation", "test"]
    assert set(training.near_duplicates) == {"source", "target"}
    assert set(test.leakage) == {"training", "validation"}
    assert [one.side for one in validation.coverage] == ["source", "target"]
    assert validation.pairing.mispairing is not None


def test_what_cannot_be_judged_is_said(examine: Callable[..., Examination]) -> None:
    examination = examine([("one", "uno"), ("two", "dos")])
    assert any("was not judged" in remark for remark in examination.remarks)
    assert any("no validation or test text" in remark for remark in examination.remarks)


def test_it_is_said_which_languages_were_not_judged(
    examine: Callable[..., Examination], invented: Callable[..., Pairs]
) -> None:
    pytest.importorskip("py3langid")
    short = [("a dog", f"ein Hund {row}") for row in range(100)]
    remarks = examine(short, source_language="en", target_language="xyz").remarks
    assert (
        "whether the sources of the training text are in English was not judged: too few of its sentences tell"
        in remarks
    )
    assert (
        "whether the targets of the training text are in xyz was not judged: py3langid does not know that language"
        in remarks
    )
    assert not any("are in" in remark for remark in examine(short).remarks)
    chinese = examine([(source, "吃天大我火。") for source, _ in short], source_language="en", target_language="de")
    assert [finding.name for finding in chinese.findings if finding.name == "wrong_language"] == ["wrong_language"]
    assert not any("targets of the training text are in" in remark for remark in chinese.remarks)


def test_a_text_of_blank_lines_is_reported(examine: Callable[..., Examination]) -> None:
    examination = examine([("", " ")] * 300)
    assert [finding.name for finding in examination.findings] == ["blank_lines"]
    assert examination.is_serious
    assert examination.training_estimate.num_kept == 0
    assert examination.figures[0].tokenizer.startswith("none: no line is left to train a tokenizer on")
    assert examination.figures[0].tokenization == []


def test_what_is_not_a_pair_is_said(invented: Callable[..., Pairs], tmp_path: Path) -> None:
    rows = [("source", "target"), *invented(300)]
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), pairs="a.tsv")
    examination = examine_corpus(data, FITTED, CorpusConfig(pairs="a.tsv"), report=lambda _: None)
    said = [remark for remark in examination.remarks if "a.tsv: its first row, 'source' and 'target'" in remark]
    assert len(said) == 2


def test_test_text_has_columns_of_its_own(invented: Callable[..., Pairs], tmp_path: Path) -> None:
    pairs = invented(300)
    (tmp_path / "a.tsv").write_text("".join(f"{target}\t{source}\n" for source, target in pairs), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), **write(tmp_path, "train", pairs))
    test = CorpusConfig(pairs="a.tsv", columns=("2", "1"))
    _, figures = examine_corpus(data, FITTED, test, report=lambda _: None).figures
    assert figures.leakage["training"].count()["pairs"] == 300
    with pytest.raises(ConfigError, match=r'^--test-columns: "x" must be a column number'):
        examine_corpus(data, FITTED, CorpusConfig(pairs="a.tsv", columns=("x", "1")), report=lambda _: None)


def test_the_columns_of_test_text_follow_their_order_as_those_of_training_text_do(
    invented: Callable[..., Pairs], tmp_path: Path
) -> None:
    rows = [("en", "de"), *invented(300)]
    for name in ("train.tsv", "test.tsv"):
        (tmp_path / name).write_text("".join(f"{one}\t{other}\n" for one, other in rows), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), pairs="train.tsv")
    _, figures = examine_corpus(data, FITTED, CorpusConfig(pairs="test.tsv"), report=lambda _: None).figures
    assert figures.leakage["training"].count()["pairs"] == 300


def test_text_of_which_training_keeps_nothing_is_foreseen(invented: Callable[..., Pairs], tmp_path: Path) -> None:
    pairs = invented(300)
    rows = [(source, " ".join(target for _, target in pairs[at % 280 :][:20])) for at, (source, _) in enumerate(pairs)]
    (tmp_path / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), pairs="a.tsv")
    config = TextConfig(vocabulary="fitted", max_pieces=10_000)
    assert examine_corpus(data, config, report=lambda _: None).training_estimate.num_kept == 0


def test_a_pair_that_training_leaves_out_for_its_length_does_not_count(
    examine: Callable[..., Examination], invented: Callable[..., Pairs]
) -> None:
    pairs = invented(300)
    expected = examine(pairs).training_estimate
    pairs.insert(77, ("word " * 200, "x" * 100_000))
    assert examine(pairs).training_estimate.num_kept == expected.num_kept


def test_files_of_different_length_are_examined(
    examine: Callable[..., Examination], invented: Callable[..., Pairs], tmp_path: Path
) -> None:
    pairs = invented(2000)
    given = write(tmp_path, "train", pairs)
    lines = (tmp_path / "train.target").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "train.target").write_text("".join([*lines[:1200], *lines[1201:]]), encoding="utf-8")
    examination = examine_corpus(DataConfig(folder=str(tmp_path), **given), FITTED, report=lambda _: None)
    rows = found(examination)
    assert rows["unequal_files"] == {1999}
    assert min(rows["shifted_lines"]) == 1200
    assert "blank_lines" not in rows


@pytest.mark.parametrize("swap_sides", [False, True])
def test_members_of_a_zip_of_different_length_are_examined(
    invented: Callable[..., Pairs], tmp_path: Path, swap_sides: bool
) -> None:
    sources, targets = zip(*invented(2000), strict=True)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.en", "".join(f"{line}\n" for line in sources))
        archive.writestr("x.de", "".join(f"{line}\n" for line in [*targets[:1200], *targets[1201:]]))
    languages = ("de", "en") if swap_sides else ("en", "de")
    data = DataConfig(
        folder=str(tmp_path),
        pairs="x.zip",
        source_language=languages[0],
        target_language=languages[1],
        swap_sides=swap_sides,
    )
    examination = examine_corpus(data, FITTED, report=lambda _: None)
    rows = found(examination)
    assert rows["unequal_files"] == {1999}
    assert min(rows["shifted_lines"]) == 1200
    (unequal,) = (one for one in examination.findings if one.name == "unequal_files")
    sides = (1999, 2000) if swap_sides else (2000, 1999)
    assert "the source has {:,} lines and the target {:,}".format(*sides) in unequal.summary
    assert {part.unit for part in unequal.text.parts} == {"line"}


def test_several_corpora_are_told_apart(invented: Callable[..., Pairs], tmp_path: Path) -> None:
    first, second = invented(1500), invented(1500, seed=2)
    sources, targets = zip(*second, strict=True)
    corpora = [
        CorpusConfig(**write(tmp_path, "first", first)),
        CorpusConfig(**write(tmp_path, "second", list(zip(sources[1:], targets[:-1], strict=True)))),
    ]
    data = DataConfig(folder=str(tmp_path), corpora=corpora)
    (finding,) = examine_corpus(data, FITTED, report=lambda _: None).findings
    assert finding.name == "shifted_lines"
    assert "second.source second.target: in all lines, the targets are shifted by +1" in finding.summary
    assert finding.shown_samples[0][0].place.corpus == "second.source second.target"
    assert str(finding.shown_samples[0][0]) == "training, second.source second.target, line 1"


@pytest.mark.parametrize("synthetic", [False, True])
def test_sides_are_swapped_and_tags_left_out_as_the_settings_say(
    invented: Callable[..., Pairs], tmp_path: Path, synthetic: bool
) -> None:
    pairs = invented(300)
    corpora = [CorpusConfig(**write(tmp_path, "train", pairs), tag=">>xx<<", synthetic=synthetic)]
    data = DataConfig(folder=str(tmp_path), corpora=corpora, swap_sides=True)
    (figures,) = examine_corpus(data, FITTED, report=lambda _: None).figures
    assert figures.text.fetch_pairs([7]) == {7: pairs[7][::-1]}
    assert figures.text.source.num_words.tolist() == [len(target.split()) for _, target in pairs]


def test_standard_input_is_read_several_times(invented: Callable[..., Pairs], tmp_path: Path) -> None:
    data, good, bad = DataConfig(pairs="-"), tmp_path / "good", tmp_path / "bad"
    good.write_text("".join(f"{source}\t{target}\n" for source, target in invented(600)), encoding="utf-8")
    bad.write_text("a\tb\nc\n")
    with good.open("rb") as stream:
        examination = examine_corpus(data, FITTED, standard_input=stream, report=lambda _: None)
    assert len(examination.figures[0].text) == 600
    assert examination.figures[0].text.locate(0).corpus == "standard input"
    with bad.open("rb") as stream, pytest.raises(CorpusError, match=r"^standard input, line 2"):
        examine_corpus(data, FITTED, standard_input=stream, report=lambda _: None)
    data = DataConfig(pairs="-", columns=("x", "y"))
    with good.open("rb") as stream, pytest.raises(ConfigError, match="a column number in standard input,"):
        examine_corpus(data, FITTED, standard_input=stream, report=lambda _: None)
    with pytest.raises(CorpusError, match="not connected"):
        examine_corpus(data, FITTED, report=lambda _: None)


def test_a_text_is_needed() -> None:
    with pytest.raises(ConfigError, match="no parallel text"):
        examine_corpus(DataConfig(), FITTED, report=lambda _: None)


def test_languages_that_alternate_both_count(
    examine: Callable[..., Examination], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sample of every other pair would see one of the two languages alone."""
    pytest.importorskip("py3langid")
    monkeypatch.setattr("transduce.doctor.examination.MAX_SENTENCES", 200)
    targets = (
        "Das Wetter in den nördlichen Bergen ist kalt, und niemand verlässt das Haus Nummer {}.",
        "Il fait froid dans les montagnes du nord, et personne ne quitte la maison numéro {}.",
    )
    source = "The weather in the northern mountains is cold, and nobody leaves the house number {}."
    pairs = [(source.format(row), targets[row % 2].format(row)) for row in range(399)]
    (figures,) = examine(pairs).figures
    shares = figures.languages[1].shares
    assert shares["de"] == pytest.approx(0.5, abs=0.1)
    assert shares["fr"] == pytest.approx(0.5, abs=0.1)


def test_one_model_may_have_several_target_languages(tmp_path: Path) -> None:
    pytest.importorskip("py3langid")
    source = "The weather in the northern mountains is cold, and nobody leaves the house number {}."
    targets = {
        ">>de<<": "Das Wetter in den nördlichen Bergen ist kalt, und niemand verlässt das Haus Nummer {}.",
        ">>fr<<": "Il fait froid dans les montagnes du nord, et personne ne quitte la maison numéro {}.",
    }
    corpora = []
    for number, (tag, target) in enumerate(targets.items()):
        given = write(tmp_path, f"{number}", [(source.format(row), target.format(row)) for row in range(100)])
        corpora.append({**given, "tag": tag})
    data = DataConfig(folder=str(tmp_path), corpora=corpora, source_language="en", target_language="de")  # type: ignore[arg-type]
    examination = examine_corpus(data, FITTED, report=lambda _: None)
    assert not {"wrong_language", "other_language"} & {finding.name for finding in examination.findings}
    assert (
        "whether the targets of the training text are in German was not judged: corpora with different tags are in "
        "different languages"
    ) in examination.remarks


def test_languages_are_those_of_pairs_that_training_keeps(examine: Callable[..., Examination]) -> None:
    """Mostly copies, which training leaves out, are no reason to replace the file of a side."""
    pytest.importorskip("py3langid")
    source = "The weather in the northern mountains is cold, and nobody leaves the house number {}."
    target = "Das Wetter in den nördlichen Bergen ist kalt, und niemand verlässt das Haus Nummer {}."
    pairs = [(source.format(row), target.format(row)) for row in range(100)]
    pairs += [(source.format(row), source.format(row)) for row in range(100, 300)]
    assert not {"same_language", "wrong_language", "other_language"} & {
        finding.name for finding in examine(pairs, source_language="en", target_language="de").findings
    }


def test_advice_about_training_is_for_training_text_alone(
    examine: Callable[..., Examination], invented: Callable[..., Pairs]
) -> None:
    damaged = [(f"({source} <b>12</b> é", f"{target[:-1]} Ã¤ &quot; 13?") for source, target in invented(300, seed=2)]
    damaged[:50] = [(source, source) for source, _ in damaged[:50]]
    damaged[50:90] = [(f"{source}\x07", target) for source, target in damaged[50:90]]
    damaged[90:120] = [pair[::-1] for pair in invented(30, seed=3)]
    damaged[120:130] = [("a", " ")] * 10
    examination = examine([*invented(1000), *damaged], test=damaged)
    advice: dict[str, dict[str, str]] = {"training": {}, "test": {}}
    for finding in examination.findings:
        advice[finding.text.name][finding.name] = finding.advice
    names = {
        "mojibake",
        "html_entities",
        "control_characters",
        "markup",
        "different_endings",
        "copies",
        "swapped_pairs",
    }
    assert names | {"different_brackets", "blank_lines"} <= advice["test"].keys() & advice["training"].keys()
    for name in names:
        assert re.search("learn|training|teach", advice["training"][name])
    for name in names | {"different_brackets"}:
        assert not re.search("learn|training|teach", advice["test"][name])
