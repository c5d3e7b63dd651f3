"""Synthetic training text: translations of monolingual text, and a teacher's translations for its student."""

from collections.abc import Callable, Collection
from pathlib import Path

from transduce.config import DataConfig, RunConfig
from transduce.errors import ConfigError
from transduce.text import LONE_SURROGATE
from transduce.training.synthetic.distillation import make_student_text
from transduce.training.synthetic.monolingual import (
    add_synthetic_corpora,
    has_monolingual_text,
    remove_monolingual_text,
)


def has_synthetic_text(data: DataConfig) -> bool:
    """Whether part of the training text is synthetic: translated by a teacher, or from monolingual text."""
    return data.teacher is not None or has_monolingual_text(data)


def make_synthetic_text(
    config: RunConfig,
    cache: Path,
    train: Callable[[RunConfig], Path],
    report: Callable[[str], None],
    known: Collection[str] = (),
) -> DataConfig:
    """Make the synthetic text of a run, or find it in `cache`; returns the settings of all text, synthetic and given.

    For the arguments, see `make_student_text`, which does the work if there is a teacher, and `add_synthetic_corpora`.

    Raises:
        ConfigError: the path of `cache` is not UTF-8, as settings must be; see also these two functions.
    """
    if LONE_SURROGATE.search(str(cache.resolve())):
        raise ConfigError(
            f"{cache.resolve()}: is not UTF-8, as the path of synthetic text must be: rename the folder, or use another"
        )
    if config.data.teacher is not None:
        return make_student_text(config, cache, report, known)
    return add_synthetic_corpora(config, cache, train, report, known)


def remove_synthetic_text(data: DataConfig) -> DataConfig:
    """The settings of the same text without its synthetic part."""
    without_teacher = {"teacher": None, "teacher_ensemble": (), "keep_targets": False}
    return remove_monolingual_text(data).model_copy(update=without_teacher)
