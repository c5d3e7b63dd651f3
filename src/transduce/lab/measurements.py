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
    """The file measurements.jsonl: a line for each measurement, before them one about command, machine and versions.

    Where an experiment goes on with another of these, there is another such line before what it measures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, header: Mapping[str, Any]) -> None:
        """Write the line before what is measured now, unless the last such line says the same."""
        headers = [line["experiment"] for line in self._read() if "experiment" in line]
        if headers[-1:] != [header]:
            self._append({"experiment": header})

    def header(self) -> dict[str, Any]:
        """The first line; empty if there is none."""
        lines = self._read()
        found = lines[0].get("experiment") if lines else None
        return dict(found) if isinstance(found, dict) else {}

    def sessions(self) -> list[tuple[dict[str, Any], int]]:
        """Every line about command, machine and versions, with the number, from 1, of the first measurement after it.

        One without a measurement is left out, unless it is the last.
        """
        found: dict[int, dict[str, Any]] = {}
        number = 1
        for line in self._read():
            if "settings" in line:
                number += 1
            elif isinstance(line.get("experiment"), dict):
                found[number] = line["experiment"]
        return [(header, first) for first, header in found.items()]

    def append(self, measurement: Measurement) -> None:
        """Append a measurement. Numbers that are not finite are left out, as JSON has none."""
        values = {name: value for name, value in measurement.values.items() if math.isfinite(value)}
        line = {"settings": dict(measurement.settings), "seed": measurement.seed, "values": values}
        self._append({**line, "seconds": round(measurement.seconds, 3)})

    def read(self) -> "Results":
        """All measurements so far.

        Raises:
            UserError: the file is damaged.
        """
        lines = [line for line in self._read() if "settings" in line]
        if damaged := [line for line in lines if not _is_measurement(line)]:
            raise self._make_error(f"this is no measurement: {damaged[0]!s:.80}")
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
            lines = [json.loads(line) for line in finished.split(b"\n") if line]
        except (ValueError, RecursionError) as error:
            raise self._make_error(str(error)) from None
        if others := [line for line in lines if not isinstance(line, dict)]:
            raise self._make_error(f"a line is no JSON object: {others[0]!s:.80}")
        return lines

    def _make_error(self, problem: str) -> UserError:
        return UserError(
            f"{self.path}: is not a file of measurements: {problem}; restore it, or choose another --output"
        )


def _is_measurement(line: Mapping[str, Any]) -> bool:
    parts = [line.get(name) for name in ("settings", "values")]
    settings, values = (part.values() if isinstance(part, dict) else [None] for part in parts)
    numbers = [*values, line.get("seconds")]
    return (
        all(isinstance(value, Value) for value in settings)
        and all(isinstance(number, int | float) for number in numbers)
        and isinstance(line.get("seed"), int)
    )


def keep_finite(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a curve that were measured: those whose second number is neither NaN nor infinite."""
    return [(x, y) for x, y in points if math.isfinite(y)]


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
        return keep_finite(pairs)

    def seeds(self) -> Sequence[int]:
        """All seeds, in order."""
        return sorted({one.seed for one in self.measurements})
