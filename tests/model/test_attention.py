import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.model import (
    AdditiveScore,
    DotScore,
    KeysAndValues,
    MultiHeadAttention,
    RelativeScore,
    attention_weights,
    causal_attention_mask,
    source_attention_mask,
)

D_K, D_V = 3, 5
Score = DotScore | AdditiveScore


@pytest.fixture(params=["scaled_dot", "dot", "additive"])
def score(request: pytest.FixtureRequest) -> Score:
    torch.manual_seed(0)
    if request.param != "additive":
        return DotScore(D_K, scaled=request.param == "scaled_dot")
    additive = AdditiveScore(D_K)
    for parameter in additive.parameters():
        torch.nn.init.normal_(parameter)
    return additive


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    mask = torch.rand(2, 1, 3, 4) < 0.5
    mask[..., 0] = True
    return torch.randn(2, 2, 3, D_K), torch.randn(2, 2, 4, D_K), torch.randn(2, 2, 4, D_V), mask


def one_score(score: Score, query: list[float], key: list[float]) -> float:
    """Query and key compared by the formula, number by number."""
    if isinstance(score, AdditiveScore):
        w, u, v = score.query_weight.tolist(), score.key_weight.tolist(), score.hidden_weight[0].tolist()
        units = range(len(v))
        hidden = [sum(w[i][j] * query[j] + u[i][j] * key[j] for j in units) for i in units]
        return sum(v[i] * math.tanh(hidden[i]) for i in units)
    return sum(q * k for q, k in zip(query, key, strict=True)) * score.scale


