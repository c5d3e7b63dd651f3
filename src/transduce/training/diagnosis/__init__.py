"""Checks that detect problems of a run: in its settings, its text, its learning and its translations.

The thresholds are based on measurements of healthy and faulty runs in docs/experiments.md.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise

from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.kernels.device import find_device, resolve_precision
from transduce.model import EncoderDecoder
from transduce.training.diagnosis.measurements import SourceProbe
from transduce.training.distributed import Ranks, gather_model
from transduce.training.optimization.schedule import compute_peak_rate
from transduce.training.reporting import MetricsLine, MetricsLog, select_lines


@dataclass(frozen=True)
class RunFinding:
    """A problem of a run, or the end of one."""

    name: str
    """Name of the problem; the same in every run."""
    text: str
    """The problem, its most likely cause and the setting to change; or why the problem has ended."""
    is_over: bool = False
    """Whether this is the end of an earlier finding of that name."""


@dataclass(frozen=True)
class RunHistory:
    """Configuration of a run, and the lines of its metrics.jsonl so far."""

    config: RunConfig
    lines: Sequence[MetricsLine]

    @cached_property
    def text(self) -> MetricsLine:
        """The `RunTextFigures` of the run; empty for a run that an earlier version began."""
        return next((line.get("text", {}) for line in self.lines if line["kind"] == "data"), {})

    @cached_property
    def source_uses(self) -> list[MetricsLine]:
        """Lines with the figures of `SourceUse`."""
        return select_lines(self.lines, "source_use")

    @cached_property
    def validations(self) -> list[MetricsLine]:
        """Lines of validations, without the averages at the end."""
        return select_lines(self.lines, "validation")

    @property
    def last_validation(self) -> MetricsLine:
        """The last validation in metrics.jsonl; empty if there is none, or if its line is damaged."""
        return self.validations[-1] if self.validations else {}

    @cached_property
    def training(self) -> list[MetricsLine]:
        """Lines of training."""
        return select_lines(self.lines, "training")

    def share_done(self, line: MetricsLine) -> float:
        """Share of the run that was done when `line` was written, by its updates or by its time limit."""
        training = self.config.training
        by_time: float = line.get("seconds", 0.0) / training.time_limit_seconds
        by_updates: float = line["update"] / training.updates
        return max(by_time, by_updates)


Check = Callable[[RunHistory], str | None]
"""A pure function: the text of a finding if a run has a problem, or if a problem has ended; None otherwise."""


def compute_relative_step(config: RunConfig) -> float:
    """The highest learning rate over the size of an initial weight, d_model^-0.5.

    Adam moves a weight by about the rate at most, and by a fifth of it in the mean, as Muon does; so this is about the
    largest share by which a weight changes in one update. It is 0.016 in the paper's base model and between 0.011 and
    0.034 in all presets.
    """
    return compute_peak_rate(config.training, config.model.d_model) * math.sqrt(config.model.d_model)


MIN_LANGUAGE_SIMILARITY = 0.5
"""`measure_similarity` from which two texts count as one language."""

MAX_RELATIVE_STEP = 0.1
"""`compute_relative_step` from which the learning rate is too high: three times the highest of all presets."""

MAX_DROPOUT = 0.5
"""Dropout above which most of every sub-layer's output is dropped."""

PROPOSED_RELATIVE_STEP = 0.02
"""The `compute_relative_step` of the learning rate that `find_high_rate` proposes."""


def find_unrelated_pairs(run: RunHistory) -> str | None:
    """Find sources and targets that are not translations of each other: shuffled, sorted, or shifted by a line."""
    blocks, unrelated = run.text.get("num_blocks", 0), run.text.get("unrelated_blocks", 0)
    if not unrelated:
        return None
    where = f", first after pair {run.text['first_unrelated']:,} of those kept" if unrelated < blocks else ""
    return (
        f"in {unrelated} of {blocks} stretches of the training text{where}, words of source and target co-occur no "
        "more often than by chance, or less often than those of neighbouring lines: such pairs are not translations "
        "of each other. The most likely cause is a file that was shuffled or sorted, or has one line more or less than "
        "the other: compare the two sides of the training text line by line"
    )


