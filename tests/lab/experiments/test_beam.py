"""What a search measures, and verdicts on beams and length penalties."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from transduce.lab import Laboratory, Measurement
from transduce.lab.experiments.beam import ALPHA, ALPHAS, BEAMS, EXPERIMENT, MODEL


def test_one_model_and_all_searches_are_planned(planned: Laboratory) -> None:
    settings = [trial.settings for trial in EXPERIMENT.plan(planned)]
    assert settings[0] == {"variant": "trained"}
    assert settings[1] == {"beam": 1, "alpha": ALPHA}
    assert settings[2:] == [{"beam": beam, "alpha": alpha} for beam in BEAMS[1:] for alpha in ALPHAS]


def test_every_search_is_of_the_trained_model(planned: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[tuple[Path, Mapping[str, float]]] = []

    def score(_: Laboratory, bundle: Path, **search: float) -> Mapping[str, float]:
        searched.append((bundle, search))
        return {"bleu": 1.0}

    trials = EXPERIMENT.plan(planned)
    run = planned.folder / "runs" / "made up"
    (run / "best").mkdir(parents=True)
    monkeypatch.setattr(Laboratory, "find_run", lambda _, settings, *__: run if settings == MODEL else None)
    monkeypatch.setattr(Laboratory, "score", score)
    for trial in trials[1:]:
        assert trial.measure(1) == {"bleu": 1.0}
    assert searched[0] == (run / "best", {"beam": 1, "length_penalty": ALPHA})
    assert searched[-1] == (run / "best", {"beam": BEAMS[-1], "length_penalty": ALPHAS[-1]})


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

    measurements = search(1, 0.6, 0) + search(4, 0.6, 2) + search(4, 0.0, 1)
    assert judge(EXPERIMENT, measurements) == [verdict, verdict, "not decided", "not decided"]
    widest = make_up({"beam": 16, "alpha": 0.0}, bleu=[50.0, 50.0, 50.0], length=[1 - value / 100 for value in gain])
    assert judge(EXPERIMENT, measurements + widest) == 4 * [verdict]
    assert judge(EXPERIMENT, []) == 4 * ["not decided"]


@pytest.mark.exhaustive
def test_whole_run(check_whole_run: Callable[[str], None]) -> None:
    check_whole_run("beam")
