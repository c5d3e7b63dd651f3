"""metrics.jsonl: every figure of a run, one JSON object a line, only ever appended to."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLOCK = ("seconds", "tokens_per_second")
"""Figures that the clock decides: of two equal runs, everything else is equal."""


class MetricsLog:
    """The log of one run. A line has `kind` ("data", "training", "skipped", "validation", "average") and `update`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, update: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        """One more line, which is returned."""
        line = {"kind": kind, "update": update, **figures}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return line

    def read(self) -> list[dict[str, Any]]:
        """All lines; an unfinished last one, left by a process that was killed, is passed over."""
        if not self.path.exists():
            return []
        lines = []
        # Bytes, as the last line may end in the middle of a character.
        for line in self.path.read_bytes().split(b"\n"):
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return lines

    def truncate_after(self, update: int, *, average: bool) -> None:
        """Forget what was logged after `update`, as a run resumed from there will log it again.

        Without `average`, also what was logged of an average made at `update`, the last thing that a run does.
        """
        kept = [line for line in self.read() if line["update"] <= update]
        if not average:
            kept = [line for line in kept if (line["kind"], line["update"]) != ("average", update)]
        beside = self.path.with_name(self.path.name + ".tmp")
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
        beside.replace(self.path)
