"""The learning rate of every update (paper 5.3): the formulas of `training.schedule`, and the decay at its end.

A decay follows the clock if the run has a time limit: `plan_decay` moves its end.
"""

import math
from dataclasses import dataclass

from transduce.config import TrainingConfig


@dataclass(frozen=True)
class Decay:
    """The last part of schedule = "warmup_stable_decay": linear decay to zero after the last update."""

    start: int
    """The first update whose rate is lower than the one before."""
    end: int
    """The last update."""
    factor: float = 1.0
    """Learning rate before `start` as a fraction of the constant rate. Below 1 if an earlier decay was re-planned
    because the remaining time changed."""

    def factor_at(self, update: int) -> float:
        """Factor of the constant rate at update number `update`."""
        if update < self.start:
            return self.factor
        # With n updates from `start` to `end`, the k-th has (n + 1 - k) / (n + 1): zero is reached after the last.
        return self.factor * max(self.end + 1 - update, 0) / (self.end + 2 - self.start)


def make_default_decay(config: TrainingConfig) -> Decay:
    """The decay of a run that ends with update `config.updates`."""
    return Decay(config.updates + 1 - max(1, round(config.decay_share * config.updates)), config.updates)


def compute_learning_rate(
    config: TrainingConfig, d_model: int, update: int, decay: Decay | None = None, num_plateaus: int = 0
) -> float:
    """The learning rate of update number `update`, counted from 1.

    - "paper": d_model^-0.5 · min(update^-0.5, update · warmup^-1.5)  (eq. 3)
    - "inverse_square_root": the same curve scaled to peak at `learning_rate`
    - "linear": up to `learning_rate` over `warmup` updates, then linearly to zero after the last update
    - "cosine": the same, but it falls along half a cosine (Loshchilov & Hutter 2017, "SGDR", without restarts)
    - "warmup_stable_decay": up to `learning_rate` over `warmup` updates, constant, then `decay`, which is that of
      `config.updates` unless given (Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed
      Training Durations")
    - "plateau": up to `learning_rate` over `warmup` updates, then constant; it is multiplied by `plateau_factor` for
      each of `num_plateaus`, the plateaus of validation so far (Wilson et al. 2017, "The Marginal Value of Adaptive
      Gradient Methods in Machine Learning")
    """
    peak = compute_peak_rate(config, d_model)
    if config.schedule == "plateau":
        return peak * min(1.0, update / config.warmup) * config.plateau_factor**num_plateaus
    if config.schedule == "warmup_stable_decay":
        return peak * min(1.0, update / config.warmup) * (decay or make_default_decay(config)).factor_at(update)
    if update < config.warmup:
        return peak * update / config.warmup
    if config.schedule == "linear":
        return peak * (config.updates + 1 - update) / (config.updates + 1 - config.warmup)
    if config.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * (update - config.warmup) / (config.updates + 1 - config.warmup))) / 2
    return float(peak * (config.warmup / update) ** 0.5)


def compute_peak_rate(config: TrainingConfig, d_model: int) -> float:
    """The highest learning rate of the schedule; for that of the paper (eq. 3), at the end of the warm-up."""
    return config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5


TOLERANCE = 0.01
"""Fraction of the time limit by which the expected end of a run may deviate from it before `plan_decay` plans a new
decay."""


def plan_decay(
    config: TrainingConfig, decay: Decay | None, update: int, seconds_left: float, seconds_per_update: float
) -> Decay | None:
    """The decay after update number `update` of a run with schedule = "warmup_stable_decay"; None before it begins.

    A decay that would miss the time limit by more than `TOLERANCE` is replaced by one that ends in time: the rate then
    falls linearly from its present value.

    Args:
        config: the configuration of the run.
        decay: the decay planned after the previous update; None if it has not begun.
        update: updates done.
        seconds_left: seconds of the time limit that are left for updates; infinite without a limit.
        seconds_per_update: mean, including what happens between updates.
    """
    if decay is None:
        planned = make_default_decay(config)
        if update + 1 >= planned.start:  # above it where updates were lowered after a stop
            return Decay(update + 1, max(update + 1, planned.end))
        if config.time_limit is None or seconds_left > config.decay_share * config.time_limit_seconds:
            return None
    elif (
        config.time_limit is None
        or update >= decay.end
        or abs((decay.end - update) * seconds_per_update - seconds_left) <= TOLERANCE * config.time_limit_seconds
    ):
        return decay
    # At least one update: a run whose time is over ends with the next.
    end = min(config.updates, update + max(1, int(seconds_left / seconds_per_update)))
    if decay is None:
        return Decay(update + 1, end)
    return decay if end == decay.end else Decay(update + 1, end, decay.factor_at(update))
