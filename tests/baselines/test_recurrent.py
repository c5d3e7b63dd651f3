"""The recurrent network against PyTorch's recurrent layers, and against the equations of its paper."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transduce.baselines import RecurrentNetwork
from transduce.baselines.recurrent import AdditiveAttention, GatedRecurrentUnit
from transduce.config import TransformerConfig
from transduce.kernels.linear import Linear
from transduce.model import EncoderDecoder

Examples = Callable[..., Any]
Models = Callable[..., EncoderDecoder]


@torch.no_grad()
def make_unit(input_width: int = 5, width: int = 4) -> GatedRecurrentUnit:
    torch.manual_seed(1)
    unit = GatedRecurrentUnit(input_width, width).double()
    for parameter in unit.parameters():
        parameter.normal_()
    return unit


@torch.no_grad()
def copy_to_torch(unit: GatedRecurrentUnit, layer: nn.GRU, suffix: str = "") -> None:
    """PyTorch's order is r, z, n, and its z says what stays: σ(-x) = 1 - σ(x)."""
    for name, ours in (("weight_ih", unit.input.weight), ("weight_hh", unit.recurrent_weight)):
        update, reset, candidate = ours.chunk(3)
        getattr(layer, f"{name}_l0{suffix}").copy_(torch.cat([reset, -update, candidate]))
    update, reset, candidate = unit.input.bias.chunk(3)
    getattr(layer, f"bias_ih_l0{suffix}").copy_(torch.cat([reset, -update, candidate]))
    getattr(layer, f"bias_hh_l0{suffix}").zero_()


def make_diagonal(unit: GatedRecurrentUnit) -> None:
    """With a diagonal U it makes no difference whether a state is reset before or after the product."""
    with torch.no_grad():
        unit.recurrent_weight[-unit.width :] *= torch.eye(unit.width)


def test_a_unit_is_pytorchs_where_the_place_of_the_reset_gate_makes_no_difference() -> None:
    unit, inputs = make_unit(), torch.randn(3, 6, 5, dtype=torch.float64)
    make_diagonal(unit)
    theirs = nn.GRU(5, 4, batch_first=True).double()
    copy_to_torch(unit, theirs)
    torch.testing.assert_close(unit(inputs, torch.ones(3, 6).bool()), theirs(inputs)[0])


