import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from transduce.bundle import Bundle, RecordedHead, update_calibration

GIVEN = ["--source", "valid.source", "--target", "valid.target"]
CHOSEN = re.compile(r"^aligned by --head (\S+), the best of 6 by ([a-z -]+), (-?\d+\.\d{3})\n\d+ pairs in ")


@pytest.fixture
def lines(workspace: Path) -> list[tuple[list[str], list[str]]]:
    """The words of the text that is aligned."""
    sides = [(workspace / name).read_text(encoding="utf-8").split("\n")[:-1] for name in (GIVEN[1], GIVEN[3])]
    return [(source.split(), target.split()) for source, target in zip(*sides, strict=True)]


@pytest.fixture
def gold(lines: list[tuple[list[str], list[str]]], workspace: Path) -> Path:
    """Every word of the task is its source word spelled backwards, in the same place."""
    text = "".join(" ".join(f"{word}-{word}" for word in range(len(target))) + "\n" for _, target in lines)
    (workspace / "gold").write_text(text, encoding="utf-8", newline="\n")
    return workspace / "gold"


def test_words_that_translate_each_other(
    transduce: Any, run_folder: Path, lines: list[tuple[list[str], list[str]]]
) -> None:
    answer = transduce("align", run_folder, *GIVEN)
    assert answer.exit_code == 0
    assert len(answer.lines) == len(lines)
    right = total = 0
    for line, (source, target) in zip(answer.lines, lines, strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert [link[1] for link in links] == list(range(len(target)))
        assert all(link[0] < len(source) for link in links)
        right += sum(source[link[0]] == target[link[1]][::-1] for link in links)
        total += len(links)
    # It has learned but little.
    assert right / total > 0.6
    assert CHOSEN.match(answer.messages)[2] == "mean log-probability of linked words"


def test_what_was_chosen_can_be_given(transduce: Any, run_folder: Path, workspace: Path) -> None:
    answer = transduce("align", run_folder, *GIVEN)
    head = CHOSEN.match(answer.messages)[1]
    again = transduce("align", run_folder, *GIVEN, "--head", head)
    assert again.output == answer.output
    assert again.messages.startswith("10 pairs in ")
    other = transduce("align", run_folder, *GIVEN, "--head", "1.2+1")
    assert other.output != answer.output


def test_a_head_can_be_chosen_on_other_text(transduce: Any, run_folder: Path, workspace: Path) -> None:
    other = ["--choose-on-source", "train.source", "--choose-on-target", "train.target"]
    answer = transduce("align", run_folder, *GIVEN, *other)
    chosen = CHOSEN.match(answer.messages)
    itself = transduce("align", run_folder, "--source", "train.source", "--target", "train.target")
    assert itself.messages.startswith(chosen[0][: chosen[0].index("\n")])
    assert len(answer.lines) == 10


def test_a_head_can_be_chosen_by_gold_alignments(transduce: Any, run_folder: Path, gold: Path) -> None:
    answer = transduce("align", run_folder, *GIVEN, "--gold", gold)
    chosen = CHOSEN.match(answer.messages)
    assert chosen[2] == "alignment error rate"
    expected = [line.split() for line in gold.read_text(encoding="utf-8").split("\n")[:-1]]
    right = sum(len(set(line.split()) & set(links)) for line, links in zip(answer.lines, expected, strict=True))
    total = sum(len(line.split()) + len(links) for line, links in zip(answer.lines, expected, strict=True))
    assert float(chosen[3]) == pytest.approx(1 - 2 * right / total, abs=6e-4)


def test_the_head_of_the_calibration_is_taken_unless_another_is_given(
    transduce: Any, run_folder: Path, workspace: Path, gold: Path
) -> None:
    shutil.copytree(run_folder / "best", workspace / "model")
    update_calibration(Bundle.open(workspace / "model"), alignment=RecordedHead(layer=0, head=1, offset=1))
    answer = transduce("align", "model", *GIVEN)
    assert answer.messages.startswith("aligned by --head 1.2+1, which the bundle's calibration names\n10 pairs in ")
    assert answer.output == transduce("align", run_folder, *GIVEN, "--head", "1.2+1").output
    other = ["--choose-on-source", "train.source", "--choose-on-target", "train.target"]
    for options in (["--head", "1"], ["--gold", gold], other):
        assert transduce("align", "model", *GIVEN, *options).output != answer.output


def test_json_has_words_and_weights(transduce: Any, run_folder: Path, lines: list[Any]) -> None:
    plain = transduce("align", run_folder, *GIVEN, "--head", "1")
    objects = [json.loads(line) for line in transduce("align", run_folder, *GIVEN, "--head", "1", "--json").lines]
    for line, found, (source, target) in zip(plain.lines, objects, lines, strict=True):
        assert (found["source"], found["target"]) == (source, target)
        assert line == " ".join(f"{link['source']}-{link['target']}" for link in found["alignment"])
        assert all(0 < link["weight"] <= 1.00001 for link in found["alignment"])


def test_line_n_in_is_line_n_out(transduce: Any, run_folder: Path, workspace: Path) -> None:
    (workspace / "a").write_bytes("ba do\n\n \u3000 \nfi\n\n".encode())
    (workspace / "b").write_bytes("ab\u3000od\n\nab\n\n  ku   le\n".encode())
    answer = transduce("align", run_folder, "--source", "a", "--target", "b", "--head", "1.1")
    assert [len(line.split()) for line in answer.lines] == [2, 0, 0, 0, 0]
    assert answer.messages.startswith("5 pairs in ")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--head", "first"], "head = 'first': must be LAYER.HEAD"),
        (["--head", "7.1"], "head = '7.1': must be one that the decoder has: layers 1 to 1"),
        (["--head", "1", "--gold", "two"], "--head 1 leaves nothing to choose"),
        (["--choose-on-source", "train.source"], "--choose-on-source and --choose-on-target"),
        (["--choose-on-target", "train.source"], "--choose-on-source and --choose-on-target"),
        (
            ["--choose-on-source", "train.source", "--choose-on-target", "two"],
            "train.source has 300 lines and two has 2",
        ),
        (["--gold", "two"], "two has 2 lines and its text has 10 pairs"),
        (["--gold", "ten"], "ten, line 1: 'ba' must be"),
        (["--gold", "far"], "line 1: 99-99 must be"),
        (["--gold", "nope"], "nope: there is no such file"),
        (["--choose-on-source", "blank", "--choose-on-target", "blank"], "none of 2 pairs has words on both sides"),
        (["--device", "tpu9"], "'tpu9': must be"),
        (["--source", "train.source"], "--source"),
    ],
)
def test_mistakes_are_named(transduce: Any, run_folder: Path, workspace: Path, options: list[str], named: str) -> None:
    files = {"two": b"0-0\n0-0\n", "ten": b"ba\n" * 10, "far": b"99-99\n" * 10, "blank": b"\n\n"}
    for name, content in files.items():
        (workspace / name).write_bytes(content)
    answer = transduce("align", run_folder, *GIVEN, *options)
    assert (answer.exit_code, answer.output) == (2, b"")
    assert named in answer.messages
    assert "Traceback" not in answer.messages
