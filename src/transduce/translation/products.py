"""The products with weights, as translation computes them: in float32, or in bfloat16."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from transduce.kernels.linear import linear
from transduce.translation.device import packs_bfloat16

_Multiply = Callable[[Tensor, Tensor, Tensor | None], Tensor]

LARGE = 2**19
"""Weights from which a product of a few rows is faster in bfloat16, on a processor that has it: 2 MB in float32."""


class Product:
    """x W^T + b for weights that do not change any more; shares them with the model where the type is the same.

    With `row_by_row`, what a row gets does not depend on the number of rows: see `model.linear`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, row_by_row: bool = False) -> None:
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self._multiply: _Multiply = linear if row_by_row else F.linear

    def __call__(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """The product."""
        return self._multiply(inputs, self.weight, self.bias)

    def plus(
        self, inputs: Float[Tensor, "rows width"], others: Float[Tensor, "rows outputs"]
    ) -> Float[Tensor, "rows outputs"]:
        """The product and `others`, added up."""
        return self._multiply(inputs, self.weight, self.bias).add_(others)

    def rectified(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """max(0, the product)."""
        return self._multiply(inputs, self.weight, self.bias).relu_()


class PackedProduct(Product):
    """The same with weights laid out once as oneDNN wants them; sum and max are part of the product.

    oneDNN otherwise lays them out anew at every use. The operators are those that torch.compile's code for processors
    calls; they have no public names.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(weight, bias, dtype)
        operators = torch.ops.mkldnn
        self._product = operators._linear_pointwise.default  # noqa: SLF001 - see above
        self._product_and_sum = operators._linear_pointwise.binary  # noqa: SLF001 - see above
        self.weight = operators._reorder_linear_weight(self.weight.contiguous(), None)  # noqa: SLF001 - see above

    def __call__(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        product: Tensor = self._product(inputs, self.weight, self.bias, "none", [], "")
        return product

    def plus(
        self, inputs: Float[Tensor, "rows width"], others: Float[Tensor, "rows outputs"]
    ) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        total: Tensor = self._product_and_sum(inputs, others, self.weight, self.bias, "add")
        return total

    def rectified(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        product: Tensor = self._product(inputs, self.weight, self.bias, "relu", [], "")
        return product


class LargeProduct(PackedProduct):
    """Inputs and outputs in float32, computed in bfloat16: for a few rows, reading large weights is what takes time."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias, torch.bfloat16)

    def __call__(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        return super().__call__(inputs.bfloat16()).float()

    def plus(
        self, inputs: Float[Tensor, "rows width"], others: Float[Tensor, "rows outputs"]
    ) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        return self(inputs).add_(others)

    def rectified(self, inputs: Float[Tensor, "rows width"]) -> Float[Tensor, "rows outputs"]:
        """See `Product`."""
        return super().rectified(inputs.bfloat16()).float()


@dataclass(frozen=True)
class Arithmetic:
    """How a network is computed.

    Args:
        dtype: of everything but, perhaps, large products.
        large_in_bfloat16: whether products with at least `LARGE` weights are computed in bfloat16 all the same.
        alike_in_every_batch: whether what is computed of a sentence must not depend on its batch, to the last bit; for
            float32 on a processor.
    """

    dtype: torch.dtype
    large_in_bfloat16: bool = False
    alike_in_every_batch: bool = False

    def product(self, weight: Tensor, bias: Tensor | None) -> Product:
        """The fastest product on the device of the weights."""
        has_operators = weight.device.type == "cpu" and packs_bfloat16()
        if has_operators and self.large_in_bfloat16 and weight.numel() >= LARGE:
            return LargeProduct(weight, bias)
        packs = has_operators and self.dtype == torch.bfloat16
        if packs:
            return PackedProduct(weight, bias, self.dtype)
        return Product(weight, bias, self.dtype, row_by_row=self.alike_in_every_batch)
