"""Reporting of a run: all metrics in metrics.jsonl; progress, remaining time and a forecast for the user."""

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Integer

from transduce.evaluation import Score
from transduce.kernels.native.library import find_library
from transduce.storage import replace_file
from transduce.training.optimization.updater import UpdateFigures

MetricsLine = Mapping[str, Any]
"""A line of metrics.jsonl."""

CLOCK = ("seconds", "elapsed", "tokens_per_second")
"""Figures that depend on the clock; all others are the same in two equal runs."""


def select_lines(lines: Sequence[MetricsLine], *kinds: str) -> list[MetricsLine]:
    """The lines of these kinds."""
    return [line for line in lines if line.get("kind") in kinds]


class MetricsLog:
    """The log of one run: lines with `update` and `kind`.

    Kinds are "data", "training", "skipped", "source_use", "validation", "finding"; and, when a run ends, "average",
    "fitted_search", "comparison" and "scorecard".
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, update: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Append a line and return it."""
        line = {"kind": kind, "update": update, **figures}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return line

    def read(self) -> list[dict[str, Any]]:
        """All lines that can be read."""
        return [line for line in self._lines() if line is not None]

    def first(self) -> dict[str, Any]:
        """The line of kind "data", written before the first update; empty if it cannot be read."""
        return next((line for line in self.read() if line["kind"] == "data"), {})

    def find_damaged_lines(self) -> list[int]:
        """Numbers, from 1, of lines that cannot be read, except an unfinished last one of a killed process."""
        return [number for number, line in enumerate(self._lines()[:-1], start=1) if line is None]

    def truncate_after(self, update: int, *, is_finished: bool) -> None:
        """Remove the lines after `update`, which a run resumed from there will write again.

        Unless the run `is_finished`, lines of its end, which have `update` itself, are removed too.
        """
        kept = [line for line in self.read() if line["update"] <= update]
        if not is_finished:
            ends = ("average", "fitted_search", "comparison", "scorecard")
            kept = [line for line in kept if line["kind"] not in ends or line["update"] != update]
        with replace_file(self.path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)

    def _lines(self) -> list[dict[str, Any] | None]:
        """Every line, or None where it cannot be read; the last item is what follows the last line end."""
        # Bytes, as the last line may end in the middle of a character.
        return [_parse_line(line) for line in self.path.read_bytes().split(b"\n")] if self.path.exists() else []


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode())
        if b"\\u" in line:
            json.dumps(found, ensure_ascii=False).encode()  # half of a character could not be written again
    except (ValueError, RecursionError):
        return None
    is_ours = isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("update"), int)
    return found if is_ours else None


