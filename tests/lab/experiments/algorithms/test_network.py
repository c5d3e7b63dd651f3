import math

import pytest
import torch
from torch import Tensor

from transduce.lab.experiments.algorithms.network import (
    ConvolutionalGRU,
    ExtendedNeuralGPU,
    NeuralGPU,
    cut_sigmoid,
    embed_column,
)

MAPS, LENGTH, WIDTH, SYMBOLS = 3, 7, 2, 6


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def convolve(weight: Tensor, bias: Tensor, inputs: Tensor, position: int, column: int) -> Tensor:
    """A convolution at one place, as a loop over the neighbours that exist."""
    total = bias.clone()
    for row_shift in (-1, 0, 1):
        for column_shift in (-1, 0, 1):
            row, neighbour = position + row_shift, column + column_shift
            if 0 <= row < inputs.size(1) and 0 <= neighbour < inputs.size(2):
                total += weight[:, :, row_shift + 1, column_shift + 1] @ inputs[:, row, neighbour]
    return total


def step_plainly(unit: ConvolutionalGRU, state: Tensor, tape: Tensor | None = None) -> Tensor:
    """CGRU(s) or CGRU(s, p) for one grid [maps, length, width], place by place."""
    maps, length, width = state.shape

    def compute(part: torch.nn.Conv2d, first: int, inputs: Tensor) -> Tensor:
        """W * s, or W * s + W' * p, for one of the stacked kernels."""
        assert part.bias is not None
        weight, bias = part.weight[first : first + maps], part.bias[first : first + maps]
        outputs = torch.empty_like(state)
        for position in range(length):
            for column in range(width):
                outputs[:, position, column] = convolve(weight[:, :maps], bias, inputs, position, column)
                if tape is not None:
                    of_tape = convolve(weight[:, maps:], torch.zeros_like(bias), tape, position, column)
                    outputs[:, position, column] += of_tape
        return outputs

    def gate(numbers: Tensor) -> Tensor:
        return numbers.clone().apply_(lambda x: max(0.0, min(1.0, 1.2 / (1 + math.exp(-x)) - 0.1)))

    update, reset = gate(compute(unit.gates, 0, state)), gate(compute(unit.gates, maps, state))
    return update * state + (1 - update) * torch.tanh(compute(unit.candidate, 0, reset * state))


def encode_plainly(unit: ConvolutionalGRU, embedding: torch.nn.Embedding, ids: Tensor, width: int) -> Tensor:
    """The grid after as many steps as there are symbols, which are in its first column before."""
    state = torch.zeros(embedding.embedding_dim, len(ids), width, dtype=torch.float64)
    for position, symbol in enumerate(ids.tolist()):
        state[:, position, 0] = torch.tanh(embedding.weight[symbol])
    for _ in ids:
        state = step_plainly(unit, state)
    return state


@torch.no_grad()
def make_distinct(network: torch.nn.Module) -> None:
    """Large parameters, biases too: every place of the grid, and every step, changes what comes out."""
    for parameter in network.parameters():
        parameter.normal_(std=0.4)


