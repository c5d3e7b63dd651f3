"""Named configurations: the paper's models, every row of its Table 3, and others for smaller corpora.

A preset holds the settings that differ from the defaults, by section, as in a recipe. `low-resource` and
`medium-resource`, used by runs without a recipe, deviate from the paper where that was measured to train better from
little text in little time: normalisation before each sub-layer, a higher and at first constant learning rate, a moving
average of the weights; in `low-resource` also initial embeddings and guided alignment, which teach a small model word
translations (docs/experiments.md). `tiny` and `small` have the paper's order of normalisation.
"""

from typing import Any

Preset = dict[str, dict[str, Any]]
"""For each section of a recipe, settings by name."""

_BIG: Preset = {
    "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
    "training": {"updates": 300_000, "keep_checkpoints": 20},
}

_ANYTIME: dict[str, Any] = {
    "schedule": "warmup_stable_decay",
    "warmup": 400,
    "ema_decay": 0.999,
    "validate_every": "auto",
    "max_validation_pairs": 300,
    "checkpoint_every": 500,
    "keep_checkpoints": 1,
    "fit_length_penalty": True,
    "fit_no_repeat_ngram": True,
}
"""Settings of runs that may be stopped at any time or have a time limit; every validation is of an averaged model."""


def _layers(count: int) -> dict[str, Any]:
    return {"num_encoder_layers": count, "num_decoder_layers": count}


PRESETS: dict[str, Preset] = {
    "low-resource": {
        "model": {**_layers(4), "d_model": 128, "d_ff": 512, "num_heads": 4, "norm_order": "pre", "dropout": 0.2},
        "training": {
            **_ANYTIME,
            "epochs": 60.0,
            "batch_tokens": 1024,
            "learning_rate": 2.2e-3,
            "dropout_warmup": 2000,
            "initial_embeddings": "cooccurrence",
            "guided_alignment": 0.3,
        },
        # For an under-confident model, the paper's 0.6 prefers translations that are much too short.
        "search": {"length_penalty": 1.5},
    },
    "medium-resource": {
        "model": {**_layers(4), "d_model": 256, "d_ff": 1024, "num_heads": 4, "norm_order": "pre"},
        "training": {**_ANYTIME, "epochs": 10.0, "batch_tokens": 4096, "learning_rate": 2e-3},
    },
    "tiny": {
        "model": {**_layers(4), "d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.3},
        "training": {
            "updates": 8000,
            "batch_tokens": 2048,
            "schedule": "linear",
            "learning_rate": 1.5e-3,
            "warmup": 800,
            "checkpoint_every": 500,
        },
    },
    "small": {
        "model": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "dropout": 0.2},
        "training": {"updates": 50_000, "batch_tokens": 4096, "schedule": "inverse_square_root", "learning_rate": 7e-4},
    },
    "base": {},
    "big": _BIG,
    # Group A: heads, at a constant amount of computation
    "table3-A-1": {"model": {"num_heads": 1}},
    "table3-A-2": {"model": {"num_heads": 4}},
    "table3-A-3": {"model": {"num_heads": 16}},
    "table3-A-4": {"model": {"num_heads": 32}},
    # Group B: narrower keys
    "table3-B-1": {"model": {"d_k": 16, "d_v": 64}},
    "table3-B-2": {"model": {"d_k": 32, "d_v": 64}},
    # Group C: depth and width
    "table3-C-1": {"model": _layers(2)},
    "table3-C-2": {"model": _layers(4)},
    "table3-C-3": {"model": _layers(8)},
    "table3-C-4": {"model": {"d_model": 256, "d_k": 32, "d_v": 32}},
    "table3-C-5": {"model": {"d_model": 1024, "d_k": 128, "d_v": 128}},
    "table3-C-6": {"model": {"d_ff": 1024}},
    "table3-C-7": {"model": {"d_ff": 4096}},
    # Group D: regularisation
    "table3-D-1": {"model": {"dropout": 0.0}},
    "table3-D-2": {"model": {"dropout": 0.2}},
    "table3-D-3": {"training": {"label_smoothing": 0.0}},
    "table3-D-4": {"training": {"label_smoothing": 0.2}},
    # Row E: learned positions instead of sinusoids
    "table3-E": {"model": {"positions": "learned"}},
    "table3-big": _BIG,
}
"""The settings of each preset that differ from the defaults, by section."""
