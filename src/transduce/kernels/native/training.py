"""Compiled kernels for training on a CPU: dropout, bias and relu, layer normalisation, attention, softmax of the loss.

The plain references are in `transduce.kernels.layers` and `transduce.kernels.linear`, which choose between the two and
check what is given. One thread computes an operation: processes compute the micro-batches of a batch at the same time.
"""

import ctypes
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transduce.kernels.native.library import (
    AttentionTaskStructure,
    BiasTaskStructure,
    HeadArrayStructure,
    Library,
    NormalizationTaskStructure,
    SoftmaxTaskStructure,
    find_library,
)

WIDTH_MULTIPLE = 16
"""Widths of normalised rows and of heads must be a multiple of this."""


def find_library_for(*tensors: Tensor) -> Library | None:
    """The library of compiled kernels if it supports these tensors: all on the CPU, and all float32 or all bfloat16."""
    dtype = tensors[0].dtype
    is_supported = dtype in {torch.float32, torch.bfloat16} and all(
        tensor.dtype == dtype and tensor.device.type == "cpu" for tensor in tensors
    )
    return find_library() if is_supported else None


def has_one_thread() -> bool:
    """Whether PyTorch computes with one thread in this process.

    It does in each process that computes a micro-batch. The kernels use one thread: where PyTorch has more, its own
    operations are faster, but for dropout.
    """
    return torch.get_num_threads() == 1


class NativeDropout(torch.autograd.Function):
    """Dropout: multiplies each number by 2^16 / `kept` where a random 16-bit number is below `kept`, elsewhere by 0.

    The backward pass draws the same random numbers from `seed` again, so that no mask is kept.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, kept: int, seed: int, library: Library) -> Tensor:  # noqa: ANN401, D102 - torch's context and name
        ctx.kept, ctx.seed, ctx.library = kept, seed, library
        return _drop(inputs, kept, seed, library)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401, D102 - torch's context and name
        return _drop(output_gradient, ctx.kept, ctx.seed, ctx.library), None, None, None


def _drop(inputs: Tensor, kept: int, seed: int, library: Library) -> Tensor:
    inputs = inputs.contiguous()
    outputs = torch.empty_like(inputs)
    library.functions["drop"](
        inputs.data_ptr(), outputs.data_ptr(), inputs.numel(), kept, seed, inputs.dtype == torch.bfloat16
    )
    return outputs


def _make_floats(*shape: int) -> Tensor:
    """An empty tensor for the kernels, whatever torch's default type and device are."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def differentiate_native_bias(
    output_gradient: Float[Tensor, "rows width"], outputs: Float[Tensor, "rows width"] | None, library: Library
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, " width"]]:
    """The gradients of x and of b from `output_gradient`, the gradient of y = x + b: a linear layer's product and bias.

    If `outputs` is given, it is y = max(0, x + b). Both tensors are contiguous, and `width` is a multiple of
    `WIDTH_MULTIPLE`. The sum over the rows is in float32.
    """
    num_rows, width = output_gradient.shape
    task = BiasTaskStructure(num_rows=num_rows, width=width, is_bfloat16=output_gradient.dtype == torch.bfloat16)
    bias_gradient = _make_floats(width)
    inputs_gradient = output_gradient if outputs is None else torch.empty_like(output_gradient)
    task.output_gradient, task.outputs = output_gradient.data_ptr(), None if outputs is None else outputs.data_ptr()
    task.inputs_gradient, task.bias_gradient = inputs_gradient.data_ptr(), bias_gradient.data_ptr()
    library.functions["differentiate_bias"](ctypes.addressof(task))
    return inputs_gradient, bias_gradient


def add_native_numbers(sums: Float[Tensor, "*shape"], numbers: Float[Tensor, "*shape"], library: Library) -> None:
    """Add to sums in float32; both tensors are contiguous, with a multiple of `WIDTH_MULTIPLE` numbers."""
    library.functions["add_numbers"](sums.data_ptr(), numbers.data_ptr(), sums.numel(), numbers.dtype == torch.bfloat16)


