"""The learning rate over time (paper 5.3)."""

from transduce.config import TrainingConfig


def learning_rate(config: TrainingConfig, d_model: int, update: int) -> float:
    """The learning rate of update number `update`, counted from 1.

    - "paper": d_model^-0.5 · min(update^-0.5, update · warmup^-1.5)  (eq. 3)
    - "inverse_square_root": the same curve scaled to peak at `learning_rate`
    - "linear": up to `learning_rate` over `warmup` updates, then in a straight line to zero behind the last update
    """
    peak = config.learning_rate if config.learning_rate is not None else (d_model * config.warmup) ** -0.5
    if update < config.warmup:
        return peak * update / config.warmup
    if config.schedule == "linear":
        return peak * (config.updates + 1 - update) / (config.updates + 1 - config.warmup)
    return float(peak * (config.warmup / update) ** 0.5)
