import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.model import (
    EXCLUDED_TOKEN_BIAS,
    LearnedPositions,
    NoPositions,
    OutputProjection,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
    Transformer,
    sinusoids,
)
from transduce.training.optimization.loss import label_smoothed_cross_entropy


def test_a_vector_for_each_token_times_the_root_of_d_model(make_model: Callable[..., Transformer]) -> None:
    embedding = make_model().source_embedding
    ids = torch.tensor([[3, 0, 22]])
    assert torch.equal(embedding(ids), embedding.weight[ids] * math.sqrt(16))


def test_pad_is_the_zero_vector(variant: dict[str, object], small_config: Callable[..., TransformerConfig]) -> None:
    model = Transformer(small_config(**variant))
    for embedding in (model.source_embedding, model.target_embedding):
        assert (embedding(torch.tensor([[model.pad_id]])) == 0).all()
        assert (embedding(torch.tensor([list(range(model.pad_id))])) != 0).any(dim=-1).all()


def test_the_logit_of_pad_is_never_finite_and_all_others_are_products() -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight)
    hidden = torch.randn(3, 5, 8)
    logits = projection(hidden)
    torch.testing.assert_close(logits[..., :-1], hidden @ projection.weight[:-1].T)
    assert (logits[..., -1] == -torch.inf).all()
    assert (logits.softmax(dim=-1)[..., -1] == 0).all()


def test_a_bias_is_added_to_every_logit_but_that_of_pad() -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2, output_bias=True)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight)
    torch.nn.init.normal_(projection.bias)
    hidden = torch.randn(3, 5, 8)
    logits = projection(hidden)
    torch.testing.assert_close(logits[..., :-1], hidden @ projection.weight[:-1].T + projection.bias[:-1])
    assert (logits[..., -1] == -torch.inf).all()
    logits.softmax(dim=-1)[..., 2].sum().backward()
    assert projection.bias.grad[-1] == 0
    assert projection.bias.grad[:-1].count_nonzero() == 6


def test_a_bias_is_zero_before_training_and_there_only_if_asked_for(
    make_model: Callable[..., Transformer], small_config: Callable[..., TransformerConfig]
) -> None:
    assert Transformer(small_config()).projection.bias is None
    biased = Transformer(small_config(output_bias=True))
    assert biased.projection.bias.count_nonzero() == 0
    assert biased.num_parameters == Transformer(small_config()).num_parameters + 23


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_bias_can_rule_a_token_out_in_every_precision(dtype: torch.dtype) -> None:
    config = TransformerConfig(vocabulary=7, d_model=8, num_heads=2, output_bias=True)
    projection = OutputProjection(config, TokenEmbedding(config))
    torch.nn.init.normal_(projection.weight, std=100.0)
    torch.nn.init.zeros_(projection.bias)
    with torch.no_grad():
        projection.bias[3] = EXCLUDED_TOKEN_BIAS
    logits = projection(torch.randn(50, 8).to(dtype))
    assert (logits.softmax(dim=-1)[:, 3] == 0).all()
    assert logits.softmax(dim=-1).isfinite().all()
    assert (logits.argmax(dim=-1) != 3).all()


@pytest.mark.parametrize("tied_embeddings", ["three_way", "two_way", "none"])
def test_training_leaves_pad_at_zero(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[torch.Tensor, ...]], tied_embeddings: str
) -> None:
    model = make_model(tied_embeddings=tied_embeddings, dropout=0.2).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-9)
    source_ids, source_mask, target_ids, target_mask = make_example([3, 5], [4, 2])
    matrices = (model.source_embedding.weight, model.target_embedding.weight, model.projection.weight)
    before = [matrix.detach().clone() for matrix in matrices]
    for _ in range(3):
        optimizer.zero_grad()
        hidden = model.decode_hidden(target_ids, target_mask, model.encode(source_ids, source_mask), source_mask)
        losses = label_smoothed_cross_entropy(
            hidden[target_mask], model.projection.weight, target_ids[target_mask], smoothing=0.1
        )
        losses.loss.backward()
        for matrix in matrices:
            assert matrix.grad is not None
            assert (matrix.grad[-1] == 0).all()
            assert (matrix.grad[:-1] != 0).any()
        optimizer.step()
    for matrix, old in zip(matrices, before, strict=True):
        assert (matrix[-1] == 0).all()
        assert not torch.equal(matrix, old)


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