def find_swapped_validation(run: RunHistory) -> str | None:
    """Find validation text whose sources are in the language of the training targets, and vice versa."""
    if not _is_swapped(run):
        return None
    return (
        "the sides of the validation text are swapped relative to the training text: swap "
        "data.validation_source and data.validation_target, or the columns of data.validation_pairs"
    )


def find_foreign_validation(run: RunHistory) -> str | None:
    """Find a side of the validation text that is in another language than that side of the training text."""
    if not run.text or _is_swapped(run):
        return None
    foreign = [side for side in ("source", "target") if run.text[f"{side}_similarity"] < MIN_LANGUAGE_SIMILARITY]
    if not foreign:
        return None
    found = " and ".join(
        f"the {side}s of the validation text ({run.text[f'{side}_similarity']:.2f})" for side in foreign
    )
    return (
        f"{found} hardly resemble those of the training text: text of the same kind has a similarity of about 1, and "
        f"other text in the same language one above {MIN_LANGUAGE_SIMILARITY}. The most likely cause is another "
        "language; scores would then not show which model is best: give other validation text, or leave it out, so "
        "that training text is held out"
    )


def is_foreign(run: RunHistory) -> bool:
    """Whether the validation text is in other languages, so that its figures do not show what the model learns."""
    return find_swapped_validation(run) is not None or find_foreign_validation(run) is not None


def _is_swapped(run: RunHistory) -> bool:
    if not run.text:
        return False
    straight = max(run.text["source_similarity"], run.text["target_similarity"])
    return bool(straight < MIN_LANGUAGE_SIMILARITY <= run.text["swapped_similarity"])


def find_high_rate(run: RunHistory) -> str | None:
    """Find a learning rate with which every update changes a large part of the weights."""
    step, training = compute_relative_step(run.config), run.config.training
    if step < MAX_RELATIVE_STEP:
        return None
    d_model = run.config.model.d_model
    rate = compute_peak_rate(training, d_model)
    if training.learning_rate is None:
        setting, remedy = f"training.warmup = {training.warmup}", "set it to 4000, as in the paper"
    else:
        setting = f"training.learning_rate = {training.learning_rate:g}"
        remedy = f"set it to about {PROPOSED_RELATIVE_STEP * d_model**-0.5:.1g}"
    return (
        f"{setting} is several times too high: the rate rises to {rate:.2g}, and an update then "
        f"changes a weight of a network with d_model = {d_model} by up to {step:.0%} of its size, where 1 % to 4 % "
        f"train well. The loss will stop falling early, or rise: {remedy}"
    )


def find_strong_dropout(run: RunHistory) -> str | None:
    """Find dropout that leaves less than half of a layer's output."""
    dropout = run.config.model.dropout
    if dropout <= MAX_DROPOUT:
        return None
    return (
        f"model.dropout = {dropout:g} is too strong: {dropout:.0%} of each layer's output is dropped, and the network "
        "learns little more than token frequencies. 0.1 to 0.3 train well: choose a value in this range"
    )


NUM_MEASUREMENTS = 4
"""Number of consecutive measurements that must agree for a finding."""

MIN_UPDATES = 400
"""Update before which no check reports that a model has failed to learn. Checks also wait for a longer warm-up, up to a
tenth of the run."""

UNIGRAM_MARGIN = 0.25
"""Nats that the loss has to be below the unigram loss if a model has learned more than token frequencies."""

LEARNED_MARGIN = 0.5
"""Nats below the unigram loss from which a model has learned enough that it should use the source."""

MAX_IGNORED_GAIN = 0.002
"""Maximum effect of the right source on the loss, in nats per token, if the model ignores it."""

