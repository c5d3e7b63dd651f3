import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def test_set(workspace: Path, transduce: Any, run_folder: Path) -> Path:
    """Its references are those of the task for half of the lines, and the model's own translations for the others."""
    sources = (workspace / "train.source").read_bytes().split(b"\n")[:30]
    targets = (workspace / "train.target").read_text(encoding="utf-8").split("\n")[:30]
    (workspace / "test.source").write_bytes(b"".join(line + b"\n" for line in sources))
    answer = transduce("translate", run_folder, standard_input=(workspace / "test.source").read_bytes())
    (workspace / "hypotheses").write_bytes(answer.output)
    mixed = [pair[index % 2] for index, pair in enumerate(zip(targets, answer.lines, strict=True))]
    (workspace / "test.target").write_text("".join(f"{line}\n" for line in mixed), encoding="utf-8", newline="\n")
    return workspace


@pytest.mark.parametrize("tokenization", [[], ["--tokenize", "none"]])
def test_scores_are_those_of_sacrebleus_own_command(
    transduce: Any, test_set: Path, run_folder: Path, tokenization: list[str]
) -> None:
    options = ["-i", "hypotheses", "-m", "bleu", "chrf", "ter", "-w", "9", "-f", "json", "--force", *tokenization]
    own = subprocess.run([sys.executable, "-m", "sacrebleu", "test.target", *options], capture_output=True, check=True)
    given = ["evaluate", run_folder, "--source", "test.source", "--reference", "test.target", *tokenization]
    found = json.loads(transduce(*given, "--json").output)
    assert {"model": str(run_folder), "lines": 30, "beam": 4}.items() <= found.items()
    assert list(found["scores"]) == ["bleu", "chrf", "ter"]
    for score, expected in zip(found["scores"].values(), json.loads(own.stdout), strict=True):
        assert score["value"] == pytest.approx(expected["score"], abs=1e-6)
        assert score["signature"] == expected["signature"]
        assert 0 < score["value"] < 100
    text = transduce(*given)
    assert [line.split()[0] for line in text.lines] == ["BLEU", "chrF", "TER"]
    for line, score in zip(text.lines, found["scores"].values(), strict=True):
        assert line.split()[1:] == [f"{score['value']:.2f}", score["signature"]]
    assert text.messages.startswith("30 lines in ")


def test_every_score_may_have_its_interval(transduce: Any, test_set: Path, run_folder: Path) -> None:
    given = ["evaluate", run_folder, "--source", "test.source", "--reference", "test.target", "--confidence"]
    found = json.loads(transduce(*given, "--json").output)["scores"]
    lines = transduce(*given).lines
    for line, score in zip(lines, found.values(), strict=True):
        assert score["low"] < score["value"] < score["high"]
        assert f"{score['value']:.2f} (95% {score['low']:.2f} to {score['high']:.2f})  nrefs:1|bs:1000|" in line


def test_blank_references_have_no_score(transduce: Any, test_set: Path, run_folder: Path) -> None:
    (test_set / "blank").write_text("\n" * 30, encoding="utf-8")
    answer = transduce("evaluate", run_folder, "--source", "test.source", "--reference", "blank")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "blank: the reference is blank" in answer.messages


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_references_that_are_blank_in_part_are_named(transduce: Any, test_set: Path, command: str) -> None:
    lines = (test_set / "test.target").read_text(encoding="utf-8").split("\n")[:30]
    half = "".join(f"{line if number % 2 else ''}\n" for number, line in enumerate(lines, start=1))
    (test_set / "half").write_text(half, encoding="utf-8")
    (test_set / "others").write_bytes((test_set / "hypotheses").read_bytes())
    systems = ["hypotheses", "others"][: 1 if command == "evaluate" else 2]
    given = [command, *systems, "--source", "test.source", "--reference", "test.target", "--reference", "half"]
    answer = transduce(*given)
    assert answer.exit_code == 0
    expected = "test: reference 2 is blank in 15 lines of 30 (the first is line 2), which makes scores worse"
    assert expected in " ".join(answer.messages.split())
    assert "the reference is blank in 15 lines" in transduce(*given[:-3], "half").messages


def test_why_good_translations_of_short_lines_have_no_bleu_is_said(transduce: Any, workspace: Path) -> None:
    for name, text in {"short.en": "A dog.\nThe sun.\n", "short.de": "Ein Hund.\nDie Sonne.\n"}.items():
        (workspace / name).write_text(text, encoding="utf-8")
    arguments = ["evaluate", "short.de", "--source", "short.en", "--reference"]
    answer = transduce(*arguments, "short.de")
    assert [line.split()[:2] for line in answer.lines] == [["BLEU", "0.00"], ["chrF", "100.00"], ["TER", "0.00"]]
    assert "BLEU is 0 if no four words in a row" in answer.messages
    assert "BLEU is 0" not in transduce(*arguments, "short.en").messages


