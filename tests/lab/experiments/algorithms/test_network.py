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


@pytest.mark.parametrize("has_tape", [False, True])
@torch.no_grad()
def test_a_step_is_the_formula_place_by_place(has_tape: bool) -> None:
    unit = ConvolutionalGRU(MAPS, has_tape=has_tape)
    state, tape = torch.randn(MAPS, LENGTH, WIDTH), torch.randn(MAPS, LENGTH, WIDTH)

    def compute(part: torch.nn.Conv2d, first: int, inputs: Tensor) -> Tensor:
        """W * s, or W * s + W' * p, for one of the stacked kernels."""
        assert part.bias is not None
        weight, bias = part.weight[first : first + MAPS], part.bias[first : first + MAPS]
        outputs = torch.empty(MAPS, LENGTH, WIDTH)
        for position in range(LENGTH):
            for column in range(WIDTH):
                outputs[:, position, column] = convolve(weight[:, :MAPS], bias, inputs, position, column)
                if has_tape:
                    of_tape = convolve(weight[:, MAPS:], torch.zeros(MAPS), tape, position, column)
                    outputs[:, position, column] += of_tape
        return outputs

    def gate(numbers: Tensor) -> Tensor:
        return numbers.clone().apply_(lambda x: max(0.0, min(1.0, 1.2 / (1 + math.exp(-x)) - 0.1)))

    update, reset = gate(compute(unit.gates, 0, state)), gate(compute(unit.gates, MAPS, state))
    expected = update * state + (1 - update) * torch.tanh(compute(unit.candidate, 0, reset * state))
    found = unit(state[None], tape[None] if has_tape else None)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


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
    network = ExtendedNeuralGPU(SYMBOLS, 4, WIDTH).eval()
    source = torch.randint(0, SYMBOLS, (3, 8))
    generated = network.generate(source, 7)
    assert generated.shape == (3, 7)
    assert (network(source, generated).argmax(dim=-1) == generated).all()