_LIMITS_OF_INSTRUCTIONS = ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables that limit the instructions of the libraries for matrix products, and so change rounding."""


def describe_environment(device: torch.device, precision: str) -> dict[str, str]:
    """Device, hardware, precision and versions that affect the figures and speed of a run, by name."""
    return {
        "device": str(device),
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else _find_processor_name(),
        "threads": str(torch.get_num_threads()),
        "instructions": _describe_instructions(),
        "precision": precision,
        "kernels": _describe_kernels(),
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("transduce", "torch", "numpy", "sentencepiece", "sacrebleu")},
    }


def _describe_instructions() -> str:
    """The vector instructions that compute a run, as in "AVX2, ONEDNN_MAX_CPU_ISA=AVX2": others round otherwise.

    These are PyTorch's own, and the environment variables that limit those of its libraries.
    """
    limits = [f"{name}={os.environ[name]}" for name in _LIMITS_OF_INSTRUCTIONS if name in os.environ]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *limits])


def _describe_kernels() -> str:
    library = find_library()
    return "PyTorch" if library is None else library.level


def _find_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


NUM_BINS = 30


def count_lengths(lengths: Integer[np.ndarray, "pairs 2"]) -> dict[str, Any]:
    """Histogram of the `lengths` of all pairs in `NUM_BINS` bins of `width` tokens, with median and longest of a side.

    The last bin also holds everything longer, at most about one side in two hundred. Lengths include `</s>`.
    """
    sides = dict(zip(("source", "target"), lengths.T, strict=True))
    width = max(_quantile(side, 0.995) for side in sides.values()) // NUM_BINS + 1
    bins = {name: np.minimum(side // width, NUM_BINS - 1) for name, side in sides.items()}
    return {
        "width": width,
        **{name: np.bincount(places, minlength=NUM_BINS).tolist() for name, places in bins.items()},
        "median": {name: _quantile(side, 0.5) for name, side in sides.items()},
        "longest": {name: int(side.max()) for name, side in sides.items()},
    }


def _quantile(lengths: Integer[np.ndarray, "pairs"], share: float) -> int:
    return int(np.quantile(lengths, share, method="inverted_cdf"))


VALIDATION_SHARE = 0.05
"""Part of the time that `validate_every = "auto"` spends on validation."""

FIRST_VALIDATION_SECONDS = 90.0
"""Seconds after which `validate_every = "auto"` validates first, so that there is a model to use."""

DAMPING = 0.6
"""Gain of one doubling of the updates as a share of that of the doubling before it (docs/experiments.md)."""

EARLIEST_FORECAST = 0.2
"""Share of the run before which its validations do not allow a forecast."""


@dataclass(frozen=True)
class Progress:
    """Progress of the run after an update."""

    update: int
    updates: int
    """Number of updates of the whole run."""
    epochs: float
    """Passes over the corpus so far, with the fraction of the current one."""
    figures: UpdateFigures
    """Figures of the last update."""
    tokens_per_second: float
    """Real target tokens per second of training, since the last line of metrics."""
    seconds_remaining: float
    """Seconds until the last update, validations included, at the present throughput."""


@dataclass(frozen=True)
class Sample:
    """A sentence, its translation by the model, and its reference."""

    source: str
    translation: str
    reference: str

    @property
    def is_right(self) -> bool:
        """Whether translation and reference are identical."""
        return self.translation == self.reference


@dataclass(frozen=True)
class Validation:
    """Metrics of one validation: loss and accuracy on the whole text, the others on the translated pairs."""

    loss: float
    """Cross-entropy without smoothing, in nats per target token."""
    accuracy: float
    """Share of target tokens predicted correctly, teacher-forced."""
    scores: tuple[Score, ...]
    """BLEU and chrF of beam-search translations, with signatures and 95 % confidence intervals."""
    samples: tuple[Sample, ...]
    """A few of the translations to read."""
    token_f1: float
    """F1 of the translations' tokens against those of the references; see `validation.compute_token_f1`."""
    commonest_share: float = 0.0
    """Share of different sources that have the most frequent translation."""
    repetition_share: float = 0.0
    """Share of translations that repeat themselves."""

    @property
    def perplexity(self) -> float:
        """exp(loss), per token of this model's own vocabulary."""
        return math.exp(min(self.loss, 700.0))

    def rank(self, best_by: str) -> list[float]:
        """The metrics that determine the best model: see `rank_validation`."""
        return rank_validation(asdict(self), best_by)


def rank_validation(line: MetricsLine, best_by: str) -> list[float]:
    """The figures of a validation by which models are compared: the best model has the highest list.

    These are `best_by`, then chrF and the negative loss, which break ties, as those early in training, when BLEU is 0.
    They are read from "scores" and "loss" of `line`; one that is missing is NaN, which is never better.
    """
    figures = {score["metric"].lower(): float(score["value"]) for score in line.get("scores", ())}
    figures["loss"] = -float(line.get("loss", math.nan))
    return [figures.get(name, math.nan) for name in (best_by, "chrf", "loss")]


