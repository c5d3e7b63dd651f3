import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transduce.config import SearchConfig
from transduce.lab.conclusion import Verdict
from transduce.lab.experiments import positions
from transduce.lab.experiments.positions import (
    BINS,
    EXPERIMENT,
    MAX_LINES,
    POSITIONS,
    ROUNDING,
    SHIFTS,
    choose_test_lines,
    conclude,
    join_lines,
    make_rotations,
    make_training_lines,
    measure_lengths,
    measure_shift,
    plan,
)
from transduce.lab.laboratory import Laboratory, read_plan
from transduce.lab.measurements import Measurement, Results, Settings
from transduce.lab.run import run_experiment
from transduce.model import sinusoids
from transduce.text import Pair
from transduce.translation import PyTorchEngine, Translator
from transduce.translation.confidence.scoring import ForcedDecoder, score_pairs


@pytest.mark.parametrize("shift", [1, 7, 300])
def test_rotations_take_a_position_to_a_later_one(shift: int) -> None:
    matrices = make_rotations(shift, 8)
    table = sinusoids(400, 8).double()
    for position in (0, 5, 99):
        for pair in range(4):
            own, later = (table[place, 2 * pair : 2 * pair + 2] for place in (position, position + shift))
            torch.testing.assert_close(own @ matrices[pair], later, atol=2e-7, rtol=0)
    torch.testing.assert_close(matrices @ matrices.mT, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))


