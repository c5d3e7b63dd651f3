import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor
from torch.nn import functional as F

from transduce.config import PRESETS, TransformerConfig
from transduce.model import (
    AdditiveScore,
    GatedFeedForward,
    LearnedPositions,
    MultiHeadAttention,
    Transformer,
    cross_attention_weights,
)

Examples = Callable[..., Any]
Models = Callable[..., Transformer]


@torch.no_grad()
def test_a_target_token_decides_only_what_comes_after_it(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    model, example = make_model(**variant), make_example([3, 5], [4, 4])
    logits = model(*example)
    for t in range(4):
        changed_ids = example.target_ids.clone()
        changed_ids[:, t] = (changed_ids[:, t] + 5) % 22
        changed = model(*example._replace(target_ids=changed_ids))
        assert torch.equal(changed[:, : t + 1], logits[:, : t + 1])
        differs = (changed[:, t + 1 :] - logits[:, t + 1 :])[..., :-1].abs().amax(dim=-1) > 1e-4
        assert differs.all()


def test_no_gradient_flows_from_the_future(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model, example = make_model(**variant), make_example([3, 5], [4, 4])
    memory = model.encode(example.source_ids, example.source_mask)
    inputs = torch.randn(2, 4, 16, requires_grad=True)
    logits = model.projection(model.decoder(inputs, example.target_mask, memory, example.source_mask))[..., :-1]
    for t in range(4):
        (gradient,) = torch.autograd.grad(logits[:, t].square().sum(), inputs, retain_graph=True)
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, : t + 1] != 0).any(dim=-1).all()


