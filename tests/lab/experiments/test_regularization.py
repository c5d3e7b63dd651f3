"""What is measured of a model that over-fits, and verdicts on dropout and label smoothing."""

from collections.abc import Callable

import pytest

from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.regularization import EXPERIMENT, train_and_measure


def test_values_of_the_paper_are_planned(planned: Laboratory) -> None:
    settings = [tuple(trial.settings.values()) for trial in EXPERIMENT.plan(planned)]
    assert settings == [(0.0, 0.1), (0.1, 0.1), (0.2, 0.1), (0.1, 0.0), (0.1, 0.2)]


def test_training_text_is_predicted_better_than_unseen_text(planned: Laboratory) -> None:
    few = planned.with_fewer_pairs(50)
    settings = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "search.max_extra_length": 2}
    found = train_and_measure(few, settings, 60, 1)
    assert len(few.training_file.read_text(encoding="utf-8").splitlines()) == 50
    assert found["training loss"] < found["loss"]
    assert 0 < found["accuracy"] < 1


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [([0.2, 0.21, 0.22], "supported"), ([-0.2, -0.21, -0.22], "not supported"), ([-0.2, 0.2, 0.1], "not decided")],
)
def test_verdicts(
    make_up: Callable[..., list[Measurement]], judge: Callable[..., list[str]], gain: list[float], verdict: str
) -> None:
    def model(dropout: float, smoothing: float, loss: int, quality: int) -> list[Measurement]:
        rest = {name: [0.5 + quality * value for value in gain] for name in ("accuracy", "bleu")}
        losses = [1 + loss * value for value in gain]
        return make_up({"dropout": dropout, "smoothing": smoothing}, loss=losses, **rest)

    base = model(0.1, 0.1, 1, 1)
    assert judge(EXPERIMENT, base + model(0.0, 0.1, 2, 0) + model(0.1, 0.0, 0, 0)) == 5 * [verdict]
    assert judge(EXPERIMENT, base) == 5 * ["not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("regularization")