def test_least_squares_find_the_rotations(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure_shift(5, seed=1)
    assert found["matrix"] <= ROUNDING
    assert found["prediction"] <= ROUNDING
    assert found["control"] > 0.5
    monkeypatch.setattr(positions, "sinusoids", lambda length, width: sinusoids(length, width) ** 3)
    assert measure_shift(5, seed=1)["prediction"] > 0.1


PAIRS: list[Pair] = [(f"{number} a", f"{number} b") for number in range(20)]


def test_lines_are_joined_from_consecutive_pairs() -> None:
    assert join_lines(PAIRS[:5], 2) == [("0 a ; 1 a", "0 b ; 1 b"), ("2 a ; 3 a", "2 b ; 3 b")]
    assert join_lines(PAIRS[:2], 3) == []
    assert join_lines(PAIRS, 1) == PAIRS


def test_training_lines_have_one_to_three_pairs_and_are_the_shorter_ones() -> None:
    lines = make_training_lines(PAIRS)
    sentences = [sentence for source, _ in lines for sentence in source.split(" ; ")]
    assert len(set(sentences)) == len(sentences)
    assert [source.count(";") + 1 for source, _ in lines] == [1] * 5 + [2] * 3 + [3] * 2  # of 11, without the longest
    assert all(source.replace("a", "b") == target for source, target in lines)


def test_tested_lines_have_the_lengths_of_their_bins(
    make_decoder: Callable[..., ForcedDecoder], sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, longest = make_decoder(), 12
    pairs = [(sentence, sentence) for sentence in sentences]
    chosen = choose_test_lines(decoder, pairs, longest)
    assert len(chosen) == len(BINS)
    for (low, high), lines in zip(BINS, chosen, strict=True):
        assert 0 < len(lines) <= MAX_LINES
        lengths = [len(ids) for ids in decoder.tokenizer.encode_all([source for source, _ in lines])]
        assert all(low * longest < length <= high * longest for length in lengths)
    whole = choose_test_lines(decoder, pairs, longest)[0]
    monkeypatch.setattr("transduce.lab.experiments.positions.MAX_LINES", len(whole) - 2)
    assert choose_test_lines(decoder, pairs, longest)[0][-1] == whole[-1]


def test_long_lines_are_read_as_a_whole(make_decoder: Callable[..., ForcedDecoder], sentences: list[str]) -> None:
    decoder = make_decoder()
    engine = PyTorchEngine(decoder.model, decoder.tokenizer.end_id)
    pairs = [(sentence, sentence) for sentence in sentences[:40]]
    found = [
        measure_lengths(decoder, Translator(engine, decoder.tokenizer, SearchConfig(max_pieces=limit)), pairs)
        for limit in (8, 500)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 2 * len(BINS)
    lines = choose_test_lines(decoder, pairs, decoder.search.max_pieces)[-1]
    tokens = [token.log_probability for score in score_pairs(decoder, lines) for token in score.tokens]
    assert found[0]["loss up to 2"] == pytest.approx(-math.fsum(tokens) / len(tokens))


def test_the_plan_has_shifts_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Laboratory, "plan_updates", lambda *_, **__: 60)
    monkeypatch.setattr("transduce.lab.laboratory.NUM_PAIRS", 5000)
    settings = [dict(trial.settings) for trial in plan(Laboratory(tmp_path))]
    assert [one["shift"] for one in settings if "shift" in one] == list(SHIFTS)
    assert [one["variant"] for one in settings if "variant" in one] == list(POSITIONS)


def test_what_was_planned_is_known_to_other_runs(planned: Laboratory, tmp_path: Path) -> None:
    again = replace(planned, folder=tmp_path / "again", plan_of=planned.folder)
    plan(again)
    assert read_plan(again.folder) == read_plan(planned.folder)


def make_results(error: float | None, losses: Mapping[str, tuple[float, float, float]]) -> Results:
    """Losses: on validation text, just within the lengths of training, and just beyond."""
    found: list[tuple[Settings, Mapping[str, float]]] = []
    if error is not None:
        found = [({"shift": 4}, {"matrix": error, "prediction": error, "control": 0.7})]
    for place, (name, values) in enumerate(losses.items()):
        quantities = dict(zip(("loss", "loss up to 1", "loss up to 1.25"), values, strict=True))
        found += [({"variant": name}, {one: value * (1 + 1e-4 * place) for one, value in quantities.items()})]
    return Results(
        Measurement(settings, seed, {name: value * (1 + 1e-3 * seed) for name, value in values.items()}, 1.0)
        for settings, values in found
        for seed in (1, 2, 3)
    )


@pytest.mark.parametrize(
    ("results", "verdicts"),
    [
        (
            make_results(1e-8, {"sinusoidal": (0.3, 0.4, 0.42), "learned": (0.31, 0.4, 0.6), "none": (0.5, 0.6, 0.6)}),
            ["supported"] * 5,
        ),
        (
            make_results(1e-2, {"sinusoidal": (0.3, 0.4, 0.8), "learned": (0.4, 0.4, 0.6), "none": (0.2, 0.6, 0.6)}),
            ["not supported"] * 5,
        ),
        (  # learned positions are worse at all lengths, and lose no more beyond those of training
            make_results(1e-8, {"sinusoidal": (0.3, 0.4, 0.45), "learned": (0.31, 0.6, 0.64), "none": (0.5, 0.6, 0.6)}),
            [*["supported"] * 4, "not supported"],
        ),
        (make_results(None, {"learned": (0.3, 0.4, 0.6)}), ["not decided"] * 5),
    ],
)
def test_verdicts_follow_from_the_figures(results: Results, verdicts: list[Verdict]) -> None:
    claim_results = conclude(results).claim_results
    assert [claim_result.verdict for claim_result in claim_results] == verdicts
    assert [claim_result.claim for claim_result in claim_results] == list(EXPERIMENT.claims)


@pytest.mark.exhaustive
def test_it_runs_from_plan_to_report(tmp_path: Path) -> None:
    report = run_experiment("positions", Laboratory(tmp_path, seeds=(1,), budget=2.0))
    trained, losses, scores, shifts = report.conclusion.tables
    for table in (trained, losses, scores):
        assert [row[0] for row in table.rows] == list(POSITIONS)
        assert not [cell for row in table.rows for cell in row if cell == "not measured"]
    assert len(shifts.rows) == len(SHIFTS)
    assert report.conclusion.claim_results[1].verdict == "supported"
