"""The configuration that several benchmarks of training have in common."""

import argparse

from transduce.config import RunConfig, load_run_config


def make_run_config(arguments: argparse.Namespace) -> RunConfig:
    """Make the configuration of a run by the preset `model` with the corpus and settings that `arguments` name.

    Without `precision` and `device`, it computes in `auto` on the CPU.
    """
    settings = {
        "preset": arguments.model,
        "data.source": str(arguments.source),
        "data.target": str(arguments.target),
        "text.vocabulary": arguments.vocabulary,
        "training.batch_tokens": arguments.batch_tokens,
        "training.precision": getattr(arguments, "precision", "auto"),
        "training.device": getattr(arguments, "device", "cpu"),
    }
    return load_run_config(None, arguments=settings)[0]
