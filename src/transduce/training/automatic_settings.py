"""Automatic settings for runs without a recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.config import PRESETS, UNLIMITED_UPDATES, DataConfig, flatten
from transduce.data import open_corpus
from transduce.data.settings_for_size import choose_settings_for_size, choose_settings_for_time_limit
from transduce.text import CorpusSize, read_lines
from transduce.training.run_folder import RunFolder

STANDARD_INPUT = CorpusSize(6_000, 700_000)
"""The assumed size of the text on standard input, which cannot be counted beforehand."""

FINE_TUNING_SETTINGS = {"training.warmup": 100, "training.dropout_warmup": 0}
"""Settings of `low-resource` and `medium-resource` for a run from a trained model, whose dropout need not
rise. The learning rate is the preset's: lower ones were worse on another kind of text (docs/experiments.md)."""


def choose_settings_for_run(
    given: Mapping[str, Any], time_limit: str | None = None, *, restart: bool
) -> dict[str, Any]:
    """Choose settings for a run by the number of its pairs, which are counted.

    `given` describes the run, with keys such as "output" and "data.source", and "preset" if the user has chosen one.
    Standard input cannot be counted, and gets the settings of a small corpus. A run that has begun keeps the settings
    that were chosen then, those of its preset included, unless `restart`: counting a large corpus is slow.

    Raises:
        CorpusError: a file is missing, is not UTF-8, or source and target differ in number of lines.
    """
    saved = None if restart else RunFolder(Path(given["output"])).load_config()
    if saved is not None:
        if time_limit is not None:
            length: dict[str, Any] = {"training.updates": UNLIMITED_UPDATES}
        elif saved.training.epochs is not None:
            length = {"training.epochs": saved.training.epochs}
        else:
            length = {"training.updates": saved.training.updates}
            if saved.training.updates >= UNLIMITED_UPDATES:  # nothing but its time limit ends such a run
                length["training.time_limit"] = saved.training.time_limit
        # The preset as it was: in a later version it may have other settings.
        names = flatten(PRESETS[saved.preset]).keys() | {"text.vocabulary", "model.dropout"}
        if saved.training.schedule == "warmup_stable_decay":
            names |= choose_settings_for_time_limit(saved.preset).keys()
        values = flatten(saved.model_dump())
        kept = {name: values[name] for name in names - {"training.updates", "training.epochs"}}
        return {"preset": saved.preset, **kept, **length}
    data = DataConfig(**{key.removeprefix("data."): value for key, value in given.items() if key.startswith("data.")})
    if data.pairs == "-":
        total = STANDARD_INPUT
    else:
        sizes = [open_corpus(data, corpus).measure() for corpus in data.training_corpora]
        sizes += [
            measure_lines(Path(data.folder) / name, data.monolingual_weight)
            for name in (data.monolingual_target, data.monolingual_source)
            if name is not None
        ]
        total = CorpusSize(sum(one.num_pairs for one in sizes), sum(one.num_target_characters for one in sizes))
    settings = choose_settings_for_size(total, time_limit, given.get("preset"))
    if given.get("training.start_from") is not None and settings["preset"] in {"low-resource", "medium-resource"}:
        settings |= FINE_TUNING_SETTINGS
    return settings


def measure_lines(path: Path, weight: float) -> CorpusSize:
    """The size of the corpus made from monolingual text, with every line counted `weight` times, as in an epoch."""
    num_lines = num_characters = 0
    for line in read_lines(path):
        num_lines += 1
        num_characters += len(line)
    return CorpusSize(round(weight * num_lines), round(weight * num_characters))
