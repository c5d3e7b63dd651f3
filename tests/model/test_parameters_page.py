"""docs/parameters.md says what the code computes."""

import re
from pathlib import Path

import pytest
import torch

from transduce.config import PRESETS, TransformerConfig
from transduce.model import Transformer

PAGE = Path(__file__).parents[2] / "docs" / "parameters.md"
PAPER = {
    "base": 65,
    "big": 213,
    "table3-big": 213,
    "table3-B-1": 58,
    "table3-B-2": 60,
    "table3-C-1": 36,
    "table3-C-2": 50,
    "table3-C-3": 80,
    "table3-C-4": 28,
    "table3-C-5": 168,
    "table3-C-6": 53,
    "table3-C-7": 90,
}
"""Millions of parameters as the paper prints them; where it leaves the field empty, it means those of base."""
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").split("\n")
    if line.startswith("| `")
]


def parameters(preset: str) -> int:
    with torch.device("meta"):
        return Transformer(TransformerConfig(**PRESETS[preset].get("model", {}))).num_parameters


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_says_what_the_code_computes(row: list[str]) -> None:
    preset, difference, ours, paper = row
    settings = PRESETS[preset].get("model", {}) | PRESETS[preset].get("training", {})
    for key, value in re.findall(r"([a-z_]+) ([0-9.]+)", difference):
        assert key not in settings or settings[key] == float(value)
    assert ours == f"{parameters(preset):,}"
    assert paper == (f"{PAPER[preset]} M" if preset in PAPER else "")


def test_every_preset_of_the_paper_has_a_row() -> None:
    assert [row[0] for row in ROWS] == [preset for preset in PRESETS if preset in {"base", "big"} or preset.startswith("table3-")]


def test_the_vocabulary_is_the_one_that_the_page_names() -> None:
    assert f"vocabulary of {TransformerConfig().vocabulary:,}" in PAGE.read_text(encoding="utf-8")
