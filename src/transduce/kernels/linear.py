"""Linear transformations in float32, bfloat16, float16 and int8, laid out as processors compute them fastest."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from transduce.kernels.batch_invariance import linear
from transduce.kernels.native.training import (
    WIDTH_MULTIPLE,
    add_native_numbers,
    differentiate_native_bias,
    find_library_for,
    has_one_thread,
)

BLOCK = 256
"""Rows that are multiplied together, so that products have few different shapes: see `_TrainedLinear`."""

WIDEST_IN_BLOCKS = 256
"""Up to here, for the smaller side of W, oneDNN takes longer to build a kernel than to compute some rows twice."""

_TRAINED_TYPES = {torch.float32, torch.bfloat16, torch.float16}


class Linear(nn.Linear):
    """x W^T + b, like torch's; weights kept in float32 are cast to the type of the inputs where they are used.

    Inputs in bfloat16 or float16 give a product of that type; gradients of the weights are added up in float32 (mixed
    precision, Micikevicius et al. 2018).
    """

    def forward(
        self, inputs: Float[Tensor, "*batch width"], rows: slice | None = None, *, should_apply_relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """For any number of leading axes.

        Args:
            inputs: they may be in float32 or in another type.
            rows: the rows of W that are needed; default: all.
            should_apply_relu: whether to return max(0, x W^T + b).
        """
        # A slice of all rows would be the same, but its gradient is copied into a matrix of zeros.
        weight, bias = (self.weight, self.bias) if rows is None else (self.weight[rows], self.bias[rows])
        if torch.is_grad_enabled() and inputs.device.type == "cpu" and inputs.dtype in _TRAINED_TYPES:
            outputs: Tensor = _TrainedLinear.apply(inputs, weight, bias, should_apply_relu)  # type: ignore[no-untyped-call]
            return outputs
        outputs = linear(inputs, weight.to(inputs.dtype), bias.to(inputs.dtype))
        return outputs.relu_() if should_apply_relu else outputs


def has_onednn_operators() -> bool:
    """Whether this PyTorch has the operators of oneDNN that torch.compile's code for processors calls.

    They have no public names.
    """
    is_available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return is_available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def has_packed_bfloat16() -> bool:
    """Whether oneDNN multiplies in bfloat16 here: not where ONEDNN_MAX_CPU_ISA forbids it the instructions."""
    if not has_onednn_operators():
        return False
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return is_supported is None or bool(is_supported())


def has_cpu_feature(name: str) -> bool:
    """Whether the processor has instructions such as "avx512_bf16"; False before PyTorch 2.10, which cannot tell."""
    features: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(features.get(name, False))


@cache
def is_avx512_forbidden() -> bool:
    """Whether PyTorch may not use the AVX-512 of this processor, because of `ATEN_CPU_CAPABILITY`.

    Its fused attention then fails in bfloat16 ("pack_vnni2 is only supported when avx512 is supported").
    """
    return torch.backends.cpu.get_cpu_capability() in {"DEFAULT", "AVX2"} and has_cpu_feature("avx512_f")


def multiply_by_onednn(
    inputs: Float[Tensor, "rows width"],
    weight: Float[Tensor, "outputs width"],
    bias: Float[Tensor, " outputs"],
) -> Float[Tensor, "rows outputs"]:
    """The product x W^T + b by oneDNN, where `has_onednn_operators` finds it."""
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise.default(inputs, weight, bias, "none", [], "")  # noqa: SLF001 - see above
    return outputs


def uses_onednn_bfloat16(inputs: Tensor) -> bool:
    """Whether oneDNN multiplies such inputs; it builds a kernel for each new number of rows."""
    return inputs.dtype == torch.bfloat16 and inputs.device.type == "cpu"


class _TrainedLinear(torch.autograd.Function):
    """x W^T + b, or max(0, x W^T + b), and its gradients on a CPU; W and b in float32, all others as the inputs.

    In bfloat16, oneDNN builds three kernels a layer for each new number of rows, of 1 to 4 ms each on a processor with
    AMX. Where W is so small that the product itself takes less, the rows are computed in two parts, so that products
    have few different shapes: as many whole blocks as there are, and the last block, which overlaps them. For larger W
    the product is one that adds the bias before it writes a number; `addmm` writes the bias first.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, should_apply_relu: bool) -> Tensor:  # noqa: ANN401 - torch's context
        rows, weight, addend = inputs.reshape(-1, inputs.size(-1)), weight.to(inputs.dtype), bias.to(inputs.dtype)
        ctx.has_blocks = uses_onednn_bfloat16(inputs) and min(weight.shape) <= WIDEST_IN_BLOCKS
        if ctx.has_blocks:
            outputs = rows.new_empty(len(rows), len(weight))
            for part in _parts(len(rows)):
                torch.addmm(addend, rows[part], weight.T, out=outputs[part])
        elif uses_onednn_bfloat16(inputs) and has_packed_bfloat16():
            outputs = multiply_by_onednn(rows, weight, addend)
        else:
            outputs = F.linear(rows, weight, addend)
        # Not by oneDNN, which makes 0 of what is not a number: training would go on with a broken weight.
        if should_apply_relu:
            outputs.relu_()
        ctx.save_for_backward(rows, weight, outputs if should_apply_relu else None)
        return outputs.view(*inputs.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's context
        rows, weight, outputs = ctx.saved_tensors
        shape = output_gradient.shape[:-1]
        output_gradient = output_gradient.reshape(-1, len(weight)).contiguous()
        output_gradient, bias_gradient = differentiate_bias(output_gradient, outputs)
        if ctx.has_blocks:
            inputs_gradient, weight_gradient = _differentiate_blocks(rows, weight, output_gradient)
        else:
            inputs_gradient, weight_gradient = output_gradient @ weight, (output_gradient.T @ rows).float()
        return inputs_gradient.view(*shape, rows.size(-1)), weight_gradient, bias_gradient, None


def differentiate_bias(
    output_gradient: Float[Tensor, "rows outputs"], outputs: Float[Tensor, "rows outputs"] | None
) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, " outputs"]]:
    """The gradients of x and of b from `output_gradient`, the gradient of y = x + b: a linear layer's product and bias.

    If `outputs` is given, it is y = max(0, x + b).
    """
    library = find_library_for(output_gradient) if has_one_thread() else None
    if library is not None and output_gradient.size(1) % WIDTH_MULTIPLE == 0:
        return differentiate_native_bias(output_gradient, outputs, library)
    if outputs is not None:
        output_gradient = torch.ops.aten.threshold_backward(output_gradient, outputs, 0)
    return output_gradient, output_gradient.sum(dim=0).float()


