"""The position-wise feed-forward network (paper 3.3)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.kernels.linear import Linear

# relu overwrites the largest tensor of a layer: neither pass needs what went into it.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu_, "gelu": F.gelu, "swish": F.silu}


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position (paper eq. 2).

    gelu (Hendrycks & Gimpel 2016, exact) or swish (Ramachandran et al. 2017) can stand in for max(0, ·).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.activation = ACTIVATIONS[config.activation]
        self.outer = Linear(config.d_ff, config.d_model)

    def forward(self, inputs: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch length d_model"]:
        """From d_model to d_ff and back."""
        outputs: Tensor = self.outer(self.activation(self.inner(inputs)))
        return outputs
