import json
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
    assert "blank: nothing but blank lines" in answer.messages


def test_the_beam_can_be_chosen(transduce: Any, test_set: Path, run_folder: Path) -> None:
    given = ["--source", "test.source", "--reference", "test.target", "--beam", "1", "--json"]
    assert json.loads(transduce("evaluate", run_folder, *given).output)["beam"] == 1


def test_an_unknown_tokenization_is_refused_before_anything_is_read(transduce: Any, run_folder: Path) -> None:
    given = ["--source", "missing", "--reference", "missing", "--tokenize", "13b"]
    answer = transduce("evaluate", run_folder, *given)
    assert answer.exit_code == 2
    assert "tokenization = '13b' must be one of: 13a, none" in answer.messages
