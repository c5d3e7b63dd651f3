"""Report and TensorBoard fail for real: a disk that is full (`/dev/full`), places that are taken."""

import errno
import math
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from transduce.config import RunConfig
from transduce.errors import MissingExtraError, TrainingError
from transduce.training import train
from transduce.training.reporting.trackers import EventFile


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


MakeConfig = Callable[..., RunConfig]
SHORT = {"training__updates": 12, "training__validate_every": 4, "training__tensorboard": True}
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")


class Saboteur:
    """A watcher mixed into another, that breaks something after update 5 and may repair it after update 9."""

    def __init__(self, spoil: Callable[[], None], repair: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.acts = {5: spoil, 9: repair}

    def report_progress(self, progress: Any) -> None:
        super().report_progress(progress)  # type: ignore[misc]  # of the watcher
        if act := self.acts.get(progress.update):
            act()


@pytest.fixture
def saboteur(watcher: type) -> type:
    return type("SabotagingWatcher", (Saboteur, watcher), {})


def complaints(told: Any) -> list[str]:
    return [text for text in told.said if "training goes on without" in text]


def test_a_full_disk_stops_no_report_for_long(
    make_config: MakeConfig, saboteur: type, metrics_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(**SHORT)
    folder = Path(config.output)
    writing = import_module("transduce.bundle.output")
    flush = writing.flush_to_disk
    seen: list[str] = []

    def repair() -> None:
        seen.append((folder / "report.html").read_text(encoding="utf-8"))
        monkeypatch.setattr(writing, "flush_to_disk", flush)

    def spoil() -> None:
        monkeypatch.setattr(writing, "flush_to_disk", flush_unless_full)

    def flush_unless_full(path: Path) -> None:
        if path.name.startswith("report.html"):
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(path)

    told = saboteur(spoil, repair)
    assert train(config, told).updates == 12
    [complaint] = complaints(told)
    assert "report.html could not be written" in complaint
    assert "No space left" in complaint
    assert "update 4 of" in seen[0]  # the page from before the disk was full, whole
    assert "update 12 of" in (folder / "report.html").read_text(encoding="utf-8")
    assert [line["update"] for line in metrics_of(folder) if line["kind"] == "validation"] == [4, 8, 12]


@needs_full_disk
def test_a_full_disk_ends_tensorboard_and_not_the_run(make_config: MakeConfig, saboteur: type) -> None:
    config = make_config(**SHORT)

    def spoil() -> None:
        [events] = (Path(config.output) / "tensorboard").iterdir()
        events.unlink()
        events.symlink_to("/dev/full")

    told = saboteur(spoil)
    assert train(config, told).updates == 12
    [complaint] = complaints(told)
    assert "TensorBoard" in complaint
    assert "No space left" in complaint


def test_places_that_are_taken_are_told_once(make_config: MakeConfig, watcher: type) -> None:
    config = make_config(**SHORT)
    train(make_config(**{**SHORT, "training__updates": 1, "training__tensorboard": False}))
    folder = Path(config.output)
    (folder / "tensorboard").write_text("mine", encoding="utf-8")
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()
    told = watcher()
    assert train(config, told).updates == 12
    assert len(complaints(told)) == 2
    assert (folder / "tensorboard").read_text(encoding="utf-8") == "mine"
    assert not list(folder.glob("*transduce-tmp*"))


def test_a_broken_tensorboard_is_done_without(
    make_config: MakeConfig, watcher: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    told = watcher()
    assert train(make_config(**{**SHORT, "training__updates": 2}), told).updates == 2
    [complaint] = complaints(told)
    assert "tensorboard.compat.proto" in complaint


def test_there_is_a_report_from_the_start(
    make_config: MakeConfig, saboteur: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(**SHORT)
    seen: list[str] = []
    train(config, saboteur(lambda: seen.append((Path(config.output) / "report.html").read_text(encoding="utf-8"))))
    assert "update 4 of" in seen[0]
    seen.clear()
    later = make_config("later", **{**SHORT, "training__validate_every": 100})
    train(later, saboteur(lambda: seen.append((Path(later.output) / "report.html").read_text(encoding="utf-8"))))
    assert "update 0 of" in seen[0]
    assert "Lengths of the training sentences" in seen[0]
    monkeypatch.setattr("transduce.training.reporting.trackers.REPORT_EVERY_SECONDS", 0.0)
    train(
        later,
        saboteur(lambda: seen.append((Path(later.output) / "report.html").read_text(encoding="utf-8"))),
        restart=True,
    )
    assert "update 4 of" in seen[1]


def test_a_run_that_diverges_leaves_its_report(make_config: MakeConfig) -> None:
    config = make_config(training__learning_rate=1e30, training__updates=20)
    with pytest.raises(TrainingError):
        train(config)
    # The first update spoils the weights; those after it are skipped, until the first validation ends the run.
    assert "update 8 of" in (Path(config.output) / "report.html").read_text(encoding="utf-8")
