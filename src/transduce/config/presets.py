"""Named configurations: the paper's models, every row of its Table 3, and two sizes for smaller corpora.

A preset is what differs from the defaults, by section, exactly as a recipe would say it.
"""

from typing import Any

Preset = dict[str, dict[str, Any]]

_BIG: Preset = {
    "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
    "training": {"updates": 300_000, "keep_checkpoints": 20},
}


_SHORT_RUN: dict[str, Any] = {
    "schedule": "warmup_stable_decay",
    "warmup": 400,
    "ema_decay": 0.999,
    "validate_every": "auto",
    "max_validation_pairs": 300,
    "checkpoint_every": 500,
    "keep_checkpoints": 1,
}
"""Of a run that may be stopped at any time: each of its models is a good one of its time."""


def _layers(count: int) -> Preset:
    return {"model": {"num_encoder_layers": count, "num_decoder_layers": count}}


PRESETS: dict[str, Preset] = {
    "tiny": {
        "model": {
            "num_encoder_layers": 4,
            "num_decoder_layers": 4,
            "d_model": 128,
            "d_ff": 512,
            "num_heads": 4,
            "norm_order": "pre",
            "dropout": 0.2,
        },
        "text": {"bpe_dropout": 0.1},
        "training": {**_SHORT_RUN, "epochs": 60.0, "batch_tokens": 2048, "learning_rate": 3e-3},
    },
    "small": {
        "model": {"d_model": 256, "d_ff": 1024, "num_heads": 4, "dropout": 0.2},
        "training": {
            "updates": 50_000,
            "batch_tokens": 4096,
            "schedule": "inverse_square_root",
            "learning_rate": 7e-4,
        },
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
    "table3-C-1": _layers(2),
    "table3-C-2": _layers(4),
    "table3-C-3": _layers(8),
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