def test_sinusoids_beyond_the_table_are_on_its_device_whatever_pytorchs_default_is() -> None:
    positions = SinusoidalPositions(6)
    with torch.device("meta"):
        found = positions(7, 2000)
    assert torch.equal(found, sinusoids(7, 6, 2000))


@pytest.mark.parametrize("k", [-3, 0, 1, 2, 10, 100, 1000])
def test_a_step_of_k_is_one_linear_map_wherever_it_starts(k: int) -> None:
    here, there = sinusoids(60, D_MODEL, 10), sinusoids(60, D_MODEL, 10 + k)
    torch.testing.assert_close(here.double() @ rotation(k).T, there.double(), atol=1e-6, rtol=0)


def test_no_position_is_beyond_the_table() -> None:
    positions = SinusoidalPositions(D_MODEL)
    kept = positions.rows_kept
    assert_formula(positions(5, kept - 5), kept - 5)
    assert_formula(positions(5, kept - 2), kept - 2)
    assert_formula(positions(3, 3 * kept), 3 * kept)
    assert_formula(positions(kept + 3), 0)


def test_one_position_at_a_time_is_the_same() -> None:
    positions = SinusoidalPositions(D_MODEL)
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


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "rotary", "none"])
def test_the_encoder_knows_the_order_by_positions_alone(
    make_model: Callable[..., Transformer], make_example: Callable[..., tuple[Tensor, ...]], positions: str
) -> None:
    model = make_model(positions=positions)
    source_ids, source_mask, *_ = make_example([6], [1])
    backwards = model.encode(source_ids.flip(1), source_mask).flip(1)
    same = torch.allclose(model.encode(source_ids, source_mask), backwards, atol=1e-5)
    assert same == (positions == "none")


def test_tables_that_follow_from_the_configuration_are_not_saved(make_model: Callable[..., Transformer]) -> None:
    for positions in ("sinusoidal", "relative", "rotary"):
        assert not [name for name in make_model(positions=positions).state_dict() if "positions" in name]
    assert "positions.table" in make_model(positions="learned").state_dict()


D_K = 6


def turn_by_complex_numbers(vectors: Tensor, positions: Tensor) -> Tensor:
    """Each pair of components as a complex number, times e^(i · pos / 10000^(2j/d_k)) for pair j."""
    pairs = torch.complex(vectors[..., 0::2].double(), vectors[..., 1::2].double())
    frequencies = torch.tensor([10_000 ** (-2 * j / D_K) for j in range(D_K // 2)], dtype=torch.float64)
    angles = positions[:, None] * frequencies
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


@pytest.mark.parametrize("length", [1, 7, 1030])
def test_rotary_positions_multiply_complex_numbers(length: int) -> None:
    vectors = torch.randn(2, 3, length, D_K)
    expected = turn_by_complex_numbers(vectors, torch.arange(length))
    torch.testing.assert_close(RotaryPositions(D_K)(vectors).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("position", [0, 5, 1023, 1024, 70_000])
def test_new_queries_and_keys_may_all_have_one_position(position: int) -> None:
    vectors = torch.randn(2, 3, 4, D_K)
    expected = turn_by_complex_numbers(vectors, torch.full((4,), position))
    torch.testing.assert_close(RotaryPositions(D_K)(vectors, position).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shift", [1, 30, 1000, 40_000])
def test_the_product_of_turned_vectors_depends_on_their_distance_only(shift: int) -> None:
    torch.manual_seed(0)
    rotary = RotaryPositions(D_K)
    query, key = torch.randn(2, 1, 1, 1, D_K)
    for query_position, key_position in ((0, 0), (3, 9), (40, 2)):
        here, there = ((rotary(query, query_position + by) * rotary(key, key_position + by)).sum() for by in (0, shift))
        torch.testing.assert_close(there, here, atol=1e-5, rtol=1e-5)
    nearer, further = ((rotary(query, 3) * rotary(key, position)).sum() for position in (4, 9))
    assert abs(nearer - further) > 1e-2


def test_rotary_positions_turn_bfloat16_in_float32() -> None:
    vectors = torch.randn(1, 2, 900, D_K).bfloat16()
    turned = RotaryPositions(D_K)(vectors)
    assert turned.dtype == torch.bfloat16
    expected = turn_by_complex_numbers(vectors.float(), torch.arange(900))
    torch.testing.assert_close(turned.double(), expected, atol=1e-2, rtol=2**-8)