def test_the_beam_can_be_chosen(transduce: Any, test_set: Path, run_folder: Path) -> None:
    given = ["--source", "test.source", "--reference", "test.target", "--beam", "1", "--json"]
    assert json.loads(transduce("evaluate", run_folder, *given).output)["beam"] == 1


def test_an_unknown_tokenization_is_refused_before_anything_is_read(transduce: Any, run_folder: Path) -> None:
    given = ["--source", "missing", "--reference", "missing", "--tokenize", "13b"]
    answer = transduce("evaluate", run_folder, *given)
    assert answer.exit_code == 2
    assert "tokenization = '13b' must be one of: 13a, none" in answer.messages


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def test_a_file_of_translations_has_the_scores_of_the_model_that_made_it(
    transduce: Any, test_set: Path, run_folder: Path
) -> None:
    given = ["--source", "test.source", "--reference", "test.target"]
    answer = transduce("evaluate", "hypotheses", *given)
    assert answer.lines == transduce("evaluate", run_folder, *given).lines
    assert answer.messages == "test: 30 lines\n"


def test_several_references_are_those_of_sacrebleus_own_command(transduce: Any, test_set: Path) -> None:
    write_lines(test_set / "other.target", ["ba do fi"] * 30)
    options = ["-i", "hypotheses", "-m", "bleu", "chrf", "ter", "-w", "9", "-f", "json", "--force"]
    command = [sys.executable, "-m", "sacrebleu", "test.target", "other.target", *options]
    own = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    given = ["--source", "test.source", "--reference", "test.target", "--reference", "other.target", "--json"]
    found = json.loads(transduce("evaluate", "hypotheses", *given).output)["scores"]
    for score, expected in zip(found.values(), own, strict=True):
        assert score["value"] == pytest.approx(expected["score"], abs=1e-6)
        assert score["signature"] == expected["signature"]
        assert score["signature"].startswith("nrefs:2|")


def test_several_test_sets_are_scored_one_by_one(transduce: Any, test_set: Path, run_folder: Path) -> None:
    files = ["--source", "test.source", "--source", "valid.source"]
    files += ["--reference", "test.target", "--reference", "valid.target", "--output", "new/out"]
    answer = transduce("evaluate", run_folder, *files)
    assert [line.split()[0] for line in answer.lines] == ["test", "BLEU", "chrF", "TER", "valid", "BLEU", "chrF", "TER"]
    name = f"test.{run_folder.resolve().name}.txt"
    assert (test_set / "new" / "out" / name).read_bytes() == (test_set / "hypotheses").read_bytes()
    alone = json.loads(
        transduce("evaluate", run_folder, "--source", "valid.source", "--reference", "valid.target", "--json").output
    )
    both = json.loads(transduce("evaluate", run_folder, *files, "--json", "--force").output)["test_sets"]
    assert [one["test_set"] for one in both] == ["test", "valid"]
    assert both[1]["scores"] == alone["scores"]


def test_a_file_with_both_sides_is_a_test_set(transduce: Any, test_set: Path, run_folder: Path) -> None:
    lines = [(test_set / name).read_text(encoding="utf-8").splitlines() for name in ("test.source", "test.target")]
    rows = "".join(f"{target}\t{source}\n" for source, target in zip(*lines, strict=True))
    (test_set / "both.tsv").write_text(f"xx\tyy\n{rows}", encoding="utf-8")
    expected = transduce("evaluate", run_folder, "--source", "test.source", "--reference", "test.target").lines
    assert transduce("evaluate", run_folder, "--pairs", "both.tsv", "--columns", "yy", "xx").lines == expected


