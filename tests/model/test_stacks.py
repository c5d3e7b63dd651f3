"""Decoding token by token, with what need not be computed again kept in a state."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.model import DecoderState, SinusoidalPositions, Transformer

CHOICES: dict[str, Sequence[str]] = {
    "attention_score": ("scaled_dot", "dot", "additive"),
    "norm_order": ("post", "pre"),
    "normalization": ("layer", "batch", "rms"),
    "positions": ("sinusoidal", "learned", "none", "rotary", "relative"),
    "tied_embeddings": ("three_way", "two_way", "none"),
}
COMBINATIONS = [
    pytest.param(
        dict(zip(CHOICES, values, strict=True)),
        id="-".join(values),
        # Those that are not exhaustive have any two choices together.
        marks=[pytest.mark.exhaustive]
        if sum(list(of).index(value) for of, value in zip(CHOICES.values(), values, strict=True)) % 3
        else [],
    )
    for values in itertools.product(*CHOICES.values())
    if "additive" not in values or not {"relative", "rotary"} & set(values)
]


def step_by_step(model: Transformer, state: DecoderState, tokens: Tensor) -> tuple[Tensor, DecoderState]:
    """Logits after each of `tokens`, read one at a time."""
    logits = []
    for last_ids in tokens.unbind(dim=1):
        step_logits, state = model.decode_step(last_ids, state)
        logits.append(step_logits)
    return torch.stack(logits, dim=1), state


@torch.no_grad()
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_token_by_token_is_the_same_as_all_at_once(
    make_model: Callable[..., Transformer],
    make_example: Callable[..., tuple[Tensor, ...]],
    combination: dict[str, Any],
) -> None:
    model = make_model(d_k=6, d_v=5, num_encoder_layers=1, max_relative_distance=2, **combination).double()
    source_ids, source_mask, target_ids, target_mask = make_example([5, 1, 3], [4, 4, 4])
    memory = model.encode(source_ids, source_mask)
    at_once = model.decode(target_ids, target_mask, memory, source_mask)
    cached, state = step_by_step(model, model.start(memory, source_mask), model.shift_right(target_ids))
    torch.testing.assert_close(cached, at_once, atol=1e-9, rtol=1e-9)
    assert state.length == 4


@torch.no_grad()
@pytest.mark.parametrize("index", [[2, 0, 1], [2, 2], [1]], ids=str)
def test_rows_that_are_exchanged_repeated_or_dropped_go_on_as_if_alone(
    variant: dict[str, Any],
    make_model: Callable[..., Transformer],
    make_example: Callable[..., tuple[Tensor, ...]],
    index: list[int],
) -> None:
    model = make_model(**variant).double()
    lengths = [4, 2, 3]
    source_ids, source_mask, target_ids, _ = make_example(lengths, [3, 3, 3])
    tokens = model.shift_right(target_ids)
    # Rows that were copied from one row part ways at once.
    rest = torch.randint(0, 22, (len(index), 2))
    state = model.start(model.encode(source_ids, source_mask), source_mask)
    _, before = step_by_step(model, state, tokens[:, :2])
    together, _ = step_by_step(model, before.reorder(torch.tensor(index)), rest)
    for new_row, row in enumerate(index):
        alone_ids, alone_mask = source_ids[row : row + 1, : lengths[row]], source_mask[row : row + 1, : lengths[row]]
        alone = model.start(model.encode(alone_ids, alone_mask), alone_mask)
        _, alone = step_by_step(model, alone, tokens[row : row + 1, :2])
        expected, _ = step_by_step(model, alone, rest[new_row : new_row + 1])
        torch.testing.assert_close(together[new_row : new_row + 1], expected, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_a_state_is_never_changed(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[Tensor, ...]]
) -> None:
    model = make_model()
    source_ids, source_mask, target_ids, _ = make_example([5, 2], [5, 5])
    _, state = step_by_step(model, model.start(model.encode(source_ids, source_mask), source_mask), target_ids[:, :2])
    first, _ = step_by_step(model, state, target_ids[:, 2:])
    state.reorder(torch.tensor([1, 0, 0]))
    step_by_step(model, state, target_ids[:, 2:].flip(1))
    again, _ = step_by_step(model, state, target_ids[:, 2:])
    assert torch.equal(first, again)
    assert state.length == 2
    assert all(keys.size(2) == values.size(2) == 2 for keys, values in state.past)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["sinusoidal", "relative", "rotary"])
def test_decoding_goes_on_beyond_the_kept_positions(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[Tensor, ...]], positions: str
) -> None:
    model = make_model(num_decoder_layers=1, positions=positions).double()
    kept = SinusoidalPositions.rows_kept
    source_ids, source_mask, target_ids, target_mask = make_example([3], [kept + 2])
    memory = model.encode(source_ids, source_mask)
    at_once = model.decode(target_ids, target_mask, memory, source_mask)
    before = model.decode(target_ids[:, :kept], target_mask[:, :kept], memory, source_mask)
    torch.testing.assert_close(at_once[:, :kept], before, atol=1e-9, rtol=1e-9)
    assert at_once[..., :-1].isfinite().all()
