"""Trackers follow metrics.jsonl while a run goes on: they write report.html and TensorBoard's event files."""

import importlib.util
import io
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transduce.config import RunConfig
from transduce.errors import MissingExtraError
from transduce.training.reporting.report import write_report
from transduce.training.run_folder import RunFolder

REPORT_EVERY_SECONDS = 60.0
"""Between two reports while nothing but lines of training comes."""


def check_tensorboard() -> None:
    """Check that TensorBoard is installed, without importing it.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("tensorboard", "tensorboard", "training.tensorboard = true")


class EventFile:
    """TensorBoard's event file of one sitting, which repeats all of metrics.jsonl and so replaces earlier files.

    No point is shown twice, and none is missing because TensorBoard was turned on later or failed for a while. The time
    axis shows seconds of training, without validations and pauses.
    """

    def __init__(self, folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
        """Begin a file in `folder` with the `lines` of metrics.jsonl so far."""
        with warnings.catch_warnings():  # of other packages, about each other
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto import event_pb2, summary_pb2  # noqa: PLC0415 - an optional package
            from tensorboard.summary.writer.record_writer import RecordWriter  # noqa: PLC0415
        self._protocol, self._summary, self._record_writer = event_pb2, summary_pb2, RecordWriter
        folder.mkdir(exist_ok=True)
        seconds = max((line["seconds"] for line in lines if "seconds" in line), default=0.0)
        self._began = time.time() - seconds
        # The name says when, as TensorBoard reads the files of a folder in order of their names.
        self.path = folder / f"events.out.tfevents.{time.time_ns()}"
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        # From here on TensorBoard ignores what earlier files have from step 0 on. If they were deleted, a TensorBoard
        # that watches one of them would stop reading.
        heads = [
            event_pb2.Event(wall_time=self._began, file_version="brain.Event:2"),
            event_pb2.Event(wall_time=self._began, step=0, session_log=start),
        ]
        self._write(heads + [self._event(line) for line in lines])

    def append(self, line: Mapping[str, Any]) -> None:
        """Write the figures of one line of metrics.jsonl, with the update as their step."""
        self._write([self._event(line)])

    def _event(self, line: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a class of protobuf
        values = [self._summary.Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(line)]
        wall_time = self._began + line.get("seconds", 0.0)
        return self._protocol.Event(
            wall_time=wall_time, step=line["update"], summary=self._summary.Summary(value=values)
        )

    def _write(self, events: Sequence[Any]) -> None:
        # TensorBoard's own writer works in a thread, whose errors would come late and with a traceback.
        records = io.BytesIO()
        writer = self._record_writer(records)
        for event in events:
            writer.write(event.SerializeToString())
        with self.path.open("ab") as file:
            file.write(records.getvalue())


def _scalars(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every figure of a line by its tag, as in "training/loss" or "validation/bleu_low"."""
    kind = line["kind"]
    if kind == "data":  # what does not change is no curve
        return
    for name, value in line.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "update":
            yield f"{kind}/{name}", float(value)
    for score in line.get("scores", []):
        name = score["metric"].lower()
        for key, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            if score.get(key) is not None:
                yield f"{kind}/{name}{suffix}", score[key]


class Trackers:
    """Update report.html and TensorBoard's event file; a failure is reported once and never stops the run."""

    def __init__(self, folder: RunFolder, config: RunConfig, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._config = config
        self._report = report
        self._failed: set[str] = set()
        self._event_file: EventFile | None = None
        self._last_report = 0.0

    def begin(self) -> None:
        """Write what metrics.jsonl holds already."""
        if self._config.training.tensorboard:
            with self._ignore_failure("TensorBoard's event file"):
                self._event_file = EventFile(self._folder.tensorboard, self._folder.metrics.read())
        self.update_report()

    def append(self, line: Mapping[str, Any]) -> None:
        """Write a new line of metrics.jsonl."""
        if self._event_file is not None:
            event_file, self._event_file = self._event_file, None  # given up if it fails: half a record ends a file
            with self._ignore_failure("TensorBoard's event file"):
                event_file.append(line)
                self._event_file = event_file
        if line["kind"] != "training" or time.monotonic() - self._last_report >= REPORT_EVERY_SECONDS:
            self.update_report()

    def update_report(self) -> None:
        """Write report.html as of now."""
        with self._ignore_failure(self._folder.report.name):
            write_report(self._folder.report, self._config, self._folder.metrics.read())
        self._last_report = time.monotonic()

    @contextmanager
    def _ignore_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, hours of training are worth more
            if what not in self._failed:
                self._failed.add(what)
                self._report(f"{what} could not be written, and training goes on without: {error}")
