"""Automatic settings for runs without a recipe."""

from pathlib import Path
from typing import Any

from transduce.bundle import Bundle, find_bundle
from transduce.config import PRESETS, UNLIMITED_UPDATES, DataConfig, RunConfig, flatten
from transduce.data.corpus_size import measure_training_text
from transduce.data.settings_for_size import choose_settings_for_size, choose_settings_for_time_limit
from transduce.training.run_folder import RunFolder

FINE_TUNING_SETTINGS = {"training.warmup": 100, "training.dropout_warmup": 0}
"""Settings of `low-resource` and `medium-resource` for a run from a trained model, whose dropout need not
rise. The learning rate is the preset's: lower ones were worse on another kind of text (docs/experiments.md)."""

MAX_WIDTH_OF_PRESETS = 256
"""Largest d_model that `low-resource` and `medium-resource` have learning rates for."""

LEARNING_RATE_OF_WIDER = 2e-4
"""Peak learning rate with which a wider network is fine-tuned by these presets, whose own are for narrow ones. It is
near the 7e-4 of the paper's schedule for a d_model of 512 and batches of 25,000 tokens, times the root of the ratio of
these to batches of 1,024 (1.4e-4); no other rate was compared with it."""


def choose_settings_for_run(
    run: RunConfig, preset: str | None = None, time_limit: str | None = None, *, restart: bool
) -> dict[str, Any]:
    """Choose settings for a run by the amount of its text, which is counted.

    Standard input cannot be counted, and gets the settings of a small corpus. A run that has begun keeps the settings
    that were chosen then, those of its preset included, unless `restart`: counting a large corpus is slow.

    Args:
        run: gives the folder, the text, the rules by which pairs are left out, and the model to start from; its other
            settings are ignored.
        preset: the preset that the user has chosen; None: one is chosen, too.
        time_limit: the time after which the run ends, as in "30m"; None: the text decides when it ends.
        restart: whether an earlier run in the folder is ignored.

    Returns:
        Dotted settings.

    Raises:
        BundleError: the model to start from cannot be read.
        CorpusError: a file is missing, is not UTF-8, or source and target differ in number of lines.
    """
    saved = None if restart else RunFolder(Path(run.output)).load_config()
    if saved is not None:
        return _keep_settings(saved, time_limit)
    data, start = run.data, run.training.start_from
    bundle = None if start is None else Bundle.open(find_bundle(Path(start)))
    if bundle is not None and run.training.start_vocabulary == "kept":
        data = _with_languages(data, bundle)
    settings = choose_settings_for_size(measure_training_text(data, run.text), time_limit, preset)
    if bundle is not None and settings["preset"] in {"low-resource", "medium-resource"}:
        settings |= FINE_TUNING_SETTINGS
        if bundle.model_config.d_model > MAX_WIDTH_OF_PRESETS:
            settings["training.learning_rate"] = LEARNING_RATE_OF_WIDER
    return settings


def _keep_settings(saved: RunConfig, time_limit: str | None) -> dict[str, Any]:
    """The settings that were chosen for the run `saved`, which goes on."""
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


def _with_languages(data: DataConfig, bundle: Bundle) -> DataConfig:
    """The settings of the text with the languages of the bundle, which decide what is read, where none are given."""
    languages = bundle.description.languages
    return data.model_copy(
        update={
            "source_language": data.source_language or languages.source,
            "target_language": data.target_language or languages.target,
        }
    )
