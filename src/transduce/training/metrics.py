"""metrics.jsonl: every figure of a run, one JSON object a line, only ever appended to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.bundle import replace_file

CLOCK = ("seconds", "elapsed", "tokens_per_second")
"""Figures that the clock decides: of two equal runs, everything else is equal."""


class MetricsLog:
    """The log of one run: lines with `update` and `kind`.

    Kinds are "data", "training", "skipped", "source_use", "validation", "finding" and "average".
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, update: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        """One more line, which is returned."""
        line = {"kind": kind, "update": update, **figures}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return line

    def read(self) -> list[dict[str, Any]]:
        """All lines that can be read."""
        return [line for line in self._lines() if line is not None]

    def first(self) -> dict[str, Any]:
        """What was put on record before the first update: what is trained on what; empty if that cannot be read."""
        return next((line for line in self.read() if line["kind"] == "data"), {})

    def damaged_lines(self) -> list[int]:
        """Numbers of the lines that cannot be read, from 1; not of a last one that a killed process left unfinished."""
        return [number for number, line in enumerate(self._lines()[:-1], start=1) if line is None]

    def truncate_after(self, update: int, *, average: bool) -> None:
        """Forget what was logged after `update`, as a run resumed from there will log it again.

        Without `average`, also what was logged of an average made at `update`, the last thing that a run does.
        """
        kept = [line for line in self.read() if line["update"] <= update]
        if not average:
            kept = [line for line in kept if (line["kind"], line["update"]) != ("average", update)]
        with replace_file(self.path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)

    def _lines(self) -> list[dict[str, Any] | None]:
        """What each line says, None where it says nothing; the last is what stands behind the last line end."""
        # Bytes, as the last line may end in the middle of a character.
        return [_figures(line) for line in self.path.read_bytes().split(b"\n")] if self.path.exists() else []


def _figures(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("update"), int)
    return found if is_ours else None
