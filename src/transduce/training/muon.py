"""Muon, an optimiser that moves a matrix in all its directions alike (Jordan et al. 2024).

The gradient of a matrix is dominated by a few directions, and so are the steps of Adam, which scales each number by
itself. Muon replaces the gradient's mean over updates by the nearest orthogonal matrix, so that rare directions are
learned as fast as frequent ones: a model of little text then needs fewer updates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
"""Iterations of Newton and Schulz for each step."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""a, b and c of the polynomial ax + bx^3 + cx^5, which in `NUM_ITERATIONS` brings every singular value between 0.01 and
1 to between 0.68 and 1.14: fast, and exact enough (Jordan et al. 2024)."""

Blocks = Float[Tensor, "blocks rows columns"]


class Matrix(NamedTuple):
    """A weight that Muon moves."""

    weight: Tensor
    split: Callable[[Tensor], list[Blocks]]
    """Views of the blocks of a tensor with the shape of `weight`; every block becomes orthogonal by itself."""


def find_matrices(model: nn.Module) -> list[Matrix]:
    """The matrices of all linear transformations of `model`, without embeddings and the projection to logits.

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
    """For each block U S V^T, about U V^T: singular values are near 1, but those of less than a hundredth of the norm.

    In float32, as bfloat16 is slow on most processors. A block of zeros stays one. The iterations multiply square
    matrices of the smaller side, where those of Jordan et al. multiply the block, with the same result.
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


class Muon(Optimizer):
    """Moves each of `matrices` by an orthogonal step, after decoupled weight decay.

    The state of a weight is its `momentum`, the mean of its gradients. All ranks call `step` together. If each has the
    whole model, each computes the steps of some matrices and gets the others from the other ranks: that saves time, and
    weights stay the same on all ranks even if their processors round differently. If each has a shard (FSDP2), each
    computes the steps of whole matrices, one after the other.
    """

    def __init__(self, matrices: Iterable[Matrix], weight_decay: float, ranks: Ranks = SINGLE_RANK) -> None:
        self.matrices = list(matrices)
        weights = [matrix.weight for matrix in self.matrices]
        self.ranks = SINGLE_RANK if any(get_shard(weight) is not weight for weight in weights) else ranks
        super().__init__(weights, {"lr": 0.0, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        (group,) = self.param_groups
        steps = self._compute_steps()
        if self.ranks.size > 1:
            steps = self._exchange(list(steps))
        for weight, step in steps:
            own = get_shard(weight)
            own.mul_(1 - group["lr"] * group["weight_decay"])
            own.add_(step[find_shard_rows(weight)], alpha=-group["lr"] * STEP_SIZE)

    def _compute_steps(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight and its step, for a learning rate of 1 / `STEP_SIZE`; zeros where another rank computes it."""
        for index, (weight, split) in enumerate(self.matrices):
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
            # Nesterov's momentum: this gradient counts once more.
            step = full_tensor(weight.grad.lerp(state["momentum"], MOMENTUM))
            if index % self.ranks.size == self.ranks.rank:
                for blocks in split(step):
                    blocks.copy_(max(blocks.shape[1:]) ** 0.5 * orthogonalize(blocks))
            else:
                step.zero_()
            yield weight, step

    def _exchange(self, steps: Sequence[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """The steps that all ranks have computed, each one of them."""
        numbers = self.ranks.sum(torch.cat([step.flatten() for _, step in steps]))
        parts = torch.split(numbers, [step.numel() for _, step in steps])
        for (weight, step), part in zip(steps, parts, strict=True):
            yield weight, part.view_as(step)