@pytest.mark.parametrize("has_tape", [False, True])
@torch.no_grad()
def test_a_step_is_the_formula_place_by_place(has_tape: bool) -> None:
    unit = ConvolutionalGRU(MAPS, has_tape=has_tape)
    state = torch.randn(MAPS, LENGTH, WIDTH)
    tape = torch.randn(MAPS, LENGTH, WIDTH) if has_tape else None
    found = unit(state[None], None if tape is None else tape[None])[0]
    torch.testing.assert_close(found, step_plainly(unit, state, tape), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_a_neural_gpu_is_its_formulas(width: int) -> None:
    network = NeuralGPU(SYMBOLS, MAPS, width).double()
    make_distinct(network)
    ids = torch.randint(0, SYMBOLS, (2, 5))
    for row, found in zip(ids, network(ids), strict=True):
        state = encode_plainly(network.unit, network.embedding, row, width)
        expected = [network.output.weight @ state[:, place, 0] + network.output.bias for place in range(5)]
        torch.testing.assert_close(found, torch.stack(expected))


@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_an_extended_neural_gpu_is_its_formulas(width: int) -> None:
    network = ExtendedNeuralGPU(SYMBOLS, MAPS, width).double()
    make_distinct(network)
    sources, targets = torch.randint(0, SYMBOLS, (2, 5)), torch.randint(0, SYMBOLS, (2, 4))
    for source, target, found in zip(sources, targets, network(sources, targets), strict=True):
        state = encode_plainly(network.encoder, network.source_embedding, source, width)
        tape = torch.zeros_like(state)
        for place, symbol in enumerate(target.tolist()):
            state = step_plainly(network.decoder, state, tape)
            expected = network.output.weight @ state[:, place, 0] + network.output.bias
            torch.testing.assert_close(found[place], expected)
            tape[:, place, 0] = torch.tanh(network.target_embedding.weight[symbol])


def test_the_number_of_parameters_is_that_of_the_formulas() -> None:
    m, output = 5, SYMBOLS * 5 + SYMBOLS
    unit, unit_with_tape = 3 * (9 * m * m + m), 3 * (18 * m * m + m)  # U and W are kernels of 3 by 3
    for width in (1, 4):
        networks = (NeuralGPU(SYMBOLS, m, width), ExtendedNeuralGPU(SYMBOLS, m, width))
        counts = [sum(parameter.numel() for parameter in network.parameters()) for network in networks]
        assert counts == [SYMBOLS * m + unit + output, 2 * SYMBOLS * m + unit + unit_with_tape + output]


@torch.no_grad()
def test_each_of_n_steps_drops_an_nth_part() -> None:
    """Units that keep nothing of their state give the candidates; an output that changes nothing shows them."""
    source, target = torch.randint(0, SYMBOLS, (300, 4)), torch.randint(0, SYMBOLS, (300, 3))
    gpu, extended = (made(SYMBOLS, SYMBOLS, WIDTH, dropout=0.8).train() for made in (NeuralGPU, ExtendedNeuralGPU))
    for network in (gpu, extended):
        network.output.weight.copy_(torch.eye(SYMBOLS))
        network.output.bias.zero_()
        for unit in network.modules():
            if isinstance(unit, ConvolutionalGRU):
                torch.nn.init.constant_(unit.gates.bias[:SYMBOLS], -100)  # type: ignore[index]
    for candidates in (gpu(source), extended.encode(source), extended(source, target)):
        assert (candidates == 0).float().mean().item() == pytest.approx(0.8 / 4, abs=0.03)


def test_a_cut_gate_reaches_its_ends() -> None:
    assert cut_sigmoid(torch.tensor([-10.0, 0.0, 10.0])).tolist() == [0, 0.5, 1]


def test_one_step_reaches_two_places_in_either_direction() -> None:
    unit = ConvolutionalGRU(MAPS)
    state = torch.randn(1, MAPS, 15, WIDTH, requires_grad=True)
    reached = state
    for steps in (1, 2, 3):
        reached = unit(reached)
        (gradient,) = torch.autograd.grad(reached[0, :, 7, 0].sum(), state, retain_graph=True)
        touched = gradient.abs().sum(dim=(0, 1, 3)).nonzero().flatten().tolist()
        assert touched == list(range(7 - 2 * steps, 7 + 2 * steps + 1))


def test_dropout_spares_the_state_itself() -> None:
    unit = ConvolutionalGRU(MAPS).train()
    state = torch.randn(1, MAPS, LENGTH, WIDTH)
    with torch.no_grad():
        torch.nn.init.constant_(unit.gates.bias[:MAPS], 100)  # type: ignore[index]
    torch.testing.assert_close(unit(state, dropout=0.9), state)
    with torch.no_grad():
        torch.nn.init.constant_(unit.gates.bias[:MAPS], -100)  # type: ignore[index]
    assert (unit(state, dropout=0.9) == 0).any()
    assert not (unit.eval()(state, dropout=0.9) == 0).any()


def test_symbols_are_in_the_first_column_alone() -> None:
    embedding = torch.nn.Embedding(SYMBOLS, MAPS)
    ids = torch.tensor([[1, 2, 3]])
    state = embed_column(embedding, ids, WIDTH)
    assert state.shape == (1, MAPS, 3, WIDTH)
    assert (state[..., 1:] == 0).all()
    torch.testing.assert_close(state[0, :, 1, 0], embedding.weight[2].tanh())


def test_a_neural_gpu_gives_logits_for_every_place_and_sentence_by_itself() -> None:
    network = NeuralGPU(SYMBOLS, 4, WIDTH).eval()
    ids = torch.randint(0, SYMBOLS, (5, 9))
    logits = network(ids)
    assert logits.shape == (5, 9, SYMBOLS)
    torch.testing.assert_close(network(ids[2:3]), logits[2:3])


@torch.no_grad()
def test_every_symbol_of_a_source_counts_for_every_place() -> None:
    network = NeuralGPU(SYMBOLS, 8, WIDTH).eval().double()
    ids = torch.randint(1, SYMBOLS, (1, 9))
    before = network(ids)
    for position in range(9):
        changed = ids.clone()
        changed[0, position] = 0
        assert ((network(changed) != before).any(dim=-1)).all()


@torch.no_grad()
def test_logits_of_an_extended_neural_gpu_depend_on_earlier_symbols_alone() -> None:
    network = ExtendedNeuralGPU(SYMBOLS, 4, WIDTH).eval().double()
    source, target = torch.randint(0, SYMBOLS, (2, 8)), torch.randint(1, SYMBOLS, (2, 6))
    logits = network(source, target)
    assert logits.shape == (2, 6, SYMBOLS)
    for position in range(6):
        changed = target.clone()
        changed[:, position] = 0
        is_same = (network(source, changed) == logits).all(dim=-1).all(dim=0)
        assert is_same[: position + 1].all()
        assert not is_same[position + 1 :].any()


@torch.no_grad()
def test_generated_symbols_are_the_best_after_each_other() -> None:
    network = ExtendedNeuralGPU(SYMBOLS, 4, WIDTH).eval().double()
    make_distinct(network)
    source = torch.randint(0, SYMBOLS, (100, 8))
    generated = network.generate(source, 7)
    assert generated.shape == (100, 7)
    assert (network(source, generated).argmax(dim=-1) == generated).all()
