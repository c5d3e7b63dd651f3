"""One update of the weights: gradients of one or more batches, and a step of Adam (paper 5.3). No files, no clock."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from torch.utils import deterministic

from transduce.bundle import model_tensors
from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.kernels.device import has_fast_bfloat16
from transduce.model import Dropout, Transformer
from transduce.training.distributed.batches import MicroBatchProcesses, can_fork, use_one_thread
from transduce.training.distributed.ranks import ALONE, Ranks, full_tensor, no_sync, wrap_for_distributed
from transduce.training.loss import TokenLosses, compute_losses
from transduce.training.schedule import Decay, learning_rate
from transduce.training.stopping import should_skip

NARROWEST_BFLOAT16 = 128
"""d_model from which products in bfloat16 are large enough on a CPU to gain more than their preparation costs."""


def resolve_precision(
    precision: Literal["auto", "float32", "bfloat16"], device: torch.device, d_model: int
) -> Literal["float32", "bfloat16"]:
    """The precision that `auto` means on this device for a network of this width: bfloat16 where it is faster.

    That is on a GPU with bfloat16, or on a processor with AVX-512 BF16 or AMX if d_model is at least 128.
    """
    if precision != "auto":
        return precision
    wide_enough = device.type != "cpu" or d_model >= NARROWEST_BFLOAT16
    return "bfloat16" if wide_enough and has_fast_bfloat16(device) else "float32"


@contextmanager
def autocast(model: Transformer, precision: Literal["float32", "bfloat16"]) -> Iterator[None]:
    """Let `model` compute activations in this precision; its weights and their gradients keep their type.

    Mixed precision after Micikevicius et al. 2018; bfloat16 has the range of float32, so the loss needs no scaling.
    """
    before = model.compute_dtype
    model.compute_dtype = torch.bfloat16 if precision == "bfloat16" else None
    try:
        yield
    finally:
        model.compute_dtype = before


_FILL = "fill_uninitialized_memory"
"""A property of torch.utils.deterministic, unknown to its type."""


@contextmanager
def use_deterministic_algorithms(device: torch.device) -> Iterator[None]:
    """Use only kernels that add in the same order every time; on a CPU all of them do.

    On a GPU, the order of sums in the gradients of embeddings, attention and indexed rows otherwise depends on its
    threads. Matrix products need the environment variable that `find_device` sets.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = getattr(deterministic, _FILL)
    # Not with warn_only, which leaves attention's gradient as it is.
    torch.use_deterministic_algorithms(True)
    # Nothing here reads memory before it writes it, and filling it first costs time.
    setattr(deterministic, _FILL, False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        setattr(deterministic, _FILL, filled)


class ExponentialMovingAverage:
    """Exponential moving average of the weights after all updates so far (Polyak & Juditsky 1992).

    After update n the average moves to the new weights by 1 - min(decay, (1 + n) / (10 + n)), so that the weights of
    the first updates soon count for nothing. Running statistics are averaged alike. The average begins with the present
    weights of `model`; `decay` is at least 0 and below 1.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.decay = decay

    def update(self, model: Transformer, number: int) -> None:
        """Move the average to the weights of `model` after update `number`, counted from 1."""
        move = get_ema_multi_avg_fn(min(self.decay, (1 + number) / (10 + number)))  # type: ignore[no-untyped-call]
        averages, weights = ([*model_tensors(one).values()] for one in (self.model, model))
        move(averages, weights, number)


MOST_PARTS = 2**20
"""More micro-batches than any update has; update times this plus index numbers each micro-batch of a run."""


@dataclass(frozen=True)
class UpdateFigures:
    """Figures of one update, over the real target tokens of its batches."""

    loss: float
    """Label-smoothed cross-entropy, in nats a token."""
    cross_entropy: float
    """Cross-entropy without smoothing, in nats a token."""
    accuracy: float
    """Share of tokens predicted right, teacher-forced."""
    num_target_tokens: int
    padding_share: float
    """Share of padding in the batches, both sides."""
    gradient_norm: float
    """Euclidean norm, before clipping."""
    learning_rate: float

    @property
    def is_skipped(self) -> bool:
        """Whether the model was left as it was: loss or gradient are not finite."""
        return should_skip(self.loss, self.gradient_norm)


class UpdateStoppedError(Exception):
    """An update was abandoned before its last batch, as training is to stop; the model is as it was."""


class BatchLoss(nn.Module):
    """The model and its loss as one module, so that it can be wrapped for several ranks."""

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.smoothing = config.label_smoothing
        self.precision = resolve_precision(config.precision, device, model.config.d_model)

    def forward(self, batch: Batch) -> TokenLosses:
        """The losses of the batch."""
        with autocast(self.model, self.precision):
            return compute_losses(self.model, batch, self.smoothing)


class Updater:
    """Updates a model with Adam, alone or together with other ranks.

    `micro_batches` is the number of parts that each batch is divided into, for processes that compute them side by
    side; with several ranks or on a GPU, batches are not divided.
    """

    def __init__(self, model: Transformer, config: TrainingConfig, device: torch.device, ranks: Ranks = ALONE) -> None:
        self.model = model
        self.config = config
        self.device = device
        self.ranks = ranks
        self.micro_batches = 1
        self.moving_average = ExponentialMovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.batch_loss = wrap_for_distributed(BatchLoss(model, config, device), model, config.sharding, ranks, device)
        self.optimizer = torch.optim.Adam(
            model.parameters(),
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=device.type in {"cpu", "cuda"},
        )
        self.should_stop: Callable[[], bool] = lambda: False  # asked between the batches of an update
        self.processes = MicroBatchProcesses(model, self._gradient, torch.get_num_threads())
        # Of batch normalisation: a forward pass in training changes them.
        self._running_statistics = [
            tensor for tensor in model_tensors(model).values() if not isinstance(tensor, nn.Parameter)
        ]

    def update(self, number: int, batches: Sequence[Batch], decay: Decay | None = None) -> UpdateFigures:
        """Update the weights by the mean loss over the tokens of `batches`, on all ranks.

        The random numbers of dropout depend on the seed, `number`, the rank and the micro-batch alone, so that an
        interrupted run goes on exactly as if it had not been interrupted. If loss or gradient are not finite, all ranks
        skip the update: weights, running statistics and optimiser stay as they are, to the bit.

        Args:
            number: of the update, from 1.
            batches: of this rank; their gradients are summed.
            decay: of the learning rate; the one that the configuration plans unless given.

        Raises:
            UpdateStoppedError: `should_stop` returned True between two batches, and there is one rank: several would
                have to agree.
        """
        with self.limit_threads():
            return self._update(number, batches, decay)

    @property
    def has_micro_batches(self) -> bool:
        """Whether batches are divided into micro-batches that are computed side by side."""
        return self.micro_batches > 1 and self.ranks.size == 1 and self.device.type == "cpu"

    def limit_threads(self) -> AbstractContextManager[None]:
        """Use one thread in each process that computes a micro-batch."""
        return use_one_thread() if self.has_micro_batches and can_fork() else nullcontext()

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
        figures = UpdateFigures(loss, cross_entropy, accuracy, num_tokens, padding, float(full_tensor(norm)), rate)
        if figures.is_skipped:
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
        self.optimizer.zero_grad()
        for statistic, value in zip(self._running_statistics, before, strict=True):
            statistic.copy_(value)

    def sum_gradients(self, number: int, batches: Sequence[Batch], num_tokens: int) -> Float[Tensor, "3"]:
        """Add the gradients of all batches to the model's; return the sums of losses, cross-entropies, right tokens."""
        if self.has_micro_batches:
            parts = [part for batch in batches for part in batch.divide(self.micro_batches)]
            tasks = [(part, number * MOST_PARTS + place) for place, part in enumerate(parts)]
            return self.processes.sum_gradients(tasks, num_tokens, self._check_stop)
        torch.manual_seed(self._seed(number))
        sums = torch.zeros(3, dtype=torch.float64)
        with no_sync(self.batch_loss):
            for batch in batches[:-1]:
                sums += self.accumulate(batch.to(self.device), num_tokens)
                self._check_stop()
        return sums + self.accumulate(batches[-1].to(self.device), num_tokens)

    def _seed(self, number: int, micro_batch: int = 0) -> int:
        """A hash, as torch's generator on the CPU reads only the lower 32 bits of a seed."""
        seeds = np.random.SeedSequence([self.config.seed, number, self.ranks.rank, micro_batch])
        return int(seeds.generate_state(1, np.uint64)[0])

    def _check_stop(self) -> None:
        if self.ranks.size == 1 and self.should_stop():
            raise UpdateStoppedError

    def _gradient(self, micro_batch: Batch, which: int, num_tokens: int) -> Float[Tensor, "3"]:
        number, place = divmod(which, MOST_PARTS)
        torch.manual_seed(self._seed(number, place))
        self._set_dropout(number)
        self.model.train()
        return self.accumulate(micro_batch, num_tokens)

    def accumulate(self, batch: Batch, num_tokens: int) -> Float[Tensor, "3"]:
        """Add the gradient of one batch to the model's; return the sums of loss, cross-entropy, right tokens."""
        loss, cross_entropy, num_correct = self.batch_loss(batch)
        # DDP and FSDP2 give the mean over the ranks of what should be their sum.
        (loss * self.ranks.size / num_tokens).backward()
        return torch.stack([loss.detach(), cross_entropy, num_correct]).cpu().double()