@torch.no_grad()
def test_padding_changes_nothing(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model = make_model(**variant).double()
    sources, targets = [4, 1, 6], [2, 5, 1]
    padded, other_padding = make_example(sources, targets, length=9), make_example(sources, targets, length=9, pad=3)
    logits = model(*padded)
    mask = padded.target_mask
    assert torch.equal(logits[mask], model(*other_padding)[mask])
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_ids, source_mask = padded.source_ids[row, None, :source], padded.source_mask[row, None, :source]
        target_ids, target_mask = padded.target_ids[row, None, :target], padded.target_mask[row, None, :target]
        alone = model(source_ids, source_mask, target_ids, target_mask)
        torch.testing.assert_close(logits[row, None, :target], alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize("normalization", ["layer", "batch", "rms"])
def test_padding_changes_nothing_in_training(
    normalization: str, norm_order: str, make_model: Models, make_example: Examples
) -> None:
    """With batch normalisation a sentence depends on its batch, but not on how far the batch is padded."""
    results = []
    for length, pad in ((0, 22), (11, 22), (11, 3)):
        model = make_model(normalization=normalization, norm_order=norm_order).double().train()
        example = make_example([4, 1, 6], [2, 5, 1], length=length, pad=pad)
        logits = model(*example)[example.target_mask][:, :-1]
        logits.logsumexp(dim=-1).sum().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        statistics = torch.cat(
            [
                torch.zeros(1, dtype=torch.float64),
                *(buffer for name, buffer in model.named_buffers() if "running" in name),
            ]
        )
        results.append((logits, gradients, statistics))
    assert (len(results[0][2]) > 1) == (normalization == "batch")
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("sources", "targets"), [([1], [1]), ([1, 1], [1, 1]), ([4, 4], [3, 3]), ([1, 7, 3], [6, 1, 2])]
)
def test_logits_and_gradients_are_finite_for_every_shape_of_batch(
    variant: dict[str, Any],
    make_model: Models,
    make_example: Examples,
    sources: list[int],
    targets: list[int],
) -> None:
    model = make_model(**variant | {"dropout": 0.1}).train()
    example = make_example(sources, targets)
    logits = model(*example)
    assert logits[..., :-1].isfinite().all()
    assert (logits[..., -1] == -torch.inf).all()
    F.cross_entropy(logits[example.target_mask], example.target_ids[example.target_mask]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_bfloat16_comes_close(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model, example = make_model(**variant), make_example([4, 1, 6], [2, 5, 1])
    exact = model(*example)[example.target_mask].softmax(dim=-1)
    model.compute_dtype = torch.bfloat16
    rough = model(*example)[example.target_mask].float().softmax(dim=-1)
    torch.testing.assert_close(rough, exact, atol=0.15, rtol=0)
    F.cross_entropy(rough, example.target_ids[example.target_mask]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


@torch.no_grad()
def test_the_source_is_read_to_its_end(variant: dict[str, Any], make_model: Models, make_example: Examples) -> None:
    model, example = make_model(**variant), make_example([4, 6], [5, 5])
    logits = model(*example)
    for row, last in ((0, 3), (1, 5)):
        changed_ids = example.source_ids.clone()
        changed_ids[row, last] = (changed_ids[row, last] + 5) % 22
        changed = model(*example._replace(source_ids=changed_ids))
        assert not torch.allclose(changed[row, :, :-1], logits[row, :, :-1], atol=1e-4)
        assert torch.equal(changed[1 - row], logits[1 - row])


def test_the_decoder_reads_the_target_behind_nothing(make_model: Models) -> None:
    model = make_model()
    assert model.pad_id == 22
    assert model.shift_right(torch.tensor([[5, 6, 1], [7, 1, 22]])).tolist() == [[22, 5, 6], [22, 7, 1]]
    assert model.shift_right(torch.tensor([[1]])).tolist() == [[22]]


@torch.no_grad()
def test_forward_is_encode_and_decode(make_model: Models, make_example: Examples) -> None:
    model, example = make_model(), make_example([4, 6], [5, 3])
    memory = model.encode(example.source_ids, example.source_mask)
    hidden = model.decode_hidden(example.target_ids, example.target_mask, memory, example.source_mask)
    assert torch.equal(model(*example), model.projection(hidden))


def shared(model: Transformer) -> tuple[bool, bool]:
    source, target = model.source_embedding.weight, model.target_embedding.weight
    return source is target, target is model.projection.weight


@pytest.mark.parametrize(
    ("tied_embeddings", "expected"), [("three_way", (True, True)), ("two_way", (False, True)), ("none", (False, False))]
)
def test_embeddings_share_what_the_configuration_says_and_go_on_sharing(
    make_model: Models, make_example: Examples, tied_embeddings: str, expected: tuple[bool, bool]
) -> None:
    model = make_model(tied_embeddings=tied_embeddings)
    assert shared(model) == expected
    num_matrices = 1 + expected.count(False)
    assert model.num_parameters - make_model().num_parameters == (num_matrices - 1) * 23 * 16
    other = make_model(tied_embeddings=tied_embeddings)
    with torch.no_grad():
        other.target_embedding.weight[:-1] += 1
    model.load_state_dict(other.state_dict())
    assert shared(model) == expected
    assert torch.equal(model.projection.weight, other.projection.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    assert sum(parameter.numel() for parameter in model.parameters()) == model.num_parameters
    example = make_example([4], [3])
    F.cross_entropy(model(*example)[0], example.target_ids[0]).backward()
    optimizer.step()
    assert shared(model) == expected
    assert not torch.equal(model.projection.weight, other.projection.weight)


def count_by_formula(config: TransformerConfig) -> int:
    """Trainable numbers, counted from the paper's formulas."""
    d_model, keys, values = config.d_model, config.num_heads * config.d_k, config.num_heads * config.d_v
    attention = 2 * (d_model * keys + keys) + d_model * values + values + values * d_model + d_model
    feed_forward = d_model * config.d_ff + config.d_ff + config.d_ff * d_model + d_model
    norm = 2 * d_model
    encoder = config.num_encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = config.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    matrices = {"three_way": 1, "two_way": 2, "none": 3}[config.tied_embeddings]
    learned = config.max_positions * d_model if config.positions == "learned" else 0
    final = 2 * norm if config.norm_order == "pre" else 0
    return matrices * config.vocabulary * d_model + learned + encoder + decoder + final


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_the_parameters_of_the_formula(preset: str) -> None:
    config = TransformerConfig(**PRESETS[preset].get("model", {}))
    with torch.device("meta"):
        model = Transformer(config)
    assert model.num_parameters == count_by_formula(config)


def test_the_base_model_has_63_million_parameters() -> None:
    with torch.device("meta"):
        assert Transformer(TransformerConfig()).num_parameters == 63_082_496


def test_pre_norm_has_two_norms_more(make_model: Models) -> None:
    assert make_model(norm_order="pre").num_parameters - make_model().num_parameters == 2 * 2 * 16


@pytest.mark.usefixtures("checked_types")
@pytest.mark.parametrize("wrong", ["source_mask", "target_mask"])
def test_a_mask_of_another_shape_is_refused(make_model: Models, make_example: Examples, wrong: str) -> None:
    example = make_example([4, 6], [5, 3])
    mask: Tensor = getattr(example, wrong)
    with pytest.raises(TypeCheckError, match="batch=2"):
        make_model()(*example._replace(**{wrong: mask[:1]}))


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(
        TransformerConfig(
            vocabulary=3000,
            num_encoder_layers=1,
            num_decoder_layers=1,
            d_model=128,
            d_ff=512,
            num_heads=4,
            d_k=8,
            d_v=64,
            positions="learned",
            attention_score="additive",
            tied_embeddings="none",
        )
    )


def assert_glorot(matrix: Tensor) -> None:
    """Uniform between plus and minus sqrt(6 / (columns + rows)), of variance 2 / (columns + rows)."""
    bound = math.sqrt(6 / sum(matrix.shape))
    assert matrix.abs().max() <= bound
    assert matrix.abs().max() > 0.9 * bound
    if matrix.numel() > 1000:
        assert matrix.var().item() == pytest.approx(2 / sum(matrix.shape), rel=0.1)


def test_the_three_projections_have_bounds_of_their_own(model: Transformer) -> None:
    attentions = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    assert len(attentions) == 3
    for attention in attentions:
        queries, keys, values = attention.projection.weight.split([4 * 8, 4 * 8, 4 * 64])
        for matrix in (queries, keys, values, attention.output.weight):
            assert_glorot(matrix)
        assert values.abs().max() < 0.8 * queries.abs().max()


def test_matrices_of_the_feed_forward_networks_and_of_additive_scores(model: Transformer) -> None:
    for layer in (*model.encoder.layers, *model.decoder.layers):
        assert_glorot(layer.feed_forward.inner.weight)
        assert_glorot(layer.feed_forward.outer.weight)
    for part in model.modules():
        if isinstance(part, AdditiveScore):
            assert_glorot(part.query_weight)
            assert_glorot(part.key_weight)
            assert part.hidden_weight.abs().max() <= math.sqrt(6 / (1 + 8))


def test_gated_networks_draw_three_matrices(small_config: Callable[..., TransformerConfig]) -> None:
    torch.manual_seed(0)
    gated = Transformer(small_config(feed_forward="gated", d_model=64, d_ff=128)).encoder.layers[0].feed_forward
    assert isinstance(gated, GatedFeedForward)
    for part in (gated.inner, gated.gate, gated.outer):
        assert_glorot(part.weight)
        assert part.bias.count_nonzero() == 0
    assert not torch.equal(gated.inner.weight, gated.gate.weight)


def test_vectors_of_distances_are_drawn(small_config: Callable[..., TransformerConfig]) -> None:
    torch.manual_seed(0)
    model = Transformer(small_config(positions="relative", d_k=64, d_v=64))
    tables = {name: table for name, table in model.named_parameters() if ".score.relative_" in name}
    assert len(tables) == 2 * 4
    for name, table in tables.items():
        assert "self_attention" in name
        assert table.shape == (33, 64)
        assert_glorot(table)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_positions_of_attention_have_no_beginning(make_model: Models, make_example: Examples, positions: str) -> None:
    """What follows from distances alone is the same in the middle of a sentence whose first tokens are not seen."""
    model = make_model(positions=positions, max_relative_distance=3).double()
    source_ids, _, *_ = make_example([9], [1])
    x, shifted = (model.source_embedding(ids) for ids in (source_ids[:, 4:], source_ids))
    layer = model.encoder.layers[0]
    hides_first = (torch.arange(9) >= 4)[None]
    all_real = torch.ones(1, 5, dtype=torch.bool)
    expected = layer(x, all_real, all_real[:, None, None])
    found = layer(shifted, hides_first, hides_first[:, None, None])
    torch.testing.assert_close(found[:, 4:], expected, atol=1e-6, rtol=1e-6)


def test_embeddings_have_variance_one_at_the_input(model: Transformer) -> None:
    for matrix in (model.source_embedding.weight, model.target_embedding.weight, model.projection.weight):
        assert matrix[:-1].var().item() == pytest.approx(1 / 128, rel=0.03)
        assert matrix[:-1].mean().item() == pytest.approx(0, abs=1e-3)
    inputs = model.source_embedding(torch.arange(2999)[None])
    assert inputs.var().item() == pytest.approx(1, rel=0.03)
    assert not torch.equal(model.source_embedding.weight, model.target_embedding.weight)
    assert isinstance(model.positions, LearnedPositions)
    assert model.positions.table.var().item() == pytest.approx(1 / 128, rel=0.03)


def test_biases_are_zero_and_normalisations_change_nothing(model: Transformer) -> None:
    vectors = {name: parameter for name, parameter in model.named_parameters() if parameter.dim() == 1}
    assert any(name.endswith("gain") for name in vectors)
    for name, vector in vectors.items():
        assert (vector == (1 if name.endswith("gain") else 0)).all(), name


def test_every_parameter_is_drawn() -> None:
    """The seed decides all of them: none is what happened to be in the memory."""
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        config = TransformerConfig(vocabulary=50, d_model=16, num_heads=2, d_ff=8, attention_score="additive")
        weights.append(Transformer(config).state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@torch.no_grad()
def test_weights_times_values_are_what_the_layer_itself_puts_out(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    model, example = make_model(**variant), make_example([3, 7, 1], [4, 2, 6])
    attentions = [layer.cross_attention for layer in model.decoder.layers]
    outputs: list[Tensor] = []
    for attention in attentions:
        attention.output.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    model(*example)
    own = outputs.copy()
    memory = model.encode(example.source_ids, example.source_mask)
    for attention, weights, output in zip(attentions, cross_attention_weights(model, *example), own, strict=True):
        assert weights.shape == (3, model.config.num_heads, 6, 7)
        values = attention.project_memory(memory).values
        attended = attention.output((weights @ values).transpose(1, 2).flatten(2))
        torch.testing.assert_close(attended, output, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_weights_are_shares_of_the_real_source(
    variant: dict[str, Any], make_model: Models, make_example: Examples
) -> None:
    example = make_example([3, 7, 1], [4, 2, 6])
    for weights in cross_attention_weights(make_model(**variant), *example):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
        assert (weights[~example.source_mask[:, None, None, :].expand_as(weights)] == 0).all()


@torch.no_grad()
def test_a_row_belongs_to_the_token_that_it_predicts(make_model: Models, make_example: Examples) -> None:
    """Changing token t changes rows from t + 1 on, which read it, and none up to t."""
    model, example = make_model(), make_example([5], [6])
    changed_ids = example.target_ids.clone()
    changed_ids[:, 3] = (changed_ids[:, 3] + 5) % 22
    both = zip(
        cross_attention_weights(model, *example),
        cross_attention_weights(model, *example._replace(target_ids=changed_ids)),
        strict=True,
    )
    for before, after in both:
        assert torch.equal(before[:, :, :4], after[:, :, :4])
        assert ((before - after)[:, :, 4:].abs().amax(dim=-1) > 1e-6).all()
