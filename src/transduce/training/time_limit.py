"""When the learning rate of a run with a time limit begins to fall, and with which update the run ends."""

from transduce.config import TrainingConfig
from transduce.training.schedule import Decay, planned_decay

TOLERANCE = 0.01
"""Share of the time limit by which the end of a run may be expected early or late before its decay is changed."""


def begin_decay(config: TrainingConfig, update: int, seconds_left: float, seconds_per_update: float) -> Decay | None:
    """The decay that has to begin after update number `update`; None as long as the rate stays constant.

    Args:
        config: of the run, with schedule = "warmup_stable_decay".
        update: updates done.
        seconds_left: for updates, of the time limit; infinite where there is none.
        seconds_per_update: on average, with whatever else happens between updates.
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
    """The same decay, or, where it would miss the time limit by more than `TOLERANCE`, one that ends in time.

    The rate goes on from where it is, in another straight line. Arguments as of `begin_decay`.
    """
    if config.time_limit is None or update >= decay.end:
        return decay
    expected = (decay.end - update) * seconds_per_update
    if abs(expected - seconds_left) <= TOLERANCE * config.time_limit_seconds:
        return decay
    end = min(config.updates, update + _updates_within(seconds_left, seconds_per_update))
    return decay if end == decay.end else Decay(update + 1, end, decay.factor_at(update))


def _updates_within(seconds: float, seconds_per_update: float) -> int:
    """At least one: a run whose time is over ends with the next update."""
    return max(1, int(seconds / seconds_per_update))