def _differentiate_blocks(
    rows: Float[Tensor, "rows width"],
    weight: Float[Tensor, "outputs width"],
    output_gradient: Float[Tensor, "rows outputs"],
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "outputs width"]]:
    inputs_gradient, weight_gradient = torch.empty_like(rows), torch.zeros_like(weight, dtype=torch.float32)
    num_done = 0
    for part in _parts(len(rows)):
        torch.mm(output_gradient[part], weight, out=inputs_gradient[part])
        of_part = output_gradient[part]
        if num_twice := num_done - part.start:
            of_part = of_part.index_fill(0, torch.arange(num_twice), 0)
        accumulate_in_float32(weight_gradient, of_part.T @ rows[part])
        num_done = part.stop
    return inputs_gradient, weight_gradient


def accumulate_in_float32(sums: Float[Tensor, "*shape"], numbers: Float[Tensor, "*shape"]) -> None:
    """Add `numbers`, in float32 or a type of 16 bits, to `sums`, in float32, in place."""
    library = find_library_for(numbers) if has_one_thread() else None
    is_flat = sums.is_contiguous() and numbers.is_contiguous() and sums.numel() % WIDTH_MULTIPLE == 0
    if library is not None and is_flat:
        add_native_numbers(sums, numbers, library)
    else:
        sums += numbers


def _parts(num_rows: int) -> Iterator[slice]:
    """One slice with all whole blocks, then the last BLOCK rows, which overlap it.

    With fewer than BLOCK rows, or a multiple of it, there is one slice with all rows.
    """
    whole = num_rows // BLOCK * BLOCK or num_rows
    yield slice(0, whole)
    if whole < num_rows:
        yield slice(num_rows - BLOCK, num_rows)


MIN_WEIGHTS_OF_BFLOAT16 = 2**19
"""Weights from which a product of a few rows is faster in bfloat16, on a processor that has it: 2 MB in float32."""


Inputs = Float[Tensor, "rows width"]
Outputs = Float[Tensor, "rows outputs"]


