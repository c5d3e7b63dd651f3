"""One update of the weights (paper 5.3): the gradients of its batches, and a step of Adam, AdamW or Muon.

It uses neither files nor the clock.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn
from torch.utils import deterministic

from transduce.baselines.convs2s import WeightNormalizedLinear
from transduce.bundle import collect_model_tensors
from transduce.config import TrainingConfig
from transduce.data import Batch
from transduce.kernels.device import resolve_precision, use_one_thread
from transduce.model import Dropout, EncoderDecoder
from transduce.training.distributed import SINGLE_RANK, Ranks, full_tensor, no_sync, wrap_for_distributed
from transduce.training.optimization.guided_alignment import AlignmentModel
from transduce.training.optimization.loss import TokenLosses, compute_losses
from transduce.training.optimization.micro_batches import NUM_SUMS, MicroBatchProcesses, can_fork
from transduce.training.optimization.muon import Muon, find_matrices
from transduce.training.optimization.schedule import Decay, compute_learning_rate


@contextmanager
def autocast(model: EncoderDecoder, dtype: torch.dtype) -> Iterator[None]:
    """Let `model` compute activations in this type; its weights and their gradients keep theirs, float32.

    Mixed precision after Micikevicius et al. 2018; bfloat16 has the range of float32, so that of the types only float16
    needs a `LossScale`.
    """
    before = model.compute_dtype
    model.compute_dtype = None if dtype == torch.float32 else dtype
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
    # No code here reads uninitialised memory, and filling it takes time.
    setattr(deterministic, _FILL, False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
        setattr(deterministic, _FILL, filled)


class ExponentialMovingAverage:
    """Exponential moving average of the weights after all updates so far (Polyak & Juditsky 1992).

    After update n the average moves to the new weights by 1 - min(decay, (1 + n) / (10 + n)), so that the weights of
    the first updates soon become negligible. Running statistics are averaged alike. The average begins with the present
    weights of `model`; `decay` is at least 0 and below 1.
    """

    def __init__(self, model: EncoderDecoder, decay: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
        self.decay = decay

    def update(self, model: EncoderDecoder, number: int) -> None:
        """Move the average to the weights of `model` after update `number`, counted from 1."""
        move = get_ema_multi_avg_fn(min(self.decay, (1 + number) / (10 + number)))  # type: ignore[no-untyped-call]
        averages, weights = ([*collect_model_tensors(one).values()] for one in (self.model, model))
        move(averages, weights, number)


@dataclass
class LossScale:
    """Dynamic loss scaling: the factor of the loss in a backward pass in float16 (Micikevicius et al. 2018).

    Gradients below 6e-8 would become zero in float16, so the loss is multiplied by the largest factor with which none
    is above 65504. Gradients are divided by it again: as it is a power of two, that changes no bit of them.
    """

    factor: int = 1
    num_updates: int = 0
    """Updates since the factor was changed."""

    def adjust(self, *, is_skipped: bool) -> bool:
        """Halve the factor after a skipped update, double it after `LOSS_SCALE_INTERVAL` others; whether it changed."""
        before, self.num_updates = self.factor, self.num_updates + 1
        if is_skipped:
            self.factor = max(1, self.factor // 2)
        elif self.num_updates >= LOSS_SCALE_INTERVAL:
            self.factor = min(2 * self.factor, MAX_LOSS_SCALE)
        if is_skipped or self.factor != before:
            self.num_updates = 0
        return self.factor != before


INITIAL_LOSS_SCALE = 2**16
"""The factor before the first update in float16."""

MAX_LOSS_SCALE = 2**24
"""Upper bound of the factor."""

LOSS_SCALE_INTERVAL = 2000
"""Updates without an overflow after which the factor is doubled."""

MAX_MICRO_BATCHES = 2**20
"""Upper bound of the number of parallel micro-batches in an update: no two micro-batches of a run have the same number
`update * MAX_MICRO_BATCHES + index`."""


@dataclass(frozen=True)
class UpdateFigures:
    """Figures of one update, over the real target tokens of its batches."""

    loss: float
    """Label-smoothed cross-entropy, in nats per token."""
    cross_entropy: float
    """Cross-entropy without smoothing, in nats per token."""
    accuracy: float
    """Share of tokens predicted correctly, teacher-forced."""
    num_target_tokens: int
    padding_share: float
    """Share of padding in the batches, both sides."""
    gradient_norm: float
    """Euclidean norm of the gradient, before clipping."""
    learning_rate: float
    loss_scale: int | None = None
    """The factor of the loss in the backward pass; None unless the activations are in float16."""
    divergence: float | None = None
    """Symmetric Kullback-Leibler divergence between the two passes of R-Drop, in nats per token; None without it."""

    @property
    def is_skipped(self) -> bool:
        """Whether the update was skipped, because loss or gradient are not finite.

        A step along an infinite or NaN gradient would make all weights infinite or NaN permanently. Loss scaling skips
        such steps (Micikevicius et al. 2018); here they are skipped in every precision.
        """
        return not (math.isfinite(self.loss) and math.isfinite(self.gradient_norm))


def split_by_weight_decay(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters that weight decay applies to, and all others.

    It does not apply to vectors, such as biases and the gains of normalisation. Of a weight-normalised matrix, it
    applies to the lengths of the rows and not to their directions, whose norm has no effect on the matrix.
    """
    normalized = [module for module in model.modules() if isinstance(module, WeightNormalizedLinear)]
    lengths, directions = {module.length for module in normalized}, {module.direction for module in normalized}
    decaying = [one for one in model.parameters() if one in lengths or (one.ndim > 1 and one not in directions)]
    return decaying, [one for one in model.parameters() if one not in {*decaying}]


