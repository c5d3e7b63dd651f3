"""Measurements on disk, and what is selected from them."""

import math
from pathlib import Path

import pytest

from transduce.errors import UserError
from transduce.lab import Measurement, MeasurementLog, Results

RESULTS = Results(
    Measurement({"width": width, "kind": kind}, seed, {"loss": width + seed / 10}, 1.0)
    for width in (16, 4)
    for kind in ("a", "b")
    for seed in (1, 2)
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements.jsonl")
    log.begin({"name": "scaling", "budget": "10m"})
    log.append(Measurement({"d_k": 4, "kind": "dot"}, 1, {"loss": 0.5, "norm": math.nan}, 1.23456))
    assert log.header() == {"name": "scaling", "budget": "10m"}
    assert log.read().measurements == [Measurement({"d_k": 4, "kind": "dot"}, 1, {"loss": 0.5}, 1.235)]


def test_what_was_measured_later_has_a_line_of_its_own(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements.jsonl")
    assert log.sessions() == []
    first, second, third = ({"name": "scaling", "command": f"--seeds {number}"} for number in (1, 2, 3))
    for header, num_measurements in ((first, 2), (first, 1), (second, 0), (third, 1)):
        log.begin(header)
        for number in range(num_measurements):
            log.append(Measurement({"d_k": number}, 1, {"loss": 0.5}, 1.0))
    assert log.header() == first
    assert log.sessions() == [(first, 1), (third, 4)]  # in the second one nothing was measured
    assert len(log.read().measurements) == 4


def test_an_unfinished_line_is_dropped_and_overwritten(tmp_path: Path) -> None:
    log = MeasurementLog(tmp_path / "measurements.jsonl")
    log.begin({"name": "scaling"})
    log.append(Measurement({"d_k": 4}, 1, {"loss": 0.5}, 1.0))
    with log.path.open("ab") as file:
        file.write(b'{"settings": {"d_k": 8}, "se')
    assert len(log.read().measurements) == 1
    log.append(Measurement({"d_k": 8}, 1, {"loss": 0.25}, 1.0))
    assert [one.settings["d_k"] for one in log.read().measurements] == [4, 8]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "7",
        "[]",
        "null",
        "[" * 100_000,
        '{"settings": {"d_k": 4}}',
        '{"settings": {"d_k": [4]}, "seed": 1, "values": {}, "seconds": 1.0}',
        '{"settings": {"d_k": 4}, "seed": "1", "values": {}, "seconds": 1.0}',
        '{"settings": {"d_k": 4}, "seed": 1, "values": {"loss": "low"}, "seconds": 1.0}',
        '{"settings": {"d_k": 4}, "seed": 1, "values": {}}',
        '{"settings": 4, "seed": 1, "values": {}, "seconds": 1.0}',
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "measurements.jsonl"
    path.write_text(f'{{"experiment": {{"name": "scaling"}}}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"measurements\.jsonl: is not a file of measurements"):
        MeasurementLog(path).read()


def test_results_are_selected_by_settings() -> None:
    assert RESULTS.choices("width") == [16, 4]
    assert RESULTS.by_seed("loss", width=4, kind="b") == {1: 4.1, 2: 4.2}
    assert RESULTS.mean("loss", width=4) == pytest.approx(4.15)
    assert math.isnan(RESULTS.mean("loss", width=5))
    places, means = zip(*RESULTS.curve("width", "loss", kind="a"), strict=True)
    assert places == (4.0, 16.0)
    assert means == pytest.approx((4.15, 16.15))
    assert RESULTS.seeds() == [1, 2]


def test_a_trial_is_found_by_all_of_its_settings() -> None:
    assert RESULTS.find({"kind": "a", "width": 16}, 2) is not None
    assert RESULTS.find({"width": 16}, 2) is None
    assert RESULTS.find({"kind": "a", "width": 16}, 3) is None
