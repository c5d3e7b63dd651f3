"""Statistics of batches against theory and by definition, and verdicts on normalisation and warm-up."""

import math
from collections.abc import Callable

import pytest
import torch

from transduce.config import TransformerConfig
from transduce.data import Batch
from transduce.lab import Laboratory, Measurement, Results
from transduce.lab.experiments.normalization import (
    DEEP,
    EXPERIMENT,
    INITIAL_DEPTHS,
    KINDS,
    ORDERS,
    SHALLOW,
    fit_slopes,
    measure_difference_alone,
    measure_fluctuation,
    measure_last_gradient,
    measure_padding,
    read_inputs,
)
from transduce.model import BatchNormalization, Transformer
from transduce.training.optimization.loss import compute_losses


def make_tiny_model(normalization: str) -> Transformer:
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=20,
        num_encoder_layers=2,
        num_decoder_layers=2,
        d_model=16,
        d_ff=32,
        num_heads=2,
        dropout=0.0,
        normalization=normalization,  # type: ignore[arg-type]
    )
    return Transformer(config).eval()


def make_batch() -> Batch:
    sources, targets = [[3, 4, 5, 6, 1], [7, 8, 1], [9, 1]], [[9, 10, 1], [11, 12, 13, 1], [4, 1]]
    return Batch.from_ids(sources, targets, 19)


