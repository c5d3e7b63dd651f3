import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import deterministic

from transduce.baselines import make_encoder_decoder
from transduce.baselines.convs2s import WeightNormalizedLinear
from transduce.bundle import Bundle, collect_model_tensors, list_checkpoints, load_checkpoint
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data import Batch
from transduce.model import EXCLUDED_TOKEN_BIAS, Dropout, Transformer
from transduce.training import Ranks, UpdateFigures, Updater, train
from transduce.training.optimization.updater import (
    INITIAL_LOSS_SCALE,
    LOSS_SCALE_INTERVAL,
    MAX_LOSS_SCALE,
    BatchLoss,
    ExponentialMovingAverage,
    LossScale,
    autocast,
    split_by_weight_decay,
    use_deterministic_algorithms,
)

CPU = torch.device("cpu")


@pytest.fixture
def small_model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(TransformerConfig(vocabulary=30, d_model=16, d_ff=32, num_heads=2, dropout=0.1))


def test_bfloat16_is_close_to_float32_and_leaves_weights_and_gradients_in_float32(small_model: Transformer) -> None:
    model = small_model
    batch = Batch.from_ids([[3, 4, 5, 1], [6, 1]], [[7, 1], [8, 9, 10, 1]], 29)
    model.eval()
    exact = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    with autocast(model, torch.bfloat16):
        rough = model(batch.source_ids, batch.source_mask, batch.target_ids, batch.target_mask)
    assert rough.dtype == torch.bfloat16
    real = batch.target_mask
    assert (rough.float() - exact)[real][:, :-1].norm() < 0.03 * exact[real][:, :-1].norm()
    rough[real][:, :-1].sum().backward()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    "variant",
    [{}, {"norm_order": "pre", "activation": "swish", "output_bias": True, "positions": "learned"}],
    ids=["paper", "other_parts"],
)
def test_no_gradient_of_many_positions_is_short_of_some(variant: dict[str, str]) -> None:
    """Sums in bfloat16 stop growing when they are a few hundred times as large as what comes; in float16, later."""
    torch.manual_seed(1)
    sizes = {"vocabulary": 300, "d_model": 64, "d_ff": 128, "num_heads": 2, "dropout": 0.0}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(TransformerConfig(**sizes, **layers, **variant))
    sources = torch.randint(2, 299, (256, 16)).tolist()
    batch = Batch.from_ids(sources, [[*row[:-2], 5, 1] for row in sources], 299)
    gradients = []
    for precision, scale in (("float32", 1), ("bfloat16", 1), ("float16", 2**12)):
        model.zero_grad()
        batch_loss = BatchLoss(model, TrainingConfig(precision=precision), CPU)
        (scale * batch_loss(batch)[0] / batch.num_target_tokens).backward()
        gradients.append({name: parameter.grad / scale for name, parameter in model.named_parameters()})
    exact, *others = gradients
    for rough in others:
        shares = {name: float((rough[name] * exact[name]).sum() / exact[name].square().sum()) for name in exact}
        assert {name: share for name, share in shares.items() if abs(share - 1) > 0.03} == {}


def test_afterwards_the_model_computes_as_before(small_model: Transformer) -> None:
    model = small_model
    with pytest.raises(KeyError), autocast(model, torch.bfloat16):
        raise KeyError
    assert model.compute_dtype is None


def settings() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]  # a property of what is no mere module
    )


def test_a_gpu_gets_deterministic_kernels_and_then_what_it_had() -> None:
    before = settings()
    with use_deterministic_algorithms(torch.device("cuda")):
        assert settings() == (True, False, False)
    assert settings() == before


def test_a_processor_needs_nothing() -> None:
    before = settings()
    with use_deterministic_algorithms(torch.device("cpu")):
        assert settings() == before


MakeConfig = Callable[..., RunConfig]
SIZES = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 8, "d_ff": 8, "num_heads": 2}


@pytest.fixture
def model() -> Transformer:
    return Transformer(TransformerConfig(vocabulary=20, normalization="batch", **SIZES))


