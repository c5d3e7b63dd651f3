# ruff: noqa: INP001 - a folder of pages, no package
"""The small model of these pages: trained by the first that needs it, in about a minute, and loaded by the others."""

from pathlib import Path

from filelock import FileLock

from transduce.demo import DemonstrationResult, demonstrate
from transduce.training import SilentReporter

FOLDER = Path(__file__).parents[1] / "_build" / "paper-model"
"""The run of the small model: data, checkpoints, metrics, and the trained model in `best`."""

UPDATES = 1500
"""Enough for almost all unseen sentences; `transduce demo` makes 3,500."""


def train_small_model() -> DemonstrationResult:
    """Train the small model, unless that is done already, and test it on 1,000 unseen sentences.

    The data are those of `transduce demo`: English numbers, years and dates, and their German translations.
    """
    FOLDER.parent.mkdir(exist_ok=True)
    with FileLock(FOLDER.with_suffix(".lock")):  # pages may be executed side by side
        return demonstrate(FOLDER, SilentReporter(), updates=UPDATES)
