"""metrics.jsonl: every figure of a run, one JSON object a line; and the environment and lengths in its first line."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Integer

from transduce.bundle import replace_file

Line = Mapping[str, Any]
"""A line of metrics.jsonl."""

CLOCK = ("seconds", "elapsed", "tokens_per_second")
"""Figures that depend on the clock; all others are the same in two equal runs."""


def select_lines(lines: Sequence[Line], *kinds: str) -> list[Line]:
    """The lines of these kinds."""
    return [line for line in lines if line.get("kind") in kinds]


class MetricsLog:
    """The log of one run: lines with `update` and `kind`.

    Kinds are "data", "training", "skipped", "source_use", "validation", "finding", "average" and "length_penalty".
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, update: int, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Append a line and return it."""
        line = {"kind": kind, "update": update, **figures}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return line

    def read(self) -> list[dict[str, Any]]:
        """All lines that can be read."""
        return [line for line in self._lines() if line is not None]

    def first(self) -> dict[str, Any]:
        """The line of kind "data", written before the first update; empty if it cannot be read."""
        return next((line for line in self.read() if line["kind"] == "data"), {})

    def damaged_lines(self) -> list[int]:
        """Numbers, from 1, of lines that cannot be read, except a last one that a killed process left unfinished."""
        return [number for number, line in enumerate(self._lines()[:-1], start=1) if line is None]

    def truncate_after(self, update: int, *, average: bool) -> None:
        """Remove the lines after `update`, which a run resumed from there writes again.

        Without `average`, lines of averages and of a length penalty at `update`, the end of a run, are removed too.
        """
        kept = [line for line in self.read() if line["update"] <= update]
        if not average:
            ends = ("average", "length_penalty")
            kept = [line for line in kept if line["kind"] not in ends or line["update"] != update]
        with replace_file(self.path) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)

    def _lines(self) -> list[dict[str, Any] | None]:
        """Every line, None where it cannot be read; the last is what comes after the last line end."""
        # Bytes, as the last line may end in the middle of a character.
        return [_figures(line) for line in self.path.read_bytes().split(b"\n")] if self.path.exists() else []


def _figures(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    is_ours = isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("update"), int)
    return found if is_ours else None


def describe_environment(device: torch.device, precision: str) -> dict[str, str]:
    """Device, hardware, precision and versions that decide the figures and speed of a run, by name."""
    return {
        "device": str(device),
        "hardware": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": str(torch.get_num_threads()),
        "precision": precision,
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("transduce", "torch", "numpy", "sentencepiece", "sacrebleu")},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


NUM_BINS = 30


def length_histogram(lengths: Integer[np.ndarray, "pairs 2"]) -> dict[str, Any]:
    """Histogram of sentence lengths in `NUM_BINS` bins of `width` tokens, with median and longest of each side.

    The last bin also holds everything longer, which is at most about one side in two hundred.

    Args:
        lengths: tokens of source and target of every pair, `</s>` included.
    """
    sides = dict(zip(("source", "target"), lengths.T, strict=True))
    width = max(_quantile(side, 0.995) for side in sides.values()) // NUM_BINS + 1
    bins = {name: np.minimum(side // width, NUM_BINS - 1) for name, side in sides.items()}
    return {
        "width": width,
        **{name: np.bincount(places, minlength=NUM_BINS).tolist() for name, places in bins.items()},
        "median": {name: _quantile(side, 0.5) for name, side in sides.items()},
        "longest": {name: int(side.max()) for name, side in sides.items()},
    }


def _quantile(lengths: Integer[np.ndarray, "pairs"], share: float) -> int:
    return int(np.quantile(lengths, share, method="inverted_cdf"))
