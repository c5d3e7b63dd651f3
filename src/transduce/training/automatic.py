"""Settings for somebody who gives two files and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.config import DataConfig
from transduce.text import parallel_corpus
from transduce.training.run_folder import RunFolder

SIZES = {"tiny": 200_000, "small": 2_000_000, "base": 20_000_000}
"""The preset for a corpus of up to so many pairs; beyond the last, `big`."""

EPOCHS = {3_000: 200, 10_000: 120, 40_000: 60, 100_000: 30, 200_000: 15}
"""Passes over a corpus of up to so many pairs after which it teaches nothing more that is worth the time."""

UNLIMITED = 100_000_000
"""Updates of a run that its time limit ends."""


def automatic_settings(num_pairs: int, time_limit: str | None = None) -> dict[str, Any]:
    """The preset that a corpus of `num_pairs` can feed, with a vocabulary and a length to match; dotted settings.

    A run with a `time_limit` is ended by that alone.
    """
    preset = next((name for name, most in SIZES.items() if num_pairs <= most), "big")
    settings: dict[str, Any] = {"preset": preset, "text.vocabulary": "fitted"}
    if time_limit is not None:
        settings["training.updates"] = UNLIMITED
    elif (epochs := next((epochs for most, epochs in EPOCHS.items() if num_pairs <= most), None)) is not None:
        settings["training.epochs"] = float(epochs)
    return settings


def automatic_settings_for(given: Mapping[str, Any], time_limit: str | None = None, *, restart: bool) -> dict[str, Any]:
    """The same for the run whose folder and text `given` names, as "output" and "data.source"; its pairs are counted.

    Standard input cannot be counted beforehand; it gets the settings of a small corpus. What was decided when the run
    began, unless it is to `restart`, is not decided again: to count a large corpus takes as long as all else.

    Raises:
        CorpusError: a file is missing, is not UTF-8, or the two differ in number of lines.
    """
    saved = None if restart else RunFolder(Path(given["output"])).saved_config()
    if saved is not None:
        if time_limit is not None:
            length: dict[str, Any] = {"training.updates": UNLIMITED}
        elif saved.training.epochs is not None:
            length = {"training.epochs": saved.training.epochs}
        else:
            length = {"training.updates": saved.training.updates}
        return {"preset": saved.preset, "text.vocabulary": saved.text.vocabulary, **length}
    data = DataConfig(**{key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")})
    if data.pairs == "-":
        return automatic_settings(0, time_limit)
    corpora = [
        parallel_corpus(Path(data.folder), corpus.source, corpus.target, corpus.pairs, corpus.columns or data.columns)
        for corpus in data.training_corpora
    ]
    return automatic_settings(sum(corpus.check() for corpus in corpora), time_limit)
