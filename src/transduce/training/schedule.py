"""The learning rate of every update (paper 5.3), and the decay that ends a run after its updates or its time limit."""

from dataclasses import dataclass

from transduce.config import TrainingConfig


@dataclass(frozen=True)
class Decay:
    """The last part of schedule = "warmup_stable_decay": a straight line down to zero after the last update."""

    start: int
    """The first update whose rate is lower than the one before."""
    end: int
    """The last update."""
    factor: float = 1.0
    """Of the constant rate before `start`; below 1 where an earlier decay is continued on another line, because the
    remaining time has turned out to be longer or shorter."""

    def factor_at(self, update: int) -> float:
        """Factor of the constant rate at update number `update`."""
        if update < self.start:
            return self.factor
        return self.factor * max(self.end + 1 - update, 0) / (self.end + 2 - self.start)


def planned_decay(config: TrainingConfig) -> Decay:
    """The decay of a run that ends with update `config.updates`."""
    return Decay(config.updates + 1 - max(1, round(config.decay_share * config.updates)), config.updates)


def learning_rate(config: TrainingConfig, d_model: int, update: int, decay: Decay | None = None) -> float:
    """The learning rate of update number `update`, counted from 1.

    - "paper": d_model^-0.5 · min(update^-0.5, update · warmup^-1.5)  (eq. 3)
    - "inverse_square_root": the same curve scaled to peak at `learning_rate`
    - "linear": up to `learning_rate` over `warmup` updates, then in a straight line to zero after the last update
    - "warmup_stable_decay": up to `learning_rate` over `warmup` updates, constant, then `decay`, which is that of
      `config.updates` unless given (Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed
      Training Durations")
    """
    peak = config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5
    if config.schedule == "warmup_stable_decay":
        return peak * min(1.0, update / config.warmup) * (decay or planned_decay(config)).factor_at(update)
    if update < config.warmup:
        return peak * update / config.warmup
    if config.schedule == "linear":
        return peak * (config.updates + 1 - update) / (config.updates + 1 - config.warmup)
    return float(peak * (config.warmup / update) ** 0.5)


TOLERANCE = 0.01
"""Share of the time limit by which the end of a run may be expected early or late before its decay is changed."""


def begin_decay(config: TrainingConfig, update: int, seconds_left: float, seconds_per_update: float) -> Decay | None:
    """The decay that has to begin after update number `update`; None as long as the rate stays constant.

    Args:
        config: of the run, with schedule = "warmup_stable_decay".
        update: updates done.
        seconds_left: of the time limit for updates; infinite where there is none.
        seconds_per_update: mean, including what happens between updates.
    """
    planned = planned_decay(config)
    if update + 1 >= planned.start:  # above it where updates were lowered after a stop
        return Decay(update + 1, max(update + 1, planned.end))
    if config.time_limit is None or seconds_left > config.decay_share * config.time_limit_seconds:
        return None
    return Decay(update + 1, min(config.updates, update + _updates_within(seconds_left, seconds_per_update)))


def adjust_decay(
    config: TrainingConfig, decay: Decay, update: int, seconds_left: float, seconds_per_update: float
) -> Decay:
    """The same decay or, where it would miss the time limit by more than `TOLERANCE`, one that ends in time.

    The rate continues from its present value on another straight line. The arguments are those of `begin_decay`.
    """
    if config.time_limit is None or update >= decay.end:
        return decay
    expected = (decay.end - update) * seconds_per_update
    if abs(expected - seconds_left) <= TOLERANCE * config.time_limit_seconds:
        return decay
    end = min(config.updates, update + _updates_within(seconds_left, seconds_per_update))
    return decay if end == decay.end else Decay(update + 1, end, decay.factor_at(update))


def _updates_within(seconds: float, seconds_per_update: float) -> int:
    """Number of updates in that time, at least one: a run whose time is over ends with the next update."""
    return max(1, int(seconds / seconds_per_update))
