"""Scores by COMET, a neural metric (Rei et al. 2020), as the command of its own package computes them."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Float64

from transduce.errors import CorpusError, UserError
from transduce.evaluation.scores import Score, choose_num_resamples, read_seed
from transduce.evaluation.significance import Difference, choose_resampling, make_difference
from transduce.evaluation.test_sets import SystemOutput, TestSet
from transduce.storage import compute_file_digest

COMMAND = "comet-score"
METRIC = "COMET"

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""What keeps the package from looking for files in the network."""

LineScores = Float64[np.ndarray, " lines"]


@dataclass(frozen=True)
class CometScorer:
    """COMET with a checkpoint that is on disk.

    Args:
        command: the program `comet-score`.
        checkpoint: a file such as model.ckpt, with hparams.yaml in the folder above its own.
    """

    command: str
    checkpoint: Path

    @classmethod
    def find(cls, path: Path) -> "CometScorer":
        """Find program and checkpoint; `path` is the checkpoint, or a folder as Hugging Face keeps it.

        Raises:
            UserError: one of them is not there.
        """
        checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
        # COMET would take any other name for that of a model to be downloaded.
        if not checkpoint.is_file() or checkpoint.suffix != ".ckpt":
            raise UserError(
                f"--comet {path}: must be a checkpoint of COMET (.ckpt), or a folder with checkpoints/model.ckpt; "
                "nothing is downloaded"
            )
        if not (checkpoint.absolute().parent.parent / "hparams.yaml").is_file():
            raise UserError(f"--comet {path}: there is no hparams.yaml in the folder above that of the checkpoint")
        command = shutil.which(COMMAND)
        if command is None:
            raise UserError(
                f"--comet needs the command {COMMAND}, which is not found. Install it in an environment of its own, "
                "as it needs an older NumPy: pipx install unbabel-comet"
            )
        return cls(command, checkpoint.absolute())

    def score(
        self, test_set: TestSet, outputs: Sequence[SystemOutput], report: Callable[[str], None]
    ) -> list[LineScores]:
        """The score of every line, times 100, for each output; of several references, the first one counts.

        Raises:
            UserError: the command has failed.
        """
        report(f"{test_set.name}: {COMMAND} scores {len(outputs)} x {len(test_set.sources):,} lines")
        with TemporaryDirectory(prefix="transduce-comet-") as name:
            folder = Path(name)
            written = [
                _write_lines(folder / f"{number}.txt", lines)
                for number, lines in enumerate(
                    [test_set.sources, test_set.references[0], *(output.hypotheses for output in outputs)]
                )
            ]
            source, reference, *hypotheses = written
            found = folder / "scores.json"
            options = ["--model", str(self.checkpoint), "--gpus", "0", "--quiet", "--only_system"]
            files = ["-s", source, "-r", reference, "-t", *hypotheses, "--to_json", str(found)]
            ended = subprocess.run(
                [self.command, *files, *options],
                env={**os.environ, **OFFLINE},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
            if ended.returncode or not found.is_file():
                last = next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), "it says nothing")
                raise UserError(
                    f"{COMMAND} --model {self.checkpoint} failed: {last}; Transduce keeps it from downloading, so all "
                    "files of the model must be on disk"
                )
            scores = json.loads(found.read_text(encoding="utf-8"))
        return [100 * np.array([line[METRIC] for line in scores[name]], np.float64) for name in hypotheses]

    @property
    def signature(self) -> str:
        """Which checkpoint it is."""
        return f"model:{self.checkpoint.parent.parent.name}|sha256:{compute_file_digest(self.checkpoint)[:12]}"


def _write_lines(path: Path, lines: Sequence[str]) -> str:
    for line in lines:
        if "\n" in line or "\r" in line:
            raise CorpusError(f"a line has a line end in it, which {COMMAND} cannot read: {line!r:.80}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(path)


def summarize_lines(values: LineScores, signature: str, *, confidence: bool) -> Score:
    """The mean over the lines, with the 95 % interval of bootstrap resampling if it is asked for (Koehn 2004).

    Raises:
        ConfigError: see `read_seed`.
    """
    if not confidence:
        return Score(METRIC, float(values.mean()), signature)
    count = choose_num_resamples(len(values))
    seed = read_seed()
    low, high = np.quantile(_resample(values, count, seed), (0.025, 0.975))
    return Score(
        METRIC,
        float(values.mean()),
        f"{signature}|bs:{count}|seed:{'none' if seed is None else seed}",
        float(low),
        float(high),
    )


def compare_lines(baseline: LineScores, values: LineScores) -> Difference:
    """The difference of two means over the same lines, with the two tests of `measure_differences`.

    Raises:
        ConfigError: see `read_seed`.
    """
    differences = values - baseline
    num_resamples, num_trials, seed = choose_resampling(len(values))
    generator = np.random.default_rng(seed)
    # Exchanging two translations of a line turns the sign of their difference.
    exchanged = np.array(
        [float(differences @ (2 * generator.integers(0, 2, len(values)) - 1)) / len(values) for _ in range(num_trials)]
    )
    resampled = _resample(differences, num_resamples, seed)
    return make_difference(METRIC, float(baseline.mean()), float(values.mean()), resampled, exchanged)


def _resample(values: LineScores, count: int, seed: int | None) -> Float64[np.ndarray, " samples"]:
    """The means of `count` samples of as many lines, drawn with replacement."""
    generator = np.random.default_rng(seed)
    return np.array([values[generator.integers(0, len(values), len(values))].mean() for _ in range(count)])