@torch.no_grad()
def change(model: Transformer) -> None:
    for tensor in collect_model_tensors(model).values():
        tensor.add_(torch.randn_like(tensor))


def test_is_the_sum_of_all_weights_by_their_age(model: Transformer) -> None:
    average = ExponentialMovingAverage(model, 0.5)
    names = collect_model_tensors(model).keys()
    expected = {name: tensor.double() for name, tensor in collect_model_tensors(model).items()}
    # (1 + n) / (10 + n) reaches the decay of 0.5 at update 8, and stays below it before.
    for number, decay in enumerate([2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5, 0.5], start=1):
        change(model)
        average.update(model, number)
        weights = collect_model_tensors(model)
        expected = {name: decay * expected[name] + (1 - decay) * weights[name].double() for name in names}
    found = collect_model_tensors(average.model)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=0, atol=1e-5)
    # What is one matrix in the model is one in the average, running statistics are part of it, and it is not trained.
    assert average.model.target_embedding is average.model.source_embedding
    assert any(name.endswith("running_mean") for name in names)
    assert not any(tensor.requires_grad for tensor in found.values())


@pytest.mark.exhaustive
def test_the_weights_that_are_trained_are_left_alone(make_config: MakeConfig, unbroken: Any) -> None:
    folder = train(make_config(training__ema_decay=0.9)).folder
    parts, _ = load_checkpoint(folder / "checkpoints", 20)
    plain = unbroken()
    for part in ("weights", "optimizer"):
        for name, tensor in parts[part].items():
            assert tensor.numpy().tobytes() == plain[f"{part}/{name}"]
    assert parts["moving_average"].keys() == parts["weights"].keys()
    assert not any(name.startswith("moving_average") for name in plain)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("settings", "better"),
    [
        # Around a minimum, the mean is mostly nearer to it than the last step; on the way down, it is not.
        ({"training__learning_rate": 2e-1, "training__updates": 60, "training__ema_decay": 0.8}, True),
        ({"training__learning_rate": 1e-2, "training__updates": 12, "training__ema_decay": 0.99}, False),
    ],
)
def test_it_becomes_best_only_if_it_is_better(
    make_config: MakeConfig, metrics_of: Callable[[Path], Any], settings: dict[str, Any], better: bool
) -> None:
    alone = {"training__keep_checkpoints": 1, "training__best_by": "loss", "training__validate_every": 100}
    for seed in range(1, 11):  # until a run ends as it mostly does with these settings
        config = make_config(f"run{seed}", training__checkpoint_every=100, training__seed=seed, **alone, **settings)
        result = train(config)
        *_, validation, last = metrics_of(result.folder)
        assert (validation["kind"], last["kind"]) == ("validation", "average")
        decay = settings["training__ema_decay"]
        assert (last["ema_decay"], last["averaged_checkpoints"]) == (0.0, 1)
        assert (validation["loss"] < last["loss"]) == (not last["is_best"])
        if last["is_best"] != better:
            break
    assert last["is_best"] != better
    best = Bundle.open(result.folder / "best")
    assert best.description.training["ema_decay"] == (decay if better else 0.0)
    assert (f"- ema decay: {decay}\n" in (best.folder / "README.md").read_text(encoding="utf-8")) == better
    part = "moving_average" if better else "weights"
    (update,) = list_checkpoints(result.folder / "checkpoints")
    expected = load_checkpoint(result.folder / "checkpoints", update, [part])[0][part]
    for name, tensor in collect_model_tensors(best.load_model()).items():
        assert torch.equal(tensor, expected[name])


@pytest.mark.exhaustive
def test_every_average_is_scored(make_config: MakeConfig, metrics_of: Callable[[Path], Any], watcher: Any) -> None:
    told = watcher()
    result = train(make_config(training__ema_decay=0.9), told)
    averages = [line for line in metrics_of(result.folder) if line["kind"] == "average"]
    assert [(line["averaged_checkpoints"], line["ema_decay"]) for line in averages] == [(3, 0.0), (1, 0.0)]
    assert "average of the last 3 checkpoints:" in told.said
    assert "weights of the last update, not averaged:" in told.said


