import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transduce.errors import MissingExtraError
from transduce.training import train
from transduce.training.tensorboard import EventFile


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def points(events: EventAccumulator, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(tag)]


def line(update: int, **figures: Any) -> dict[str, Any]:
    return {"kind": "training", "update": update, "seconds": update / 10, **figures}


SCORE = {"metric": "BLEU", "value": 12.5, "signature": "s", "low": 11.0, "high": 14.0}
VALIDATION = {"kind": "validation", "update": 20, "loss": 2.0, "is_best": True, "scores": [SCORE], "samples": [{}]}


def test_tensorboard_reads_every_figure(tmp_path: Path) -> None:
    data = {"kind": "data", "update": 0, "num_pairs": 7}
    EventFile(tmp_path, [data, line(10, loss=3.5), line(20, loss=2.5, digest="abc"), VALIDATION])
    events = read(tmp_path)
    assert set(events.Tags()["scalars"]) == {
        *("training/loss", "training/seconds", "validation/loss"),
        *("validation/bleu", "validation/bleu_low", "validation/bleu_high"),
    }
    assert points(events, "training/loss") == [(10, 3.5), (20, 2.5)]
    assert points(events, "validation/bleu") == [(20, 12.5)]
    assert points(events, "validation/bleu_low") == [(20, 11.0)]


def test_the_time_axis_is_that_of_training(tmp_path: Path) -> None:
    file = EventFile(tmp_path, [line(100, loss=1.0), line(300, loss=1.0)])
    file.append(line(350, loss=1.0))
    first, second, third = (event.wall_time for event in read(tmp_path).Scalars("training/loss"))
    assert second - first == pytest.approx(20.0, abs=1e-3)
    assert third - second == pytest.approx(5.0, abs=1e-3)
    assert second == pytest.approx(time.time(), abs=60)


def test_a_figure_that_is_not_finite_is_written_as_it_is(tmp_path: Path) -> None:
    EventFile(tmp_path, [line(10, loss=math.nan), line(20, loss=math.inf)])
    (_, first), (_, second) = points(read(tmp_path), "training/loss")
    assert math.isnan(first)
    assert second == math.inf


def test_a_run_that_goes_on_has_no_point_twice(tmp_path: Path) -> None:
    """Neither for a TensorBoard that comes new, nor for one that has watched all the time."""
    file = EventFile(tmp_path, [line(10, loss=3.0)])
    for update in (20, 30, 40):
        file.append(line(update, loss=2.0))
    watching = read(tmp_path)
    assert len(watching.Scalars("training/loss")) == 4
    # back to the checkpoint of update 20
    EventFile(tmp_path, [line(10, loss=3.0), line(20, loss=2.0)]).append(line(30, loss=1.0))
    watching.Reload()
    expected = [(10, 3.0), (20, 2.0), (30, 1.0)]
    assert points(watching, "training/loss") == points(read(tmp_path), "training/loss") == expected


def test_a_run_writes_what_its_metrics_say(make_config: Any, metrics_of: Any, watcher: Any, killed: Any) -> None:
    config = make_config(training__tensorboard=True, training__updates=12)
    with pytest.raises(killed):
        train(config, watcher(11))
    folder = train(config).folder
    lines = metrics_of(folder)
    events = read(folder / "tensorboard")
    for kind, figure in (("training", "loss"), ("validation", "loss"), ("average", "perplexity")):
        expected = [(line["update"], pytest.approx(line[figure])) for line in lines if line["kind"] == kind]
        assert points(events, f"{kind}/{figure}") == expected
        assert expected


def test_without_tensorboard_nothing_begins(make_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = make_config(training__tensorboard=True)
    with pytest.raises(MissingExtraError, match=r"training.tensorboard = true needs .*'transduce\[tensorboard\]'"):
        train(config)
    assert not Path(config.output).exists()
    train(make_config(training__updates=1))
