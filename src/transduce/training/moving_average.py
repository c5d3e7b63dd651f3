"""An exponential moving average of the weights, beside those that are trained."""

import copy

from torch.optim.swa_utils import get_ema_multi_avg_fn

from transduce.bundle import model_tensors
from transduce.model import Transformer


class MovingAverage:
    """The mean of the weights after all updates so far, the later ones counting more (Polyak & Juditsky 1992).

    After update n the average moves to the new weights by 1 - min(decay, (1 + n) / (10 + n)): the weights of the first
    updates, which are good for nothing, are soon forgotten. Running statistics are averaged alike.

    Args:
        model: whose weights are averaged; those it has now are the beginning.
        decay: from 0 to 1, the latter excluded.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.decay = decay

    def update(self, model: Transformer, number: int) -> None:
        """Take in the weights of `model` after update `number`, counted from 1."""
        move = get_ema_multi_avg_fn(min(self.decay, (1 + number) / (10 + number)))  # type: ignore[no-untyped-call]
        averages, weights = ([*model_tensors(one).values()] for one in (self.model, model))
        move(averages, weights, number)
