"""Report and TensorBoard fail for real: a disk that is full (`/dev/full`), places that are taken."""

import errno
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from transduce.config import RunConfig
from transduce.errors import TrainingError
from transduce.training import train

MakeConfig = Callable[..., RunConfig]
SHORT = {"training__updates": 12, "training__validate_every": 4, "training__tensorboard": True}
needs_full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")


class Saboteur:
    """A watcher mixed into another, that breaks something after update 5 and may repair it after update 9."""

    def __init__(self, spoil: Callable[[], None], repair: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.acts = {5: spoil, 9: repair}

    def progress(self, progress: Any) -> None:
        super().progress(progress)  # type: ignore[misc]  # of the watcher
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
    monkeypatch.setattr("transduce.training.trackers.REPORT_EVERY_SECONDS", 0.0)
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
