"""The residual connection around every sub-layer (paper 3.1)."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from transduce.config import TransformerConfig
from transduce.model.dropout import Dropout
from transduce.model.normalization import make_normalization

Sublayer = Callable[[Tensor], Tensor]


class ResidualConnection(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): post-norm, the paper's order (3.1 and 5.4).

    With `norm_order = "pre"` it is x + Dropout(Sublayer(LayerNorm(x))) instead (Xiong et al. 2020).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.post = config.norm_order == "post"
        self.normalization = make_normalization(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], mask: Bool[Tensor, "batch length"], sublayer: Sublayer
    ) -> Float[Tensor, "batch length d_model"]:
        """`x` changed by what `sublayer` makes of it; `mask` is True at real positions."""
        if self.post:
            normalized: Tensor = self.normalization(x + self.dropout(sublayer(x)), mask)
            return normalized
        residual: Tensor = x + self.dropout(sublayer(self.normalization(x, mask)))
        return residual