class FrozenLinear:
    """A linear layer x W^T + b whose weights no longer change; they are the model's own where the type is the same.

    The plain reference of the faster kinds below. With `is_batch_invariant`, the outputs of a row do not depend on the
    number of rows (see `linear`).
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, is_batch_invariant: bool = False
    ) -> None:
        self.weight = weight.detach().to(dtype)
        self.bias = None if bias is None else bias.detach().to(dtype)
        self._multiply: Callable[[Tensor, Tensor, Tensor | None], Tensor] = linear if is_batch_invariant else F.linear

    def __call__(self, inputs: Inputs) -> Outputs:
        """The product x W^T + b."""
        return self._multiply(inputs, self.weight, self.bias)

    def add(self, inputs: Inputs, others: Outputs) -> Outputs:
        """The sum of the product and `others`."""
        return self(inputs).add_(others)

    def relu(self, inputs: Inputs) -> Outputs:
        """The greater of 0 and the product."""
        return self(inputs).relu_()


_MAX_EXACT_PRODUCTS = 1024
"""Maximum number of products of two numbers in int8 whose sum float32 holds exactly: 127 * 127 * 1024 < 2^24."""


def quantize_rows(rows: Float[Tensor, "rows width"]) -> tuple[Int8[Tensor, "rows width"], Float[Tensor, " rows"]]:
    """Integers from -127 to 127, and for each row the scale that they are to be multiplied by.

    A row whose largest absolute value is so small that 127 divided by it overflows becomes zeros with the scale 0. A
    row that contains NaN or infinity has NaN or infinity as its scale, and zeros as its integers.
    """
    greatest = rows.abs().amax(dim=1)
    factors = torch.where(greatest > 0, 127 / greatest, 0.0)
    is_tiny = factors.isinf()
    integers = (rows * factors.masked_fill(is_tiny, 0)[:, None]).nan_to_num().round().to(torch.int8)
    return integers, (greatest / 127).masked_fill(is_tiny, 0)


class Int8Linear(FrozenLinear):
    """A linear layer whose weights, with one scale for each output, and inputs, with one for each row, are in int8.

    Sums are exact integers; the rest is computed in float32. This is the plain reference of the compiled kernels, with
    the same arithmetic; it saves no time.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias, torch.float32)
        integers, self.scales = quantize_rows(self.weight)
        self.weight = integers.float()

    def __call__(self, inputs: Inputs) -> Outputs:
        """The product x W^T + b."""
        integers, row_scales = quantize_rows(inputs)
        factors = integers.float(), self.weight
        parts = zip(*(torch.split(part, _MAX_EXACT_PRODUCTS, dim=1) for part in factors), strict=True)
        sums = sum(
            (F.linear(values, weight).int() for values, weight in parts), start=torch.tensor(0, device=inputs.device)
        )
        outputs = sums.float() * (row_scales[:, None] * self.scales)
        return outputs if self.bias is None else outputs + self.bias


class PackedLinear(FrozenLinear):
    """A linear layer whose weights are laid out once as oneDNN wants them; sum and relu are part of its product.

    oneDNN otherwise lays weights out anew at every use. The operators are those that torch.compile's code for
    processors calls; they have no public names.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(weight, bias, dtype)
        operators = torch.ops.mkldnn
        self._product = operators._linear_pointwise.default  # noqa: SLF001 - see above
        self._product_and_sum = operators._linear_pointwise.binary  # noqa: SLF001 - see above
        self.weight = operators._reorder_linear_weight(self.weight.contiguous(), None)  # noqa: SLF001 - see above

    def __call__(self, inputs: Inputs) -> Outputs:
        """The product x W^T + b."""
        outputs: Tensor = self._product(inputs, self.weight, self.bias, "none", [], "")
        return outputs

    def add(self, inputs: Inputs, others: Outputs) -> Outputs:
        """The sum of the product and `others`, in one operation."""
        outputs: Tensor = self._product_and_sum(inputs, others, self.weight, self.bias, "add")
        return outputs

    def relu(self, inputs: Inputs) -> Outputs:
        """The greater of 0 and the product, in one operation."""
        outputs: Tensor = self._product(inputs, self.weight, self.bias, "relu", [], "")
        return outputs


class MixedPrecisionLinear(PackedLinear):
    """A linear layer with inputs and outputs in float32 that computes in bfloat16.

    For a few rows, reading large weights is what takes time.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, bias, torch.bfloat16)

    def __call__(self, inputs: Inputs) -> Outputs:
        """The product x W^T + b."""
        return super().__call__(inputs.bfloat16()).float()

    def add(self, inputs: Inputs, others: Outputs) -> Outputs:
        """The sum of the product and `others`, added up in float32."""
        return self(inputs).add_(others)

    def relu(self, inputs: Inputs) -> Outputs:
        """The greater of 0 and the product, in one operation."""
        return super().relu(inputs.bfloat16()).float()
