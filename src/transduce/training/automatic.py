"""Settings for somebody who gives two files and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.config import DataConfig
from transduce.data import open_corpus
from transduce.training.run_folder import RunFolder

SIZES = {"tiny": 200_000, "small": 2_000_000, "base": 20_000_000}
"""The preset for a corpus of up to so many pairs; beyond the last, `big`."""


def automatic_settings(num_pairs: int) -> dict[str, Any]:
    """The preset that a corpus of `num_pairs` can feed, and a vocabulary to match; dotted settings."""
    preset = next((name for name, most in SIZES.items() if num_pairs <= most), "big")
    return {"preset": preset, "text.vocabulary": "fitted"}


def automatic_settings_for(given: Mapping[str, Any], *, restart: bool) -> dict[str, Any]:
    """The same for the run whose folder and text `given` names, as "output" and "data.source"; its pairs are counted.

    Standard input cannot be counted beforehand; it gets the settings of a small corpus. What has been counted when the
    run began, unless it is to `restart`, is not counted again: of a large corpus, that takes as long as all else.

    Raises:
        CorpusError: a file is missing, is not UTF-8, or the two differ in number of lines.
    """
    saved = None if restart else RunFolder(Path(given["output"])).saved_config()
    if saved is not None:
        return automatic_settings(0) | {"preset": saved.preset}
    data = DataConfig(**{key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")})
    if data.pairs == "-":
        return automatic_settings(0)
    corpora = [open_corpus(data, corpus) for corpus in data.training_corpora]
    return automatic_settings(sum(corpus.check() for corpus in corpora))
