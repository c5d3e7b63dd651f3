"""ConvS2S against its formulas, written with PyTorch's convolution and weight normalisation."""

import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from transduce.baselines import ConvS2S
from transduce.baselines.convs2s import ConvolutionalEncoderLayer, GatedConvolution, WeightNormalizedLinear
from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.model import EncoderDecoder

Examples = Callable[..., Any]
Models = Callable[..., EncoderDecoder]


def make_convs2s(make_model: Models, **changes: Any) -> ConvS2S:
    model = make_model(architecture="convs2s", **changes)
    assert isinstance(model, ConvS2S)
    return model


@torch.no_grad()
def make_torch_convolution(convolution: GatedConvolution) -> nn.Module:
    """PyTorch's convolution and weight normalisation with the weights of ours."""
    k, ours = convolution.kernel_width, convolution.linear
    theirs = weight_norm(nn.Conv1d(ours.direction.size(1) // k, ours.direction.size(0), k))
    # Ours reads the channels of one position after those of another; theirs all positions of one channel.
    theirs.parametrizations.weight.original1.copy_(torch.unflatten(ours.direction, 1, (k, -1)).transpose(1, 2))
    theirs.parametrizations.weight.original0.copy_(ours.length[:, None, None])
    theirs.bias.copy_(ours.bias)
    return cast("nn.Module", theirs)


def apply_block(convolution: nn.Module, x: Tensor, left: int, right: int, kept: float) -> Tensor:
    """Section 3.2 and 3.4 for x [length, channels]; dropout is on the input of the convolution."""
    of_windows = convolution(F.pad(kept * x.T[None], (left, right)))
    return (F.glu(of_windows, dim=1)[0].T + x) * math.sqrt(0.5)


@torch.no_grad()
@pytest.mark.parametrize("kernel_width", [1, 3, 5])
def test_the_network_is_that_of_the_paper(
    kernel_width: int, kept: float, make_model: Models, make_example: Examples
) -> None:
    """One sentence through all formulas; the network itself has it in a batch with longer ones.

    Dropout is on embeddings, on the input of each convolution, and on the decoder's output.
    """
    model = make_convs2s(make_model, kernel_width=kernel_width)
    example = make_example([5, 7], [6, 9])
    logits = model(*example)
    source, target = example.source_ids[0, :5], example.target_ids[0, :6]
    m, scale = 5, math.sqrt(0.5)

    e = kept * (4 * model.source_embedding.weight[source] + model.source_positions.table[:5])  # 4: sqrt(d_model)
    h = model.encoder_input(e)
    for layer in model.encoder:
        h = apply_block(make_torch_convolution(layer.convolution), h, kernel_width // 2, kernel_width // 2, kept)
    z = model.encoder_output(h)

    tokens = torch.cat([torch.zeros(1, 16), 4 * model.target_embedding.weight[target[:-1]]])
    h = g = kept * (tokens + model.target_positions.table[:6])
    for decoder_layer in model.decoder:
        h = apply_block(make_torch_convolution(decoder_layer.convolution), h, kernel_width - 1, 0, kept)
        d = (decoder_layer.query(h) + g) * scale
        a = (d @ z.T).softmax(dim=1)
        c = a @ ((z + e) * scale) * (m * math.sqrt(1 / m))
        h = (h + c) * scale
    expected = F.linear(kept * model.decoder_output(h), model.projection.weight)
    torch.testing.assert_close(logits[0, :6, :-1], expected[:, :-1], atol=1e-5, rtol=1e-5)


def test_a_linear_layer_is_normalised_as_pytorch_does_it() -> None:
    torch.manual_seed(0)
    ours = WeightNormalizedLinear(6, 4)
    theirs = weight_norm(nn.Linear(6, 4))
    inputs = torch.randn(3, 6)
    with torch.no_grad():
        ours.length.uniform_(0.5, 2)
        ours.bias.normal_()
        theirs.parametrizations.weight.original1.copy_(ours.direction)
        theirs.parametrizations.weight.original0.copy_(ours.length[:, None])
        theirs.bias.copy_(ours.bias)
    torch.testing.assert_close(ours(inputs), theirs(inputs))
    torch.testing.assert_close(ours.weight.norm(dim=1), ours.length)
    ours(inputs).square().sum().backward()
    theirs(inputs).square().sum().backward()
    torch.testing.assert_close(ours.direction.grad, theirs.parametrizations.weight.original1.grad)
    torch.testing.assert_close(cast("Tensor", ours.length.grad)[:, None], theirs.parametrizations.weight.original0.grad)


@pytest.mark.parametrize("kernel_width", [1, 3, 5])
@pytest.mark.parametrize("layers", [1, 3])
def test_layers_see_as_many_positions_as_the_paper_says(kernel_width: int, layers: int) -> None:
    """l·(k - 1) + 1 positions, in the encoder on both sides, in the decoder before the output."""
    torch.manual_seed(0)
    config = TransformerConfig(
        architecture="convs2s",
        vocabulary=5,
        d_model=8,
        num_heads=1,
        kernel_width=kernel_width,
        num_encoder_layers=layers,
        num_decoder_layers=layers,
    )
    model = ConvS2S(config).double().eval()
    field, length = layers * (kernel_width - 1) + 1, 31
    x = torch.randn(1, length, 8, requires_grad=True, dtype=torch.float64)
    outputs = x
    for layer in model.encoder:
        outputs = layer(outputs, torch.ones(1, length).bool())
    (gradient,) = torch.autograd.grad(outputs[0, 15].sum(), x)
    seen = gradient[0].abs().sum(dim=1).nonzero().flatten().tolist()
    assert seen == list(range(15 - field // 2, 15 + field // 2 + 1))

    memory, mask = torch.randn(1, 4, 16, dtype=torch.float64), torch.ones(1, 4).bool()
    outputs, state = x, model.start(memory, mask)
    for decoder_layer, past in zip(model.decoder, state.past, strict=True):
        outputs, _ = decoder_layer(outputs, past, torch.zeros_like(x), memory, mask)
    (gradient,) = torch.autograd.grad(outputs[0, 20].sum(), x)
    seen = gradient[0].abs().sum(dim=1).nonzero().flatten().tolist()
    assert seen == list(range(20 - field + 1, 21))


def count_normalized(inputs: int, outputs: int) -> int:
    return outputs * inputs + outputs + outputs  # v, g and b


@pytest.mark.parametrize(("encoder", "decoder", "k"), [(1, 1, 3), (4, 2, 5)])
def test_the_number_of_parameters_is_that_of_the_formulas(encoder: int, decoder: int, k: int) -> None:
    d, vocabulary, positions = 16, 23, 12
    config = TransformerConfig(
        architecture="convs2s",
        vocabulary=vocabulary,
        d_model=d,
        num_heads=4,
        num_encoder_layers=encoder,
        num_decoder_layers=decoder,
        kernel_width=k,
        max_positions=positions,
        tied_embeddings="none",
    )
    assert ConvS2S(config).num_parameters == (
        3 * vocabulary * d
        + 2 * positions * d
        + (encoder + decoder) * count_normalized(k * d, 2 * d)  # W in R^(2d × kd)
        + (decoder + 3) * count_normalized(d, d)  # W_d of each decoder layer, and three mappings
    )


@pytest.mark.parametrize("tied_embeddings", ["three_way", "none"])
def test_initial_values_are_those_of_the_paper(tied_embeddings: str) -> None:
    torch.manual_seed(0)
    settings: dict[str, Any] = {"vocabulary": 500, "d_model": 64, "num_heads": 1, "dropout": 0.2}
    model = ConvS2S(TransformerConfig(**settings, tied_embeddings=tied_embeddings))
    ids = torch.arange(499)[None]
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding(ids).std().item() == pytest.approx(0.1, rel=0.05)
    for positions in (model.source_positions, model.target_positions):
        assert positions(1024).std().item() == pytest.approx(0.1, rel=0.05)
    for convolution in (part for part in model.modules() if isinstance(part, GatedConvolution)):
        weight = convolution.linear.weight
        assert weight.std().item() == pytest.approx(math.sqrt(4 * 0.8 / (3 * 64)), rel=0.05)
    assert model.encoder_input.weight.std().item() == pytest.approx(math.sqrt(0.8 / 64), rel=0.05)
    assert model.encoder_output.weight.std().item() == pytest.approx(math.sqrt(1 / 64), rel=0.05)
    if tied_embeddings == "none":
        assert model.projection.weight[:-1].std().item() == pytest.approx(math.sqrt(0.8 / 64), rel=0.05)
    assert not any(part.bias.any() for part in model.modules() if isinstance(part, WeightNormalizedLinear))


@torch.no_grad()
def test_layers_keep_the_variance_of_their_input() -> None:
    """The purpose of 3.4 and 3.5, which count on a variance as small as that of embeddings."""
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=5, d_model=64, num_heads=1, dropout=0.0)
    x = inputs = 0.1 * torch.randn(4, 50, 64)
    for _ in range(10):
        x = ConvolutionalEncoderLayer(config)(x, torch.ones(4, 50).bool())
    assert (x.std() / inputs.std()).item() == pytest.approx(1, abs=0.2)


def test_gradients_of_the_encoder_are_divided_by_the_number_of_attentions(
    make_model: Models, make_example: Examples
) -> None:
    """Those of the source embeddings in the values are not (3.4)."""
    model = make_convs2s(make_model, num_decoder_layers=3, tied_embeddings="none").double()
    example = make_example([5], [4])
    encoded = model.encode(example.source_ids, example.source_mask)
    memory = encoded.detach().requires_grad_()
    model.decode(example.target_ids, example.target_mask, memory, example.source_mask)[
        ..., :-1
    ].square().sum().backward()
    of_keys, of_values = cast("Tensor", memory.grad).chunk(2, dim=-1)

    embedded = model.source_embedding(example.source_ids) + model.source_positions(5)
    through_layers = embedded.detach().requires_grad_()
    x = model.encoder_input(through_layers)
    for layer in model.encoder:
        x = layer(x, example.source_mask)
    model.zero_grad()
    model.encoder_output(x).backward(of_keys + of_values * math.sqrt(0.5))
    undivided = [cast("Tensor", parameter.grad).clone() for parameter in model.encoder_output.parameters()]
    of_embedded = cast("Tensor", through_layers.grad) / 3 + of_values * math.sqrt(0.5)

    model.zero_grad()
    encoded.backward(memory.grad)
    for parameter, gradient in zip(model.encoder_output.parameters(), undivided, strict=True):
        torch.testing.assert_close(parameter.grad, gradient / 3)
    torch.testing.assert_close(cast("Tensor", model.source_positions.table.grad)[:5], of_embedded[0])


def test_sentences_are_as_long_as_there_are_positions(make_model: Models, make_example: Examples) -> None:
    model = make_convs2s(make_model, max_positions=6)
    assert model.max_length == 6
    assert model(*make_example([6], [6])).shape == (1, 6, 23)
    for lengths in (([7], [6]), ([6], [7])):
        with pytest.raises(UserError, match="max_positions"):
            model(*make_example(*lengths))


def test_operations_that_follow_each_other_do_not_grow_with_the_sentence(
    make_model: Models, make_example: Examples, measure_depth: Callable[[Tensor], int]
) -> None:
    """Table 1: O(1) sequential operations."""
    model = make_convs2s(make_model)
    depths = {measure_depth(model(*make_example([n], [n]))) for n in (5, 10, 20)}
    assert len(depths) == 1
    deeper = make_convs2s(make_model, num_decoder_layers=3)
    assert measure_depth(deeper(*make_example([5], [5]))) > max(depths)


@pytest.mark.parametrize(("n", "k"), [(9, 3), (13, 5), (14, 3)])
def test_a_sentence_is_connected_by_layers_in_proportion_to_its_length(n: int, k: int) -> None:
    """Table 1: of contiguous kernels, O(n / k) layers, 2 (n - 1) / (k - 1) of them, connect both ends."""
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=5, d_model=8, num_heads=1, kernel_width=k, dropout=0.0)
    x = torch.randn(1, n, 8, requires_grad=True, dtype=torch.float64)
    # A position sees (k - 1) / 2 on each side; the way from one end to the other is that of one side.
    outputs, layers = x, 0
    while not torch.autograd.grad(outputs[0, 0].sum(), x, retain_graph=True)[0][0, -1].any():
        outputs = ConvolutionalEncoderLayer(config).double()(outputs, torch.ones(1, n).bool())
        layers += 1
    assert layers == math.ceil((n - 1) / (k // 2))
