"""A linear transformation that computes in the type of its inputs."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """x W^T + b, like torch's; weights kept in float32 are cast to the type of the inputs where they are used.

    With activations in bfloat16 the product is one of bfloat16, and its gradient is added to weights in float32:
    mixed precision as of Micikevicius et al. 2018.
    """

    def forward(
        self,
        inputs: Float[Tensor, "*batch width"],
        rows: slice | None = None,
    ) -> Float[Tensor, "*batch outputs"]:
        """For any number of leading axes; the outputs of the given `rows` of W alone, if not all are needed."""
        # A slice of all rows would be the same, but its gradient is copied into a matrix of zeros.
        weight, bias = (self.weight, self.bias) if rows is None else (self.weight[rows], self.bias[rows])
        return F.linear(inputs, weight.to(inputs.dtype), bias.to(inputs.dtype))