MIN_UNIFORM_ENTROPY = 0.999
"""Entropy of attention, as a share of that of uniform attention, above which a head counts as uniform."""

MAX_SHARP_ENTROPY = 0.95
"""Entropy of attention, as a share of that of uniform attention, below which a head no longer counts as uniform."""

MIN_PAIRS = 8
"""Minimum number of pairs of a sample for finding that a model ignores the source."""

SIGNIFICANCE_SIGMAS = 3.0
"""Standard errors from which the gain by the right source is significant."""

LATE_UPDATES = 1500
"""Updates after which any model should have learned from the source, however slowly it began."""

MIN_LOSS_RISE = 0.3
"""Nats from which a loss counts as rising."""

MIN_FALL = 0.1
"""Nats from which a loss counts as falling over `NUM_MEASUREMENTS` measurements."""

STRONG_DROPOUT = 0.4
"""Dropout from which it is reported as the most likely cause: above the usual values."""


def find_unigram_loss(run: RunHistory) -> str | None:
    """Find a loss that is no better than that of a unigram model."""
    unigram = run.text.get("unigram_loss")
    if unigram is None or is_foreign(run) or _is_early(run):
        return None
    lowest = min(_lowest_loss(run.source_uses[-NUM_MEASUREMENTS:]), compute_recent_loss(run.training))
    if lowest < unigram - UNIGRAM_MARGIN:
        return None
    return (
        f"after {run.source_uses[-1]['update']:,} updates the loss ({lowest:.2f}) is no better than that of a unigram "
        f"model, which knows only token frequencies ({unigram:.2f} nats per token): {_cause_of_no_learning(run)}"
    )


def find_end_of_unigram_loss(run: RunHistory) -> str | None:
    """Find that the problem of `find_unigram_loss` has ended."""
    lowest, unigram = _lowest_loss(run.source_uses[-2:]), run.text.get("unigram_loss", 0.0)
    return (
        f"the loss ({lowest:.2f}) is now below that of a unigram model" if lowest < unigram - LEARNED_MARGIN else None
    )


def find_ignored_source(run: RunHistory) -> str | None:
    """Find a model that has learned the target language, but ignores the source."""
    if not _should_use_source(run) or run.source_uses[-1]["num_pairs"] < MIN_PAIRS:
        return None
    recent = run.source_uses[-NUM_MEASUREMENTS:]
    longer = run.source_uses[-2 * NUM_MEASUREMENTS :]
    has_no_influence = all(
        abs(_gain(measurement)) + 2 * measurement["gain_error"] < MAX_IGNORED_GAIN for measurement in recent
    )
    is_no_help = run.source_uses[-1]["update"] >= LATE_UPDATES and not any(map(_uses_source, longer))
    if not has_no_influence and not is_no_help:
        return None
    last = recent[-1]
    attention = ""
    if last["attention_entropy"] is not None:
        share = f"{last['attention_entropy']:.0%}"
        attention = f", and its attention to the source has {share} of the entropy of uniform attention"
    return (
        f"the model ignores the source: after {last['update']:,} updates its loss is {last['loss']:.3f} with the right "
        f"source and {last['shuffled_loss']:.3f} with that of another pair{attention}. It learns to write the target "
        f"language, but not to translate. {_cause_of_ignorance(run)}"
    )


def find_end_of_ignored_source(run: RunHistory) -> str | None:
    """Find that the problem of `find_ignored_source` has ended."""
    if len(run.source_uses) < 2 or not all(map(_uses_source, run.source_uses[-2:])):
        return None
    return (
        f"the model now uses the source: the right one lowers the loss by {_gain(run.source_uses[-1]):.3f} nats per "
        "token"
    )


