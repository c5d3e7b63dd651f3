"""ByteNet against its formulas, written with PyTorch's convolution and layer normalisation."""

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from transduce.baselines import ByteNet
from transduce.baselines.bytenet import DILATIONS, ResidualBlock, count_columns, make_blocks
from transduce.config import TransformerConfig
from transduce.kernels.linear import Linear
from transduce.model import EncoderDecoder, LayerNormalization

Examples = Callable[..., Any]
Models = Callable[..., EncoderDecoder]


def make_bytenet(make_model: Models, **changes: Any) -> ByteNet:
    model = make_model(architecture="bytenet", **changes)
    assert isinstance(model, ByteNet)
    return model


def apply_block(block: ResidualBlock, x: Tensor, left: int, right: int, kept: float) -> Tensor:
    """Figure 3 for x [length, 2d], with PyTorch's own operations; dropout is on what is added."""

    def normalize(x: Tensor, part: LayerNormalization) -> Tensor:
        return F.relu(F.layer_norm(x, part.gain.shape, part.gain, part.bias))

    inner = F.linear(normalize(x, block.reduction_normalization), block.reduction.weight, block.reduction.bias)
    inner = F.pad(normalize(inner, block.convolution_normalization).T[None], (left, right))
    # Ours reads the channels of one position after those of another; theirs all positions of one channel.
    weight = torch.unflatten(block.convolution.weight, 1, (block.kernel_width, -1)).transpose(1, 2)
    inner = F.conv1d(inner, weight, block.convolution.bias, dilation=block.dilation)[0].T
    inner = normalize(inner, block.expansion_normalization)
    return x + kept * F.linear(inner, block.expansion.weight, block.expansion.bias)


@torch.no_grad()
@pytest.mark.parametrize("kernel_width", [1, 3, 5])
@pytest.mark.parametrize("target_length", [4, 6, 11])
def test_the_network_is_that_of_the_paper(
    kernel_width: int, target_length: int, kept: float, make_model: Models, make_example: Examples
) -> None:
    """One sentence through all formulas, which ends before column |t̂|, at it, or goes on past it.

    The network itself has the sentence in a batch with longer ones. Dropout is on embeddings, on the output of each
    block, and on the last layer before the projection.
    """
    model = make_bytenet(make_model, kernel_width=kernel_width, num_encoder_layers=3, num_decoder_layers=6)
    example = make_example([5, 9], [target_length, 12])
    logits = model(*example)[0, :target_length]
    source, target = example.source_ids[0, :5], example.target_ids[0, :target_length]
    num_columns = 6  # 1.2 · 5

    columns = torch.zeros(num_columns, 16)
    columns[:5] = kept * 4 * model.source_embedding.weight[source]  # 4: sqrt(d_model)
    for block, dilation in zip(model.encoder, (1, 2, 4), strict=True):
        reach = dilation * (kernel_width - 1) // 2
        columns = apply_block(block, columns, reach, reach, kept)
    embedded = torch.cat([torch.zeros(1, 16), kept * 4 * model.target_embedding.weight[target[:-1]]])
    unfolded = torch.zeros(target_length, 16)
    unfolded[:num_columns] = columns[:target_length]
    x = model.decoder_input(torch.cat([unfolded, embedded], dim=1))
    for block, dilation in zip(model.decoder, (1, 2, 4, 8, 16, 1), strict=True):
        x = apply_block(block, x, dilation * (kernel_width - 1), 0, kept)
    expected = F.linear(kept * F.relu(model.output(x)), model.projection.weight)
    torch.testing.assert_close(logits[:, :-1], expected[:, :-1], atol=1e-4, rtol=1e-4)


def test_columns_are_as_many_as_the_paper_says() -> None:
    assert [count_columns(n) for n in (1, 4, 5, 10, 11, 25)] == [2, 5, 6, 12, 14, 30]
    lengths = torch.arange(1, 500)
    assert torch.equal(count_columns(lengths), torch.ceil(lengths.double() * 1.2 - 1e-9).long())


