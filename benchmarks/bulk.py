"""Bulk translation beside plain processes, and its memory.

    python benchmarks/bulk.py MODEL input.txt
    python benchmarks/bulk.py MODEL --lines 1000000 --rounds 1 --ray

Compares, in alternating rounds, the lines per second of `transduce translate --input` with two workers of one thread
each with those of two `transduce translate` processes of one thread that have half of the lines each, and measures the
memory of the driver and of a worker: resident (RSS), and with what processes share divided among them (PSS). The second
has actors of Ray as workers, and a text that is made: lines of some words and a number, no two of them equal. Prints a
line for each round, and last a line of JSON. Linux only: memory and children are read in /proc.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bulk_kills import find_victims, make_lines

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "transduce", "translate"]


def begin_bulk(given: argparse.Namespace, output: Path) -> subprocess.Popen[bytes]:
    """Start the bulk translation with two workers."""
    flags = ["--input", given.input, "--output", output, "--workers", 2, "--block-lines", given.block_lines]
    flags += ["--ray"] if given.ray else []
    return subprocess.Popen(
        [*COMMAND, *map(str, [given.model, *flags, *given.option])], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )


def translate_alone(given: argparse.Namespace, source: Path, target: Path) -> subprocess.Popen[bytes]:
    """Start one plain process."""
    with source.open("rb") as lines, target.open("wb") as output:
        return subprocess.Popen(
            [*COMMAND, str(given.model), *given.option],
            env=ENVIRONMENT,
            stdin=lines,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )


def measure_memory(process: int) -> dict[str, float]:
    """The resident memory of a process and its share of it (PSS) in MiB; nothing if it has ended."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":") for line in lines if line.startswith(("Rss:", "Pss:")))
        return {name: int(value.split()[0]) / 1024 for name, value in fields.items()}
    return {}


def watch(running: subprocess.Popen[bytes], worker: str) -> dict[str, list[float]]:
    """The memory of driver and workers, every two seconds until the driver ends."""
    seen: dict[str, list[float]] = {}
    while running.poll() is None:
        for kind, processes in (("driver", [running.pid]), ("worker", find_victims(worker, running.pid))):
            for name, value in (pair for process in processes for pair in measure_memory(process).items()):
                seen.setdefault(f"{kind}_{name}", []).append(value)
        time.sleep(2)
    return seen


def compare_speed(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Lines per second of both ways in alternating rounds, and memory of the first."""
    lines = given.input.read_bytes().splitlines(keepends=True)
    halves = [folder / "first", folder / "second"]
    for half, part in zip(halves, (lines[: len(lines) // 2], lines[len(lines) // 2 :]), strict=True):
        half.write_bytes(b"".join(part))
    seconds: dict[str, list[float]] = {"bulk": [], "plain": []}
    memory: dict[str, list[float]] = {}
    for number in range(given.rounds):
        started = time.monotonic()
        output = folder / f"out-{number}"
        memory = watch(begin_bulk(given, output), "actor" if given.ray else "worker")
        seconds["bulk"].append(time.monotonic() - started)
        started = time.monotonic()
        targets = [half.with_suffix(".out") for half in halves]
        for running in [translate_alone(given, *both) for both in zip(halves, targets, strict=True)]:
            running.wait()
        seconds["plain"].append(time.monotonic() - started)
        if (output / given.input.name).read_bytes() != b"".join(target.read_bytes() for target in targets):
            raise SystemExit("the output differs from that of plain processes")
        print(
            f"round {number + 1}: " + "  ".join(f"{name} {all_of[-1]:.1f} s" for name, all_of in seconds.items()),
            flush=True,
        )
    ratios = [plain / bulk for bulk, plain in zip(seconds["bulk"], seconds["plain"], strict=True)]
    result: dict[str, object] = {
        "lines": len(lines),
        "lines_per_second": {name: round(len(lines) / statistics.median(one)) for name, one in seconds.items()},
        "ratios": [round(ratio, 3) for ratio in ratios],
    }
    for name, values in memory.items():
        third = max(1, len(values) // 3)
        result[f"{name}_MiB"] = {
            "second_third": round(max(values[third : 2 * third])),
            "last_third": round(max(values[2 * third :])),
        }
    return result


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a bundle or the folder of a run")
    parser.add_argument("input", type=Path, nargs="?", help="a text; unless given, one of --lines is made")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--ray", action="store_true", help="let workers be actors of a Ray on this machine")
    parser.add_argument("--rounds", type=int, default=3, help="of both ways, in turns")
    parser.add_argument("--block-lines", type=int, default=2000)
    parser.add_argument("--option", action="append", default=[], help="an option of translate, as in --option=--beam=1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transduce-bulk-") as name:
        if given.input is None:
            given.input = Path(name, "text")
            given.input.write_text("".join(f"{line}\n" for line in make_lines(given.lines, 1)), encoding="utf-8")
        print(json.dumps(compare_speed(given, Path(name))))


if __name__ == "__main__":
    main()
