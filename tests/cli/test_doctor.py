import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = [first + vowel + last for first in "bdfgklmnprst" for vowel in "aeiou" for last in "nr"]


def make_pairs(num_pairs: int, seed: int = 1) -> list[tuple[str, str]]:
    """Sentences, and the same with every word spelled backwards."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    sentences = [chance.choices(WORDS, k=chance.randint(8, 14)) for _ in range(num_pairs)]
    return [(" ".join(words), " ".join(word[::-1] for word in words)) for words in sentences]


@pytest.fixture
def texts(workspace: Path) -> list[str]:
    """Options that name good training and test text."""
    options = []
    for name, option, seed in (("good", "", 1), ("goodtest", "test-", 2)):
        for side, lines in zip(("source", "target"), zip(*make_pairs(1000, seed), strict=True), strict=True):
            path = workspace / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
            options += [f"--{option}{side}", path.name]
    return options


@pytest.fixture
def shifted(workspace: Path, texts: list[str]) -> list[str]:
    """Options that name a text whose target lacks line 601."""
    lines = (workspace / "good.target").read_text(encoding="utf-8").splitlines(keepends=True)
    (workspace / "shifted.target").write_text("".join([*lines[:600], *lines[601:]]), encoding="utf-8")
    return [*texts[:3], "shifted.target"]


def test_a_good_text_has_exit_code_0(transduce: Callable, texts: list[str]) -> None:
    answer = transduce("doctor", *texts)
    assert answer.exit_code == 0
    assert answer.lines[0] == "1,000 training pairs, 1,000 test pairs: 0 serious findings, 0 minor"
    assert "reading the training text" in answer.messages


def test_a_serious_finding_has_exit_code_3(transduce: Callable, shifted: list[str]) -> None:
    answer = transduce("doctor", *shifted)
    assert answer.exit_code == 3
    assert b"serious: shifted lines, training text" in answer.output
    assert b"from line 601 on, the targets are shifted by -1" in answer.output
    assert b"training, line 601" in answer.output
    answer = transduce("doctor", *shifted, "--json")
    found = json.loads(answer.output)
    assert (answer.exit_code, found["is_serious"]) == (3, True)
    assert "shifted_lines" in [finding["name"] for finding in found["findings"]]


def test_a_text_of_few_pairs_is_warned_of(transduce: Callable, workspace: Path, texts: list[str]) -> None:
    for side in ("source", "target"):
        (workspace / f"few.{side}").write_text(f"a word of the {side}\n", encoding="utf-8")
    answer = transduce("doctor", "--source", "few.source", "--target", "few.target")
    assert answer.lines[0].startswith("1 training pair: ")
    assert b"warning: 1 training pair can teach a model no language" in answer.output
    assert b"can teach a model no language" not in transduce("doctor", *texts).output


def test_of_text_that_training_leaves_out_no_training_is_expected(transduce: Callable, workspace: Path) -> None:
    (workspace / "empty.source").write_text("\n", encoding="utf-8")
    (workspace / "one.target").write_text("ein Satz\n", encoding="utf-8")
    answer = transduce("doctor", "--source", "empty.source", "--target", "one.target")
    assert answer.exit_code == 3
    assert answer.lines[0] == "1 training pair: 1 serious finding, 0 minor"
    assert b"training keeps about 0 of 1 pairs" in answer.output
    assert b"takes the preset" not in answer.output


@pytest.mark.parametrize("text", ["training", "validation", "test"])
def test_of_files_that_training_refuses_no_training_is_expected(
    transduce: Callable, texts: list[str], shifted: list[str], text: str
) -> None:
    validation = ["--set", "data.validation_source=good.source", "--set", "data.validation_target=shifted.target"]
    test = ["--test-source", "good.source", "--test-target", "shifted.target"]
    options = {"training": shifted, "validation": [*texts[:4], *validation], "test": [*texts[:4], *test]}[text]
    answer = transduce("doctor", *options)
    printed = " ".join(answer.output.decode().split())
    is_expected = text == "test"
    assert answer.exit_code == 3
    assert "unequal files" in printed
    assert ("training keeps about 1,000 of 1,000 pairs" in printed) == is_expected
    assert ("takes the preset" in printed) == is_expected
    assert ("training keeps no pair, as it refuses files that differ in number of lines" in printed) != is_expected
    estimate = json.loads(transduce("doctor", *options, "--json").output)["training_estimate"]
    assert (estimate["num_kept"], bool(estimate["expectations"])) == ((1000, True) if is_expected else (0, False))


def test_a_number_of_many_digits_is_read(transduce: Callable, workspace: Path) -> None:
    for side in ("source", "target"):
        (workspace / f"digits.{side}").write_text(f"number {'9' * 600}\n", encoding="utf-8")
    assert transduce("doctor", "--source", "digits.source", "--target", "digits.target").exit_code in {0, 3}


def test_a_page_or_a_folder_is_written(transduce: Callable, shifted: list[str], workspace: Path) -> None:
    answer = transduce("doctor", *shifted, "--output", "page.html")
    assert answer.exit_code == 3
    assert "the report is in page.html; open it in a browser" in answer.messages
    page = (workspace / "page.html").read_text(encoding="utf-8")
    for again in range(2):  # a report is replaced
        assert transduce("doctor", *shifted, "--output", "new/report").exit_code == 3, again
    folder = workspace / "new" / "report"
    assert sorted(path.name for path in folder.iterdir()) == ["lines.tsv", "report.html", "report.json"]
    assert (folder / "report.html").read_text(encoding="utf-8") == page
    printed = json.loads(transduce("doctor", *shifted, "--json").output)
    assert json.loads((folder / "report.json").read_text(encoding="utf-8")) == printed
    rows = (folder / "lines.tsv").read_text(encoding="utf-8").splitlines()
    assert "shifted_lines\ttraining\tgood.source shifted.target\tline\t601" in rows


def test_it_says_what_training_makes_of_the_text(transduce: Callable, texts: list[str], workspace: Path) -> None:
    kept = "training keeps about 1,000 of 1,000 pairs by its own rules"
    answer = transduce("doctor", *texts, "--output", "folder")
    assert kept in answer.output.decode()
    assert "takes the preset low-resource and passes 200 times over the pairs" in " ".join(
        answer.output.decode().split()
    )
    page = (workspace / "folder" / "report.html").read_text(encoding="utf-8")
    assert f"<li>T{kept[1:]}.</li>" in page
    report = json.loads((workspace / "folder" / "report.json").read_text(encoding="utf-8"))
    assert report["training_estimate"]["num_kept"] == 1000
    assert any("low-resource" in sentence for sentence in report["training_estimate"]["expectations"])
    assert "low-resource" not in transduce("doctor", "tiny.toml").output.decode()


@pytest.mark.parametrize("place", ["page.html", "folder", "folder/report.json"])
def test_other_files_are_not_replaced(transduce: Callable, texts: list[str], workspace: Path, place: str) -> None:
    path = workspace / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine", encoding="utf-8")
    output = "folder" if place.startswith("folder") else place
    answer = transduce("doctor", *texts, "--output", output)
    assert answer.exit_code == 2
    assert answer.output == b""
    assert path.read_text(encoding="utf-8") == "mine"
    assert "reading" not in answer.messages
    if place != "folder":
        assert transduce("doctor", *texts, "--output", output, "--force").exit_code == 0
        assert path.read_text(encoding="utf-8") != "mine"


def test_a_recipe_and_settings_name_the_text(transduce: Callable, workspace: Path) -> None:
    answer = transduce("doctor", "tiny.toml", "--json")
    found = json.loads(answer.output)
    assert found["texts"]["training"]["files"] == ["train.source train.target"]
    assert found["texts"]["validation"]["num_pairs"] == 10
    assert found["texts"]["training"]["tokenizer"].endswith("with 300 token ids")
    answer = transduce("doctor", "tiny.toml", "--set", "data.validation_source=train.source", "--json")
    assert answer.exit_code == 3
    assert b'"unequal_files"' in answer.output


def test_pairs_come_from_standard_input(transduce: Callable, workspace: Path) -> None:
    pairs = "".join(f"{source}\t{target}\n" for source, target in make_pairs(300)).encode()
    (workspace / "test.tsv").write_bytes(pairs)
    test = ["--test-pairs", "test.tsv", "--test-columns", "1", "2"]
    answer = transduce("doctor", "--pairs", "-", *test, "--json", standard_input=pairs)
    found = json.loads(answer.output)
    assert answer.exit_code == 3
    assert found["texts"]["training"]["files"] == ["standard input"]
    assert found["texts"]["test"]["leakage"]["training"]["pairs"] == 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no parallel text: give --source and --target, or --pairs"),
        (["--source", "train.source"], "source is given without target"),
        (["--source", "nothing", "--target", "train.target"], "nothing: there is no such file"),
        (["tiny.toml", "--test-source", "valid.source"], "give both of them"),
        (["tiny.toml", "--test-pairs=-"], "give both of them"),
        (["tiny.toml", "--test-pairs=t\udce9.tsv"], ": must be UTF-8: rename the file or folder"),
        (["tiny.toml", "--test-source=\udce9", "--test-target=valid.target"], ": must be UTF-8: rename the file"),
        (["tiny.toml", "--test-pairs=a.tsv", "--test-columns", "en", "en"], "--test-columns: source and target are"),
        (["tiny.toml", "--test-columns", "en", "de"], "give it as --test-pairs"),
        (["tiny.toml", "--set", "text.tokenizer=tiny.toml"], "tiny.toml"),
        (["--pairs", "-"], "standard input: empty"),
    ],
)
def test_mistakes_are_named(transduce: Callable, workspace: Path, arguments: list[str], words: str) -> None:
    answer = transduce("doctor", *arguments)
    assert answer.exit_code == 2
    assert answer.output == b""
    assert words in answer.messages


def test_no_torch_is_loaded(transduce: Callable, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    assert transduce("doctor", *texts).exit_code == 0