@pytest.mark.exhaustive
def test_it_is_what_validations_measure_and_last_holds(make_config: MakeConfig) -> None:
    folder = train(make_config(training__ema_decay=0.9, training__keep_checkpoints=1)).folder
    (update,) = list_checkpoints(folder / "checkpoints")
    expected = load_checkpoint(folder / "checkpoints", update, ["moving_average"])[0]["moving_average"]
    last = Bundle.open(folder / "last")
    assert last.description.training["ema_decay"] == 0.9
    for name, tensor in collect_model_tensors(last.load_model()).items():
        assert torch.equal(tensor, expected[name])


VOCABULARY = 40
# With the paper's epsilon, Adam's first steps are as long for a gradient of rounding errors as for any other.
TRAINING = {
    "schedule": "inverse_square_root",
    "learning_rate": 1e-2,
    "warmup": 2,
    "adam_epsilon": 1e-3,
    "precision": "float32",
}


def batch(seed: int, rows: int = 5) -> Batch:
    random = np.random.default_rng(seed)

    def side() -> list[np.ndarray]:
        return [np.append(random.integers(2, VOCABULARY - 1, size=random.integers(1, 9)), 1) for _ in range(rows)]

    return Batch.from_ids(side(), side(), VOCABULARY - 1)


def together(*batches: Batch) -> Batch:
    """All rows of several batches in one."""
    sides = [("source_ids", "source_mask"), ("target_ids", "target_mask")]
    rows = [
        [ids[mask] for part in batches for ids, mask in zip(getattr(part, name), getattr(part, of), strict=True)]
        for name, of in sides
    ]
    return Batch.from_ids(*([row.numpy() for row in side] for side in rows), VOCABULARY - 1)


@pytest.fixture
def make_updater() -> Callable[..., Updater]:
    """An updater whose model has the same weights every time."""

    def make(dropout: float = 0.0, rank: int = 0, **changes: Any) -> Updater:
        torch.manual_seed(5)
        sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
        model = Transformer(TransformerConfig(vocabulary=VOCABULARY, dropout=dropout, **sizes))
        return Updater(model, TrainingConfig(**{**TRAINING, **changes}), CPU, Ranks(rank))

    return make


def test_an_output_bias_is_trained_and_what_it_rules_out_stays_so(make_updater: Callable[..., Updater]) -> None:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
    model = Transformer(TransformerConfig(vocabulary=VOCABULARY + 2, output_bias=True, tied_embeddings="none", **sizes))
    ruled_out = [VOCABULARY - 1, VOCABULARY]  # no batch has them
    with torch.no_grad():
        model.projection.bias[ruled_out] = EXCLUDED_TOKEN_BIAS
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    updater = Updater(model, TrainingConfig(**TRAINING, ema_decay=0.9), CPU)
    for number in range(1, 6):
        figures = updater.update(number, [Batch.from_ids([[5, 1]], [[7, 8, 1]], VOCABULARY + 1)])
        assert 0 < figures.loss < 20
        assert not figures.is_skipped
    for trained in (model, updater.moving_average.model):
        bias = trained.projection.bias
        assert (bias[ruled_out] == EXCLUDED_TOKEN_BIAS).all()
        assert (bias[:-3] != 0).all()
        assert bias[-1] == 0
        for name in ("target_embedding.weight", "projection.weight"):
            assert torch.equal(trained.get_parameter(name)[ruled_out], before[name][ruled_out])


def weights(updater: Updater) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in updater.model.named_parameters()}


def equal(one: Updater, other: Updater) -> bool:
    return all(torch.equal(tensor, weights(other)[name]) for name, tensor in weights(one).items())


def assert_close(one: Updater, other: Updater) -> None:
    torch.testing.assert_close(weights(one), weights(other), rtol=0, atol=1e-6)


