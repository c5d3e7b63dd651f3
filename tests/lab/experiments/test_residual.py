"""Models without residual connections, measurements before training, and verdicts on depth."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from transduce.config import TransformerConfig
from transduce.data import Batch
from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.residual import (
    DEEP,
    DEPTHS,
    EXPERIMENT,
    INITIAL_DEPTH,
    SHALLOW,
    WITH,
    WITHOUT,
    make_model,
    measure_initial_model,
    measure_spread,
    remove_residual_connections,
    train_model,
)
from transduce.lab.laboratory import count_as_diverged
from transduce.model import ResidualConnection, Transformer, source_attention_mask
from transduce.training import Updater
from transduce.training.model_selection.stopping import MAX_SKIPPED_IN_A_ROW
from transduce.training.optimization.updater import UpdateFigures


def make_tiny_model(depth: int = 2) -> Transformer:
    torch.manual_seed(1)
    return Transformer(
        TransformerConfig(
            vocabulary=20,
            num_encoder_layers=depth,
            num_decoder_layers=depth,
            d_model=16,
            d_ff=32,
            num_heads=2,
            dropout=0.0,
        )
    )


def make_batch() -> Batch:
    sources, targets = [[3, 4, 5, 6, 1], [7, 8, 1]], [[9, 10, 1], [11, 12, 13, 1]]
    return Batch.from_ids(sources, targets, 19)


def test_what_is_left_is_the_normalised_sublayer() -> None:
    model, batch = make_tiny_model(), make_batch()
    remove_residual_connections(model)
    assert not any(isinstance(part, ResidualConnection) for part in model.modules())
    layer = model.encoder.layers[0]
    x = torch.randn(2, 5, 16)
    attention, mask = layer.self_attention, source_attention_mask(batch.source_mask)
    attended = F.layer_norm(attention.attend(*attention.project(x), mask), (16,))
    expected = F.layer_norm(layer.feed_forward(attended), (16,))
    torch.testing.assert_close(layer(x, batch.source_mask, mask), expected)


def test_both_models_have_the_same_initial_weights(planned: Laboratory) -> None:
    config = planned.make_config({}, 60, 1, "run").with_vocabulary(500)
    models = [make_model(config, connections) for connections in (WITH, WITHOUT)]
    assert models[0].num_parameters == models[1].num_parameters
    weights = [model.state_dict() for model in models]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


def test_spread_is_the_distance_from_the_mean() -> None:
    vectors = torch.randn(2, 4, 3)
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    expected = [float((rows - rows.mean(dim=0)).norm() / rows.norm()) for rows in (vectors[0, :3], vectors[1])]
    assert measure_spread(vectors, mask) == pytest.approx(sum(expected) / 2)
    assert measure_spread(torch.ones(2, 4, 3), mask) == 0
    opposite = torch.tensor([[[1.0, 2.0], [-1.0, -2.0]]])
    assert measure_spread(opposite, torch.ones(1, 2, dtype=torch.bool)) == pytest.approx(1)


def test_initial_gradients_are_those_of_the_layers() -> None:
    model, batch = make_tiny_model(), make_batch()
    found = measure_initial_model(model, batch)
    parts = [found[f"{stack} gradient, layer {layer}"] for stack in ("encoder", "decoder") for layer in (1, 2)]
    stacks = [*model.encoder.parameters(), *model.decoder.parameters()]
    gradients = torch.cat([one.grad.flatten() for one in stacks if one.grad is not None])
    assert math.hypot(*parts) == pytest.approx(float(gradients.norm()), rel=1e-5)
    assert 0 < found["query and key gradient, layer 1"] < 1


def test_without_residual_connections_vectors_become_alike() -> None:
    connected, unconnected = make_tiny_model(depth=8), make_tiny_model(depth=8)
    remove_residual_connections(unconnected)
    spreads = [measure_initial_model(model, make_batch())["spread, layer 8"] for model in (connected, unconnected)]
    assert spreads[1] < spreads[0] / 10


def test_training_lowers_the_loss(planned: Laboratory) -> None:
    for connections in (WITH, WITHOUT):
        found = train_model(planned, 1, connections, 30, 1)
        assert found["loss"] < math.log(499) - 0.5
        assert 0 <= found["accuracy"] <= 1


def test_updates_that_are_never_finite_are_divergence(planned: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    updated, update = [], Updater.update

    def fail(self: Updater, number: int, batches: list[Batch]) -> UpdateFigures:
        figures = update(self, number, batches)
        updated.append(number)
        return replace(figures, gradient_norm=math.inf)

    monkeypatch.setattr(Updater, "update", fail)
    assert train_model(planned, 1, WITH, 30, 1) == count_as_diverged(500)
    assert len(updated) == MAX_SKIPPED_IN_A_ROW


def test_initial_and_trained_models_are_planned(planned: Laboratory) -> None:
    settings = [trial.settings for trial in EXPERIMENT.plan(planned)]
    assert settings[:2] == [{"initial": WITH}, {"initial": WITHOUT}]
    assert settings[2:] == [
        {"connections": connections, "depth": depth} for depth in DEPTHS for connections in (WITH, WITHOUT)
    ]


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [([1.2, 1.21, 1.22], "supported"), ([-1.2, -1.21, -1.22], "not supported"), ([-1.2, 1.2, 0.1], "not decided")],
)
def test_verdicts(
    make_up: Callable[..., list[Measurement]], judge: Callable[..., list[str]], gain: list[float], verdict: str
) -> None:
    def trained(connections: str, depth: int, factor: int) -> list[Measurement]:
        return make_up({"connections": connections, "depth": depth}, loss=[5 + factor * value for value in gain])

    def initial(connections: str, factor: int) -> list[Measurement]:
        names = (f"{quantity}, layer {INITIAL_DEPTH}" for quantity in ("spread", "query and key gradient"))
        return make_up({"initial": connections}, **{name: [10 ** (factor * value) for value in gain] for name in names})

    measurements = trained(WITH, DEEP, 0) + trained(WITH, SHALLOW, 1) + trained(WITHOUT, DEEP, 1)
    measurements += trained(WITHOUT, SHALLOW, 0) + initial(WITH, 1) + initial(WITHOUT, 0)
    assert judge(EXPERIMENT, measurements) == 5 * [verdict]
    assert judge(EXPERIMENT, trained(WITH, DEEP, 0)) == 5 * ["not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("residual")
