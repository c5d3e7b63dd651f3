"""`comet-score` is a program of another environment; here, one with the same options and output stands in its place."""

import math
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.evaluation import SystemOutput, TestSet, compare_systems
from transduce.evaluation.comet import CometScorer, compare_lines, summarize_lines

PROGRAM = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
for short, long, number in (("-s", "--sources", None), ("-t", "--translations", "+"), ("-r", "--references", None)):
    parser.add_argument(short, long, nargs=number)
parser.add_argument("--model")
parser.add_argument("--gpus", type=int)
parser.add_argument("--to_json")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--only_system", action="store_true")
given = parser.parse_args()
assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
if "broken" in given.model:
    sys.exit("RuntimeError: no such encoder")
read = lambda path: [line.strip() for line in open(path, encoding="utf-8").readlines()]
sources, references = read(given.sources), read(given.references)
found = {}
for path in given.translations:
    lines = read(path)
    assert len(lines) == len(sources) == len(references)
    shares = [len({*one.split()} & {*other.split()}) / 10 for one, other in zip(lines, references)]
    rows = zip(sources, lines, references, shares)
    found[path] = [{"src": s, "mt": t, "ref": r, "COMET": share} for s, t, r, share in rows]
    print(f"{path}\\tscore: {sum(shares) / len(shares):.4f}")
json.dump(found, open(given.to_json, "w", encoding="utf-8"))
"""


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model as Hugging Face keeps it, with the program in PATH."""
    program = tmp_path / "bin" / "comet-score"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{PROGRAM}", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    path = tmp_path / "wmt-tiny" / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    (path.parents[1] / "hparams.yaml").write_text("class_identifier: regression_metric\n", encoding="utf-8")
    return path


@pytest.fixture
def make_outputs() -> Callable[..., tuple[TestSet, list[SystemOutput]]]:
    def make(*systems: list[str]) -> tuple[TestSet, list[SystemOutput]]:
        references = [f"a b c d{number}" for number in range(len(systems[0]))]
        test_set = TestSet("test", ["s"] * len(references), [references])
        return test_set, [SystemOutput(f"system {number}", lines) for number, lines in enumerate(systems)]

    return make


def test_lines_are_scored_and_the_checkpoint_is_named(checkpoint: Path, make_outputs: Callable) -> None:
    test_set, outputs = make_outputs(["a b", "", "x"], ["a b c", "d1", "ä d2"])
    for path in (checkpoint, checkpoint.parents[1]):
        scorer = CometScorer.find(path)
        assert [values.tolist() for values in scorer.score(test_set, outputs, lambda _: None)] == [
            pytest.approx([20, 0, 0]),
            pytest.approx([30, 10, 10]),
        ]
        assert scorer.signature.startswith("model:wmt-tiny|sha256:")


def test_systems_are_compared_by_it(checkpoint: Path, make_outputs: Callable) -> None:
    good = [f"a b c d{number}" for number in range(60)]
    test_set, outputs = make_outputs([*good[:30], *["a"] * 30], good)
    comparison = compare_systems(test_set, outputs, comet=CometScorer.find(checkpoint))
    first, second = comparison.systems
    assert [score.metric for score in second.scores] == ["BLEU", "chrF", "TER", "COMET"]
    assert (first.scores[-1].value, second.scores[-1].value) == pytest.approx((25, 40))
    assert second.differences[-1].verdict == "better"
    assert "COMET" in {row[0] for row in comparison.tabulate().rows}
    low, high = second.scores[0].low, first.scores[-1].high
    assert low is not None
    assert high is not None
    assert first.scores[-1].value < high < 32


def test_what_is_missing_is_named(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (
        tmp_path / "nothing.ckpt",
        tmp_path,
        Path("Unbabel/wmt22-comet-da"),
        checkpoint.parents[1] / "hparams.yaml",
    ):
        with pytest.raises(UserError, match="must be a checkpoint of COMET"):
            CometScorer.find(path)
    (checkpoint.parents[1] / "hparams.yaml").unlink()
    with pytest.raises(UserError, match=r"no hparams\.yaml"):
        CometScorer.find(checkpoint)
    (checkpoint.parents[1] / "hparams.yaml").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="pipx install unbabel-comet"):
        CometScorer.find(checkpoint)


def test_a_failure_says_what_the_program_says(checkpoint: Path, make_outputs: Callable) -> None:
    broken = checkpoint.with_name("broken.ckpt")
    checkpoint.rename(broken)
    with pytest.raises(UserError, match=r"failed: RuntimeError: no such encoder; .* must be on disk"):
        CometScorer.find(broken).score(*make_outputs(["a"]), lambda _: None)


def test_lines_stay_lines(checkpoint: Path, make_outputs: Callable) -> None:
    with pytest.raises(CorpusError, match="line end"):
        CometScorer.find(checkpoint).score(*make_outputs(["a\rb"]), lambda _: None)


def test_chance_decides_rarely_that_equal_systems_differ() -> None:
    generator = np.random.default_rng(1)
    found = []
    for _ in range(60):
        values = generator.normal(80, 10, 100)
        found.append(compare_lines(values, values + generator.normal(0, 5, 100)).is_significant)
    assert sum(found) <= 8
    values = generator.normal(80, 10, 100)
    assert compare_lines(values, values).p_bootstrap == 1.0
    assert compare_lines(values, values + 3 + generator.normal(0, 5, 100)).verdict == "better"
    assert compare_lines(values, values - 3 + generator.normal(0, 5, 100)).verdict == "worse"


def test_the_interval_is_that_of_the_mean() -> None:
    values = np.random.default_rng(2).normal(80, 10, 400)
    score = summarize_lines(values, "model:x", confidence=True)
    assert score.low is not None
    assert score.high is not None
    half = 1.96 * 10 / math.sqrt(400)
    assert (score.value - score.low, score.high - score.value) == pytest.approx((half, half), rel=0.15)
    assert score.signature == "model:x|bs:1000|seed:12345"
    assert summarize_lines(values, "model:x", confidence=False).interval == ""


def test_its_tests_take_the_seed_of_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(80, 10, 50)
    others = values + np.random.default_rng(3).normal(1, 5, 50)

    def measure() -> tuple[str, float | None, float, float]:
        score, difference = summarize_lines(values, "model:x", confidence=True), compare_lines(values, others)
        return score.signature, score.low, difference.low, difference.p_randomization

    default = measure()
    assert measure() == default
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    chosen = measure()
    assert chosen[0].endswith("|seed:7")
    assert measure() == chosen
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    free = measure()
    assert free[0].endswith("|seed:none")
    for found, another in ((default, chosen), (chosen, free), (free, measure())):
        assert all(one != other for one, other in zip(found[1:3], another[1:3], strict=True))
    monkeypatch.setenv("SACREBLEU_SEED", "soon")
    with pytest.raises(ConfigError, match="SACREBLEU_SEED"):
        compare_lines(values, others)
