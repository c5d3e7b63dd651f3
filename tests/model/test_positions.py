import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.model import LearnedPositions, NoPositions, SinusoidalPositions, Transformer, sinusoids

D_MODEL = 16


def formula(position: int) -> Tensor:
    """PE(position) with Python's own sine, cosine and power."""
    row = []
    for i in range(D_MODEL // 2):
        angle = position / 10_000 ** (2 * i / D_MODEL)
        row += [math.sin(angle), math.cos(angle)]
    return torch.tensor(row, dtype=torch.float64)


def assert_formula(rows: Tensor, start: int) -> None:
    expected = torch.stack([formula(start + row) for row in range(len(rows))])
    torch.testing.assert_close(rows.double(), expected, atol=1e-7, rtol=0)


def rotation(k: int) -> Tensor:
    """The linear map from PE(pos) to PE(pos + k): each pair of sine and cosine turned by k times its frequency."""
    blocks = []
    for i in range(D_MODEL // 2):
        turn = k / 10_000 ** (2 * i / D_MODEL)
        blocks.append(
            torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64)
        )
    return torch.block_diag(*blocks)


@pytest.mark.parametrize("start", [0, 7, 5000])
def test_sinusoids_are_the_formula(start: int) -> None:
    assert_formula(sinusoids(40, D_MODEL, start), start)


@pytest.mark.parametrize("k", [-3, 0, 1, 2, 10, 100, 1000])
def test_a_step_of_k_is_one_linear_map_wherever_it_starts(k: int) -> None:
    here, there = sinusoids(60, D_MODEL, 10), sinusoids(60, D_MODEL, 10 + k)
    torch.testing.assert_close(here.double() @ rotation(k).T, there.double(), atol=1e-6, rtol=0)


def test_no_position_is_beyond_the_table(small_config: Callable[..., TransformerConfig]) -> None:
    positions = SinusoidalPositions(small_config())
    kept = positions.rows_kept
    assert_formula(positions(5, kept - 5), kept - 5)
    assert_formula(positions(5, kept - 2), kept - 2)
    assert_formula(positions(3, 3 * kept), 3 * kept)
    assert_formula(positions(kept + 3), 0)


def test_one_position_at_a_time_is_the_same(small_config: Callable[..., TransformerConfig]) -> None:
    positions = SinusoidalPositions(small_config())
    torch.testing.assert_close(torch.cat([positions(1, start) for start in range(9)]), positions(9))


def test_learned_positions_end(small_config: Callable[..., TransformerConfig]) -> None:
    positions = LearnedPositions(small_config(max_positions=12))
    torch.nn.init.normal_(positions.table)
    assert torch.equal(positions(12), positions.table)
    assert torch.equal(positions(1, start=11), positions.table[11:])
    for length, start in ((13, 0), (1, 12)):
        with pytest.raises(UserError, match=r"position 13; .* up to 12 \(model.max_positions\)"):
            positions(length, start)


def test_none_is_zero(small_config: Callable[..., TransformerConfig]) -> None:
    assert torch.equal(NoPositions(small_config())(5, start=3), torch.zeros(5, 16))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_the_encoder_knows_the_order_by_positions_alone(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[Tensor, ...]], positions: str
) -> None:
    model = make_model(positions=positions)
    source_ids, source_mask, *_ = make_example([6], [1])
    backwards = model.encode(source_ids.flip(1), source_mask).flip(1)
    same = torch.allclose(model.encode(source_ids, source_mask), backwards, atol=1e-5)
    assert same == (positions == "none")


def test_tables_that_follow_from_the_configuration_are_not_saved(make_model: Callable[..., Transformer]) -> None:
    assert not [name for name in make_model().state_dict() if "positions" in name]
    assert "positions.table" in make_model(positions="learned").state_dict()