def test_both_directions_of_padded_sentences_are_those_of_pytorchs_packed_ones() -> None:
    torch.manual_seed(2)
    network = RecurrentNetwork(TransformerConfig(vocabulary=9, d_model=4, num_heads=1, num_encoder_layers=1)).double()
    layer = network.encoder[0]
    theirs = nn.GRU(4, 4, batch_first=True, bidirectional=True).double()
    for unit, suffix in ((layer.left_to_right, ""), (layer.right_to_left, "_reverse")):
        make_diagonal(unit)
        copy_to_torch(unit, theirs, suffix)
    inputs, lengths = torch.randn(3, 6, 4, dtype=torch.float64), torch.tensor([2, 6, 1])
    mask = torch.arange(6) < lengths[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    torch.testing.assert_close(layer(inputs, mask)[mask], expected[mask])


def test_the_state_is_reset_before_the_product() -> None:
    """Appendix A.1.1, equation by equation."""
    unit = make_unit()
    x, s = torch.randn(5, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    w_z, w_r, w = unit.input.weight.chunk(3)
    b_z, b_r, b = unit.input.bias.chunk(3)
    u_z, u_r, u = unit.recurrent_weight.chunk(3)
    z = torch.sigmoid(w_z @ x + b_z + u_z @ s)
    r = torch.sigmoid(w_r @ x + b_r + u_r @ s)
    expected = (1 - z) * s + z * torch.tanh(w @ x + b + u @ (r * s))
    torch.testing.assert_close(unit.step(unit.input(x[None]), s[None])[0], expected)


def test_attention_is_that_of_the_paper() -> None:
    torch.manual_seed(3)
    attention = AdditiveAttention(4).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    state, memory = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    found = attention(state, attention.key(memory), memory, mask)
    for row, length in enumerate((5, 3)):
        energies = [
            attention.hidden_weight[0]
            @ torch.tanh(attention.query_weight @ state[row] + attention.key.weight @ h + attention.key.bias)
            for h in memory[row, :length]
        ]
        weights = torch.stack(energies).softmax(dim=0)
        torch.testing.assert_close(found[row], weights @ memory[row, :length])


@torch.no_grad()
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_network_is_that_of_the_paper(
    num_layers: int, kept: float, make_model: Models, make_example: Examples
) -> None:
    """Appendix A.2.2, for one sentence, the way the paper writes it.

    Of several layers, the first decides on the context, which all of them read. Dropout is on embeddings, between
    layers and on the output of the maxout layer.
    """
    model = make_model(architecture="recurrent", num_encoder_layers=num_layers, num_decoder_layers=num_layers)
    assert isinstance(model, RecurrentNetwork)
    example = make_example([5], [3])
    logits = model(*example)[0]
    h = kept * 4 * model.source_embedding.weight[example.source_ids]  # 4: sqrt(d_model)
    for number, layer in enumerate(model.encoder):
        h = layer(kept * h if number else h, example.source_mask)
    h, attention = h[0], model.attention
    states = [torch.tanh(initial(h[0, 16:])) for initial in model.initial_states]
    embeddings = [torch.zeros(16), *(kept * 4 * model.target_embedding.weight[example.target_ids[0, :2]])]
    for t, y in enumerate(embeddings):
        energies = torch.tanh(attention.query_weight @ states[0] + attention.key(h)) @ attention.hidden_weight[0]
        c = energies.softmax(dim=0) @ h
        below = y
        for number, unit in enumerate(model.decoder):
            states[number] = unit.step(unit.input(torch.cat([below, c]))[None], states[number][None])[0]
            below = kept * states[number]
        pairs = model.maxout(torch.cat([states[-1], y, c]))
        t_i = kept * torch.maximum(pairs[0::2], pairs[1::2])
        torch.testing.assert_close(logits[t, :-1], (model.projection.weight @ t_i)[:-1], atol=1e-5, rtol=1e-5)


def count_unit(inputs: int, n: int) -> int:
    return 3 * (n * inputs + n * n + n)


@pytest.mark.parametrize(("encoder", "decoder"), [(1, 1), (3, 2)])
def test_the_number_of_parameters_is_that_of_the_equations(encoder: int, decoder: int) -> None:
    n, k = 16, 23
    config = TransformerConfig(
        architecture="recurrent",
        vocabulary=k,
        d_model=n,
        num_heads=4,
        num_encoder_layers=encoder,
        num_decoder_layers=decoder,
        tied_embeddings="none",
    )
    assert RecurrentNetwork(config).num_parameters == (
        3 * k * n  # E of source and target, and W_o
        + 2 * count_unit(n, n)  # both directions
        + (encoder - 1) * 2 * count_unit(2 * n, n)
        + decoder * (count_unit(n + 2 * n, n) + n * n + n)  # W, U, C; W_s
        + n * n + (n * 2 * n + n) + n  # W_a, U_a, v
        + 2 * n * (n + n + 2 * n) + 2 * n  # U_o, V_o, C_o: l = n
    )  # fmt: skip


def test_initial_values_are_those_of_the_paper() -> None:
    torch.manual_seed(4)
    network = RecurrentNetwork(TransformerConfig(vocabulary=50, d_model=64, num_heads=1))
    for part in network.modules():
        if isinstance(part, GatedRecurrentUnit):
            for matrix in part.recurrent_weight.chunk(3):
                torch.testing.assert_close(matrix @ matrix.T, torch.eye(64), atol=1e-5, rtol=0)
        elif isinstance(part, Linear):  # products with inputs, W_s, U_o, V_o and C_o; U_a
            deviation = 0.001 if part is network.attention.key else 0.01
            assert part.weight.std().item() == pytest.approx(deviation, rel=0.05)
            assert part.weight.abs().max() > 3 * deviation  # normal: uniform numbers would end at 1.7
            assert not part.bias.any()
    assert network.attention.query_weight.std().item() == pytest.approx(0.001, rel=0.05)
    assert not network.attention.hidden_weight.any()
    # The projection too, whose matrix is that of the embeddings.
    assert network.projection.weight[:-1].std().item() == pytest.approx(1 / 8, rel=0.05)


@torch.no_grad()
def test_a_new_network_attends_to_all_source_tokens_alike(make_example: Examples) -> None:
    network = RecurrentNetwork(TransformerConfig(vocabulary=23, d_model=16, num_heads=1)).eval()
    example = make_example([4], [1])
    memory = network.encode(example.source_ids, example.source_mask)
    state = network.start(memory, example.source_mask)
    context = network.attention(state.layers[0], state.keys, state.memory, state.source_mask)
    torch.testing.assert_close(context, memory.mean(dim=1))


def test_operations_that_follow_each_other_grow_with_the_sentence(
    make_model: Models, make_example: Examples, measure_depth: Callable[[Tensor], int]
) -> None:
    """Table 1: O(n) sequential operations, and as many between the ends of a sentence."""
    model = make_model(architecture="recurrent", num_encoder_layers=1)
    depths = []
    for n in (5, 10, 15):
        example = make_example([n], [1])
        depths.append(measure_depth(model.encode(example.source_ids, example.source_mask)))
    assert depths[2] - depths[1] == depths[1] - depths[0] >= 5
