"""A corpus so small, and networks so narrow, that a whole run takes a second or two."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import Bundle, list_checkpoints, load_checkpoint
from transduce.config import RunConfig, load_run_config
from transduce.data import PreparedData, prepare
from transduce.training import Progress, SilentReporter, TrainingResult, Validation, train

WORDS = ("sun", "moon", "river", "stone", "bird", "tree", "wind", "salt", "road", "lamp", "fish", "door", "café", "été")

SETTINGS: dict[str, Any] = {
    "data.source_language": "en",
    "data.target_language": "xx",
    "text.vocabulary": 320,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.dropout": 0.2,
    "training.updates": 20,
    "training.batch_tokens": 160,
    "training.schedule": "inverse_square_root",
    "training.learning_rate": 1e-2,
    "training.warmup": 5,
    "training.device": "cpu",
    "training.precision": "float32",
    "training.log_every": 1,
    "training.validate_every": 8,
    "training.checkpoint_every": 8,
    "training.keep_checkpoints": 3,
    "training.scorecard_sentences": 0,
    "search.beam": 2,
    "search.max_extra_length": 4,
}
TIMES = ("seconds", "elapsed", "tokens_per_second")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums of floats depend on the number of threads, and the processes that are compared must not differ in it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sentences(count: int, seed: int, max_words: int = 4) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, size=random.integers(1, max_words + 1))) for _ in range(count)]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8", newline="\n")


def dotted(changes: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in changes.items()}


def backwards(text: str) -> str:
    return " ".join(reversed(text.split()))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs of sentences, the second with the words of the first in reverse order."""
    folder = tmp_path_factory.mktemp("corpus")
    write_pairs(folder / "train.tsv", [(text, backwards(text)) for text in dict.fromkeys(sentences(150, seed=1))])
    write_pairs(folder / "validation.tsv", [(text, backwards(text)) for text in sentences(5, seed=2)])
    return folder


@pytest.fixture
def make_config(corpus: Path, tmp_path: Path) -> Callable[..., RunConfig]:
    """The configuration of a run in `tmp_path`, with some settings changed; double underscores stand for dots."""

    def make(name: str = "run", **changes: Any) -> RunConfig:
        given = {
            "output": str(tmp_path / name),
            "data.folder": str(corpus),
            "data.pairs": "train.tsv",
            "data.validation_pairs": "validation.tsv",
            "data.cache": str(corpus / "cache"),
            **SETTINGS,
            **dotted(changes),
        }
        return load_run_config(None, arguments=given)[0]

    return make


@pytest.fixture
def prepare_for(corpus: Path) -> Callable[[RunConfig], PreparedData]:
    """The prepared data of a run."""

    def make(config: RunConfig) -> PreparedData:
        return prepare(config.data, config.text, corpus / "cache", report=lambda _: None)

    return make


class Killed(BaseException):
    """Ends training as a kill does: nothing more is written."""


class Watcher(SilentReporter):
    """Remembers what it was told, and ends the run at `end_at`, an update or the beginning of something said."""

    def __init__(self, end_at: int | str | None = None, by: signal.Signals | None = None) -> None:
        self.end_at = end_at
        self.by = by
        self.said: list[str] = []
        self.updates: list[int] = []
        self.validations: list[tuple[int, Validation, bool]] = []

    def report(self, text: str) -> None:
        self.said.append(text)
        self._perhaps_end(reached=isinstance(self.end_at, str) and text.startswith(self.end_at))

    def report_progress(self, progress: Progress) -> None:
        self.updates.append(progress.update)
        self._perhaps_end(reached=progress.update == self.end_at)

    def report_validation(self, update: int, validation: Validation, *, is_best: bool) -> None:
        self.validations.append((update, validation, is_best))
        if self.end_at == f"validation {update}":
            self._perhaps_end(reached=True)

    def _perhaps_end(self, *, reached: bool) -> None:
        if reached and self.by is None:
            raise Killed
        if reached:
            os.kill(os.getpid(), self.by)


@pytest.fixture
def watcher() -> type[Watcher]:
    return Watcher


@pytest.fixture
def killed() -> type[Killed]:
    return Killed


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    # The comparison with a baseline has the speed and the folder of each model.
    lines = [line for line in lines if line["kind"] != "comparison"]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def outcome(run: Path) -> dict[str, Any]:
    """Everything of a run that has to be the same, to the bit, however often it was interrupted."""
    checkpoints = list_checkpoints(run / "checkpoints")
    parts, state = load_checkpoint(run / "checkpoints", checkpoints[-1])
    tensors = {f"{part}/{name}": tensor.numpy().tobytes() for part in parts for name, tensor in parts[part].items()}
    bundles = {}
    for name in ("best", "last"):
        bundle = Bundle.open(run / name)
        description = bundle.description.model_dump()
        description["training"].pop("seconds")
        bundles[name] = description
    return {
        "checkpoints": checkpoints,
        "state": {key: value for key, value in state.items() if key not in TIMES},
        "metrics": metrics(run),
        **tensors,
        **bundles,
    }


@pytest.fixture
def outcome_of() -> Callable[[Path], dict[str, Any]]:
    return outcome


@pytest.fixture
def metrics_of() -> Callable[[Path], list[dict[str, Any]]]:
    return metrics


@pytest.fixture(scope="session")
def known_outcomes() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture
def unbroken(
    make_config: Callable[..., RunConfig], known_outcomes: dict[str, dict[str, Any]]
) -> Callable[..., dict[str, Any]]:
    """The outcome of a run that nobody interrupted; each is trained once."""

    def run(**changes: Any) -> dict[str, Any]:
        key = json.dumps(changes, sort_keys=True)
        if key not in known_outcomes:
            result = train(make_config(f"unbroken-{len(known_outcomes)}", **changes))
            known_outcomes[key] = outcome(result.folder)
        return known_outcomes[key]

    return run


COPYING: dict[str, Any] = {
    "text.vocabulary": "fitted",
    "text.drop_copies": False,
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.dropout": 0.0,
    "training.updates": 300,
    "training.batch_tokens": 500,
    "training.schedule": "linear",
    "training.warmup": 40,
    "training.validate_every": 150,
    "training.checkpoint_every": 100,
    "search.max_extra_length": 10,
}


@dataclass(frozen=True)
class Lesson:
    """A run that was given enough time to learn its task, and pairs of the same kind that it never saw."""

    config: RunConfig
    result: TrainingResult
    unseen: list[tuple[str, str]]


@pytest.fixture(scope="session")
def copier(tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    """A model that has learned to copy."""
    folder = tmp_path_factory.mktemp("copier")
    pairs = [(text, text) for text in dict.fromkeys(sentences(1500, seed=3))]
    write_pairs(folder / "train.tsv", pairs[60:])
    write_pairs(folder / "validation.tsv", pairs[:30])
    files = {"data.folder": str(folder), "data.pairs": "train.tsv", "data.validation_pairs": "validation.tsv"}
    config, _ = load_run_config(None, arguments={**SETTINGS, **COPYING, **files, "output": str(folder / "run")})
    return Lesson(config, train(config), pairs[30:60])