def test_the_languages_of_the_model_say_which_side_is_which(transduce: Any, test_set: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder / "best", test_set / "model")
    description = json.loads((test_set / "model" / "bundle.json").read_text(encoding="utf-8"))
    description["languages"] = {"source": "en", "target": "de"}
    (test_set / "model" / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    sides = [(test_set / name).read_text(encoding="utf-8").splitlines() for name in ("test.source", "test.target")]
    pairs = list(zip(*sides, strict=True))
    rows = "".join(f"{target}\t{source}\n" for source, target in pairs)
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{target}</seg></tuv><tuv xml:lang="en"><seg>{source}</seg></tuv></tu>'
        for source, target in pairs
    )
    (test_set / "both.tsv").write_text(f"de\ten\n{rows}", encoding="utf-8")
    (test_set / "both.tmx").write_text(f'<tmx version="1.4"><body>{units}</body></tmx>', encoding="utf-8")
    expected = transduce("evaluate", "model", "--source", "test.source", "--reference", "test.target").lines
    assert transduce("evaluate", "model", "--pairs", "both.tsv").lines == expected
    assert transduce("evaluate", "model", "--pairs", "both.tmx").lines == expected
    expected = transduce("score", "model", "--source", "test.source", "--target", "test.target").lines
    assert transduce("score", "model", "--pairs", "both.tsv").lines == expected
    answer = transduce("evaluate", "hypotheses", "--pairs", "both.tsv")  # translations have no languages
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "choose two by --columns" in answer.messages


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "no text: give --source and --reference"),
        (["--source", "test.source"], "--source is given without --reference: give both"),
        (["--pairs", "both.tsv", "--source", "test.source"], "leave out --source and --reference"),
        (["--source", "test.source", "--reference", "test.target", "--columns", "a", "b"], "give it as --pairs"),
        (["--pairs", "both.tsv", "--columns", "a", "b"], "--columns"),
        (["--pairs", "blank.tsv"], "the reference is blank"),
        (["--pairs", "missing.tsv"], "missing.tsv: there is no such file"),
    ],
)
def test_a_test_set_is_given_in_one_way(
    transduce: Any, test_set: Path, run_folder: Path, arguments: list[str], named: str
) -> None:
    (test_set / "both.tsv").write_text("source\ttarget\na\tb\n", encoding="utf-8")
    (test_set / "blank.tsv").write_text("a\t\nb\t \n", encoding="utf-8")
    answer = transduce("evaluate", run_folder, *arguments)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages


def test_written_translations_are_replaced_only_on_demand(transduce: Any, test_set: Path, run_folder: Path) -> None:
    (test_set / "out").mkdir()
    kept = test_set / "out" / f"test.{run_folder.resolve().name}.txt"
    kept.write_text("mine\n", encoding="utf-8")
    answer = transduce(
        "evaluate", run_folder, "--source", "test.source", "--reference", "test.target", "--output", "out"
    )
    assert answer.exit_code == 2
    assert f"{Path('out') / kept.name}: exists already" in answer.messages
    assert "--force" in answer.messages
    assert kept.read_text(encoding="utf-8") == "mine\n"


def test_a_file_in_the_place_of_the_folder_is_refused(transduce: Any, test_set: Path, run_folder: Path) -> None:
    given = ["--source", "test.source", "--reference", "test.target", "--output", "hypotheses"]
    before = (test_set / "hypotheses").read_bytes()
    answer = transduce("evaluate", run_folder, *given)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "--output hypotheses: is a file; give the name of a folder" in answer.messages
    assert (test_set / "hypotheses").read_bytes() == before


