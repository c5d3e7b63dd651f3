"""The measurements of an experiment: lines of JSON on disk, and results selected from them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import UserError

Value = str | int | float | bool
Settings = Mapping[str, Value]
"""What distinguishes a trial from the others of its experiment, by name."""

BySeed = Mapping[int, float]
"""A quantity of one trial for each seed."""


@dataclass(frozen=True)
class Measurement:
    """The quantities that one trial measured with one seed."""

    settings: Settings
    seed: int
    values: Mapping[str, float]
    seconds: float
    """How long it took."""


class MeasurementLog:
    """The file measurements.jsonl: a first line about machine and versions, then one line for each measurement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, header: Mapping[str, Any]) -> None:
        """Write the first line, unless there is one."""
        if not self.header():
            self._append({"experiment": header})

    def header(self) -> dict[str, Any]:
        """The first line; empty if there is none."""
        lines = self._read()
        found = lines[0].get("experiment") if lines and isinstance(lines[0], dict) else None
        return dict(found) if isinstance(found, dict) else {}

    def append(self, measurement: Measurement) -> None:
        """Append a measurement. Numbers that are not finite are left out, as JSON has none."""
        values = {name: value for name, value in measurement.values.items() if math.isfinite(value)}
        line = {"settings": dict(measurement.settings), "seed": measurement.seed, "values": values}
        self._append({**line, "seconds": round(measurement.seconds, 3)})

    def read(self) -> "Results":
        """All measurements so far."""
        lines = [line for line in self._read() if "settings" in line]
        return Results(Measurement(one["settings"], one["seed"], one["values"], one["seconds"]) for one in lines)

    def _append(self, line: Mapping[str, Any]) -> None:
        self._remove_unfinished_line()
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _remove_unfinished_line(self) -> None:
        """Remove what a killed process left without a line end."""
        if self.path.exists() and (content := self.path.read_bytes()) and not content.endswith(b"\n"):
            with self.path.open("rb+") as file:
                file.truncate(content.rfind(b"\n") + 1)

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        finished, _, _ = self.path.read_bytes().rpartition(b"\n")
        try:
            return [json.loads(line) for line in finished.split(b"\n") if line]
        except ValueError as error:
            raise UserError(
                f"{self.path}: is not a file of measurements: {error}; restore it, or choose another --output"
            ) from None


class Results:
    """Measurements, selected by settings, quantities and seeds."""

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.measurements = list(measurements)

    def find(self, settings: Settings, seed: int) -> Measurement | None:
        """The measurement of this trial with this seed; None if it was not made."""
        same = (one for one in self.measurements if one.settings == settings and one.seed == seed)
        return next(same, None)

    def select(self, **settings: Value) -> "Results":
        """The measurements whose trials have all of these settings."""
        chosen = settings.items()
        return Results(one for one in self.measurements if chosen <= one.settings.items())

    def choices(self, setting: str) -> list[Any]:
        """The values of a setting, in the order in which they were first measured."""
        return list(dict.fromkeys(one.settings[setting] for one in self.measurements if setting in one.settings))

    def by_seed(self, quantity: str, **settings: Value) -> dict[int, float]:
        """A quantity of the trial with these settings, for each seed with which it was measured."""
        chosen = self.select(**settings).measurements
        return {one.seed: float(one.values[quantity]) for one in chosen if quantity in one.values}

    def mean(self, quantity: str, **settings: Value) -> float:
        """The mean of a quantity over all that have these settings; NaN if there is none."""
        values = [one.values[quantity] for one in self.select(**settings).measurements if quantity in one.values]
        return math.fsum(values) / len(values) if values else math.nan

    def curve(self, x: str, quantity: str, **settings: Value) -> list[tuple[float, float]]:
        """Pairs of a numeric setting and the mean of a quantity, in order of the setting."""
        places = sorted(float(place) for place in self.select(**settings).choices(x))
        pairs = [(place, self.mean(quantity, **settings, **{x: place})) for place in places]
        return [(place, value) for place, value in pairs if math.isfinite(value)]

    def seeds(self) -> Sequence[int]:
        """All seeds, in order."""
        return sorted({one.seed for one in self.measurements})