@torch.no_grad()
def test_the_memory_has_as_many_columns_as_the_target_may_have(make_model: Models, make_example: Examples) -> None:
    model, example = make_bytenet(make_model), make_example([3, 10], [1, 1])
    memory = model.encode(example.source_ids, example.source_mask)
    assert memory.shape == (2, 12, 16)
    assert memory.any(dim=-1).sum(dim=1).tolist() == [4, 12]
    assert not memory[0, 4:].any()


@torch.no_grad()
def test_past_the_last_column_the_decoder_goes_on_by_itself(make_model: Models, make_example: Examples) -> None:
    """Column 5 of the encoder is the last for four tokens: what is there reaches no output before it."""
    model, example = make_bytenet(make_model), make_example([4], [12])
    memory = model.encode(example.source_ids, example.source_mask)
    assert memory.size(1) == 5
    logits = model.decode(example.target_ids, example.target_mask, memory, example.source_mask)
    changed = memory.clone()
    changed[:, 4] += 1
    others = model.decode(example.target_ids, example.target_mask, changed, example.source_mask)
    assert torch.equal(others[:, :4], logits[:, :4])
    differs = (others - logits)[0, :, :-1].abs().amax(dim=-1) > 1e-5
    reach = 2 * (1 + 2)  # two blocks with dilations 1 and 2
    assert differs.tolist() == [4 <= t <= 4 + reach for t in range(12)]


def make_config(**changes: Any) -> TransformerConfig:
    settings: dict[str, Any] = {
        "architecture": "bytenet",
        "vocabulary": 23,
        "d_model": 8,
        "num_heads": 1,
        "dropout": 0.0,
    }
    return TransformerConfig(**(settings | changes))


def test_dilations_double_in_each_set_of_five_blocks() -> None:
    assert [block.dilation for block in make_blocks(make_config(), 12)] == [1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 1, 2]
    assert [block.span for block in make_blocks(make_config(kernel_width=5), 2)] == [4, 8]


