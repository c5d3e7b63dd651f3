"""Damaged and hostile files for every reader: each case must end in a result or in one of our errors.

    python benchmarks/fuzz.py --cases 100000 --seed 1 --failures failures
    python benchmarks/fuzz.py --repeat failures/pairs-1-4711

A case changes valid files (fuzz_mutations.py) and has a reader read them (fuzz_readers.py), in a process for each
reader, so that a crash is a finding. Findings are: another exception, a warning, a crash, more than --seconds of the
processor or --megabytes of memory, a file that was changed or left behind, and an answer of the server with another
status than a result, a refusal, or one of the documented states of overload. A case is decided by seed, reader and
number; the files of a finding are kept under its name, and --repeat reads them again with a traceback. Prints a table
and, last, one line of JSON.
"""

import argparse
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from fuzz_readers import READERS, read_folder

from transduce.errors import TransduceError

_WAIT = 60.0
"""Seconds without an answer after which a process is ended: something has stopped that takes no time of the processor,
or does not return to Python."""


_FILLING = 0.05
"""Seconds in which no case fills the memory of a finding."""


class TooSlowError(BaseException):
    """A case takes too long; not an `Exception`, so that no reader mistakes it for one of its own."""


def main() -> None:
    """Parse, run, report; exit code 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000, help="of all readers together")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=READERS, action="append", help="readers; all by default")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="where cases of findings are kept")
    parser.add_argument("--seconds", type=float, default=5.0, help="of the processor, for a case")
    parser.add_argument("--megabytes", type=int, default=400, help="that memory may grow by in a case")
    parser.add_argument("--repeat", type=Path, help="the folder of a finding, to be read again")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if given.repeat:
        repeat(given.repeat)
    elif given.worker:
        work(given, given.worker)
    else:
        run(given)


def run(given: argparse.Namespace) -> None:
    """All cases of all readers, one reader after the other."""
    names = given.only or list(READERS)
    shares = sum(READERS[name].share for name in names)
    started = time.monotonic()
    totals: dict[str, Counter[str]] = {}
    findings: list[str] = []
    print(f"{'reader':17} {'cases':>8} {'read':>8} {'refused':>8} {'findings':>8} {'seconds':>8}", flush=True)
    for name in names:
        begun = time.monotonic()
        totals[name] = Counter()
        for number, outcome in run_reader(given, name, max(1, round(given.cases * READERS[name].share / shares))):
            totals[name]["cases"] += 1
            totals[name][outcome if outcome in {"read", "refused"} else "findings"] += 1
            if outcome not in {"read", "refused"}:
                findings.append(f"{name}-{given.seed}-{number}")
                print(f"    {findings[-1]}: {outcome}", flush=True)
        found = totals[name]
        figures = " ".join(f"{found[kind]:8,}" for kind in ("cases", "read", "refused", "findings"))
        print(f"{name:17} {figures} {time.monotonic() - begun:8.0f}", flush=True)
    result = {
        "cases": sum(found["cases"] for found in totals.values()),
        "findings": findings,
        "seed": given.seed,
        "first": given.first,
        "seconds": round(time.monotonic() - started),
        "readers": {name: dict(found) for name, found in totals.items()},
    }
    print(json.dumps(result))
    sys.exit(bool(findings))


def run_reader(given: argparse.Namespace, name: str, count: int) -> Iterator[tuple[int, str]]:
    """Numbers and outcomes of the cases of a reader; a process that has ended is followed by another."""
    number, end = given.first, given.first + count
    while number < end:
        options = ["--worker", name, "--seed", str(given.seed), "--first", str(number), "--cases", str(end - number)]
        options += [
            "--seconds",
            str(given.seconds),
            "--megabytes",
            str(given.megabytes),
            "--failures",
            str(given.failures),
        ]
        command = [sys.executable, "-X", "faulthandler", __file__, *options]
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
        ):
            before = number
            for outcome in _read_outcomes(process):
                yield number, outcome
                number += 1
            process.kill()
            process.wait()
            if number < end and process.returncode != 75:
                errors.seek(0)
                words = errors.read().decode(errors="replace").strip()[-1500:]
                if number == before and "Fatal Python error" not in words and process.returncode > 0:
                    raise SystemExit(f"the process for {name} does not start: {words}")
                keep(given, name, number, {}, f"the process ended with {process.returncode}: {words}")
                yield number, f"the process ended with {process.returncode}: {words[-300:]}"
                number += 1


def _read_outcomes(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """A line for each case; ends when the process does, or says nothing for too long."""
    stream = process.stdout
    waiting = b""
    limit = 300.0  # until it has started
    while select.select([stream], [], [], limit)[0]:
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            return
        *lines, waiting = (waiting + block).split(b"\n")
        for line in lines:
            yield json.loads(line)
            limit = _WAIT


def work(given: argparse.Namespace, name: str) -> None:
    """The cases of one reader, in this process; after a finding of memory it ends with 75, so that another follows."""
    warnings.simplefilter("error")
    reader = READERS[name]
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_find_memory()) as scratch:
        inputs = _make_inputs(name, Path(scratch) / "inputs")
        temporary = Path(scratch) / "temporary"
        temporary.mkdir()
        folder = Path(scratch) / "case" / "files"
        _write(folder, inputs[0])
        _keep_temporary_files(scratch)
        reader.read(folder, np.random.default_rng(0))  # what is loaded at first is no memory of a case
        shutil.rmtree(folder.parent)
        before = find_peak()
        _keep_temporary_files(str(temporary))
        for number in range(given.first, given.first + given.cases):
            files, random = make_case(given.seed, name, number, inputs)
            _write(folder, files)
            begun = time.monotonic()
            outcome = judge(reader, folder, random, given.seconds, temporary)
            # Asking takes longer than most cases, and memory that much grows in takes this long to be filled.
            if is_large := time.monotonic() - begun > _FILLING and (grown := find_peak() - before) > given.megabytes:
                outcome = f"memory grew by {grown} MB; {outcome}"
            if outcome not in {"read", "refused"}:
                keep(given, name, number, files, outcome)
            print(json.dumps(outcome.strip().splitlines()[-1][:400]), flush=True)
            shutil.rmtree(folder.parent)
            if is_large:
                break
    os._exit(75 if is_large else 0)  # threads of the server do not end by themselves


def find_peak() -> int:
    """The most memory that this process has had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def judge(reader: Any, folder: Path, random: np.random.Generator, seconds: float, temporary: Path) -> str:  # noqa: ANN401
    """Read the files of a case: "read", "refused", or the finding."""
    written = (
        {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if reader.writes
        else read_folder(folder)
    )
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        outcome = "refused" if reader.read(folder, random) is False else "read"
    except TransduceError as error:
        message = str(error)
        outcome = "refused"
        if not message or len(message) > 10_000:
            outcome = f"a message of {len(message):,} characters: {message[:100]!r}"
    except (Exception, TooSlowError):  # noqa: BLE001 - each is a finding
        outcome = traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if not reader.writes and read_folder(folder) != written:
        outcome = f"files were changed: {sorted(read_folder(folder))}; {outcome}"
    if left := [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")]:
        outcome = f"left in the folder of temporary files: {left}; {outcome}"
        shutil.rmtree(temporary)
        temporary.mkdir()
    return outcome


def make_case(
    seed: int, name: str, number: int, inputs: list[dict[str, bytes]]
) -> tuple[dict[str, bytes], np.random.Generator]:
    """The files of a case, and the generator that chooses options; seed, reader and number decide them."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode()), number])
    chosen = inputs[int(random.integers(len(inputs)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of members of one name
        files = READERS[name].mutate(random, chosen, READERS[name].words)
    return files, np.random.default_rng([seed, number])


def keep(given: argparse.Namespace, name: str, number: int, files: dict[str, bytes], outcome: str) -> None:
    """Keep the files of a finding, and what was found."""
    if not files:  # of a process that has ended
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            files, _ = make_case(given.seed, name, number, _make_inputs(name, Path(scratch) / "inputs"))
    place = given.failures / f"{name}-{given.seed}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    _write(place / "files", files)
    (place / "finding.txt").write_text(outcome, encoding="utf-8", errors="backslashreplace")


def repeat(place: Path) -> None:
    """Read the files of a finding again."""
    name, seed, number = place.name.rsplit("-", 2)
    warnings.simplefilter("error")
    signal.signal(signal.SIGPROF, _stop)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        temporary = Path(scratch) / "temporary"
        temporary.mkdir()
        _keep_temporary_files(scratch)
        folder = shutil.copytree(place / "files", Path(scratch) / "case" / "files")
        random = np.random.default_rng([int(seed), int(number)])
        print(judge(READERS[name], folder, random, 60, temporary), flush=True)
    os._exit(0)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def _keep_temporary_files(folder: str) -> None:
    """Let the folder of temporary files be this one from now on."""
    tempfile.tempdir = os.environ["TMPDIR"] = folder


def _make_inputs(name: str, folder: Path) -> list[dict[str, bytes]]:
    folder.mkdir(parents=True)
    return READERS[name].make(folder)


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _find_memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - within, a folder of our own


if __name__ == "__main__":
    main()