class PlainUpdater:
    """The same update in PyTorch's own words."""

    def __init__(self, model: Transformer, smoothing: float, clip_norm: float) -> None:
        self.model = model
        self.smoothing = smoothing
        self.clip_norm = clip_norm
        self.optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-3, fused=False)

    def update(self, rate: float, given: Batch) -> tuple[Tensor, Tensor]:
        self.model.train()
        self.optimizer.zero_grad()
        logits = self.model(given.source_ids, given.source_mask, given.target_ids, given.target_mask)
        real = logits[given.target_mask][:, :-1]
        loss = F.cross_entropy(real, given.target_ids[given.target_mask], label_smoothing=self.smoothing)
        loss.backward()
        norm = torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()]).norm()
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        return loss, norm


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("clip_norm", [0.0, 0.05])
def test_equals_plain_pytorch(make_updater: Callable[..., Updater], smoothing: float, clip_norm: float) -> None:
    ours, theirs = (make_updater(label_smoothing=smoothing, clip_norm=clip_norm) for _ in range(2))
    plain = PlainUpdater(theirs.model, smoothing, clip_norm)
    before = weights(ours)
    # inverse_square_root with a peak of 1e-2 at update 2
    for number, rate in enumerate([5e-3, 1e-2, 1e-2 * (2 / 3) ** 0.5], start=1):
        given = batch(number)
        figures = ours.update(number, [given])
        loss, norm = plain.update(rate, given)
        assert figures.learning_rate == pytest.approx(rate)
        assert figures.loss == pytest.approx(loss.item(), rel=1e-5)
        assert figures.gradient_norm == pytest.approx(norm.item(), rel=1e-4)
        assert figures.gradient_norm > 0.1
    assert_close(ours, theirs)
    assert max((tensor - before[name]).abs().max() for name, tensor in weights(ours).items()) > 1e-3


def test_figures_are_those_of_the_model_before_the_update(make_updater: Callable[..., Updater]) -> None:
    updater, given = make_updater(), batch(1)
    updater.model.eval()
    with torch.no_grad():
        logits = updater.model(given.source_ids, given.source_mask, given.target_ids, given.target_mask)
    real, targets = logits[given.target_mask], given.target_ids[given.target_mask]
    figures = updater.update(1, [given])
    assert figures.cross_entropy == pytest.approx(F.cross_entropy(real, targets).item(), rel=1e-5)
    assert figures.accuracy == pytest.approx((real.argmax(dim=-1) == targets).double().mean().item())
    assert figures.num_target_tokens == len(targets)


def test_accumulated_batches_are_one_large_batch(make_updater: Callable[..., Updater]) -> None:
    apart, joined = make_updater(), make_updater()
    # of unlike size, so that a mean of means would be noticed
    parts = batch(1, rows=2), batch(2, rows=7)
    for number in (1, 2):
        accumulated, at_once = apart.update(number, parts), joined.update(number, [together(*parts)])
        assert accumulated.loss == pytest.approx(at_once.loss, rel=1e-5)
        assert accumulated.gradient_norm == pytest.approx(at_once.gradient_norm, rel=1e-4)
        assert accumulated.num_target_tokens == at_once.num_target_tokens
    assert_close(apart, joined)


def test_a_silenced_batch_changes_nothing(make_updater: Callable[..., Updater]) -> None:
    with_it, without = make_updater(), make_updater()
    found, expected = with_it.update(1, [batch(2).mask_loss(), batch(1)]), without.update(1, [batch(1)])
    assert equal(with_it, without)
    assert (found.loss, found.accuracy, found.gradient_norm) == (
        expected.loss,
        expected.accuracy,
        expected.gradient_norm,
    )


def test_share_of_padding(make_updater: Callable[..., Updater]) -> None:
    # 3 + 1 of 3 + 3 tokens on one side, 2 + 2 of 2 + 2 on the other: 8 of 10 are real
    given = Batch.from_ids([[4, 5, 1], [1]], [[6, 1], [7, 1]], VOCABULARY - 1)
    full = Batch.from_ids([[4, 1]], [[4, 1]], VOCABULARY - 1)
    assert make_updater().update(1, [given]).padding_share == pytest.approx(0.2)
    assert make_updater().update(1, [given, full]).padding_share == pytest.approx(0.1)