class NativeLayerNormalization(torch.autograd.Function):
    """Layer normalisation of the last axis, in bfloat16; all sums are in float32."""

    @staticmethod
    def forward(  # noqa: D102 - torch's name
        ctx: Any,  # noqa: ANN401 - torch's context
        inputs: Float[Tensor, "*batch d_model"],
        gain: Float[Tensor, " d_model"],
        bias: Float[Tensor, " d_model"],
        epsilon: float,
        library: Library,
    ) -> Float[Tensor, "*batch d_model"]:
        inputs, gain, bias = inputs.contiguous(), gain.contiguous(), bias.contiguous()
        outputs = torch.empty_like(inputs)
        statistics = _make_floats(inputs.numel() // gain.numel(), 2)
        task = _make_normalization_task(inputs, gain, statistics, epsilon)
        task.bias, task.outputs = bias.data_ptr(), outputs.data_ptr()
        library.functions["normalize"](ctypes.addressof(task))
        ctx.save_for_backward(inputs, gain, statistics)
        ctx.epsilon, ctx.library = epsilon, library
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401, D102 - torch's context and name
        inputs, gain, statistics = ctx.saved_tensors
        output_gradient = output_gradient.contiguous()
        gradient = torch.empty_like(inputs)
        gain_gradient, bias_gradient = _make_floats(gain.numel()), _make_floats(gain.numel())
        task = _make_normalization_task(inputs, gain, statistics, ctx.epsilon)
        task.output_gradient, task.inputs_gradient = output_gradient.data_ptr(), gradient.data_ptr()
        task.gain_gradient, task.bias_gradient = gain_gradient.data_ptr(), bias_gradient.data_ptr()
        ctx.library.functions["differentiate_normalization"](ctypes.addressof(task))
        return gradient, gain_gradient, bias_gradient, None, None


def _make_normalization_task(
    inputs: Tensor, gain: Tensor, statistics: Tensor, epsilon: float
) -> NormalizationTaskStructure:
    task = NormalizationTaskStructure(num_rows=len(statistics), width=gain.numel(), epsilon=epsilon)
    task.inputs, task.gain, task.statistics = inputs.data_ptr(), gain.data_ptr(), statistics.data_ptr()
    return task


class NativeAttention(torch.autograd.Function):
    """softmax(scale · Q Kᵀ) V of every head (paper eq. 1); the weights are saved for the backward pass."""

    @staticmethod
    def forward(  # noqa: D102 - torch's name
        ctx: Any,  # noqa: ANN401 - torch's context
        queries: Float[Tensor, "batch heads query d_k"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: Bool[Tensor, "#batch 1 #query key"],
        scale: float,
        library: Library,
    ) -> Float[Tensor, "batch heads query d_v"]:
        queries, keys, values = (_make_rows_contiguous(part) for part in (queries, keys, values))
        num_sentences, num_heads, num_queries, _ = queries.shape
        padded = -(-keys.size(2) // library.key_alignment) * library.key_alignment
        weights = queries.new_empty(num_sentences, num_heads, num_queries, padded)
        attended = _make_heads(queries, values.size(3))
        task = _make_attention_task(queries, keys, values, weights, scale)
        mask = mask.expand(num_sentences, 1, num_queries, -1)
        mask = mask if mask.stride(3) == 1 else mask.contiguous()
        task.mask, task.mask_sentence_stride, task.mask_query_stride = mask.data_ptr(), mask.stride(0), mask.stride(2)
        task.attended = _describe_heads(attended)
        _run_attention(library, "attend_heads", task)
        ctx.save_for_backward(queries, keys, values, weights)
        ctx.scale, ctx.library = scale, library
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401, D102 - torch's context and name
        queries, keys, values, weights = ctx.saved_tensors
        output_gradient = _make_rows_contiguous(output_gradient)
        gradients = [_make_heads(part, part.size(3)) for part in (queries, keys, values)]
        task = _make_attention_task(queries, keys, values, weights, ctx.scale)
        task.output_gradient = _describe_heads(output_gradient)
        task.queries_gradient, task.keys_gradient, task.values_gradient = map(_describe_heads, gradients)
        _run_attention(ctx.library, "differentiate_heads", task)
        return *gradients, None, None, None


def _run_attention(library: Library, name: str, task: AttentionTaskStructure) -> None:
    address = ctypes.addressof(task)
    workspace = _make_floats(library.functions["count_attention_workspace"](address))
    library.functions[name](address, workspace.data_ptr())


def _make_rows_contiguous(part: Tensor) -> Tensor:
    """The same tensor, copied unless the numbers of a position are side by side in memory."""
    return part if part.stride(3) == 1 else part.contiguous()


def _make_heads(like: Tensor, width: int) -> Tensor:
    """An uninitialised tensor [batch, heads, length, width] that is [batch, length, heads, width] in memory.

    Linear layers read and write the numbers of all heads side by side: they need no copy of it.
    """
    num_sentences, num_heads, length, _ = like.shape
    return like.new_empty(num_sentences, length, num_heads, width).transpose(1, 2)


def _describe_heads(part: Tensor) -> HeadArrayStructure:
    return HeadArrayStructure(part.data_ptr(), *part.stride()[:3])


def _make_attention_task(
    queries: Tensor, keys: Tensor, values: Tensor, weights: Tensor, scale: float
) -> AttentionTaskStructure:
    num_sentences, num_heads, num_queries, d_k = queries.shape
    return AttentionTaskStructure(
        queries=_describe_heads(queries),
        keys=_describe_heads(keys),
        values=_describe_heads(values),
        weights=weights.data_ptr(),
        num_sentences=num_sentences,
        num_heads=num_heads,
        num_queries=num_queries,
        num_keys=keys.size(2),
        d_k=d_k,
        d_v=values.size(3),
        is_bfloat16=queries.dtype == torch.bfloat16,
        scale=scale,
    )


def compute_native_softmax(
    logits: Float[Tensor, "rows vocabulary"], targets: Int[Tensor, " rows"], library: Library
) -> Float[Tensor, "3 rows"]:
    """Replace contiguous `logits` by their softmax; the results are those of `softmax_with_statistics`.

    `targets` are contiguous, of type int64, and in the vocabulary.
    """
    statistics = _make_floats(3, len(targets))
    log_totals, target_logits, greatest = (part.data_ptr() for part in statistics)
    task = SoftmaxTaskStructure(logits.data_ptr(), targets.data_ptr(), log_totals, target_logits, greatest)
    task.num_rows, task.width = logits.shape
    task.is_bfloat16 = logits.dtype == torch.bfloat16
    workspace = _make_floats(logits.size(1) + WIDTH_MULTIPLE)  # a row, and the rest of its last vector
    library.functions["softmax_rows"](ctypes.addressof(task), workspace.data_ptr())
    return statistics