@pytest.mark.parametrize(("num_blocks", "k"), [(1, 3), (3, 3), (6, 3), (2, 5), (3, 1)])
def test_blocks_see_as_many_positions_as_their_dilations_say(num_blocks: int, k: int) -> None:
    """1 + (k - 1) · (the sum of the dilations), in the encoder on both sides, in the decoder before the output."""
    torch.manual_seed(0)
    reach = (k - 1) * sum(DILATIONS[i % 5] for i in range(num_blocks))
    length = 2 * reach + 3
    mask = torch.ones(1, length).bool()
    x = torch.randn(1, length, 16, requires_grad=True, dtype=torch.float64)
    config = make_config(d_model=16, kernel_width=k)
    blocks = cast("list[ResidualBlock]", make_blocks(config, num_blocks).double())

    def find_seen(position: int, padding: Callable[[int], tuple[int, int]]) -> set[int]:
        outputs = x
        for block in blocks:
            inputs = F.pad(block.reduce(outputs, mask), (0, 0, *padding(block.span)))
            outputs = block(outputs, mask, inputs)
        (gradient,) = torch.autograd.grad(outputs[0, position].square().sum(), x)
        return set(gradient[0].abs().sum(dim=1).nonzero().flatten().tolist())

    middle = length // 2
    both = find_seen(middle, lambda span: (span // 2, span // 2))
    before = find_seen(length - 1, lambda span: (span, 0))
    # While dilations double, every position between the ends is seen.
    assert (min(both), max(both)) == (middle - reach // 2, middle + reach // 2)
    assert (min(before), max(before)) == (length - 1 - reach, length - 1)
    assert len(both) == len(before) == reach + 1 if k <= 3 else len(both) <= reach + 1


@pytest.mark.parametrize(("encoder", "decoder", "k"), [(1, 1, 3), (7, 2, 5)])
def test_the_number_of_parameters_is_that_of_the_figures(encoder: int, decoder: int, k: int) -> None:
    d, vocabulary = 8, 23
    config = make_config(
        d_model=2 * d,
        num_encoder_layers=encoder,
        num_decoder_layers=decoder,
        kernel_width=k,
        tied_embeddings="none",
    )
    normalizations = 2 * (2 * d + d + d)
    block = normalizations + (2 * d * d + d) + (k * d * d + d) + (d * 2 * d + 2 * d)
    assert ByteNet(config).num_parameters == (
        3 * vocabulary * 2 * d
        + (encoder + decoder) * block
        + (4 * d * 2 * d + 2 * d)  # the column and the embedding side by side
        + (2 * d * 2 * d + 2 * d)  # the layer before the projection
    )


def test_initial_values_have_the_variance_of_glorot() -> None:
    torch.manual_seed(0)
    model = ByteNet(make_config(d_model=64))
    for part in (part for part in model.modules() if isinstance(part, Linear)):
        bound = math.sqrt(6 / (part.in_features + part.out_features))  # uniform: its variance is bound² / 3
        assert part.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert 0.98 * bound < part.weight.abs().max() <= bound
        assert not part.bias.any()


class NumberCounter(TorchDispatchMode):
    """Counts the numbers that operations read and write; what is only looked at in another shape is neither."""

    numbers = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = operation(*args, **(kwargs or {}))
        if not operation.is_view:
            leaves = tree_leaves((args, kwargs, results))
            self.numbers += sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))
        return results


@torch.no_grad()
def test_time_and_memory_are_linear_in_the_sentence(make_model: Models, make_example: Examples) -> None:
    """The title of the paper: a step of decoding reads one column of the source, however long that is."""
    model = make_bytenet(make_model)
    of_sentences: list[int] = []
    of_steps: set[int] = set()
    for n in (20, 40, 80):
        example = make_example([n], [n])
        with NumberCounter() as counter:
            model(*example)
        of_sentences.append(counter.numbers)
        state = model.start(model.encode(example.source_ids, example.source_mask), example.source_mask)
        for last_ids in example.target_ids[:, :20].unbind(1):
            with NumberCounter() as counter:
                _, state = model.decode_step(last_ids, state)
            of_steps.add(counter.numbers)
    assert of_sentences[2] - of_sentences[1] == 2 * (of_sentences[1] - of_sentences[0])
    assert len(of_steps) == 1


def test_operations_that_follow_each_other_do_not_grow_with_the_sentence(
    make_model: Models, make_example: Examples, measure_depth: Callable[[Tensor], int]
) -> None:
    """Table 1: O(1) sequential operations."""
    model = make_bytenet(make_model)
    assert len({measure_depth(model(*make_example([n], [n]))) for n in (5, 10, 20)}) == 1


@pytest.mark.parametrize("n", [5, 9, 17, 33, 63])
def test_a_sentence_is_connected_by_few_blocks(n: int) -> None:
    """Table 1: O(log(n)) layers of dilated convolutions connect its ends while dilations double."""
    torch.manual_seed(0)
    x = torch.randn(1, n, 16, requires_grad=True, dtype=torch.float64)
    mask = torch.ones(1, n).bool()
    outputs, num_blocks = x, 0
    for block in cast("list[ResidualBlock]", make_blocks(make_config(d_model=16), 5).double()):
        outputs = block(outputs, mask, F.pad(block.reduce(outputs, mask), (0, 0, block.span, 0)))
        num_blocks += 1
        (gradient,) = torch.autograd.grad(outputs[0, -1].square().sum(), x, retain_graph=True)
        if gradient[0, 0].any():
            break
    # b blocks with k = 3 reach back 2 · (2^b - 1) positions.
    assert num_blocks == math.ceil(math.log2((n - 1) / 2 + 1))
