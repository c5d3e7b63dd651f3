from typing import Any

import pytest

from transduce.config import PRESETS, RunConfig, TransformerConfig, load_run_config

BASE = {
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "d_model": 512,
    "d_ff": 2048,
    "num_heads": 8,
    "d_k": 64,
    "d_v": 64,
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "updates": 100_000,
    "positions": "sinusoidal",
}
BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3, "updates": 300_000}
TABLE_3: dict[str, dict[str, Any]] = {
    "A-1": {"num_heads": 1, "d_k": 512, "d_v": 512},
    "A-2": {"num_heads": 4, "d_k": 128, "d_v": 128},
    "A-3": {"num_heads": 16, "d_k": 32, "d_v": 32},
    "A-4": {"num_heads": 32, "d_k": 16, "d_v": 16},
    "B-1": {"d_k": 16},
    "B-2": {"d_k": 32},
    "C-1": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "C-2": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "C-3": {"num_encoder_layers": 8, "num_decoder_layers": 8},
    "C-4": {"d_model": 256, "d_k": 32, "d_v": 32},
    "C-5": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "C-6": {"d_ff": 1024},
    "C-7": {"d_ff": 4096},
    "D-1": {"dropout": 0.0},
    "D-2": {"dropout": 0.2},
    "D-3": {"label_smoothing": 0.0},
    "D-4": {"label_smoothing": 0.2},
    "E": {"positions": "learned"},
    "big": BIG,
}
"""The rows of the table: what each says, the rest being as in the first."""


def loaded(preset: str) -> RunConfig:
    return load_run_config(None, settings=[f"preset={preset}"])[0]


def named(config: RunConfig) -> dict[str, Any]:
    both = config.model.model_dump() | config.training.model_dump()
    return {key: both[key] for key in BASE}


def test_every_row_of_table_3_has_a_preset_and_nothing_else_is_called_so() -> None:
    assert [name for name in PRESETS if name.startswith("table3-")] == [f"table3-{row}" for row in TABLE_3]
    assert PRESETS.keys() - {f"table3-{row}" for row in TABLE_3} == {
        "low-resource",
        "medium-resource",
        "tiny",
        "small",
        "base",
        "big",
    }


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_differs_from_base_as_the_paper_says(row: str) -> None:
    assert named(loaded(f"table3-{row}")) == BASE | TABLE_3[row]


def test_base_is_the_default_and_big_is_the_row_of_the_table() -> None:
    assert named(RunConfig()) == named(loaded("base")) == BASE
    assert loaded("big").model == loaded("table3-big").model
    assert loaded("big").training == loaded("table3-big").training
    assert (loaded("base").training.keep_checkpoints, loaded("big").training.keep_checkpoints) == (5, 20)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_only_what_differs(preset: str) -> None:
    settings = PRESETS[preset]
    defaults = RunConfig().model_dump()
    assert settings.keys() <= defaults.keys()
    for section, values in settings.items():
        for key, value in values.items():
            if key != "d_v":
                assert defaults[section][key] != value, f"{section}.{key}"


def test_the_heads_of_group_a_cost_the_same() -> None:
    for row in ("A-1", "A-2", "A-3", "A-4"):
        model: TransformerConfig = loaded(f"table3-{row}").model
        assert model.num_heads * model.d_k == model.num_heads * model.d_v == model.d_model
