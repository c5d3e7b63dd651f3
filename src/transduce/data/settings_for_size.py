"""The settings that fit the size of a corpus, and what they led to with corpora that were measured."""

import math
from typing import Any, NamedTuple

from transduce.config import PRESETS, UNLIMITED_UPDATES, parse_duration
from transduce.data.corpus_size import CorpusSize
from transduce.pages import format_count

MAX_PAIRS_OF_PRESET = {"low-resource": 200_000, "medium-resource": 2_000_000, "base": 20_000_000}
"""Largest number of pairs for which each preset is chosen; above the last, it is `big`."""

QUICK_SECONDS = 2 * 3600
"""Longest time limit, in seconds, for which `low-resource` is chosen for up to `MAX_QUICK_PAIRS` pairs: in so little
time, its smaller network translates better."""

MAX_QUICK_PAIRS = 500_000
"""Largest number of pairs for which `QUICK_SECONDS` decides: with more, that time is not enough for one pass over
them."""

DROPOUT = {250_000: 0.4, 700_000: 0.3, 6_000_000: 0.2}
"""Dropout in `low-resource` by the largest number of target characters; above the last, `MIN_DROPOUT`."""

MIN_DROPOUT = 0.1

FEW_PASSES = 30
"""Of the corpora with the lowest dropout in `DROPOUT`: up to this many passes over them, `MIN_DROPOUT` gives better
translations."""

CHARACTERS_PER_SECOND = 36_000
"""Target characters per second that `low-resource` trains on two CPU cores; used to estimate passes within a time
limit."""

EPOCHS = {3_000: 200, 10_000: 120, 40_000: 60, 100_000: 30, 500_000: 12, 2_000_000: 5}
"""Passes over a corpus, by its largest number of pairs, after which more training gains little; above the last, the
preset gives the number of updates."""

PEAK_LEARNING_RATE = 7e-4
"""Highest learning rate of a run with a time limit whose preset names none: that of the paper's schedule (eq. 3) with a
d_model of 512 and a warmup of 4,000 updates, rounded."""

PEAK_LEARNING_RATE_OF_BIG = 5e-4
"""`PEAK_LEARNING_RATE` of presets with a d_model above 512: that of the paper's schedule with a d_model of 1,024."""


def choose_settings_for_size(
    size: CorpusSize, time_limit: str | None = None, preset: str | None = None
) -> dict[str, Any]:
    """Preset, vocabulary, dropout and length of a run that fit a corpus of this size; dotted settings.

    A run with a `time_limit` ends only by that. A `preset` that the user has chosen keeps its own settings, but for the
    dropout of `low-resource` and the passes of presets that are trained for a number of them, which fit the corpus. The
    comparisons are in docs/experiments.md.
    """
    preset = preset or _choose_preset(size.num_pairs, time_limit)
    settings: dict[str, Any] = {"preset": preset, "text.vocabulary": "fitted"}
    if preset == "low-resource":
        settings["model.dropout"] = _choose_dropout(size.num_target_characters, time_limit)
    if time_limit is not None:
        return settings | {"training.updates": UNLIMITED_UPDATES, **choose_settings_for_time_limit(preset)}
    epochs = next((epochs for maximum, epochs in EPOCHS.items() if size.num_pairs <= maximum), None)
    if epochs is not None and "epochs" in _get_training_settings(preset):
        settings["training.epochs"] = float(epochs)
    return settings


def choose_settings_for_time_limit(preset: str) -> dict[str, Any]:
    """Choose schedule, moving average and validations for a run that its time limit ends; dotted settings.

    None are chosen for a preset that has such a schedule.
    """
    training = _get_training_settings(preset)
    if training.get("schedule") == "warmup_stable_decay":
        return {}
    settings: dict[str, Any] = {
        "training.schedule": "warmup_stable_decay",
        "training.ema_decay": 0.999,
        "training.validate_every": "auto",
        "training.max_validation_pairs": 300,
    }
    if "learning_rate" not in training:
        is_wide = PRESETS.get(preset, {}).get("model", {}).get("d_model", 512) > 512
        settings["training.learning_rate"] = PEAK_LEARNING_RATE_OF_BIG if is_wide else PEAK_LEARNING_RATE
    return settings


def _get_training_settings(preset: str) -> dict[str, Any]:
    return PRESETS.get(preset, {}).get("training", {})


