"""Muon, an optimiser that makes the step of each matrix orthogonal (Jordan et al. 2024).

The gradient of a matrix is dominated by a few directions, and so are the steps of Adam, which scales each number by
itself. Muon replaces the mean of the gradients by the nearest matrix with orthonormal rows or columns, so that what is
rare in the text is learned as fast as what is frequent: a model of little text then needs fewer updates.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from transduce.kernels.linear import Linear
from transduce.model import MultiHeadAttention
from transduce.training.distributed import SINGLE_RANK, Ranks, find_shard_rows, full_tensor, get_shard

MOMENTUM = 0.95
"""Decay of the mean of gradients (Jordan et al. 2024)."""

STEP_SIZE = 0.2
"""Root mean square of the numbers of a step, divided by the learning rate. Adam's steps are about as long, so that both
optimisers need the same learning rate (Liu et al. 2025, section 2.2)."""

NUM_ITERATIONS = 5
"""Newton-Schulz iterations by which `orthogonalize` approximates the nearest orthogonal matrix."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of the polynomial ax + bx^3 + cx^5, which, applied `NUM_ITERATIONS` times, brings every singular value
between 0.01 and 1 to between 0.68 and 1.14: fast, and exact enough (Jordan et al. 2024)."""

Blocks = Float[Tensor, "blocks rows columns"]


class Matrix(NamedTuple):
    """A weight that Muon moves."""

    weight: Tensor
    split: Callable[[Tensor], list[Blocks]]
    """Views of the blocks of a tensor with the shape of `weight`; every block becomes orthogonal by itself."""


def find_matrices(model: nn.Module) -> list[Matrix]:
    """The weights of all `Linear` modules of `model`.

    Not among them are embeddings, the projection to logits, the vectors of positions, and the few matrices that
    networks declare by themselves: those of additive attention, and the recurrent ones of `recurrent`.

    In attention, each head's part of W^Q, W^K, W^V and W^O is a block: one head has nothing to do with another, and
    narrow blocks take a fraction of the time.
    """
    matrices = {
        module.weight: Matrix(module.weight, lambda matrix: [matrix[None]])
        for module in model.modules()
        if isinstance(module, Linear)
    }
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for linear, split in ((module.projection, _split_projection), (module.output, _split_output)):
                matrices[linear.weight] = Matrix(linear.weight, partial(split, module.num_heads, module.d_v))
    return list(matrices.values())


def _split_projection(num_heads: int, d_v: int, matrix: Float[Tensor, "width d_model"]) -> list[Blocks]:
    queries_and_keys, values = torch.split(matrix, [len(matrix) - num_heads * d_v, num_heads * d_v])
    return [torch.unflatten(queries_and_keys, 0, (2 * num_heads, -1)), torch.unflatten(values, 0, (num_heads, -1))]


def _split_output(num_heads: int, d_v: int, matrix: Float[Tensor, "d_model width"]) -> list[Blocks]:
    return [torch.unflatten(matrix, 1, (num_heads, d_v)).transpose(0, 1)]


def orthogonalize(blocks: Blocks) -> Blocks:
    """For each block U S V^T, about U V^T: singular values near 1, except those below a hundredth of the block's norm.

    These stay smaller, and a block of zeros stays one. It computes in float32, as bfloat16 is slow on most processors.
    The iterations multiply square matrices of the smaller side, where those of Jordan et al. multiply the block, with
    the same result.
    """
    is_tall = blocks.size(1) > blocks.size(2)
    wide = blocks.mT if is_tall else blocks
    wide = wide / (wide.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    products = wide @ wide.mT
    identity = torch.eye(wide.size(1), dtype=wide.dtype, device=wide.device)
    factors = None
    for iteration in range(NUM_ITERATIONS):
        polynomial = torch.baddbmm(products, products, products, beta=b, alpha=c) + a * identity
        factors = polynomial if factors is None else polynomial @ factors
        if iteration < NUM_ITERATIONS - 1:
            products = polynomial @ products @ polynomial
    orthogonal: Tensor = factors @ wide
    return orthogonal.mT if is_tall else orthogonal


def _orthogonalize_blocks(matrix: Matrix, step: Tensor) -> None:
    """Orthogonalise the blocks of `step`, a tensor like the weight, in place; numbers of root mean square 1 or less."""
    for blocks in matrix.split(step):
        blocks.copy_(max(blocks.shape[1:]) ** 0.5 * orthogonalize(blocks))


def assign_matrices(matrices: Sequence[Matrix], num_ranks: int) -> list[int]:
    """Choose the rank that computes the step of each matrix, so that all ranks have about as many multiplications."""

    def count_multiplications(matrix: Matrix) -> int:
        shapes = [(len(blocks), *sorted(blocks.shape[1:])) for blocks in matrix.split(matrix.weight)]
        return sum(count * (17 * small**3 + 2 * small**2 * large) for count, small, large in shapes)

    costs = [count_multiplications(matrix) for matrix in matrices]
    loads, owners = [0] * num_ranks, [0] * len(matrices)
    for index in sorted(range(len(matrices)), key=lambda index: -costs[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners


class Muon(Optimizer):
    """The optimiser Muon: decoupled weight decay, then an orthogonal step, of each of `matrices`.

    The state of a weight is its `momentum`, the mean of its gradients. All ranks call `step` together. If each has the
    whole model, each computes the steps of some matrices and gets the others from the other ranks: that saves time, and
    weights stay the same on all ranks even if their processors round differently. If each has a shard (FSDP2), each
    computes the steps of whole matrices, one after the other.

    Where PyTorch is limited to one thread for each operation (`use_one_thread`), as many matrices are computed at the
    same time as PyTorch had threads when this was made. The bits do not depend on that number.
    """

    def __init__(self, matrices: Iterable[Matrix], weight_decay: float, ranks: Ranks = SINGLE_RANK) -> None:
        self.matrices = list(matrices)
        weights = [matrix.weight for matrix in self.matrices]
        super().__init__(weights, {"lr": 0.0, "weight_decay": weight_decay})
        is_sharded = any(get_shard(weight) is not weight for weight in weights)
        self.num_threads = torch.get_num_threads()
        self.ranks = SINGLE_RANK if is_sharded else ranks
        owners = [0] * len(weights) if is_sharded else assign_matrices(self.matrices, ranks.size)
        self._is_own = {weight: owner == self.ranks.rank for weight, owner in zip(weights, owners, strict=True)}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        (group,) = self.param_groups
        moving = [matrix for matrix in self.matrices if matrix.weight.grad is not None]
        steps: Iterable[Tensor] = self._map(self._compute_step, moving)
        if self.ranks.size > 1:
            steps = self._exchange(steps, [matrix.weight for matrix in moving])
        for (weight, _), step in zip(moving, steps, strict=True):
            own = get_shard(weight)
            own.mul_(1 - group["lr"] * group["weight_decay"])
            own.add_(step[find_shard_rows(weight)], alpha=-group["lr"] * STEP_SIZE)

    def measure_seconds(self) -> float:
        """Measure how many seconds this rank needs for its steps of one update; the steps are discarded."""
        own = [matrix for matrix in self.matrices if self._is_own[matrix.weight]]

        def compute(matrix: Matrix) -> Tensor:
            step = torch.ones(matrix.weight.shape, device=matrix.weight.device)
            _orthogonalize_blocks(matrix, step)
            return step

        start = time.perf_counter()
        for step in self._map(compute, own):
            step[0, 0].item()  # waits for a GPU
        return time.perf_counter() - start

    def _map(self, compute: Callable[[Matrix], Tensor], matrices: Sequence[Matrix]) -> Iterator[Tensor]:
        """Call `compute` for each matrix, in several threads where PyTorch is limited to one; yield the results."""
        if self.num_threads == 1 or torch.get_num_threads() > 1:
            yield from map(compute, matrices)
            return
        # Threads of their own for each step: none may be alive when processes are forked.
        with ThreadPoolExecutor(self.num_threads) as pool:
            yield from pool.map(compute, matrices)

    @torch.no_grad()  # a setting of each thread
    def _compute_step(self, matrix: Matrix) -> Tensor:
        """Renew the momentum of a matrix; its step for a learning rate of 1 / `STEP_SIZE`, if this rank computes it."""
        weight, gradient = matrix.weight, matrix.weight.grad
        assert gradient is not None  # noqa: S101 - `step` has chosen those with one
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        # Nesterov's momentum: this gradient counts once more.
        step = full_tensor(gradient.lerp(state["momentum"], MOMENTUM))
        if self._is_own[weight]:
            _orthogonalize_blocks(matrix, step)
        return step

    def _exchange(self, steps: Iterable[Tensor], weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """The steps of all weights, each computed by one of the ranks."""
        sizes = [weight.numel() for weight in weights]
        numbers = torch.zeros(sum(sizes), device=weights[0].device)
        for weight, step, part in zip(weights, steps, torch.split(numbers, sizes), strict=True):
            if self._is_own[weight]:
                part.copy_(step.flatten())
        parts = torch.split(self.ranks.sum(numbers), sizes)
        return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]
