"""The scripts of benchmarks/ run: they use what no other test calls as they do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.demo import training_pairs

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=300).stdout


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "script",
    [
        "argos.py",
        "batches.py",
        "bulk.py",
        "bulk_kills.py",
        "corpus_scale.py",
        "doctor.py",
        "fuzz.py",
        "illnesses.py",
        "kept.py",
        "kills.py",
        "page.py",
        "parity.py",
        "ranks.py",
        "resume.py",
        "serving.py",
        "soak.py",
        "training.py",
        "translation.py",
    ],
)
def test_they_say_what_they_do(script: str) -> None:
    assert f"usage: {script}" in run(script, "--help")


@pytest.mark.exhaustive
def test_training_beside_a_peer_has_the_same_loss(tmp_path: Path) -> None:
    source, target = (tmp_path / name for name in ("source", "target"))
    for path, side in zip((source, target), zip(*training_pairs(1500, seed=1), strict=True), strict=True):
        path.write_text("".join(f"{text}\n" for text in side), encoding="utf-8", newline="\n")
    small = ["--vocabulary", "500", "--batch-tokens", "2000", "--blocks", "1", "--updates", "1", "--device", "cpu"]
    lines = run("training.py", str(source), str(target), "--peer", "torch", *small).splitlines()
    found = json.loads(lines[-1])
    assert found["ratios"].keys() == {"torch"}
    assert found["largest_loss_difference"]["torch"] < 0.01
    assert all(0 < share < 1 for share in found["share_of_limit"].values())