def test_a_sentence_alone_has_the_same_result_with_layer_normalisation_only() -> None:
    assert measure_difference_alone(make_tiny_model("layer"), make_batch()) < 1e-5
    assert measure_difference_alone(make_tiny_model("batch"), make_batch()) > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_measuring_changes_nothing(kind: str) -> None:
    model = make_tiny_model(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    measure_difference_alone(model, make_batch())
    measure_padding(model, make_batch(), 3)
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_inputs_are_those_whose_statistics_batch_normalisation_keeps() -> None:
    model, batch = make_tiny_model("batch"), make_batch()
    places = read_inputs(model, batch)
    model.train().encode(batch.source_ids, batch.source_mask)
    normalizations = [part for part in model.encoder.modules() if isinstance(part, BatchNormalization)]
    assert len(places) == len(normalizations) == 4
    for inputs, normalization in zip(places, normalizations, strict=True):
        assert len(inputs) == int(batch.source_mask.sum())
        torch.testing.assert_close(normalization.running_mean, normalization.momentum * inputs.mean(dim=0))


def test_independent_positions_fluctuate_by_chance() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = [3 + 2 * torch.randn(50, 64, generator=generator) for _ in range(100)]
    found = measure_fluctuation(inputs)
    assert found["mean by chance"] == pytest.approx(math.sqrt(1 / 50 - 1 / 5000))
    assert found["mean"] == pytest.approx(found["mean by chance"], rel=0.05)
    assert found["variance"] == pytest.approx(math.sqrt(2 / 50), rel=0.1)


def test_batches_that_differ_fluctuate_more() -> None:
    generator = torch.Generator().manual_seed(1)
    inputs = [sign + torch.randn(50, 64, generator=generator) for sign in (-1.0, 1.0) for _ in range(20)]
    # The mean of each batch is at -1 or 1, and the variance of all positions is 1 + 1.
    assert measure_fluctuation(inputs)["mean"] == pytest.approx(math.sqrt(1 / 2), rel=0.05)


def test_padding_shifts_the_mean_if_it_is_counted() -> None:
    model, batch = make_tiny_model("layer"), make_batch()
    share, shift = measure_padding(model, batch, 5)
    assert share == pytest.approx(1 - 10 / 30)
    assert shift > 0.05
    whole = Batch.from_ids([[3, 4, 1], [5, 6, 1]], [[7, 1], [8, 1]], 19)
    assert measure_padding(model, whole, 0) == (0, 0)


def test_last_gradient_is_that_of_the_mean_loss() -> None:
    model, batch = make_tiny_model("layer"), make_batch()
    found = measure_last_gradient(model, batch)
    (compute_losses(model, batch, 0.0).loss / batch.num_target_tokens).backward()  # type: ignore[no-untyped-call]
    gradient = model.decoder.layers[-1].feed_forward.outer.weight.grad
    assert gradient is not None
    assert found == pytest.approx(float(gradient.norm()))


def test_all_models_are_planned(planned: Laboratory) -> None:
    settings = [trial.settings for trial in EXPERIMENT.plan(planned)]
    num_initial = len(ORDERS) * len(INITIAL_DEPTHS)
    assert settings[:num_initial] == [
        {"initial": order, "depth": depth} for order in ORDERS for depth in INITIAL_DEPTHS
    ]
    variants = [one["variant"] for one in settings[num_initial:-2]]
    assert len(set(variants)) == 9
    assert name_variant("pre", DEEP, has_warmup=False) in variants
    assert settings[-2:] == [{"inspected": "layer"}, {"inspected": "batch"}]


def name_variant(order: str, depth: int, *, has_warmup: bool, kind: str = "layer") -> str:
    return f"{kind}, {order}-norm, {depth} layers, {'with' if has_warmup else 'without'} warm-up"


MakeUp = Callable[..., list[Measurement]]


def make_up_gradients(make_up: MakeUp, powers: dict[str, float]) -> list[Measurement]:
    return [
        one
        for order, power in powers.items()
        for depth in INITIAL_DEPTHS
        for one in make_up(
            {"initial": order, "depth": depth},
            gradient=[(1 + seed) * depth ** (power + seed / 100) for seed in range(3)],
        )
    ]


def test_slopes_are_powers_of_the_depth(make_up: MakeUp) -> None:
    slopes = fit_slopes(Results(make_up_gradients(make_up, {"pre": -0.5})), "pre")
    assert slopes == pytest.approx({1: -0.5, 2: -0.49, 3: -0.48})
    assert fit_slopes(Results([]), "pre") == {}
    assert fit_slopes(Results(make_up({"initial": "pre", "depth": 1}, gradient=[1.0])), "pre") == {}


@pytest.mark.parametrize(
    ("gain", "powers", "verdict"),
    [
        ([1.5, 1.51, 1.52], {"post": 0.0, "pre": -0.5}, "supported"),
        ([-1.5, -1.51, -1.52], {"post": 0.5, "pre": 0.0}, "not supported"),
    ],
)
def test_verdicts(
    make_up: MakeUp, judge: Callable[..., list[str]], gain: list[float], powers: dict[str, float], verdict: str
) -> None:
    def trained(variant: str, factor: int) -> list[Measurement]:
        return make_up({"variant": variant}, loss=[5 + factor * value for value in gain])

    differences = {"layer": 1e-6, "batch": 1.0 if verdict == "supported" else 1e-6}
    statistics = {
        "mean, similar lengths": [2**value for value in gain],
        "mean by chance, similar lengths": [1.0, 1.0, 1.0],
    }
    measurements = make_up_gradients(make_up, powers)
    for kind, difference in differences.items():
        measurements += make_up({"inspected": kind}, **{"difference alone": 3 * [difference]}, **statistics)
    measurements += trained(name_variant("post", SHALLOW, has_warmup=True, kind="batch"), 1)
    measurements += trained(name_variant("post", SHALLOW, has_warmup=True), 0)
    measurements += trained(name_variant("post", SHALLOW, has_warmup=False), 0)
    measurements += trained(name_variant("post", DEEP, has_warmup=True), 0)
    measurements += trained(name_variant("post", DEEP, has_warmup=False), 1)
    measurements += trained(name_variant("pre", DEEP, has_warmup=True), 1)
    measurements += trained(name_variant("pre", DEEP, has_warmup=False), 0)
    assert judge(EXPERIMENT, measurements) == 8 * [verdict]


def test_nothing_is_decided_by_parts(make_up: MakeUp, judge: Callable[..., list[str]]) -> None:
    assert judge(EXPERIMENT, []) == 8 * ["not decided"]
    batch = name_variant("post", SHALLOW, has_warmup=True, kind="batch")
    assert judge(EXPERIMENT, make_up({"variant": batch}, loss=[1.0, 1.1])) == 8 * ["not decided"]
    assert judge(EXPERIMENT, make_up_gradients(make_up, {"post": 0.0}))[3:5] == ["supported", "not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("normalization")
