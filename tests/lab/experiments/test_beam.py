"""What a search measures, and verdicts on beams and length penalties."""

from collections.abc import Callable

import pytest

from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.beam import ALPHAS, BEAMS, EXPERIMENT, measure_search


def test_one_model_and_all_searches_are_planned(planned: Laboratory) -> None:
    settings = [trial.settings for trial in EXPERIMENT.plan(planned)]
    assert settings[0] == {"variant": "trained"}
    assert settings[1:] == [{"beam": beam, "alpha": alpha} for beam in BEAMS for alpha in ALPHAS]


def test_search_measures_what_the_laboratory_does(planned: Laboratory) -> None:
    tiny = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2, "search.min_length": 3}
    planned.train(tiny, 60, 1)
    run = planned.find_run(tiny, 60, 1)
    found = measure_search(planned, run, 2, 0.6)
    scores = planned.score(run / "best", beam=2)
    assert (found["bleu"], found["chrf"]) == (scores["bleu"], scores["chrf"])
    assert found["length"] > 0
    # There is but one hypothesis, whatever its penalty.
    assert measure_search(planned, run, 1, 0.0)["length"] == measure_search(planned, run, 1, 1.5)["length"]


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [([1.0, 1.1, 0.9], "supported"), ([-1.0, -1.1, -0.9], "not supported"), ([-1.0, 1.0, 0.1], "not decided")],
)
def test_verdicts(
    make_up: Callable[..., list[Measurement]], judge: Callable[..., list[str]], gain: list[float], verdict: str
) -> None:
    def search(beam: int, alpha: float, factor: int) -> list[Measurement]:
        bleu, length = [50 + factor * value for value in gain], [1 - factor * value / 100 for value in gain]
        return make_up({"beam": beam, "alpha": alpha}, bleu=bleu, length=length)

    measurements = search(1, 0.6, 0) + search(4, 0.6, 2) + search(4, 0.0, 1) + search(1, 0.0, 0)
    assert judge(EXPERIMENT, measurements) == [verdict, verdict, "not decided", "not decided"]
    widest = make_up({"beam": 16, "alpha": 0.0}, bleu=[50.0, 50.0, 50.0], length=[1 - value / 100 for value in gain])
    assert judge(EXPERIMENT, measurements + widest) == 4 * [verdict]
    assert judge(EXPERIMENT, []) == 4 * ["not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("beam")