@pytest.mark.parametrize("is_absolute", [True, False])
def test_translations_of_test_sets_with_the_same_name_are_all_in_the_folder(
    transduce: Any, test_set: Path, run_folder: Path, is_absolute: bool
) -> None:
    given = []
    for name in ("one", "two"):
        for side in ("source", "target"):
            path = Path("sets") / name / f"test.{side}"
            (test_set / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(test_set / f"test.{side}", test_set / path)
            given += ["--source" if side == "source" else "--reference", test_set / path if is_absolute else path]
    before = sorted((test_set / "sets").rglob("*"))
    (test_set / "out").mkdir()
    assert transduce("evaluate", run_folder, *given, "--output", "out").exit_code == 0
    assert sorted((test_set / "sets").rglob("*")) == before
    first, second = sorted((test_set / "out").iterdir())
    end = f"test.source.{run_folder.resolve().name}.txt"
    assert (first.name.endswith(f"sets_one_{end}"), second.name.endswith(f"sets_two_{end}")) == (True, True)
    assert first.read_bytes() == second.read_bytes() == (test_set / "hypotheses").read_bytes()


def test_a_file_of_translations_is_refused_before_anything_is_translated(
    transduce: Any, test_set: Path, run_folder: Path
) -> None:
    write_lines(test_set / "short", ["ba"])
    answer = transduce("compare", run_folder, "short", "--source", "test.source", "--reference", "test.target")
    assert answer.exit_code == 2
    assert "short: 1 lines, but the test set test has 30" in answer.messages
    assert "lines in" not in answer.messages


def test_frequencies_are_those_of_the_training_text(transduce: Any, test_set: Path) -> None:
    lines = (test_set / "hypotheses").read_text(encoding="utf-8").splitlines()
    write_lines(test_set / "worse", [line[: len(line) // 2] for line in lines])
    given = ["--source", "test.source", "--reference", "test.target", "--output", "page.html", "--frequencies"]
    assert transduce("compare", "hypotheses", "worse", *given, "train.target").exit_code == 0
    assert "times in the training text" in (test_set / "page.html").read_text(encoding="utf-8")
    answer = transduce("compare", "hypotheses", "worse", *given, "nothing")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "nothing" in answer.messages


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names of files are Unicode there")
def test_a_name_that_is_not_utf_8_has_a_page_all_the_same(transduce: Any, test_set: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    write_lines(test_set / name, ["ba do"] * 30)
    given = ["--source", "test.source", "--reference", "test.target", "--output", "page.html"]
    answer = transduce("compare", "hypotheses", name, *given)
    assert answer.exit_code == 0
    assert answer.lines[-1].startswith("caf")
    assert "caf? against hypotheses: worse" in (test_set / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_systems_have_the_probabilities_of_sacrebleus_own_command(
    transduce: Any, test_set: Path, run_folder: Path, command: str
) -> None:
    lines = (test_set / "hypotheses").read_text(encoding="utf-8").splitlines()
    write_lines(test_set / "worse", [line[: len(line) // 2] for line in lines])
    write_lines(test_set / "other", [line if index % 5 else "" for index, line in enumerate(lines)])
    given = ["--source", "test.source", "--reference", "test.target"]
    systems = ["hypotheses", "worse", "other"]
    found = json.loads(transduce(command, run_folder, "worse", "other", *given, "--json").output)
    (compared,) = found["test_sets"]
    assert [one["system"] for one in compared["systems"]] == [str(run_folder), "worse", "other"]
    for flag, name in (("--paired-bs", "p_bootstrap"), ("--paired-ar", "p_randomization")):
        # As text: its JSON cannot be written if there is an interval.
        options = ["-i", *systems, "-m", "bleu", "chrf", "ter", flag, "-f", "text", "--force"]
        own = subprocess.run(
            [sys.executable, "-m", "sacrebleu", "test.target", *options], capture_output=True, check=True, text=True
        )
        expected = [float(p) for p in re.findall(r"\(p = ([\d.]+)\)", own.stdout)]
        worse, other = ([scores[name] for scores in one["scores"].values()] for one in compared["systems"][1:])
        assert worse == pytest.approx(expected[:3], abs=6e-5), flag
        if name == "p_bootstrap":
            assert other == pytest.approx(expected[3:], abs=6e-5)
        else:
            # Six lines differ, all in one direction, as two of 64 ways to exchange them do; sacreBLEU leaves these out.
            assert other == pytest.approx([2 / 64] * 3, rel=0.2)


def test_a_comparison_says_who_is_better(transduce: Any, test_set: Path, run_folder: Path) -> None:
    lines = (test_set / "hypotheses").read_text(encoding="utf-8").splitlines()
    write_lines(test_set / "worse", [line[: len(line) // 2] for line in lines])
    shutil.copy(test_set / "hypotheses", test_set / "same")
    given = ["--source", "test.source", "--reference", "test.target", "--output", "page.html"]
    answer = transduce("compare", "hypotheses", "worse", "same", *given)
    assert answer.lines[-2:] == ["worse against hypotheses: worse", "same against hypotheses: not decided"]
    assert answer.lines[0] == "test: 30 lines, 1 reference each"
    for metric in ("BLEU", "chrF", "TER"):
        assert any(line.startswith(f"{metric}: nrefs:1|bs:1000|seed:12345|") for line in answer.lines)
    for note in ("corrected: the greater p", "same: the translations are those of the baseline", "fewer than 50 lines"):
        assert any(line.startswith(note) for line in answer.lines)
    page = (test_set / "page.html").read_text(encoding="utf-8")
    assert "worse against hypotheses: worse" in page
    assert not re.search(r'<script|(src|href)="', page)
    again = transduce("compare", "worse", "hypotheses", *given)  # a page of its own is replaced
    assert again.lines[-1] == "hypotheses against worse: better"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["hypotheses"], "hypotheses: a comparison needs at least two systems"),
        (["hypotheses", "hypotheses"], "the same system is given twice"),
        (["hypotheses", "short", "other", "short"], "transduce: short: the same system is given twice"),
        (["hypotheses", "short"], "short: 1 lines, but the test set test has 30"),
        (["hypotheses", "nothing"], "nothing"),
        (["hypotheses", "short", "--source", "valid.source", "--reference", "valid.target"], "one test set"),
        (["hypotheses", "short", "--source", "valid.source"], "2 source and 1 reference files"),
        (["hypotheses", "short", "--frequencies", "test.target"], "--output"),
        (["hypotheses", "short", "--output", "test.source"], "is not a page of transduce compare"),
    ],
)
def test_what_cannot_be_compared_is_refused(transduce: Any, test_set: Path, arguments: list[str], named: str) -> None:
    write_lines(test_set / "short", ["ba"])
    answer = transduce("compare", *arguments, "--source", "test.source", "--reference", "test.target")
    assert answer.exit_code == 2
    assert named in answer.messages
    assert answer.output == b""