def _choose_preset(num_pairs: int, time_limit: str | None) -> str:
    if time_limit is not None and num_pairs <= MAX_QUICK_PAIRS and parse_duration(time_limit) <= QUICK_SECONDS:
        return "low-resource"
    return next((name for name, maximum in MAX_PAIRS_OF_PRESET.items() if num_pairs <= maximum), "big")


def _choose_dropout(num_characters: int, time_limit: str | None) -> float:
    """The dropout of `low-resource`: higher for less text, and for text that is seen more often within `time_limit`."""
    rate = next((rate for maximum, rate in DROPOUT.items() if num_characters <= maximum), MIN_DROPOUT)
    if time_limit is None or rate != DROPOUT[max(DROPOUT)]:
        return rate
    is_seen_often = parse_duration(time_limit) * CHARACTERS_PER_SECOND > FEW_PASSES * num_characters
    return rate if is_seen_often else MIN_DROPOUT


def describe_expected_training(size: CorpusSize) -> str:
    """One sentence on the training of a run without a recipe on a corpus of this size, and its time if it is known."""
    settings = choose_settings_for_size(size)
    preset, epochs = settings["preset"], settings.get("training.epochs")
    passes = "" if epochs is None else f" and passes {epochs:g} times over the pairs"
    if preset != "low-resource" or epochs is None:
        time = "within its first minute, it prints how long it will take"
    else:
        hours, minutes = divmod(round(epochs * size.num_target_characters / CHARACTERS_PER_SECOND / 60), 60)
        length = f"{hours} h {minutes:02} min" if hours else f"{max(1, minutes)} min"
        time = f"about {length} on two CPU cores; within its first minute, it prints the time on this machine"
    return f"without a recipe, `transduce train` takes the preset {preset}{passes}: {time}"


class MeasuredRun(NamedTuple):
    """A run without a recipe, and how well its model translated `test_text` with beam 4, by sacreBLEU.

    README's table "What to expect" has the same figures.
    """

    text: str
    num_pairs: int
    training: str
    test_text: str
    bleu: float
    chrf: float


MEASURED_RUNS = (
    MeasuredRun("package descriptions, English to German", 36_633, "30 minutes", "other packages", 29.7, 59.8),
    MeasuredRun("captions, English to German (Multi30k)", 29_000, "30 minutes", "test 2016", 38.8, 62.7),
    MeasuredRun("captions, English to German (Multi30k)", 15_000, "10 minutes", "test 2016", 32.4, 57.5),
    MeasuredRun("captions, English to German (Multi30k)", 6_000, "20 minutes", "test 2016", 24.8, 52.0),
    MeasuredRun("captions, English to German (Multi30k)", 2_000, "10 minutes", "test 2016", 17.2, 43.0),
    MeasuredRun("news, English to Hausa (MAFAND-MT)", 5_865, "30 minutes", "development text", 6.5, 30.9),
    MeasuredRun("news, English to Igbo (MAFAND-MT)", 6_998, "30 minutes", "development text", 6.9, 33.3),
)

COMPARABLE_FACTOR = 3.0
"""Maximum ratio of the sizes of two corpora for which the result of one is reported for the other."""


MIN_PAIRS = 1_000
"""With fewer pairs, a model that starts anew learns no language, and a warning says so."""


def warn_of_few_pairs(num_pairs: int) -> str | None:
    """A warning if `num_pairs` are too few to train a model on that starts anew; None if they are enough, or none."""
    if not 0 < num_pairs < MIN_PAIRS:
        return None
    return (
        f"warning: {format_count(num_pairs, 'training pair')} can teach a model no language: it learns its text by "
        "heart, and translates other sentences wrongly. Give thousands of pairs, or train a model further that knows "
        "both languages (training.start_from)"
    )


def describe_expected_quality(num_pairs: int) -> str | None:
    """One sentence on the results of corpora of about `num_pairs` pairs, the nearest in size first.

    None if no such corpus was measured.
    """

    def distance(run: MeasuredRun) -> float:
        return abs(math.log(run.num_pairs / max(1, num_pairs)))

    comparable = [run for run in MEASURED_RUNS if distance(run) <= math.log(COMPARABLE_FACTOR)]
    nearest: dict[str, MeasuredRun] = {}  # for each kind of text; the nearest in size of all first
    for run in sorted(comparable, key=distance):
        nearest.setdefault(run.text, run)
    if not nearest:
        return None
    reached = "; ".join(
        f"{run.text}, {run.num_pairs:,} pairs, {run.training}: BLEU {run.bleu:g}, chrF {run.chrf:g}"
        for run in nearest.values()
    )
    return f"results with corpora of about this size: {reached}"