class UpdateStoppedError(Exception):
    """An update was abandoned before its last batch because training should stop; the model is unchanged."""


class BatchLoss(nn.Module):
    """The model and its loss as one module, so that it can be wrapped for several ranks."""

    def __init__(self, model: EncoderDecoder, config: TrainingConfig, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.smoothing = config.label_smoothing
        self.r_drop = config.r_drop
        self.alignment: AlignmentModel | None = None
        self.dtype = resolve_precision(config.precision, device, model.config.d_model).compute_dtype

    def forward(self, batch: Batch) -> TokenLosses:
        """The losses of the batch."""
        with autocast(self.model, self.dtype):
            return compute_losses(self.model, batch, self.smoothing, self.alignment, self.r_drop)


class Updater:
    """Updates a model, alone or together with other ranks.

    By Adam, or with weight decay by AdamW; with `training.optimizer = "muon"`, Muon updates the matrices that
    `find_matrices` returns, and Adam all other weights.

    `parallel_micro_batches` is the number of micro-batches that each batch is divided into, computed at the same time
    by worker processes. It has no effect on a GPU or with several ranks.
    """

    def __init__(
        self, model: EncoderDecoder, config: TrainingConfig, device: torch.device, ranks: Ranks = SINGLE_RANK
    ) -> None:
        self.model = model
        self.config = config
        self.device = device
        self.ranks = ranks
        self.parallel_micro_batches = 1
        self._own_loss = BatchLoss(model, config, device)
        self.loss_scale = LossScale(INITIAL_LOSS_SCALE if self.has_loss_scaling else 1)
        self.moving_average = ExponentialMovingAverage(model, config.ema_decay) if config.ema_decay else None
        self.batch_loss = wrap_for_distributed(self._own_loss, model, config.sharding, ranks, device)
        matrices = find_matrices(model) if config.optimizer == "muon" else []
        self.muon = Muon(matrices, config.weight_decay, ranks) if config.optimizer == "muon" else None
        decaying, others = split_by_weight_decay(model)
        of_muon = {matrix.weight for matrix in matrices}
        decaying = [parameter for parameter in decaying if parameter not in of_muon]
        self.adam = torch.optim.AdamW(
            [{"params": decaying, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=0.0,
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_epsilon,
            fused=device.type in {"cpu", "cuda"},
        )
        self.should_stop: Callable[[], bool] = lambda: False  # called between the batches of an update
        self.processes = MicroBatchProcesses(model, self._compute_micro_batch, torch.get_num_threads())
        # The statistics of batch normalisation, which every forward pass in training changes.
        self._running_statistics = [
            tensor for tensor in collect_model_tensors(model).values() if not isinstance(tensor, nn.Parameter)
        ]

    def update(
        self, number: int, batches: Sequence[Batch], decay: Decay | None = None, num_plateaus: int = 0
    ) -> UpdateFigures:
        """Update the weights by the mean loss over the tokens of `batches`, on all ranks.

        The random numbers of dropout depend on the seed, `number`, the rank and the micro-batch alone, so that a
        resumed run is identical to an uninterrupted one. If loss or gradient are not finite, all ranks skip the update:
        weights, running statistics and optimiser are unchanged.

        Args:
            number: number of the update, from 1.
            batches: the batches of this rank; their gradients are summed.
            decay: decay of the learning rate; default: the one planned by the configuration.
            num_plateaus: plateaus of validation so far, for schedule = "plateau".

        Raises:
            UpdateStoppedError: `should_stop` returned True between two batches, and there is one rank: several would
                have to agree.
        """
        with self.limit_threads():
            self._set_dropout(number)
            self.model.train()
            before = [tensor.clone() for tensor in self._running_statistics]
            num_tokens = int(self.ranks.sum(torch.tensor(sum(batch.num_target_tokens for batch in batches))))
            try:
                sums = self.sum_gradients(number, batches, num_tokens)
            except UpdateStoppedError:
                self._discard_update(before)
                raise
            scale = self.loss_scale.factor
            if scale > 1:
                for parameter in self.model.parameters():
                    if parameter.grad is not None:
                        parameter.grad /= scale
            norm = nn.utils.get_total_norm([one.grad for one in self.model.parameters() if one.grad is not None])
            if self.config.clip_norm:
                nn.utils.clip_grads_with_norm_(self.model.parameters(), self.config.clip_norm, norm)
            rate = compute_learning_rate(self.config, self.model.config.d_model, number, decay, num_plateaus)
            loss, cross_entropy, accuracy, divergence = (self.ranks.sum(sums) / num_tokens).tolist()
            own_padding = sum(batch.padding_share for batch in batches) / len(batches)
            padding = float(self.ranks.sum(torch.tensor(own_padding, dtype=torch.float64))) / self.ranks.size
            figures = UpdateFigures(
                loss,
                cross_entropy,
                accuracy,
                num_tokens,
                padding,
                float(full_tensor(norm)),
                rate,
                scale if self.has_loss_scaling else None,
                divergence if self.config.r_drop else None,
            )
            if figures.is_skipped:
                self._discard_update(before)
            else:
                self._move_weights(rate)
                if self.moving_average is not None:
                    self.moving_average.update(self.model, number)
            self.model.zero_grad()
            if self.has_loss_scaling and self.loss_scale.adjust(is_skipped=figures.is_skipped):
                self.processes.close()  # those that are forked next know the new factor
            return figures

    def set_alignment_model(self, alignment: AlignmentModel) -> None:
        """Train with guided alignment from now on.

        Its loss, times `training.guided_alignment`, is added to that of every batch. To be called before the first
        update, as worker processes copy the alignment model when they are forked.
        """
        self._own_loss.alignment = alignment.to(self.device)

    @property
    def optimizers(self) -> list[Optimizer]:
        """Adam, and Muon if it is used."""
        return [self.adam] if self.muon is None else [self.adam, self.muon]

    @property
    def has_loss_scaling(self) -> bool:
        """Whether the loss is multiplied by a `LossScale`: with activations in float16."""
        return self._own_loss.dtype == torch.float16

    @property
    def has_parallel_micro_batches(self) -> bool:
        """Whether batches are divided into micro-batches that worker processes compute at the same time."""
        return self.parallel_micro_batches > 1 and self.ranks.size == 1 and self.device.type == "cpu"

    def limit_threads(self) -> AbstractContextManager[None]:
        """Use one thread in each process that computes a micro-batch."""
        return use_one_thread() if self.has_parallel_micro_batches and can_fork() else nullcontext()

    def _set_dropout(self, number: int) -> None:
        """Let dropout rise to `model.dropout` over the first `training.dropout_warmup` updates."""
        share = min(1.0, number / self.config.dropout_warmup) if self.config.dropout_warmup else 1.0
        for part in self.model.modules():
            if isinstance(part, Dropout):
                part.p = share * self.model.config.dropout

    def _move_weights(self, rate: float) -> None:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    def _discard_update(self, before: Sequence[Tensor]) -> None:
        self.model.zero_grad()
        for statistic, value in zip(self._running_statistics, before, strict=True):
            statistic.copy_(value)

    def sum_gradients(self, number: int, batches: Sequence[Batch], num_tokens: int) -> Float[Tensor, "4"]:
        """Add the gradients of all batches to the model's; return the sums that `accumulate` returns."""
        if self.has_parallel_micro_batches:
            micro_batches = [part for batch in batches for part in batch.split_into(self.parallel_micro_batches)]
            tasks = [(one, number * MAX_MICRO_BATCHES + index) for index, one in enumerate(micro_batches)]
            return self.processes.sum_gradients(tasks, num_tokens, self._check_stop)
        torch.manual_seed(self._seed(number))
        sums = torch.zeros(NUM_SUMS, dtype=torch.float64)
        with no_sync(self.batch_loss):
            for batch in batches[:-1]:
                sums += self.accumulate(batch.to(self.device), num_tokens)
                self._check_stop()
        return sums + self.accumulate(batches[-1].to(self.device), num_tokens)

    def _seed(self, number: int, micro_batch: int = 0) -> int:
        """The seed of a micro-batch: a hash, as torch's generator on the CPU reads only the lower 32 bits of it."""
        seeds = np.random.SeedSequence([self.config.seed, number, self.ranks.rank, micro_batch])
        return int(seeds.generate_state(1, np.uint64)[0])

    def _check_stop(self) -> None:
        if self.ranks.size == 1 and self.should_stop():
            raise UpdateStoppedError

    def _compute_micro_batch(self, micro_batch: Batch, unique_number: int, num_tokens: int) -> Float[Tensor, "4"]:
        number, index = divmod(unique_number, MAX_MICRO_BATCHES)
        torch.manual_seed(self._seed(number, index))
        self._set_dropout(number)
        self.model.train()
        return self.accumulate(micro_batch, num_tokens)

    def accumulate(self, batch: Batch, num_tokens: int) -> Float[Tensor, "4"]:
        """Add the gradient of one batch to the model's.

        Returns the sums of label-smoothed cross-entropy, cross-entropy, right tokens, and divergence of R-Drop.
        """
        losses = self.batch_loss(batch)
        loss = losses.loss + self.config.guided_alignment * losses.alignment_loss
        # DDP and FSDP2 average gradients over the ranks: multiplied by the number of ranks, the result is their sum.
        (loss * (self.ranks.size * self.loss_scale.factor) / num_tokens).backward()
        # Without the term of R-Drop; half of it, as the loss is a mean over two passes and not their sum.
        smoothed = losses.loss.detach() - self.config.r_drop / 2 * losses.divergence
        sums = [smoothed, losses.cross_entropy, losses.num_correct, losses.divergence]
        return torch.stack(sums).cpu().double()
