"""Bulk translation beside plain processes, its memory, and what is left of it after kills.

    python benchmarks/bulk.py MODEL input.txt
    python benchmarks/bulk.py MODEL input.txt --kills 10

The first compares, in alternating rounds, the lines per second of `transduce translate --input` with two workers of one
thread each with those of two `transduce translate` processes of one thread that have half of the lines each, and
measures the memory of the driver and of a worker. The second kills workers and drivers by SIGKILL at random moments,
starts a killed driver again by the same command, and compares the output with that of one process, byte for byte.
Prints a table, and last a line of JSON. Linux only: memory and children are read in /proc.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
COMMAND = [sys.executable, "-m", "transduce", "translate"]


def begin_bulk(given: argparse.Namespace, output: Path) -> subprocess.Popen[bytes]:
    """Start the bulk translation with two workers."""
    flags = ["--input", given.input, "--output", output, "--workers", 2, "--block-lines", given.block_lines]
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


def find_workers(driver: int) -> list[int]:
    """The processes that a driver has started and that have loaded their libraries: its workers."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{driver}/task/{driver}/children").read_text(encoding="ascii").split()
        return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return []


def measure_memory(process: int) -> float:
    """The resident memory of a process in MiB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def watch(running: subprocess.Popen[bytes]) -> dict[str, list[float]]:
    """The memory of driver and workers, twice a second until the driver ends."""
    seen: dict[str, list[float]] = {"driver": [], "worker": []}
    while running.poll() is None:
        seen["driver"].append(measure_memory(running.pid))
        seen["worker"].extend(filter(None, map(measure_memory, find_workers(running.pid))))
        time.sleep(0.5)
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
        memory = watch(begin_bulk(given, output))
        seconds["bulk"].append(time.monotonic() - started)
        started = time.monotonic()
        targets = [half.with_suffix(".out") for half in halves]
        for running in [translate_alone(given, *both) for both in zip(halves, targets, strict=True)]:
            running.wait()
        seconds["plain"].append(time.monotonic() - started)
        if (output / given.input.name).read_bytes() != b"".join(target.read_bytes() for target in targets):
            raise SystemExit("the output differs from that of plain processes")
        print(f"round {number + 1}: " + "  ".join(f"{name} {all_of[-1]:.1f} s" for name, all_of in seconds.items()))
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


def count_blocks(output: Path) -> int:
    """The number of translated blocks that are not yet part of a finished file."""
    return len(list((output / ".transduce-bulk").glob("*/0*")))


def kill_at_random(given: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Trials, each with kills of workers and drivers, compared with one undisturbed process."""
    expected = folder / "expected"
    translate_alone(given, given.input, expected).wait()
    chance, killed = random.Random(given.seed), {"worker": 0, "driver": 0}  # noqa: S311 - no secret
    output = folder / "out"
    code: int | None = None
    while code != 0:
        num_before, running = count_blocks(output), begin_bulk(given, output)
        first_block: float | None = None
        delay = chance.uniform(0, given.longest_delay)
        while running.poll() is None:
            if first_block is None and count_blocks(output) > num_before:
                first_block = time.monotonic()  # before, there is little to lose
            if sum(killed.values()) < given.kills and first_block and time.monotonic() - first_block > delay:
                workers = find_workers(running.pid)
                victim = "driver" if chance.random() < 0.5 or not workers else "worker"
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running.pid if victim == "driver" else chance.choice(workers), signal.SIGKILL)
                    killed[victim] += 1
                first_block, delay = time.monotonic(), chance.uniform(0, given.longest_delay)
            time.sleep(0.01)
        code = running.wait()
        print(
            f"the driver ended with {code}; {count_blocks(output)} blocks are waiting; killed so far: {killed}",
            flush=True,
        )
        if code not in {0, -signal.SIGKILL}:
            raise SystemExit(f"the driver failed with exit code {code}")
    is_equal = (output / given.input.name).read_bytes() == expected.read_bytes()
    return {"killed": killed, "equal": is_equal}


def main() -> None:
    """Measure, or kill; exit code 1 if the output differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a bundle or the folder of a run")
    parser.add_argument("input", type=Path, help="a text")
    parser.add_argument("--rounds", type=int, default=3, help="of both ways, in turns")
    parser.add_argument("--block-lines", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=0, help="kill so many processes instead of measuring")
    parser.add_argument("--longest-delay", type=float, default=1.0, help="seconds from a first block to a kill")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--option", action="append", default=[], help="an option of translate, as in --option=--beam=1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transduce-bulk-") as name:
        measure = kill_at_random if given.kills else compare_speed
        result = measure(given, Path(name))
    print(json.dumps(result))
    sys.exit(not result.get("equal", True))


if __name__ == "__main__":
    main()
