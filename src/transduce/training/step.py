"""One update: gradients of one or more batches, and a step of Adam (paper 5.3). No files, no clock."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transduce.bundle import model_tensors
from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.model import Dropout, Transformer
from transduce.training.divergence import must_skip
from transduce.training.loss import label_smoothed_cross_entropy
from transduce.training.micro_batches import MicroBatchProcesses, can_fork, one_thread
from transduce.training.moving_average import MovingAverage
from transduce.training.precision import computing_in, resolve_precision
from transduce.training.ranks import ALONE, Ranks
from transduce.training.schedule import Decay, learning_rate
from transduce.training.sharding import spread, summed_later, whole

MOST_PARTS = 2**20
"""More micro-batches than any update has: what tells those of one update from those of the next."""


@dataclass(frozen=True)
class UpdateFigures:
    """What one update was like.

    Args:
        loss: label-smoothed cross-entropy, in nats a real target token.
        cross_entropy: cross-entropy without smoothing, in nats a real target token.
        accuracy: share of real target tokens predicted right, teacher-forced.
        num_target_tokens: real target tokens.
        padding_share: share of padding in the batches, both sides.
        gradient_norm: Euclidean norm of the gradient, before clipping.
        learning_rate: of this update.
    """

    loss: float
    cross_entropy: float
    accuracy: float
    num_target_tokens: int
    padding_share: float
    gradient_norm: float
    learning_rate: float

    @property
    def skipped(self) -> bool:
        """Whether the model was left as it was: loss or gradient are not finite."""
        return must_skip(self.loss, self.gradient_norm)


class UpdateStoppedError(Exception):
    """An update was given up before its last batch, as somebody wants training to end; the model is as it was."""


class BatchLoss(nn.Module):
    """The model and its loss as one module: what is called in training, so that several ranks can share the work."""

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.smoothing = config.label_smoothing
        self.precision = resolve_precision(config.precision, device, model.config.d_model)

    def forward(self, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Int[Tensor, ""]]:
        """The fields of `TokenLosses`, of which only the first is differentiable."""
        with computing_in(self.model, self.precision):
            memory = self.model.encode(batch.source_ids, batch.source_mask)
            hidden = self.model.decode_hidden(batch.target_ids, batch.target_mask, memory, batch.source_mask)
            losses = label_smoothed_cross_entropy(
                hidden[batch.target_mask],
                self.model.projection.weight,
                batch.target_ids[batch.target_mask],
                self.smoothing,
                self.model.projection.bias,
            )
        return losses.loss, losses.cross_entropy, losses.num_correct


class Updater:
    """The model, its optimiser, the settings that decide an update, and the ranks that share it.

    `micro_batches` is into how many of them each batch is divided; with several ranks or on a GPU, none is.
    """

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device, ranks: Ranks = ALONE) -> None:
        self.model = model
        self.config = config
        self.device = device
        self.ranks = ranks
        self.micro_batches = 1
        self.moving_average = MovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.batch_loss = spread(BatchLoss(model, config, device), model, config.sharding, ranks, device)
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=device.type in {"cpu", "cuda"},
        )
        self.should_stop: Callable[[], bool] = lambda: False  # asked between the batches of an update
        self.processes = MicroBatchProcesses(model, self._gradient, torch.get_num_threads())
        # What a forward pass changes in training: of batch normalisation.
        self._running_statistics = [
            tensor for tensor in model_tensors(model).values() if not isinstance(tensor, nn.Parameter)
        ]

    def update(self, number: int, batches: Sequence[Batch], decay: Decay | None = None) -> UpdateFigures:
        """Update number `number`, counted from 1, on the sum of the losses of `batches`, and of those of other ranks.

        `decay` is that of the learning rate where it is not the one that the settings plan.

        The random numbers of dropout depend on the seed, `number`, the rank and the micro-batch alone, so that a run
        that was interrupted goes on exactly as if it had not been. If loss or gradient are not finite, the update is
        skipped by all ranks: weights, running statistics and optimiser stay as they are, to the bit.

        Raises:
            UpdateStoppedError: `should_stop` says so between two batches, and there is one rank: several would have to
                agree.
        """
        with self.divided_threads():
            return self._update(number, batches, decay)

    @property
    def divides_batches(self) -> bool:
        """Whether batches are computed as micro-batches, side by side."""
        return self.micro_batches > 1 and self.ranks.size == 1 and self.device.type == "cpu"

    def divided_threads(self) -> AbstractContextManager[None]:
        """Within, each process that computes a micro-batch has one thread."""
        return one_thread() if self.divides_batches and can_fork() else nullcontext()

    def _update(self, number: int, batches: Sequence[Batch], decay: Decay | None) -> UpdateFigures:
        self._set_dropout(number)
        self.model.train()
        before = [tensor.clone() for tensor in self._running_statistics]
        num_tokens = int(self.ranks.sum(torch.tensor(sum(batch.num_target_tokens for batch in batches))))
        try:
            sums = self.sum_gradients(number, batches, num_tokens)
        except UpdateStoppedError:
            self._forget_update(before)
            raise
        norm = nn.utils.get_total_norm([one.grad for one in self.model.parameters() if one.grad is not None])
        if self.config.clip_norm:
            nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)
        rate = learning_rate(self.config, self.model.config.d_model, number, decay)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, cross_entropy, accuracy = (self.ranks.sum(sums) / num_tokens).tolist()
        own_padding = sum(batch.padding_share for batch in batches) / len(batches)
        padding = float(self.ranks.sum(torch.tensor(own_padding, dtype=torch.float64))) / self.ranks.size
        figures = UpdateFigures(loss, cross_entropy, accuracy, num_tokens, padding, float(whole(norm)), rate)
        if figures.skipped:
            self._forget_update(before)
        else:
            self.optimizer.step()
            if self.moving_average is not None:
                self.moving_average.update(self.model, number)
        self.optimizer.zero_grad()
        return figures

    def _set_dropout(self, number: int) -> None:
        """Let dropout rise to `model.dropout` over the first `training.dropout_warmup` updates."""
        share = min(1.0, number / self.config.dropout_warmup) if self.config.dropout_warmup else 1.0
        for part in self.model.modules():
            if isinstance(part, Dropout):
                part.p = share * self.model.config.dropout

    def _forget_update(self, before: Sequence[Tensor]) -> None:
        """Leave the model as it was, with the running statistics from `before`."""
        self.optimizer.zero_grad()
        for statistic, value in zip(self._running_statistics, before, strict=True):
            statistic.copy_(value)

    def sum_gradients(self, number: int, batches: Sequence[Batch], num_tokens: int) -> Float[Tensor, "3"]:
        """Add the gradients of all batches to the model's; their losses, cross-entropies and right tokens, summed."""
        if self.divides_batches:
            parts = [part for batch in batches for part in batch.divide(self.micro_batches)]
            tasks = [(part, number * MOST_PARTS + place) for place, part in enumerate(parts)]
            return self.processes.sum_gradients(tasks, num_tokens, self._check_stop)
        torch.manual_seed(self._seed(number))
        sums = torch.zeros(3, dtype=torch.float64)
        with summed_later(self.batch_loss):
            for batch in batches[:-1]:
                sums += self.accumulate(batch.to(self.device), num_tokens)
                self._check_stop()
        return sums + self.accumulate(batches[-1].to(self.device), num_tokens)

    def _seed(self, number: int, micro_batch: int = 0) -> int:
        """Hashed into one number: of a seed, torch's generator on the CPU reads only the lower 32 bits."""
        seeds = np.random.SeedSequence([self.config.seed, number, self.ranks.rank, micro_batch])
        return int(seeds.generate_state(1, np.uint64)[0])

    def _check_stop(self) -> None:
        if self.ranks.size == 1 and self.should_stop():
            raise UpdateStoppedError

    def _gradient(self, micro_batch: Batch, which: int, num_tokens: int) -> Float[Tensor, "3"]:
        """A `micro_batches.Gradient`; `which` is the number of the update and of the micro-batch in it."""
        number, place = divmod(which, MOST_PARTS)
        torch.manual_seed(self._seed(number, place))
        self._set_dropout(number)
        self.model.train()
        return self.accumulate(micro_batch, num_tokens)

    def accumulate(self, batch: Batch, num_tokens: int) -> Float[Tensor, "3"]:
        """Add the gradient of one batch to the model's; its loss, cross-entropy and right tokens, all summed."""
        loss, cross_entropy, num_correct = self.batch_loss(batch)
        # DDP and FSDP2 give the mean over the ranks of what should be their sum.
        (loss * self.ranks.size / num_tokens).backward()
        return torch.stack([loss.detach(), cross_entropy, num_correct]).cpu().double()