def plain_attention(score: Score, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention as a loop over sentences, heads, queries and keys."""
    attended = torch.zeros(*queries.shape[:3], values.size(-1))
    for b, h, q in itertools.product(*map(range, queries.shape[:3])):
        seen = [k for k in range(keys.size(2)) if mask[b, 0, q, k]]
        exponentials = [math.exp(one_score(score, queries[b, h, q].tolist(), keys[b, h, k].tolist())) for k in seen]
        for k, exponential in zip(seen, exponentials, strict=True):
            attended[b, h, q] += exponential / sum(exponentials) * values[b, h, k]
    return attended


def test_attention_is_the_loop_over_queries_and_keys(
    score: Score, inputs: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    torch.testing.assert_close(score.attend(*inputs), plain_attention(score, *inputs), atol=1e-5, rtol=1e-5)


def test_the_fused_result_is_weights_times_values(score: Score, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, keys, values, mask = inputs
    weights = attention_weights(score, queries, keys, mask)
    torch.testing.assert_close(score.attend(queries, keys, values, mask), weights @ values, atol=1e-6, rtol=1e-6)


def test_weights_are_shares_of_what_may_be_seen(score: Score, inputs: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    queries, keys, _, mask = inputs
    weights = attention_weights(score, queries, keys, mask)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 2, 3))
    everywhere = mask.expand_as(weights)
    assert (weights[~everywhere] == 0).all()
    assert (weights[everywhere] > 0).all()


@pytest.mark.parametrize("d_k", [4, 64, 256])
def test_division_by_the_root_of_d_k_brings_the_variance_of_scores_to_one(d_k: int) -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 1, 1500, d_k), torch.randn(1, 1, 1500, d_k)
    assert DotScore(d_k, scaled=False)(queries, keys).var().item() == pytest.approx(d_k, rel=0.05)
    assert DotScore(d_k, scaled=True)(queries, keys).var().item() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("kind", ["scaled_dot", "dot", "additive"])
def test_the_configuration_chooses_the_score(small_config: Callable[..., TransformerConfig], kind: str) -> None:
    score = MultiHeadAttention(small_config(attention_score=kind, d_k=9)).score
    if kind == "additive":
        assert isinstance(score, AdditiveScore)
    else:
        assert isinstance(score, DotScore)
        assert score.scale == (1 / 3 if kind == "scaled_dot" else 1)


def test_heads_side_by_side_through_the_output_projection(small_config: Callable[..., TransformerConfig]) -> None:
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), d_k and d_v apart."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(small_config(d_k=D_K, d_v=D_V))
    torch.nn.init.normal_(attention.projection.bias)
    x, mask = torch.randn(2, 6, 16), causal_attention_mask(6, torch.device("cpu"))
    w_q, w_k, w_v = attention.projection.weight.split([4 * D_K, 4 * D_K, 4 * D_V])
    b_q, b_k, b_v = attention.projection.bias.split([4 * D_K, 4 * D_K, 4 * D_V])
    heads = []
    for head in range(4):
        keys_rows, values_rows = slice(D_K * head, D_K * (head + 1)), slice(D_V * head, D_V * (head + 1))
        queries, keys = x @ w_q[keys_rows].T + b_q[keys_rows], x @ w_k[keys_rows].T + b_k[keys_rows]
        values = x @ w_v[values_rows].T + b_v[values_rows]
        scores = (queries @ keys.transpose(1, 2) / math.sqrt(D_K)).masked_fill(~mask[0], -torch.inf)
        heads.append(scores.softmax(dim=-1) @ values)
    expected = attention.output(torch.cat(heads, dim=-1))
    torch.testing.assert_close(attention.attend(*attention.project(x), mask), expected, atol=1e-5, rtol=1e-5)


def test_parts_of_the_projection_are_the_whole(small_config: Callable[..., TransformerConfig]) -> None:
    attention = MultiHeadAttention(small_config(d_k=D_K, d_v=D_V))
    x = torch.randn(2, 6, 16)
    queries, (keys, values) = attention.project(x)
    torch.testing.assert_close(attention.project_queries(x), queries)
    torch.testing.assert_close(attention.project_memory(x), KeysAndValues(keys, values))


@pytest.fixture
def relative(small_config: Callable[..., TransformerConfig]) -> RelativeScore:
    torch.manual_seed(0)
    score = RelativeScore(small_config(positions="relative", max_relative_distance=2, d_k=D_K, d_v=D_V))
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter)
    return score


def loop_over_distances(
    score: RelativeScore, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Scores and attended values of Shaw et al. 2018, eq. 3 and 4, pair by pair; queries are the last positions."""
    num_queries, num_keys = queries.size(2), keys.size(2)
    scores = torch.zeros(*queries.shape[:3], num_keys)
    attended = torch.zeros(*queries.shape[:3], D_V)
    for b, h, q in itertools.product(*map(range, queries.shape[:3])):
        position = num_keys - num_queries + q
        rows = [max(-2, min(2, k - position)) + 2 for k in range(num_keys)]
        for k, row in enumerate(rows):
            scores[b, h, q, k] = queries[b, h, q] @ (keys[b, h, k] + score.relative_keys[row]) / math.sqrt(D_K)
        seen = [k for k in range(num_keys) if mask[b, 0, q, k]]
        for k, weight in zip(seen, scores[b, h, q, seen].softmax(dim=0), strict=True):
            attended[b, h, q] += weight * (values[b, h, k] + score.relative_values[rows[k]])
    return scores, attended


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 1), (6, 6), (1, 7), (3, 7), (18, 18)])
@pytest.mark.parametrize("has_gradients", [True, False])
def test_relative_positions_are_the_loop_over_pairs(
    relative: RelativeScore, num_queries: int, num_keys: int, *, has_gradients: bool
) -> None:
    queries, keys = torch.randn(2, 2, num_queries, D_K), torch.randn(2, 2, num_keys, D_K)
    values, mask = torch.randn(2, 2, num_keys, D_V), torch.rand(2, 1, num_queries, num_keys) < 0.6
    mask[..., 0] = True
    with torch.set_grad_enabled(has_gradients):
        scores, attended = loop_over_distances(relative, queries, keys, values, mask)
        torch.testing.assert_close(relative(queries, keys), scores, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(relative.attend(queries, keys, values, mask), attended, atol=1e-5, rtol=1e-5)


def test_gradients_of_relative_positions_are_those_of_the_loop(relative: RelativeScore) -> None:
    inputs = [torch.randn(1, 2, 6, width, requires_grad=True) for width in (D_K, D_K, D_V)]
    mask, parts = causal_attention_mask(6, torch.device("cpu")), [*inputs, *relative.parameters()]
    factors = torch.randn(1, 2, 6, D_V)
    found, expected = (
        torch.autograd.grad((attended * factors).sum(), parts)
        for attended in (relative.attend(*inputs, mask), loop_over_distances(relative, *inputs, mask)[1])
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_only_self_attention_has_relative_positions(small_config: Callable[..., TransformerConfig]) -> None:
    config = small_config(positions="relative", attention_score="dot", max_relative_distance=5)
    score = MultiHeadAttention(config, is_self_attention=True).score
    assert isinstance(score, RelativeScore)
    assert score.scale == 1
    assert {name: len(table) for name, table in score.named_parameters()} == {
        "relative_keys": 11,
        "relative_values": 11,
    }
    assert isinstance(MultiHeadAttention(config).score, DotScore)
    assert isinstance(MultiHeadAttention(small_config(), is_self_attention=True).score, DotScore)


def test_rotary_positions_turn_queries_and_keys_of_self_attention_alone(
    small_config: Callable[..., TransformerConfig],
) -> None:
    torch.manual_seed(0)
    config, x = small_config(positions="rotary"), torch.randn(2, 6, 16)
    turning, plain = MultiHeadAttention(config, is_self_attention=True), MultiHeadAttention(config)
    plain.load_state_dict(turning.state_dict())
    queries, (keys, values) = plain.project(x)
    turned = turning.project(x)
    assert turning.rotary_positions is not None
    torch.testing.assert_close(turned[0], turning.rotary_positions(queries))
    torch.testing.assert_close(turned[1], KeysAndValues(turning.rotary_positions(keys), values))
    assert not torch.allclose(turned[0], queries)
    torch.testing.assert_close(plain.project_queries(x), queries)
    torch.testing.assert_close(plain.project_memory(x), KeysAndValues(keys, values))


def test_every_query_sees_all_real_tokens_of_the_source() -> None:
    real = torch.tensor([[True, True, False], [True, False, False]])
    assert source_attention_mask(real).tolist() == [[[[True, True, False]]], [[[True, False, False]]]]


def test_a_position_sees_itself_and_what_is_before_it() -> None:
    mask = causal_attention_mask(4, torch.device("cpu"))
    assert all(bool(mask[0, 0, i, j]) == (j <= i) for i in range(4) for j in range(4))
