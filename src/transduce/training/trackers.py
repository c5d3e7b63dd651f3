"""What is made of metrics.jsonl for people to look at while a run goes on: report.html, and TensorBoard's files."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transduce.config import RunConfig
from transduce.training.report import write_report
from transduce.training.run_folder import RunFolder
from transduce.training.tensorboard import EventFile

REPORT_EVERY_SECONDS = 60.0
"""Between two reports while nothing but lines of training comes."""


class Trackers:
    """They never stop a run: what one of them fails at is said once, and training goes on."""

    def __init__(self, folder: RunFolder, config: RunConfig, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._config = config
        self._say = say
        self._failed: set[str] = set()
        self._event_file: EventFile | None = None
        self._last_report = 0.0

    def begin(self) -> None:
        """Take up what metrics.jsonl holds already."""
        if self._config.training.tensorboard:
            with self._harmless("TensorBoard's event file"):
                self._event_file = EventFile(self._folder.tensorboard, self._folder.metrics.read())
        self.report()

    def follow(self, line: Mapping[str, Any]) -> None:
        """One more line of metrics.jsonl."""
        if self._event_file is not None:
            event_file, self._event_file = self._event_file, None  # given up if it fails: half a record ends a file
            with self._harmless("TensorBoard's event file"):
                event_file.append(line)
                self._event_file = event_file
        if line["kind"] != "training" or time.monotonic() - self._last_report >= REPORT_EVERY_SECONDS:
            self.report()

    def report(self) -> None:
        """Write report.html as of now."""
        with self._harmless(self._folder.report.name):
            write_report(self._folder.report, self._config, self._folder.metrics.read())
        self._last_report = time.monotonic()

    @contextmanager
    def _harmless(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, hours of training are worth more
            if what not in self._failed:
                self._failed.add(what)
                self._say(f"{what} could not be written, and training goes on without: {error}")