def run(updater: Updater, numbers: list[int]) -> list[UpdateFigures]:
    return [updater.update(number, [batch(number), batch(-number % 7)]) for number in numbers]


def test_same_seed_and_number_give_the_same_bits(make_updater: Callable[..., Updater]) -> None:
    one, other = make_updater(dropout=0.3), make_updater(dropout=0.3)
    torch.manual_seed(1)
    figures = run(one, [1, 2, 3])
    torch.manual_seed(2)
    torch.rand(17)
    assert run(other, [1, 2, 3]) == figures
    assert equal(one, other)


def test_other_number_seed_or_rank_gives_other_dropout(make_updater: Callable[..., Updater]) -> None:
    losses = {
        make_updater(dropout=0.3, seed=seed, rank=rank).update(number, [batch(1)]).loss
        for seed in (0, 1, 2, 2**31 - 1)
        for number in (1, 2)
        for rank in (0, 1, 2)
    }
    assert len(losses) == 24


def test_dropout_is_on_even_if_the_model_was_evaluated_before(make_updater: Callable[..., Updater]) -> None:
    one, other = make_updater(dropout=0.3), make_updater(dropout=0.3)
    other.model.eval()
    assert one.update(1, [batch(1)]) == other.update(1, [batch(1)])
    assert equal(one, other)