@runtime_checkable
class Reporter(Protocol):
    """Receives the progress of a run."""

    def report(self, text: str) -> None:
        """Show a message of one or more lines."""

    def report_progress(self, progress: Progress) -> None:
        """Show the progress after an update."""

    def report_validation(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """Show the figures of a validation."""


class SilentReporter:
    """A `Reporter` that shows nothing."""

    def report(self, text: str) -> None:
        """Show nothing."""

    def report_progress(self, progress: Progress) -> None:
        """Show nothing."""

    def report_validation(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """Show nothing."""


class Throughput:
    """Measures the speed of training since the last line of metrics, and between that line and the one before it.

    `elapsed` is the seconds of the run so far, earlier sessions included.
    """

    def __init__(self, elapsed: float = 0.0) -> None:
        self._now = self._before = np.zeros(3)  # tokens, updates and seconds of an interval
        self.validation_seconds = 0.0
        self._last_validation = elapsed

    def add_update(self, num_tokens: int, seconds: float) -> None:
        """Count an update."""
        self._now = np.add(self._now, (num_tokens, 1, seconds))

    def add_validation(self, seconds: float, elapsed: float) -> None:
        """Count a validation, which took `seconds` and ended `elapsed` seconds after the run began."""
        self.validation_seconds = seconds
        self._last_validation = elapsed

    def begin_line(self) -> None:
        """Begin the interval of the next line of metrics."""
        self._now, self._before = np.zeros(3), self._now

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens per second since the last line of metrics."""
        num_tokens, _, seconds = self._now.tolist()
        return float(num_tokens / seconds)

    @property
    def seconds_per_update(self) -> float:
        """Recent mean, excluding work between updates; 0 before the first update of this session."""
        _, num_updates, seconds = (self._before + self._now).tolist()
        return float(seconds / max(1, num_updates))

    def is_validation_due(self, elapsed: float) -> bool:
        """Whether `validate_every = "auto"` validates now, `elapsed` seconds after the run began."""
        pause = max(FIRST_VALIDATION_SECONDS, self.validation_seconds / VALIDATION_SHARE)
        return elapsed - self._last_validation >= pause

    def seconds_remaining(self, num_updates: int, validate_every: int | str) -> float:
        """Seconds for this many updates and their validations, whose duration is 0 until the first has been
        measured.
        """
        seconds = num_updates * self.seconds_per_update
        if validate_every == "auto":
            return seconds * (1 + VALIDATION_SHARE) + self.validation_seconds
        return seconds + num_updates // int(validate_every) * self.validation_seconds


def forecast_score(points: Sequence[tuple[int, float]], last_update: int) -> float | None:
    """The expected score after `last_update`; None without enough validations.

    Every doubling of the updates is assumed to gain `DAMPING` times the gain of the one before. Between
    validations, the score is interpolated along the logarithm of the updates. `points` are update and score of every
    validation, in order; the scores rise, from 0 to 100.
    """
    if len(points) < 3:
        return None
    update, score = points[-1]
    if update < EARLIEST_FORECAST * last_update or points[0][0] > update / 2:
        return None
    updates, scores = zip(*points, strict=True)
    gain = max(0.0, score - float(np.interp(math.log(update / 2), np.log(updates), scores)))
    doublings = max(0.0, math.log2(last_update / update))
    return min(100.0, score + gain * DAMPING * (1 - math.pow(DAMPING, doublings)) / (1 - DAMPING))


def describe_forecast(lines: Sequence[MetricsLine], last_update: int) -> str | None:
    """The expected BLEU and chrF at the end of a run with these lines of metrics.jsonl; None if unknown."""
    validations = select_lines(lines, "validation")
    if not validations or validations[-1]["update"] >= last_update:
        return None
    expected = []
    for metric in ("BLEU", "chrF"):
        scores = [(line["update"], score) for line in validations for score in line.get("scores", ())]
        points = [(update, score["value"]) for update, score in scores if score["metric"] == metric]
        score = forecast_score(points, last_update)
        if score is None:
            return None
        expected.append(f"{metric} {score:.0f}")
    return f"expected at the end of this run, on the validation text: about {', '.join(expected)}"
