"""Bulk translation while processes are killed: is anything lost, doubled, or other than without kills?

    python benchmarks/bulk_kills.py MODEL --lines 200000 --kills 5
    python benchmarks/bulk_kills.py MODEL --lines 200000 --kills 5 --ray

The first kills each of the driver and a worker so many times, by SIGKILL at random moments; a killed driver is started
again by the same command. The second kills the driver, an actor, and the raylet of the Ray that the driver has started,
with which the driver ends, too. The text is made: lines of numbered words, no two of them equal. Its translation is
compared with that of one plain process, line by line: lines that are missing, that are there too often, and that differ
are counted. Prints what was killed, and last a line of JSON; the exit code is 1 if there are any. Linux only:
processes are found in /proc.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TRANSLATE = [sys.executable, "-m", "transduce", "translate"]

WORDS = ("a", "the", "man", "dog", "bird", "tree", "boat", "street", "sees", "has", "takes", "near", "under", "small")


def make_lines(count: int, seed: int) -> Iterator[str]:
    """Lines of some words and a number, by which no two are equal."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    for number in range(count):
        yield f"{' '.join(chance.choices(WORDS, k=chance.randint(2, 9)))} {number} ."


def list_processes() -> dict[int, tuple[int, str]]:
    """The parent and the command line of each running process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[:2]
            if state != "Z":
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(folder.name)] = int(parent), command
    return found


def find_below(ancestor: int, word: str) -> list[int]:
    """The processes that a process has started, or those have, and in whose command line a word occurs."""
    processes = list_processes()

    def is_below(process: int) -> bool:
        while process in processes:
            process = processes[process][0]
            if process == ancestor:
                return True
        return False

    return [process for process, (_, command) in processes.items() if word in command and is_below(process)]


def find_victims(kind: str, driver: int) -> list[int]:
    """The processes of a kind that a driver uses."""
    if kind == "driver":
        return [driver]
    return find_below(driver, {"worker": "spawn_main", "actor": "ray::RayWorker", "raylet": "/raylet "}[kind])


def count_blocks(output: Path) -> int:
    """The number of translated blocks that are not yet part of a finished file."""
    return len(list((output / ".transduce-bulk").glob("*/0*")))


def translate_with_kills(
    given: argparse.Namespace, command: list[str], kinds: tuple[str, ...], output: Path
) -> tuple[dict[str, int], int]:
    """Kill each kind of process so many times, until the translation is complete; the kills, and the starts."""
    chance, num_starts = random.Random(given.seed), 0  # noqa: S311 - no secret
    waiting = [kind for kind in kinds for _ in range(given.kills)]
    chance.shuffle(waiting)
    killed = dict.fromkeys(kinds, 0)
    code: int | None = None
    while code != 0:
        num_before, num_killed = count_blocks(output), sum(killed.values())
        running = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        num_starts += 1
        due: float | None = None
        while running.poll() is None:
            time.sleep(0.01)
            if not waiting:
                continue
            if due is None:
                if count_blocks(output) > num_before:  # before, there is little to lose
                    due = time.monotonic() + chance.uniform(0, given.longest_delay)
                continue
            found = find_victims(waiting[-1], running.pid) if time.monotonic() > due else []
            if found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(found), signal.SIGKILL)
                    killed[waiting.pop()] += 1
                due = time.monotonic() + chance.uniform(0, given.longest_delay)
        code = running.wait()
        print(f"the driver ended with {code}; {count_blocks(output)} blocks wait; killed so far: {killed}", flush=True)
        if code != 0 and sum(killed.values()) == num_killed:
            raise SystemExit(f"the driver failed with exit code {code}, and nothing was killed")
    return killed, num_starts


def compare(expected: list[str], found: list[str]) -> dict[str, int]:
    """How many lines are missing, there too often, or differ from those of the undisturbed run."""
    return {
        "lost": max(0, len(expected) - len(found)),
        "doubled": max(0, len(found) - len(expected)),
        "different": sum(one != other for one, other in zip(expected, found, strict=False)),
    }


def main() -> None:
    """Translate twice, undisturbed and with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a bundle or the folder of a run")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=5, help="of each kind of process")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="let workers be actors of a Ray on this machine")
    parser.add_argument("--block-lines", type=int, default=2000)
    parser.add_argument(
        "--longest-delay", type=float, default=5.0, help="seconds between a first block or kill and a kill"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the text and the moments")
    parser.add_argument("--option", action="append", default=[], help="an option of translate, as in --option=--beam=1")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transduce-bulk-") as name:
        text, expected, output = Path(name, "text"), Path(name, "expected"), Path(name, "out")
        text.write_text("".join(f"{line}\n" for line in make_lines(given.lines, given.seed)), encoding="utf-8")
        with text.open("rb") as lines, expected.open("wb") as undisturbed:
            subprocess.run(
                [*TRANSLATE, given.model, *given.option], env=ENVIRONMENT, stdin=lines, stdout=undisturbed, check=True
            )
        flags = ["--input", text, "--output", output, "--workers", given.workers, "--block-lines", given.block_lines]
        flags += ["--ray"] if given.ray else []
        killed, num_starts = translate_with_kills(
            given,
            [*TRANSLATE, *map(str, [given.model, *flags, *given.option])],
            ("driver", "actor", "raylet") if given.ray else ("driver", "worker"),
            output,
        )
        differences = compare(*(path.read_text(encoding="utf-8").split("\n") for path in (expected, output / "text")))
    is_complete = all(count == given.kills for count in killed.values())
    if not is_complete:
        print("the translation was complete before all kills: give more lines, or a shorter --longest-delay")
    print(json.dumps({"lines": given.lines, "killed": killed, "starts": num_starts, **differences}))
    sys.exit(any(differences.values()) or not is_complete)


if __name__ == "__main__":
    main()