def find_uniform_attention(run: RunHistory) -> str | None:
    """Find attention to the source that is uniform in all heads, though the model has begun to learn."""
    if not _should_use_source(run) or run.source_uses[-1]["sharpest_entropy"] is None:
        return None
    sharpest = min(measurement["sharpest_entropy"] for measurement in run.source_uses[-NUM_MEASUREMENTS:])
    if sharpest < MIN_UNIFORM_ENTROPY or find_ignored_source(run) is not None:
        return None
    return (
        f"attention to the source is uniform in all heads (even the sharpest has {sharpest:.1%} of the entropy of "
        f"uniform attention): the model sees the source at best as an unordered bag of words. "
        f"{_cause_of_ignorance(run)}"
    )


def find_end_of_uniform_attention(run: RunHistory) -> str | None:
    """Find that the problem of `find_uniform_attention` has ended."""
    sharpest = max((measurement["sharpest_entropy"] for measurement in run.source_uses[-2:]), default=1.0)
    if sharpest >= MAX_SHARP_ENTROPY:
        return None
    return f"attention to the source is no longer uniform: the sharpest head has {sharpest:.0%} of that entropy"


def find_rising_loss(run: RunHistory) -> str | None:
    """Find a loss that was lower before, also on training text."""
    if len(run.source_uses) <= NUM_MEASUREMENTS or len(run.training) <= NUM_MEASUREMENTS:
        return None
    before, now = _lowest_loss(run.source_uses[:-2]), _lowest_loss(run.source_uses[-2:])
    if now < before + MIN_LOSS_RISE:
        return None
    ends = range(NUM_MEASUREMENTS, len(run.training) - 1)
    earlier = [compute_recent_loss(run.training[end - NUM_MEASUREMENTS : end]) for end in ends]
    if compute_recent_loss(run.training) < min(earlier, default=float("inf")) + MIN_LOSS_RISE:
        return None
    return (
        f"the loss rises: from {before:.2f} at its lowest to {now:.2f} after {run.source_uses[-1]['update']:,} "
        f"updates, also on training text. The most likely cause is the learning rate: {_lower_rate(run)}"
    )


def find_end_of_rising_loss(run: RunHistory) -> str | None:
    """Find that the problem of `find_rising_loss` has ended."""
    before, now = _lowest_loss(run.source_uses[:-1]), _lowest_loss(run.source_uses[-1:])
    return f"the loss has come down again, to {now:.2f}" if now < before + MIN_FALL else None


