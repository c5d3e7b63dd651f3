"""The plan of the experiment, its verdicts from made-up figures, and the story that a report shows."""

from pathlib import Path

import pytest

from transduce.lab import Laboratory, Measurement, Results
from transduce.lab.experiments.stories import EXPERIMENT, MANY_HOPS, NETWORKS, ONE_HOP, TRANSFORMER


def make_results(accuracy: dict[str, tuple[float, float]], hits: float = 0.6) -> Results:
    """Three seeds with nearly the same figures: for each network, accuracy with one and with two supporting facts."""
    return Results(
        Measurement(
            {"network": name},
            seed,
            {
                "accuracy, 1": one + seed / 1000,
                "accuracy, 2": two + (seed % 2) / 1000,
                "accuracy, 3": two,
                "hits, 2": hits + seed / 1000,
                "chance, 2": 0.2,
                "hop 1, sentence 1": 0.75,
            },
            1.0,
        )
        for name, (one, two) in accuracy.items()
        for seed in (1, 2, 3)
    )


GOOD = {MANY_HOPS: (0.99, 0.95), ONE_HOP: (0.99, 0.5), TRANSFORMER: (0.4, 0.4)}
BAD = {MANY_HOPS: (0.5, 0.3), ONE_HOP: (0.9, 0.6), TRANSFORMER: (1.0, 1.0)}


def test_plan_has_every_network(tmp_path: Path) -> None:
    assert [trial.settings["network"] for trial in EXPERIMENT.plan(Laboratory(tmp_path, (1,)))] == list(NETWORKS)


def test_verdicts() -> None:
    assert [claim_result.verdict for claim_result in EXPERIMENT.conclude(make_results(GOOD)).claim_results] == [
        "supported"
    ] * 4
    bad = EXPERIMENT.conclude(make_results(BAD, hits=0.1)).claim_results
    assert [claim_result.verdict for claim_result in bad] == ["not supported"] * 4
    assert {claim_result.verdict for claim_result in EXPERIMENT.conclude(Results([])).claim_results} == {"not decided"}


def test_the_report_shows_a_story_with_the_weights_of_each_hop() -> None:
    _, hops = EXPERIMENT.conclude(make_results(GOOD)).tables
    assert hops.rows[0][2:] == ["0.75", "0.00", "0.00"]
    assert [row[1] for row in hops.rows].count("yes") == 2
    assert "“where is the" in hops.caption


@pytest.mark.exhaustive
def test_every_network_is_trained_and_measured(tmp_path: Path) -> None:
    measured = {
        str(trial.settings["network"]): trial.measure(1)
        for trial in EXPERIMENT.plan(Laboratory(tmp_path, (1,), budget=5.0))
    }
    assert all(0 <= values["accuracy, 3"] <= 1 for values in measured.values())
    assert measured[MANY_HOPS]["parameters"] == 2 * measured[ONE_HOP]["parameters"]
