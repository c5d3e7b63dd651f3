"""The figures are those of real runs: see docs/experiments.md, "Runs that are ill"."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle
from transduce.config import TransformerConfig, load_run_config
from transduce.data import Batch
from transduce.model import Transformer
from transduce.training import Validator
from transduce.training.diagnosis.history import RunHistory
from transduce.training.diagnosis.learning_checks import (
    MOST_TOKENS,
    SourceProbe,
    attention_entropies,
    find_end_of_ignored_source,
    find_end_of_rising_loss,
    find_end_of_uniform_attention,
    find_end_of_unigram_loss,
    find_ignored_source,
    find_rising_loss,
    find_uniform_attention,
    find_unigram_loss,
)


@pytest.fixture
def bundle(copier: Any) -> Bundle:
    return Bundle.open(copier.result.folder / "last")


def test_a_model_that_has_learned_to_copy_needs_the_right_source(copier: Any, bundle: Bundle) -> None:
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32").measure(bundle.load_model())
    gain = found.shuffled_loss - found.loss
    assert gain > 1
    assert gain > 5 * found.gain_error
    assert found.sharpest_entropy < found.attention_entropy < 1
    assert found.num_pairs == len(copier.unseen)


def test_the_loss_is_that_of_the_validation(copier: Any, bundle: Bundle) -> None:
    tokenizer, model = bundle.load_tokenizer(), bundle.load_model()
    found = SourceProbe(copier.unseen, tokenizer, "float32").measure(model)
    assert found.loss == pytest.approx(
        Validator(copier.unseen, tokenizer, copier.config).validate(model).loss, rel=1e-4
    )


def test_without_attention_to_the_source_it_makes_no_difference(copier: Any, bundle: Bundle) -> None:
    model = bundle.load_model()
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.cross_attention.output.weight)
    found = SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32").measure(model)
    assert found.shuffled_loss == pytest.approx(found.loss, abs=1e-6)
    assert found.gain_error < 1e-6


def test_the_model_is_left_as_it_was(copier: Any, bundle: Bundle) -> None:
    model, probe = bundle.load_model(), SourceProbe(copier.unseen, bundle.load_tokenizer(), "float32")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    for training in (True, False):
        model.train(training)
        assert probe.measure(model) == probe.measure(model)
        assert all(part.training == training for part in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_bfloat16_changes_little(copier: Any, bundle: Bundle) -> None:
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    exact, rounded = (SourceProbe(copier.unseen, tokenizer, type_).measure(model) for type_ in ("float32", "bfloat16"))
    assert rounded.loss == pytest.approx(exact.loss, rel=0.05, abs=0.02)
    assert model.compute_dtype is None


def test_the_sample_is_bounded_and_has_a_pair_at_least(copier: Any, bundle: Bundle) -> None:
    tokenizer = bundle.load_tokenizer()
    many = SourceProbe(copier.unseen * 100, tokenizer, "float32").batch
    assert many.source_mask.sum() <= MOST_TOKENS
    long = (" ".join(["river"] * 2 * MOST_TOKENS),) * 2
    assert len(SourceProbe([long], tokenizer, "float32").batch.source_ids) == 1
    assert SourceProbe([long], tokenizer, "float32").measure(bundle.load_model()).gain_error == 0


def test_uniform_attention_has_an_entropy_of_one_and_one_place_of_zero() -> None:
    torch.manual_seed(1)
    config = TransformerConfig(
        vocabulary=20, d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=2
    )
    model = Transformer(config).eval()
    batch = Batch.from_ids([[5, 6, 7, 1], [8, 1]], [[9, 1], [5, 6, 1]], pad_id=19)
    for layer in model.decoder.layers:
        torch.nn.init.zeros_(layer.cross_attention.projection.weight[:8])
    found = attention_entropies(model, batch)
    assert found.shape == (4,)
    torch.testing.assert_close(found, torch.ones(4))
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.projection.weight[:16] = 100 * torch.randn(16, 8)
    assert attention_entropies(model, batch).max() < 0.3
    alone = Batch.from_ids([[1]], [[9, 1]], pad_id=19)
    assert attention_entropies(model, alone).tolist() == [1.0]


Look = tuple[float, float, float, float]
"""Loss, worth of the right source, its standard error, entropy of the sharpest head; from update 50 on, every 50."""

YOUNG: list[Look] = [(6.7, 0.0, 0.002, 0.96), (6.1, 0.0, 0.001, 0.966), (5.87, 0.0, 0.003, 0.963)]
HEALTHY_NEWS: list[Look] = [
    *YOUNG,
    (5.759, 0.0016, 0.004, 0.90),
    (5.568, -0.0001, 0.006, 0.832),
    (5.205, -0.0029, 0.0097, 0.798),
    (4.881, -0.0111, 0.0123, 0.794),
    (4.641, 0.0094, 0.0085, 0.790),
    (4.511, 0.0078, 0.0087, 0.738),
    (4.388, 0.0108, 0.012, 0.718),
]
SLOW_NEWS: list[Look] = [
    (7.07, -0.0015, 0.0038, 0.956),
    (6.5, -0.0007, 0.0018, 0.969),
    (6.045, 0.0002, 0.002, 0.975),
    (5.922, 0.0018, 0.002, 0.982),
    (5.793, 0.0013, 0.0026, 0.982),
    (5.707, 0.0016, 0.0053, 0.986),
    (5.532, -0.0009, 0.009, 0.979),
    (5.307, -0.0027, 0.009, 0.954),
    (5.057, -0.005, 0.0083, 0.954),
    (4.848, -0.0018, 0.006, 0.934),
]
HEALTHY_CAPTIONS: list[Look] = [
    (6.655, 0.002, 0.002, 0.927),
    (6.059, 0.0041, 0.0015, 0.939),
    (5.697, 0.02, 0.0045, 0.848),
    (5.421, 0.0744, 0.014, 0.811),
    (5.075, 0.1593, 0.0194, 0.769),
    (4.728, 0.2267, 0.0258, 0.704),
    (4.436, 0.3189, 0.0343, 0.702),
    (4.208, 0.4077, 0.04, 0.652),
]
DROPOUT: list[Look] = [
    (7.4, 0.0, 0.001, 0.98),
    (6.747, -0.0004, 0.0007, 0.986),
    (6.193, 0.0001, 0.0003, 0.991),
    (6.089, 0.0, 0.0002, 0.992),
    (6.009, -0.0001, 0.0001, 0.992),
    (5.99, 0.0, 0.0001, 0.993),
    (5.955, -0.0001, 0.00005, 0.994),
    (5.934, 0.0002, 0.0001, 0.983),
]
IGNORED: list[Look] = [(loss, 0.0, 0.0, 0.9) for loss, *_ in HEALTHY_CAPTIONS]
UNIFORM: list[Look] = [(loss, gain, error, 1.0) for loss, gain, error, _ in HEALTHY_CAPTIONS]


def run_of(source_uses: Sequence[Look], unigram: float = 5.99, **settings: Any) -> RunHistory:
    """The training loss lies a little above that of `source_uses`."""
    lines: list[dict[str, Any]] = [
        {
            "kind": "data",
            "update": 0,
            "text": {
                "unigram_loss": unigram,
                "num_blocks": 5,
                "unrelated_blocks": 0,
                "source_similarity": 1.0,
                "target_similarity": 1.0,
                "swapped_similarity": 0.2,
            },
        }
    ]
    for number, (loss, gain, error, sharpest) in enumerate(source_uses, start=1):
        lines.append({"kind": "training", "update": 50 * number, "cross_entropy": loss + 0.1, "learning_rate": 1e-3})
        figures = {"loss": loss, "shuffled_loss": loss + gain, "gain_error": error, "num_pairs": 24}
        figures |= {"attention_entropy": sharpest, "sharpest_entropy": sharpest}
        lines.append({"kind": "source_use", "update": 50 * number, **figures})
    given = {"preset": "tiny", "model.norm_order": "pre", "model.dropout": 0.1, "training.updates": 4000}
    config, _ = load_run_config(None, arguments={**given, "training.warmup": 400, **settings})
    return RunHistory(config, lines)


CHECKS = (find_unigram_loss, find_ignored_source, find_uniform_attention, find_rising_loss)


@pytest.mark.parametrize("source_uses", [HEALTHY_NEWS, SLOW_NEWS, HEALTHY_CAPTIONS, UNIFORM[:5], DROPOUT[:5], []])
def test_healthy_and_young_runs_are_not_suspected(source_uses: list[Look]) -> None:
    for length in range(len(source_uses) + 1):
        assert [check(run_of(source_uses[:length])) for check in CHECKS] == [None] * 4


def test_a_loss_that_stays_at_that_of_a_unigram_model() -> None:
    found = find_unigram_loss(run_of(DROPOUT, **{"model.dropout": 0.9}))
    assert "after 400 updates the loss (5.93) is no better" in str(found)
    assert "model.dropout = 0.9: set it to 0.1" in str(found)
    assert "learning_rate" in str(find_unigram_loss(run_of(DROPOUT)))
    assert find_ignored_source(run_of(DROPOUT)) is None  # one cause, one finding
    assert find_end_of_unigram_loss(run_of(DROPOUT)) is None
    assert find_end_of_unigram_loss(run_of([*DROPOUT, (5.4, 0.0, 0.1, 0.9)])) is not None


def test_a_long_warmup_is_waited_for_up_to_a_tenth_of_the_run() -> None:
    longer = {"training.warmup": 4000, "training.updates": 100_000}
    assert find_unigram_loss(run_of(DROPOUT, **longer)) is None
    assert find_unigram_loss(run_of(DROPOUT, **{**longer, "training.updates": 4000})) is not None


def test_a_loss_that_still_falls_asks_for_a_higher_rate() -> None:
    slow = [(8.0 - 0.2 * number, 0.0, 0.1, 0.95) for number in range(9)]
    assert "raise training.learning_rate" in str(find_unigram_loss(run_of(slow)))


def test_a_model_that_takes_no_notice_of_the_source() -> None:
    found = find_ignored_source(run_of(IGNORED, unigram=5.8))
    assert "its loss is 4.208 with the right source and 4.208 with that of another pair" in str(found)
    assert find_end_of_ignored_source(run_of(IGNORED, unigram=5.8)) is None
    assert "0.227 nats a token" in str(find_end_of_ignored_source(run_of(HEALTHY_CAPTIONS[:6])))


def test_pairs_too_few_to_tell_are_not_judged() -> None:
    run = run_of(IGNORED, unigram=5.8)
    few = [{**line, "num_pairs": 1} if line["kind"] == "source_use" else line for line in run.lines]
    assert find_ignored_source(RunHistory(run.config, few)) is None


def test_a_source_of_no_use_after_a_long_time() -> None:
    long = [*SLOW_NEWS, *[(4.5, 0.003, 0.006, 0.9)] * 20]
    assert "ignores the source" in str(find_ignored_source(run_of(long)))
    assert find_ignored_source(run_of([*long[:-1], (4.4, 0.05, 0.01, 0.9)])) is None


def test_attention_that_stays_uniform_though_the_source_is_of_use() -> None:
    found = find_uniform_attention(run_of(UNIFORM, unigram=5.8))
    assert "uniform in all heads" in str(found)
    post = {"model.norm_order": "post"}
    assert 'set it to "pre"' in str(find_uniform_attention(run_of(UNIFORM, unigram=5.8, **post)))
    assert find_end_of_uniform_attention(run_of(UNIFORM)) is None
    assert find_end_of_uniform_attention(run_of(HEALTHY_CAPTIONS)) is not None


def test_a_loss_that_rises_on_both_texts() -> None:
    risen = [*HEALTHY_CAPTIONS, *[(5.5, 0.0, 0.01, 0.5)] * 5]
    found = find_rising_loss(run_of(risen))
    assert "from 4.21 at its lowest to 5.50 after 650 updates" in str(found)
    # A rise on the validation text alone is overfitting, for which there is another check.
    alone = [{**line, "cross_entropy": 4.0} if line["kind"] == "training" else line for line in run_of(risen).lines]
    assert find_rising_loss(RunHistory(run_of(risen).config, alone)) is None
    assert find_end_of_rising_loss(run_of(risen)) is None
    assert find_end_of_rising_loss(run_of([*risen, (4.1, 0.0, 0.01, 0.5)])) is not None


def test_a_loss_that_rises_from_the_start_is_judged_once_there_is_enough_to_compare() -> None:
    rising = [(4.0 + 0.3 * number, 0.0, 0.01, 0.5) for number in range(10)]
    found = [find_rising_loss(run_of(rising[:length])) is not None for length in range(11)]
    assert found == [False] * 6 + [True] * 5


@pytest.mark.parametrize("figures", [{"unrelated_blocks": 5}, {"target_similarity": 0.1}])
def test_what_follows_from_the_text_is_not_said_twice(figures: dict[str, Any]) -> None:
    run = run_of(UNIFORM, unigram=5.8)
    data = {**run.lines[0], "text": {**run.text, **figures, "first_unrelated": 0}}
    ill = RunHistory(run.config, [data, *run.lines[1:]])
    assert find_ignored_source(ill) is None
    assert find_uniform_attention(ill) is None