def test_padding_row_stays_zero(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater()
    run(updater, [1, 2])
    assert updater.model.source_embedding.weight[-1].count_nonzero() == 0


def test_bfloat16_is_close_to_float32(make_updater: Callable[..., Updater]) -> None:
    rough, fine = (make_updater(precision=precision).update(1, [batch(1)]) for precision in ("bfloat16", "float32"))
    assert rough.loss != fine.loss
    assert rough.loss == pytest.approx(fine.loss, rel=2e-2)
    assert rough.gradient_norm == pytest.approx(fine.gradient_norm, rel=5e-2)


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"norm_order": "pre", "activation": "swish", "output_bias": True, "positions": "learned"},
        {"attention_score": "additive", "normalization": "batch", "tied_embeddings": "none"},
        {"positions": "relative", "normalization": "rms", "feed_forward": "gated"},
        *({"architecture": name} for name in ("recurrent", "convs2s", "bytenet")),
    ],
)
def test_gradients_in_float16_are_nearer_to_those_in_float32_than_in_bfloat16(variant: dict[str, Any]) -> None:
    sizes = {"vocabulary": 30, "d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    sizes |= {"num_encoder_layers": 2, "num_decoder_layers": 2}
    random = np.random.default_rng(1)
    sides = [[[*random.integers(2, 29, size=1 + row % 8).tolist(), 1] for row in range(40)] for _ in range(2)]
    given, gradients = Batch.from_ids(*sides, 29), {}
    for precision in ("float32", "bfloat16", "float16"):
        torch.manual_seed(1)
        model = make_encoder_decoder(TransformerConfig(**{**sizes, **variant}))
        updater = Updater(model, TrainingConfig(precision=precision), CPU)
        updater.accumulate(given, given.num_target_tokens)
        parts = [one.grad.flatten() / updater.loss_scale.factor for one in model.parameters() if one.grad is not None]
        gradients[precision] = torch.cat(parts)
    exact = gradients["float32"]
    errors = [float((gradients[name] - exact).norm() / exact.norm()) for name in ("float16", "bfloat16")]
    assert 0 < errors[0] < 0.7 * errors[1] < 0.1


def test_small_gradients_in_float16_survive_by_the_loss_scale(make_updater: Callable[..., Updater]) -> None:
    counts = []
    for factor in (1, 2**16):
        updater = make_updater(precision="float16")
        updater.loss_scale = LossScale(factor)
        updater.accumulate(batch(1), 10**9)  # as if the batch were one of a billion tokens
        counts.append(sum(int(one.grad.count_nonzero()) for one in updater.model.encoder.parameters()))
    assert counts[0] < counts[1] / 2


def test_an_overflow_is_skipped_and_lowers_the_loss_scale(make_updater: Callable[..., Updater]) -> None:
    updater, untouched = (make_updater(precision="float16", optimizer="muon") for _ in range(2))
    updater.loss_scale = LossScale(2**40, 5)
    figures = updater.update(1, [batch(1)])
    assert figures.is_skipped
    assert math.isfinite(figures.loss)
    assert figures.loss_scale == 2**40
    assert updater.loss_scale == LossScale(2**39, 0)
    assert equal(updater, untouched)
    assert not any(optimizer.state for optimizer in updater.optimizers)
    updater.loss_scale = LossScale(INITIAL_LOSS_SCALE, 5)
    assert not updater.update(2, [batch(1)]).is_skipped
    assert updater.loss_scale == LossScale(INITIAL_LOSS_SCALE, 6)


def test_the_loss_scale_doubles_after_many_updates_within_bounds() -> None:
    scale = LossScale(2**23)
    changes = [scale.adjust(is_skipped=False) for _ in range(3 * LOSS_SCALE_INTERVAL)]
    assert [number for number, has_changed in enumerate(changes, start=1) if has_changed] == [LOSS_SCALE_INTERVAL]
    assert scale.factor == MAX_LOSS_SCALE
    for _ in range(30):
        scale.adjust(is_skipped=True)
    assert scale == LossScale(1, 0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_other_precisions_have_no_loss_scale(make_updater: Callable[..., Updater], precision: str) -> None:
    updater = make_updater(precision=precision)
    assert updater.update(1, [batch(1)]).loss_scale is None
    assert updater.loss_scale == LossScale(1, 0)


def test_dropout_rises_from_zero_to_what_is_asked_for(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater(dropout=0.4, dropout_warmup=8)
    places = [part for part in updater.model.modules() if isinstance(part, Dropout)]
    assert len(places) > 2
    for number, expected in ((2, 0.1), (4, 0.2), (8, 0.4), (50, 0.4)):
        updater.update(number, [batch(1)])
        assert all(part.p == pytest.approx(expected) for part in places)


def test_dropout_that_has_risen_is_dropout_that_was_there_from_the_beginning(
    make_updater: Callable[..., Updater],
) -> None:
    rising, constant = make_updater(dropout=0.4, dropout_warmup=3), make_updater(dropout=0.4)
    for updater in (rising, constant):
        updater.update(3, [batch(1)])
    assert equal(rising, constant)
    for updater in (rising, constant):
        updater.update(2, [batch(2)])
    assert not equal(rising, constant)


def test_weight_decay_is_that_of_pytorch_on_matrices_alone(make_updater: Callable[..., Updater]) -> None:
    ours, theirs = (make_updater(weight_decay=0.3, label_smoothing=0.0) for _ in range(2))
    plain = PlainUpdater(theirs.model, smoothing=0.0, clip_norm=0.0)
    named = dict(theirs.model.named_parameters())
    spared = [name for name in named if name.endswith((".bias", ".gain"))]
    assert len(spared) == sum(parameter.ndim == 1 for parameter in named.values()) > 10
    groups = [{"params": [named.pop(name) for name in spared], "weight_decay": 0.0}, {"params": [*named.values()]}]
    plain.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-3, weight_decay=0.3, fused=False)
    for number, rate in enumerate([5e-3, 1e-2, 1e-2 * (2 / 3) ** 0.5], start=1):
        for group in plain.optimizer.param_groups:
            group["lr"] = rate
        ours.update(number, [batch(number)])
        plain.update(rate, batch(number))
    assert_close(ours, theirs)
    assert not equal(ours, make_updater())


def test_of_a_normalized_matrix_the_length_decays() -> None:
    torch.manual_seed(1)
    matrix = WeightNormalizedLinear(5, 3)
    decaying, others = split_by_weight_decay(matrix)
    assert {*decaying} == {matrix.length}
    assert {*others} == {matrix.direction, matrix.bias}
    before = matrix.weight.detach().clone()
    optimizer = torch.optim.AdamW(decaying, lr=0.1, weight_decay=0.5)
    for parameter in matrix.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.allclose(matrix.weight, 0.95 * before)


def test_what_has_no_gradient_decays_by_rate_and_weight_decay(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater(weight_decay=0.5)
    before = weights(updater)
    for parameter in updater.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for group in updater.adam.param_groups:
        group["lr"] = 0.1
    updater.adam.step()
    for name, tensor in weights(updater).items():
        factor = 1 if name.endswith((".bias", ".gain")) else 1 - 0.1 * 0.5
        torch.testing.assert_close(tensor, factor * before[name])


@pytest.mark.parametrize(
    "changes",
    [
        {"normalization": "rms", "feed_forward": "gated", "positions": "relative"},
        {"normalization": "batch", "norm_order": "pre", "positions": "learned", "output_bias": True},
        {"attention_score": "additive"},
        *({"architecture": name} for name in ("recurrent", "convs2s", "bytenet")),
    ],
    ids=str,
)
def test_no_network_has_a_bias_or_a_gain_that_decays(changes: dict[str, Any]) -> None:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
    model = make_encoder_decoder(TransformerConfig(vocabulary=VOCABULARY, **sizes, **changes))
    updater = Updater(model, TrainingConfig(**TRAINING, weight_decay=0.1), CPU)
    decaying, spared = (set(group["params"]) for group in updater.adam.param_groups)
    assert [group["weight_decay"] for group in updater.adam.param_groups] == [0.1, 0.0]
    names = {name for name, parameter in model.named_parameters() if parameter in spared}
    # "direction" is that of a normalised weight (Salimans & Kingma 2016), which has the same norm however long it is.
    assert {name.rpartition(".")[2] for name in names} <= {"bias", "gain", "direction"}
    assert {name for name, _ in model.named_parameters() if name.endswith(("bias", "gain", "direction"))} == names
    assert len(decaying) + len(spared) == len(list(model.parameters()))


def test_muon_and_adam_share_the_weights_and_the_rate(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater(optimizer="muon", weight_decay=0.1)
    assert updater.muon is not None
    held = [parameter for one in updater.optimizers for group in one.param_groups for parameter in group["params"]]
    assert len(held) == len({*held}) == len(list(updater.model.parameters()))
    assert updater.model.source_embedding.weight in {*updater.adam.param_groups[0]["params"]}
    losses = [updater.update(number, [batch(1)]).loss for number in range(1, 16)]
    assert losses[-1] < 0.7 * losses[0]
    rates = {group["lr"] for one in updater.optimizers for group in one.param_groups}
    assert len(rates) == 1
    assert {kind for kinds in updater.muon.state.values() for kind in kinds} == {"momentum"}


def test_a_skipped_update_decays_nothing(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater(weight_decay=0.3)
    with torch.no_grad():
        updater.model.source_embedding.weight[5] = 3e38
    before = weights(updater)
    assert updater.update(1, [Batch.from_ids([[5, 1]], [[7, 8, 1]], VOCABULARY - 1)]).is_skipped
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(updater).items())


def pass_twice_by_pytorch(updater: Updater, number: int, given: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss for a token as Liang et al. write it, and its divergence, with the dropout of an update."""
    torch.manual_seed(updater._seed(number))
    updater.model.train()
    twice = together(given, given)
    logits = updater.model(twice.source_ids, twice.source_mask, twice.target_ids, twice.target_mask)
    first, second = [part[given.target_mask][:, :-1] for part in logits.chunk(2)]
    targets = given.target_ids[given.target_mask]
    losses = [F.cross_entropy(part, targets, label_smoothing=smoothing) for part in (first, second)]
    p, q = first.log_softmax(dim=-1), second.log_softmax(dim=-1)
    divergence = sum(F.kl_div(*both, reduction="batchmean", log_target=True) for both in ((p, q), (q, p))) / 2
    return losses[0] + losses[1] + 5 * divergence, divergence


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_r_drop_is_half_of_what_the_paper_writes(make_updater: Callable[..., Updater], smoothing: float) -> None:
    ours, theirs = (make_updater(dropout=0.3, r_drop=5.0, label_smoothing=smoothing) for _ in range(2))
    given = batch(1)
    assert not given.target_mask.all()
    loss, divergence = pass_twice_by_pytorch(theirs, 1, given, smoothing)
    (loss / 2).backward()
    gradient = [parameter.grad for parameter in theirs.model.parameters()]
    ours._set_dropout(1)
    ours.model.train()
    num_tokens = given.num_target_tokens
    sums = ours.sum_gradients(1, [given], num_tokens)
    for parameter, expected in zip(ours.model.parameters(), gradient, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)
    ours.model.zero_grad()
    figures = ours.update(1, [given])
    assert figures.divergence == pytest.approx(divergence.item(), rel=1e-4)
    assert figures.divergence > 0.01
    # What is reported as loss is the cross-entropy alone.
    assert figures.loss == pytest.approx((loss - 5 * divergence).item() / 2, rel=1e-5)
    assert [figures.loss, figures.divergence] == pytest.approx((sums[[0, 3]] / num_tokens).tolist())
    assert figures.num_target_tokens == num_tokens


def test_without_r_drop_there_is_no_divergence(make_updater: Callable[..., Updater]) -> None:
    assert make_updater(dropout=0.3).update(1, [batch(1)]).divergence is None


def let_passes_differ(updater: Updater) -> Updater:
    """Replace dropout by something that differs between two passes, and does not depend on how a batch is divided."""

    def scale(inputs: Tensor) -> Tensor:
        first, second = inputs.chunk(2)
        return torch.cat([first, 1.3 * second])

    for part in updater.model.modules():
        if isinstance(part, Dropout):
            part.forward = scale
    return updater


def test_divided_batches_diverge_as_whole_ones(make_updater: Callable[..., Updater]) -> None:
    whole, divided, parallel = (let_passes_differ(make_updater(dropout=0.3, r_drop=5.0)) for _ in range(3))
    parallel.parallel_micro_batches = 2
    parts = [batch(1, rows=2), batch(2, rows=7), batch(3).mask_loss()]
    for number in (1, 2):
        found = divided.update(number, parts), parallel.update(number, [together(*parts[:2])])
        expected = whole.update(number, [together(*parts[:2])])
        for figures in found:
            assert figures.divergence == pytest.approx(expected.divergence, rel=1e-4)
            assert figures.loss == pytest.approx(expected.loss, rel=1e-5)
            assert figures.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-4)
            assert figures.num_target_tokens == expected.num_target_tokens
        assert expected.divergence > 0.01
    parallel.processes.close()
    assert_close(divided, whole)
    assert_close(parallel, whole)


def test_r_drop_in_bfloat16_is_close_to_that_in_float32(make_updater: Callable[..., Updater]) -> None:
    rough, fine = (
        let_passes_differ(make_updater(dropout=0.3, r_drop=5.0, precision=precision)).update(1, [batch(1)])
        for precision in ("bfloat16", "float32")
    )
    assert rough.divergence != fine.divergence
    assert rough.divergence == pytest.approx(fine.divergence, rel=0.1)
    assert rough.loss == pytest.approx(fine.loss, rel=2e-2)
    assert rough.gradient_norm == pytest.approx(fine.gradient_norm, rel=5e-2)


@pytest.mark.parametrize("architecture", ["recurrent", "convs2s", "bytenet"])
def test_r_drop_brings_the_passes_of_any_network_together(architecture: str) -> None:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16}
    divergences = []
    for alpha in (1e-9, 20.0):
        torch.manual_seed(5)
        model = make_encoder_decoder(
            TransformerConfig(vocabulary=VOCABULARY, architecture=architecture, dropout=0.2, **sizes)
        )
        updater = Updater(model, TrainingConfig(**TRAINING, r_drop=alpha), CPU)
        divergences.append([updater.update(number, [batch(number % 3)]).divergence for number in range(1, 31)])
    (alone, _), (drawn, *_) = divergences[0][-2:], divergences[1][-2:]
    assert divergences[0][0] == divergences[1][0] > 0
    assert drawn < 0.5 * alone
