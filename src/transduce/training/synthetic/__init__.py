"""Training text that models make: translations of monolingual text, and a teacher's translations for its student."""

from collections.abc import Callable, Collection
from pathlib import Path

from transduce.config import DataConfig, RunConfig
from transduce.training.synthetic.distillation import replace_targets
from transduce.training.synthetic.monolingual import (
    add_synthetic_corpora,
    has_monolingual_text,
    remove_monolingual_text,
)


def has_synthetic_text(data: DataConfig) -> bool:
    """Whether models make a part of the training text."""
    return data.teacher is not None or has_monolingual_text(data)


def make_synthetic_text(
    config: RunConfig,
    cache: Path,
    train: Callable[[RunConfig], Path],
    report: Callable[[str], None],
    known: Collection[str] = (),
) -> DataConfig:
    """Make the text of a run that models make, or find it in `cache`.

    `known` has the names of the files that the run has been trained on: see `SyntheticText.translate`. For the rest see
    `replace_targets` and `add_synthetic_corpora`.
    """
    if config.data.teacher is not None:
        return replace_targets(config, cache, report, known)
    return add_synthetic_corpora(config, cache, train, report, known)


def remove_synthetic_text(data: DataConfig) -> DataConfig:
    """The same text without what models make."""
    return remove_monolingual_text(data).model_copy(update={"teacher": None})
