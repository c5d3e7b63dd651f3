"""Which checkpoint is the best, and verdicts on means of the last ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.bundle import Bundle, collect_model_tensors, list_checkpoints, load_checkpoint
from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.checkpoint_averaging import (
    CONSTANT,
    EXPERIMENT,
    LAST,
    LINEAR,
    MEAN_OF_FIVE,
    MODELS,
    PAPER,
    SCHEDULES,
    save_best_checkpoint,
)
from transduce.training import compute_learning_rate
from transduce.training.model_selection.validation import compute_teacher_forced_metrics


def test_every_schedule_and_model_is_planned(planned: Laboratory) -> None:
    settings = [trial.settings for trial in EXPERIMENT.plan(planned)]
    expected: list[dict[str, str]] = []
    for schedule in SCHEDULES:
        expected += [{"schedule": schedule}, *({"schedule": schedule, "model": model} for model in MODELS)]
    assert settings == expected


def test_rates_are_what_they_are_called(planned: Laboratory) -> None:
    def compute_rate(schedule: str, update: int) -> float:
        return compute_learning_rate(planned.make_config(SCHEDULES[schedule], 1000, 1, "run").training, 64, update)

    assert compute_rate(CONSTANT, 100) == compute_rate(CONSTANT, 999)
    assert compute_rate(PAPER, 900) == pytest.approx(compute_rate(PAPER, 100) / 3)
    assert compute_rate(LINEAR, 1000) < compute_rate(LINEAR, 100) / 500


def test_best_checkpoint_has_the_lowest_loss(planned: Laboratory, tmp_path: Path) -> None:
    settings = {
        "model.d_model": 16,
        "model.d_ff": 16,
        "model.num_heads": 2,
        "search.max_extra_length": 2,
        "training.checkpoint_every": 20,
        "training.keep_checkpoints": 3,
    }
    planned.train(settings, 60, 1)
    run = planned.find_run(settings, 60, 1)
    pairs = planned.test_pairs[:50]
    best = save_best_checkpoint(run, pairs, tmp_path / "best")
    bundle = Bundle.open(tmp_path / "best")
    model, tokenizer = bundle.load_model(), bundle.load_tokenizer()
    found = compute_teacher_forced_metrics(model, tokenizer, pairs).loss
    assert list_checkpoints(run / "checkpoints") == [20, 40, 60]
    losses = []
    for update in (20, 40, 60):
        weights = load_checkpoint(run / "checkpoints", update, ["weights"])[0]["weights"]
        same = all(torch.equal(tensor, weights[name]) for name, tensor in collect_model_tensors(model).items())
        assert same == (update == best)
        other = bundle.load_model()
        for name, tensor in collect_model_tensors(other).items():
            tensor.data.copy_(weights[name])
        losses.append(compute_teacher_forced_metrics(other, tokenizer, pairs).loss)
    assert found == pytest.approx(min(losses))


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [([0.2, 0.21, 0.22], "supported"), ([-0.2, -0.21, -0.22], "not supported"), ([-0.2, 0.2, 0.1], "not decided")],
)
def test_verdicts(
    make_up: Callable[..., list[Measurement]], judge: Callable[..., list[str]], gain: list[float], verdict: str
) -> None:
    def models(schedule: str, factor: int) -> list[Measurement]:
        last = make_up({"schedule": schedule, "model": LAST}, loss=3 * [1.0], bleu=3 * [50.0])
        loss, bleu = [1 - factor * value for value in gain], [50 + factor * value for value in gain]
        return last + make_up({"schedule": schedule, "model": MEAN_OF_FIVE}, loss=loss, bleu=bleu)

    measurements = models(PAPER, 1) + models(CONSTANT, 2) + models(LINEAR, 1)
    run = make_up({"schedule": PAPER}, loss=3 * [100.0], bleu=3 * [0.0])  # not a model that is compared
    assert judge(EXPERIMENT, run + measurements) == 3 * [verdict]
    assert judge(EXPERIMENT, run) == 3 * ["not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("checkpoint-averaging")
