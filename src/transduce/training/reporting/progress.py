"""What training tells whoever watches: progress, throughput, time remaining, and a forecast of the scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from transduce.training.updater import UpdateFigures
from transduce.training.validation import Validation

VALIDATION_SHARE = 0.05
"""Part of the time that `validate_every = "auto"` spends on validation."""

FIRST_VALIDATION_SECONDS = 90.0
"""Of a run, at which `validate_every = "auto"` validates first: then there is a model to use."""


class Pace:
    """Speed since the last line of metrics, and a little before.

    Args:
        elapsed: seconds of the run so far, earlier sittings included.
    """

    def __init__(self, elapsed: float = 0.0) -> None:
        self._now, self._before = _Stretch(), _Stretch()
        self.validation_seconds = 0.0
        self._last_validation = elapsed

    def count(self, num_tokens: int, seconds: float) -> None:
        """One more update."""
        self._now.num_tokens += num_tokens
        self._now.num_updates += 1
        self._now.seconds += seconds

    def validated(self, seconds: float, elapsed: float) -> None:
        """One more validation, which took so many seconds and ended `elapsed` seconds after the run began."""
        self.validation_seconds = seconds
        self._last_validation = elapsed

    def begin_line(self) -> None:
        """What was counted so far stands in a line of metrics."""
        self._now, self._before = _Stretch(), self._now

    @property
    def tokens_per_second(self) -> float:
        """Real target tokens a second since the last line of metrics."""
        return self._now.num_tokens / self._now.seconds

    @property
    def seconds_per_update(self) -> float:
        """Of late, 0 before the first update of this sitting; what happens between updates is not counted."""
        stretches = self._before, self._now
        return sum(one.seconds for one in stretches) / max(1, sum(one.num_updates for one in stretches))

    def validation_is_due(self, elapsed: float) -> bool:
        """Whether `validate_every = "auto"` validates now, `elapsed` seconds after the run began."""
        pause = max(FIRST_VALIDATION_SECONDS, self.validation_seconds / VALIDATION_SHARE)
        return elapsed - self._last_validation >= pause

    def seconds_to_go(self, num_updates: int, validate_every: int | str) -> float:
        """Until so many updates are done, with validations; of the first one, nobody knows how long it takes."""
        seconds = num_updates * self.seconds_per_update
        if validate_every == "auto":
            return seconds * (1 + VALIDATION_SHARE) + self.validation_seconds
        return seconds + num_updates // int(validate_every) * self.validation_seconds


class _Stretch:
    """Updates one after the other."""

    def __init__(self) -> None:
        self.num_tokens, self.num_updates, self.seconds = 0, 0, 0.0


DAMPING = 0.6
"""What the gain of one doubling of the updates is multiplied by to have that of the next (docs/experiments.md)."""

EARLIEST = 0.2
"""Share of the run before which its validations say too little about its end."""


def forecast_score(points: Sequence[tuple[int, float]], last_update: int) -> float | None:
    """The score to be expected after `last_update`; None as long as too little is known.

    Every doubling of the updates is taken to gain `DAMPING` times what the one before it has gained.

    Args:
        points: update and score of every validation, in order; the scores rise, from 0 to 100.
        last_update: with which the run ends.
    """
    if len(points) < 3:
        return None
    update, score = points[-1]
    if update < EARLIEST * last_update or points[0][0] > update / 2:
        return None
    gain = max(0.0, score - _score_at(update / 2, points))
    doublings = max(0.0, math.log2(last_update / update))
    return min(100.0, score + gain * DAMPING * (1 - math.pow(DAMPING, doublings)) / (1 - DAMPING))


def forecast_line(lines: Sequence[Mapping[str, Any]], last_update: int) -> str | None:
    """What to say of the end of a run with these lines of metrics.jsonl, as long as that is not reached."""
    validations = [line for line in lines if line["kind"] == "validation"]
    if not validations or validations[-1]["update"] >= last_update:
        return None
    expected = []
    for metric in ("BLEU", "chrF"):
        points = [
            (line["update"], score["value"])
            for line in validations
            for score in line.get("scores", ())
            if score["metric"] == metric
        ]
        score = forecast_score(points, last_update)
        if score is None:
            return None
        expected.append(f"{metric} {score:.0f}")
    return f"to be expected of this run by its end, on the validation text: about {', '.join(expected)}"


def _score_at(update: float, points: Sequence[tuple[int, float]]) -> float:
    """The score at `update`, between the validations before and after it, along the logarithm of the updates."""
    before = max((point for point in points if point[0] <= update), key=lambda point: point[0])
    after = min((point for point in points if point[0] >= update), key=lambda point: point[0])
    if before[0] == after[0]:
        return before[1]
    share = math.log(update / before[0]) / math.log(after[0] / before[0])
    return before[1] + share * (after[1] - before[1])


@dataclass(frozen=True)
class Progress:
    """Where the run stands after an update.

    Args:
        update: updates done.
        updates: updates of the whole run.
        epochs: passes over the corpus so far, with the fraction of the current one.
        figures: of the last update.
        tokens_per_second: real target tokens a second of training, since the last line of metrics.
        eta_seconds: until the last update, validations among them, if it goes on as it has lately.
    """

    update: int
    updates: int
    epochs: float
    figures: UpdateFigures
    tokens_per_second: float
    eta_seconds: float


@runtime_checkable
class Reporter(Protocol):
    """A watcher."""

    def say(self, text: str) -> None:
        """Something worth a line."""

    def progress(self, progress: Progress) -> None:
        """One more update is done."""

    def validated(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """A validation is done."""


class SilentReporter:
    """Nobody watches."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, progress: Progress) -> None:
        """Nothing."""

    def validated(self, update: int, validation: Validation, *, is_best: bool) -> None:
        """Nothing."""
