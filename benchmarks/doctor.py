"""Time and memory of `transduce doctor`, and whether it finds mistakes that were planted in a text.

    OMP_NUM_THREADS=1 python benchmarks/doctor.py --source train.en --target train.de --folder /tmp/doctor

Each pair of the text consists of `--joined` pairs of the given one, drawn at random, with a name and a number that are
made up and the same on both sides. Without files, it is in two invented languages, as in corpus_scale.py. Then mistakes
are planted: a target line that is missing, a stretch whose targets are two lines late, pairs put together at random,
swapped pairs, mojibake, pairs that differ by a word from others, and test pairs that are in the training text. Seconds
are those of processors. The last line printed is a JSON object. What was made is deleted at the end; on Linux only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from corpus_scale import SYLLABLES, write_text

TEST_PAIRS = 1000


def main() -> None:
    """Make the text, plant, examine, compare, delete."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", type=Path, help="a text to make the larger one of, source side")
    parser.add_argument("--target", type=Path, help="target side, line for line")
    parser.add_argument("--joined", type=int, default=2, help="pairs of it in each pair")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True, help="is made, and deleted at the end")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    try:
        results = measure(given.folder, given.source, given.target, given.joined, given.pairs)
    finally:
        shutil.rmtree(given.folder)
    print(json.dumps(results))


def measure(folder: Path, source: Path | None, target: Path | None, joined: int, num_pairs: int) -> dict[str, Any]:
    """Figures of one examination, and for each planted mistake what is true and what was found."""
    random = np.random.default_rng(2017)
    if source is not None and target is not None:
        texts = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in (source, target)]
        sides = vary(texts, joined, num_pairs, random)
    else:
        write_text(folder, num_pairs)
        paths = [folder / f"train.{side}" for side in ("source", "target")]
        sides = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths]
    truth = plant(folder, sides, random)
    del sides
    results: dict[str, Any] = {"pairs": num_pairs}
    for name in ("as-made", "planted"):
        seconds, megabytes, report = examine(folder, name)
        results[name] = {"seconds": seconds, "peak_megabytes": megabytes}
        words = report["texts"]["training"]["lengths"]["words"]
        print(
            f"{name}: {num_pairs:,} pairs of {words['source'][2]} and {words['target'][2]} words in the median: ",
            end="",
        )
        print(f"{seconds:.0f} s, {megabytes:,.0f} MB; {list_findings(report)}", flush=True)
    found = {name: describe(report, name) for name in truth}
    for name in truth:
        print(f"  {name:<20} planted: {truth[name]}\n  {'':<20} found:   {found[name]}")
    return results | {"truth": truth, "found": found}


def vary(texts: Sequence[Sequence[str]], joined: int, num_pairs: int, random: np.random.Generator) -> list[list[str]]:
    """New pairs made of `joined` given ones each, with a name and a number between them."""
    chosen = random.integers(0, len(texts[0]), (num_pairs, joined)).tolist()
    letters = random.integers(0, len(SYLLABLES), (num_pairs, 3)).tolist()
    # Names have a distribution like words: most are rare.
    numbers = (random.pareto(1.0, num_pairs) * 10).astype(int).tolist()
    marks = [
        "".join(SYLLABLES[letter] for letter in name).capitalize() + f" {number}"
        for name, number in zip(letters, numbers, strict=True)
    ]
    return [
        [f"{mark}: " + " ".join(text[row] for row in rows) for rows, mark in zip(chosen, marks, strict=True)]
        for text in texts
    ]


def plant(folder: Path, sides: list[list[str]], random: np.random.Generator) -> dict[str, Any]:
    """Write the text as it is and with mistakes; returns what is wrong, by the name of the finding."""
    test = [side[-TEST_PAIRS:] for side in sides]
    sources, targets = trained = [side[:-TEST_PAIRS] for side in sides]
    write(folder, "as-made", trained)
    write(folder, "as-made-test", test)
    num_pairs = len(sources)
    rows = random.permutation(num_pairs)
    part = max(20, num_pairs // 100)
    mispaired, swapped, damaged, similar = np.split(rows[: 4 * part], 4)
    for row, other in zip(mispaired.tolist(), np.roll(mispaired, 1).tolist(), strict=True):
        targets[row] = sides[1][other]
    for row in swapped.tolist():
        sources[row], targets[row] = targets[row], sources[row]
    for row in damaged.tolist():
        targets[row] = f"{targets[row]} über".encode().decode("latin-1")
    for row in similar.tolist():  # the next pair with another first word
        other = (row + 1) % num_pairs
        sources[row], targets[row] = (f"Zumbel {side[other].partition(' ')[2]}" for side in sides)
    late, missing = num_pairs // 4, num_pairs // 2
    stretch = 1_000 if num_pairs > 10_000 else num_pairs // 20
    targets[late : late + stretch] = [
        *targets[late + stretch - 2 : late + stretch],
        *targets[late : late + stretch - 2],
    ]
    leaked = min(200, num_pairs // 10)
    write(folder, "planted", [sources[:-1], targets[:missing] + targets[missing + 1 :]])
    write(folder, "planted-test", [[*side[:leaked], *some[leaked:]] for side, some in zip(sides, test, strict=True)])
    return {
        "shifted_lines": [[late + 1, late + stretch, 2], [missing + 1, num_pairs - 1, -1]],
        "mispaired_lines": part,
        "swapped_pairs": part,
        "mojibake": part,
        "near_duplicates": 2 * part,
        "leakage": leaked,
    }


def write(folder: Path, name: str, sides: Sequence[Sequence[str]]) -> None:
    """Two files of lines."""
    for side, lines in zip(("source", "target"), sides, strict=True):
        (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def examine(folder: Path, name: str) -> tuple[float, float, dict[str, Any]]:
    """Seconds of processors, megabytes at the peak, and the report."""
    options = [
        f"--{text}{side}={folder / f'{name}{ending}.{side}'}"
        for text, ending in (("", ""), ("test-", "-test"))
        for side in ("source", "target")
    ]
    command = [sys.executable, "-m", "transduce", "doctor", *options, "--json"]
    with (folder / "report.json").open("wb") as output:
        process = subprocess.Popen(command, stdout=output)
        megabytes = 0.0
        # Not usage.ru_maxrss, which begins with the memory of this process.
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            for line in Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("VmHWM"):
                    megabytes = int(line.split()[1]) * 1024 / 1e6
            time.sleep(0.1)
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 3}:
        raise SystemExit(process.returncode)
    seconds = round(usage.ru_utime + usage.ru_stime, 1)
    return seconds, round(megabytes, 1), json.loads((folder / "report.json").read_bytes())


def describe(report: dict[str, Any], name: str) -> Any:  # noqa: ANN401 - numbers, or places
    """What was found under a name: how many pairs, or of shifts the first and the last line and the shift."""
    if name == "shifted_lines":
        return [
            [one["number"], one["number"] + one["num_pairs"] - 1, one["shift"]]
            for one in report["texts"]["training"]["segments"]
            if one["shift"] != 0
        ]
    return sum(finding["num_pairs"] for finding in report["findings"] if finding["name"] == name)


def list_findings(report: dict[str, Any]) -> str:
    """The findings as one line."""
    found = [f"{one['name']} {one['num_pairs']:,} ({one['text']})" for one in report["findings"]]
    return ", ".join(found) or "nothing found"


if __name__ == "__main__":
    main()