def _is_early(run: RunHistory) -> bool:
    training = run.config.training
    min_updates = max(MIN_UPDATES, min(training.warmup, training.updates // 10))
    return len(run.source_uses) < NUM_MEASUREMENTS or run.source_uses[-1]["update"] < min_updates


def _should_use_source(run: RunHistory) -> bool:
    """Whether the model has learned enough that it should use the source, if the text allows it."""
    unigram = run.text.get("unigram_loss")
    if unigram is None or is_foreign(run) or find_unrelated_pairs(run) is not None or _is_early(run):
        return False
    lowest = min(_lowest_loss(run.source_uses[-2:]), compute_recent_loss(run.training))
    return bool(lowest < unigram - LEARNED_MARGIN)


def _lowest_loss(source_uses: Sequence[MetricsLine]) -> float:
    return min((float(measurement["loss"]) for measurement in source_uses), default=float("inf"))


def compute_recent_loss(training: Sequence[MetricsLine]) -> float:
    """Mean cross-entropy of the latest lines of training: that of one batch depends on which pairs it has."""
    recent = [float(line["cross_entropy"]) for line in training[-NUM_MEASUREMENTS:]]
    return statistics.fmean(recent) if recent else float("inf")


def _gain(measurement: MetricsLine) -> float:
    return float(measurement["shuffled_loss"] - measurement["loss"])


def _uses_source(measurement: MetricsLine) -> bool:
    return _gain(measurement) > SIGNIFICANCE_SIGMAS * float(measurement["gain_error"])


def _cause_of_no_learning(run: RunHistory) -> str:
    model = run.config.model
    if model.dropout >= STRONG_DROPOUT:
        return f"the most likely cause is model.dropout = {model.dropout:g}: set it to 0.1, or at most 0.3"
    falls = run.source_uses[-NUM_MEASUREMENTS]["loss"] - run.source_uses[-1]["loss"] > MIN_FALL
    if falls and compute_relative_step(run.config) < MAX_RELATIVE_STEP:
        return "it still falls, but slowly: raise training.learning_rate, or shorten training.warmup"
    post = ', or model.norm_order = "pre"' if model.norm_order == "post" else ""
    rate = run.training[-1]["learning_rate"] if run.training else 0.0
    return f"the most likely cause is the learning rate (now {rate:.2g}): {_lower_rate(run)}{post}"


def _cause_of_ignorance(run: RunHistory) -> str:
    model = run.config.model
    if model.dropout >= STRONG_DROPOUT:
        return f"The most likely cause is model.dropout = {model.dropout:g}: set it to 0.1, or at most 0.3"
    if compute_relative_step(run.config) >= MAX_RELATIVE_STEP:
        return f"The most likely cause is the learning rate: {_lower_rate(run)}"
    if model.norm_order == "post":
        return (
            'The most likely cause is model.norm_order = "post", with which small networks may never improve: '
            'set it to "pre", or try a lower model.dropout or another training.learning_rate'
        )
    return (
        "The most likely causes are pairs that are not translations of each other, too strong dropout (model.dropout) "
        "and an unsuitable learning rate (training.learning_rate); in modified code, attention to the source whose "
        "weights get no gradient"
    )


def _lower_rate(run: RunHistory) -> str:
    rate = run.config.training.learning_rate
    if rate is None:
        return "raise training.warmup, which lowers its peak"
    return f"lower training.learning_rate = {rate:g} to a third, or to a tenth"


MIN_LEARNED_ACCURACY = 0.4
"""Teacher-forced accuracy from which a model has learned enough for its own translations to be checked."""

MIN_F1_SHARE = 0.5
"""Share of the teacher-forced accuracy that the `token_f1` of a model's own translations has to reach."""

MAX_SAME_OUTPUT_SHARE = 0.5
"""Share of sources with the same translation, from which a model counts as writing the same output for all sources."""

MAX_REPETITION_SHARE = 0.5
"""Share of translations that repeat themselves from which a model counts as repetitive: it was 0.32 for a healthy news
model early in training, and 0.03 for a small model of captions."""

NUM_WORSE = 3
"""Number of consecutive validations that must be worse than the best for a model to count as overfitted."""

MIN_OVERFITTING_RISE = 0.1
"""Nats by which the loss of `NUM_WORSE` validations has to be above the lowest for a model to count as overfitted."""

MIN_RELATIVE_FALL = 0.01
"""Fraction by which the loss falls at least, from one validation to the next, as long as a model still learns."""


def find_one_output(run: RunHistory) -> str | None:
    """Find a model that writes the same for most sources, in two consecutive validations after the early phase of
    training.
    """
    if (share := _find_lasting_share(run, "commonest_share", MAX_SAME_OUTPUT_SHARE)) is None:
        return None
    return (
        f"{share:.0%} of the validation text's sources have the same translation: the model writes frequent text "
        "regardless of the source. The usual causes: training.learning_rate is too high, model.dropout too strong, or "
        "most pairs of the training text have the same target"
    )


def find_end_of_one_output(run: RunHistory) -> str | None:
    """Find that the problem of `find_one_output` has ended."""
    share = run.last_validation.get("commonest_share", 1.0)
    return (
        f"translations now differ: {share:.0%} of the sources have the most frequent one"
        if share < MAX_SAME_OUTPUT_SHARE / 2
        else None
    )


def find_repetition(run: RunHistory) -> str | None:
    """Find a model whose translations repeat themselves, in two consecutive validations after the early phase of
    training.
    """
    if (share := _find_lasting_share(run, "repetition_share", MAX_REPETITION_SHARE)) is None:
        return None
    return (
        f"{share:.0%} of the translations repeat themselves. The usual causes: too little "
        "training (raise training.updates) or too little text; training text with such repetitions. Meanwhile, "
        "translate with --guard or --no-repeat-ngram 3"
    )


def find_end_of_repetition(run: RunHistory) -> str | None:
    """Find that the problem of `find_repetition` has ended."""
    share = run.last_validation.get("repetition_share", 1.0)
    return f"few translations repeat themselves now: {share:.0%}" if share < MAX_REPETITION_SHARE / 2 else None


def find_exposure_bias(run: RunHistory) -> str | None:
    """Find a teacher-forced accuracy far above the `token_f1` of the model's own translations.

    Two consecutive validations must show it, as models repeat themselves for a while early in training.
    """
    last = run.validations[-2:]
    if len(last) < 2 or not all(map(_has_low_f1, last)):
        return None
    return (
        f"{last[-1]['accuracy']:.0%} of the validation text's tokens are predicted correctly given those before them, "
        f"but the model's own translations contain only {last[-1]['token_f1']:.0%} of them. The usual causes: in "
        "modified code, a mask that lets the decoder see the token it has to predict; a tokenizer other than the "
        "model's; too little training, so that one mistake leads to the next (exposure bias)"
    )


def find_end_of_exposure_bias(run: RunHistory) -> str | None:
    """Find that the problem of `find_exposure_bias` has ended."""
    last = run.last_validation
    if last.get("accuracy", 0.0) < MIN_LEARNED_ACCURACY or _has_low_f1(last):
        return None
    return f"the model's own translations now contain {last['token_f1']:.0%} of the references' tokens"


def find_overfitting(run: RunHistory) -> str | None:
    """Find a loss that rises on the validation text and is lower on the training text, while no score improves."""
    if is_foreign(run) or len(run.validations) <= NUM_WORSE:
        return None
    best = min(run.validations, key=lambda line: float(line["loss"]))
    since = [line for line in run.validations if line["update"] > best["update"]]
    is_worse = len(since) >= NUM_WORSE and all(
        line["loss"] > best["loss"] + MIN_OVERFITTING_RISE for line in since[-NUM_WORSE:]
    )
    has_improved = any(line.get("is_best") for line in since)
    if not is_worse or has_improved or compute_recent_loss(run.training) > best["loss"]:
        return None
    return (
        f"the model overfits: on the validation text the loss was lowest after update {best['update']:,} "
        f"({best['loss']:.2f}) and is {since[-1]['loss']:.2f} now, on the training text it is "
        f"{compute_recent_loss(run.training):.2f}; no score has improved since. More training will not help: the "
        f"best model is kept in best/. For a better one, raise model.dropout (now {run.config.model.dropout:g}), add "
        f"text, or choose a smaller network"
    )


def find_end_of_overfitting(run: RunHistory) -> str | None:
    """Find that the problem of `find_overfitting` has ended."""
    if not run.last_validation.get("is_best"):
        return None
    return f"the validation after update {run.last_validation['update']:,} is the best so far"


def _find_lasting_share(run: RunHistory, name: str, min_value: float) -> float | None:
    """A figure of the last validation, if it is at least `min_value` in the last two, after the early phase; else None.

    That phase is over when the accuracy is at least `MIN_LEARNED_ACCURACY`, or in the second half of the run when the
    loss hardly falls.
    """
    last = run.validations[-2:]
    if len(last) < 2 or any(line.get(name, 0.0) < min_value for line in last):
        return None
    has_learned = all(line.get("accuracy", 0.0) >= MIN_LEARNED_ACCURACY for line in last)
    is_late = run.share_done(last[-1]) >= 0.5
    stands_still = all(
        later["loss"] > (1 - MIN_RELATIVE_FALL) * line["loss"] for line, later in pairwise(run.validations[-3:])
    )
    is_mature = has_learned or (is_late and len(run.validations) > 2 and stands_still)
    return float(last[-1][name]) if is_mature else None


def _has_low_f1(line: MetricsLine) -> bool:
    accuracy, own = line.get("accuracy", 0.0), line.get("token_f1", 1.0)
    return bool(accuracy >= MIN_LEARNED_ACCURACY and own < MIN_F1_SHARE * accuracy)


MEASURE_EVERY, LAST_EARLY_UPDATE, MEASURE_LATER_EVERY = 50, 1000, 200
"""Updates between two measurements of the model: `MEASURE_EVERY` up to update `LAST_EARLY_UPDATE`, and
`MEASURE_LATER_EVERY` from then on. A measurement takes about as long as an update."""

CHECKS: Mapping[str, tuple[Check, Check | None]] = {
    "unrelated pairs": (find_unrelated_pairs, None),
    "swapped validation": (find_swapped_validation, None),
    "foreign validation": (find_foreign_validation, None),
    "high rate": (find_high_rate, None),
    "strong dropout": (find_strong_dropout, None),
    "unigram loss": (find_unigram_loss, find_end_of_unigram_loss),
    "source ignored": (find_ignored_source, find_end_of_ignored_source),
    "uniform attention": (find_uniform_attention, find_end_of_uniform_attention),
    "rising loss": (find_rising_loss, find_end_of_rising_loss),
    "one output": (find_one_output, find_end_of_one_output),
    "repetition": (find_repetition, find_end_of_repetition),
    "exposure bias": (find_exposure_bias, find_end_of_exposure_bias),
    "overfitting": (find_overfitting, find_end_of_overfitting),
}
"""For every problem, the check that finds it, and the check that finds its end, if it can end."""


def find_new_findings(config: RunConfig, lines: Sequence[MetricsLine]) -> list[RunFinding]:
    """Findings from these lines of metrics.jsonl that the lines do not record yet.

    Every problem is found once, and its end once. A pure function: a resumed run has the same findings.
    """
    run = RunHistory(config, lines)
    known = {(line["name"], line["is_over"]) for line in lines if line["kind"] == "finding"}
    findings = []
    for name, (find_problem, find_end) in CHECKS.items():
        if (name, False) not in known:
            if (text := find_problem(run)) is not None:
                findings.append(RunFinding(name, text))
        elif find_end is not None and (name, True) not in known and (text := find_end(run)) is not None:
            findings.append(RunFinding(name, text, is_over=True))
    return findings


@dataclass
class Diagnosis:
    """Measures a run at intervals, and reports and logs its problems.

    `log` writes figures of a kind to metrics.jsonl.
    """

    config: RunConfig
    prepared: PreparedData
    metrics: MetricsLog
    log: Callable[[str, Mapping[str, object]], None]
    report: Callable[[str], None]

    @cached_property
    def _probe(self) -> SourceProbe:
        training, tokenizer = self.config.training, self.prepared.tokenizer
        precision = resolve_precision(training.precision, find_device(training.device), self.config.model.d_model)
        return SourceProbe(self.prepared.validation, tokenizer, precision.compute_dtype)

    def measure(self, model: EncoderDecoder, update: int, ranks: Ranks) -> None:
        """Measure whether the model uses the source, if that is due after this update, and report new findings.

        The model is unchanged. All ranks call this together; the first one measures.
        """
        if update % (MEASURE_EVERY if update <= LAST_EARLY_UPDATE else MEASURE_LATER_EVERY):
            return
        whole = gather_model(model, ranks)
        if ranks.is_first:
            self.log("source_use", asdict(self._probe.measure(whole)))
            self.report_findings()
        ranks.wait_for_first()

    def report_findings(self) -> None:
        """Report and log the findings in metrics.jsonl that were not reported before."""
        for finding in find_new_findings(self.config, self.metrics.read()):
            self.log("finding", asdict(finding))
            self.report(f"{'solved' if finding.is_over else 'warning'}: {finding.text}")
