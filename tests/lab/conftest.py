"""Experiments that measure in no time, and text of a user."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from transduce.lab import Claim, Conclusion, Experiment, Results, TextFiles, Trial
from transduce.lab import experiments as package
from transduce.lab.statistics import judge_larger

CLAIM = Claim("3.2", "Wide is larger than <narrow>.")
measured: list[tuple[int, int]] = []
"""What was measured since the start of the test: width and seed."""


def measure(width: int, seed: int) -> Mapping[str, float]:
    measured.append((width, seed))
    return {"size": width + seed / 100}


def conclude(results: Results) -> Conclusion:
    claim_result = judge_larger(
        CLAIM, results.by_seed("size", width=2), results.by_seed("size", width=1), "wide minus narrow"
    )
    return Conclusion([claim_result], remarks=["Nothing was trained."])


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an experiment with two trials, which is registered for the time of a test."""
    measured.clear()
    made = Experiment(
        title="Widths",
        claims=[CLAIM],
        method="Widths are measured.",
        plan=lambda _: [Trial({"width": width}, lambda seed, width=width: measure(width, seed)) for width in (1, 2)],  # type: ignore[misc]
        conclude=conclude,
    )
    monkeypatch.setitem(package.EXPERIMENTS, "widths", "widths")
    found = package.find_experiment
    for module in ("run", "report"):
        monkeypatch.setattr(
            f"transduce.lab.{module}.find_experiment", lambda name: made if name == "widths" else found(name)
        )
    return "widths"


@pytest.fixture
def text_files(tmp_path: Path) -> TextFiles:
    """More than 4,000 pairs, some of them blank and some repeated."""
    source, target = tmp_path / "text.source", tmp_path / "text.target"
    lines = [f"number {number}" for number in range(4400)]
    source.write_text("\n".join(["", "number 7", *lines]) + "\n", encoding="utf-8")
    target.write_text(
        "\n".join(["", "zahl 7", *(line.replace("number", "zahl") for line in lines)]) + "\n", encoding="utf-8"
    )
    return TextFiles(source, target)
