import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.config import RunConfig, to_toml
from transduce.errors import ConfigError, CorpusError, Interrupted, RunError
from transduce.training import train
from transduce.translation import Translator

MakeConfig = Callable[..., RunConfig]
SOURCE = Path(__file__).parents[2] / "src"


def share_right(lesson: Any) -> float:
    sources, references = zip(*lesson.unseen, strict=True)
    translations = Translator.load(lesson.result.folder, device="cpu").translate(sources, beam=1)
    return sum(map(str.__eq__, translations, references)) / len(references)


def test_learns_to_copy(copier: Any) -> None:
    assert share_right(copier) > 0.95


class Sitting:
    """One process that trains, as from the command line."""

    def __init__(self, recipe: Path) -> None:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transduce", "train", str(recipe)],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def wait_for(self, metrics: Path, num_lines: int) -> None:
        """Until there are so many lines of metrics."""
        deadline = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < deadline:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= num_lines:
                return
            time.sleep(0.002)
        pytest.fail(f"ended or hung before it was interrupted: {self.process.communicate(timeout=1)}")

    def end(self) -> tuple[int, str, str]:
        output, messages = self.process.communicate(timeout=120)
        return self.process.returncode, output, messages


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
        ),
    ],
)
def test_processes_that_are_interrupted_and_killed(
    device: str, make_config: MakeConfig, outcome_of: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """SIGTERM, then SIGINT, then SIGKILL at a random moment, always the same run; compared with an unbroken one."""
    settings = {
        "training__device": device,
        "training__updates": 60,
        "training__validate_every": 40,
        "training__checkpoint_every": 15,
    }
    config = make_config(**settings)
    folder = Path(config.output)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(config), encoding="utf-8")
    for number, num_lines in ((signal.SIGTERM, 5), (signal.SIGINT, 20)):
        sitting = Sitting(recipe)
        sitting.wait_for(folder / "metrics.jsonl", num_lines)
        sitting.process.send_signal(number)
        code, output, messages = sitting.end()
        assert (code, output) == (130, ""), messages
        assert "the same command goes on from there" in messages
        assert "Traceback" not in messages
        update = int((folder / "metrics.jsonl").read_text(encoding="utf-8").split('"update": ')[-1].split(",")[0])
        assert (folder / "checkpoints" / f"{update:09d}").is_dir()

    sitting = Sitting(recipe)
    sitting.wait_for(folder / "metrics.jsonl", 35)
    delay = np.random.default_rng().uniform(0, 0.2)
    time.sleep(delay)
    sitting.process.kill()
    sitting.end()

    train(config)
    train(make_config("unbroken", **settings))
    found, expected = outcome_of(folder), outcome_of(folder.with_name("unbroken"))
    assert [name for name in expected if found[name] != expected[name]] == [], f"killed after {delay} seconds"


def test_a_second_wish_ends_at_once(make_config: MakeConfig, watcher: Any) -> None:
    class Impatient(watcher):  # type: ignore[misc]  # a fixture is no type
        def progress(self, progress: Any) -> None:
            super().progress(progress)
            os.kill(os.getpid(), signal.SIGINT)

    config = make_config()
    told = Impatient(1, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(config, told)
    assert told.updates == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(Interrupted):
        train(config, Impatient())


def test_text_that_changed_is_refused(make_config: MakeConfig, corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").split("\n")
    (folder / "validation.tsv").write_bytes((corpus / "validation.tsv").read_bytes())
    # fitted: with the text, the size of the vocabulary changes
    for run, vocabulary in (("fixed", 320), ("fitted", "fitted")):
        (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
        settings = {"data__folder": str(folder), "text__vocabulary": vocabulary}
        train(make_config(run, training__updates=2, **settings))
        before = (tmp_path / run / "metrics.jsonl").read_bytes(), (tmp_path / run / "config.toml").read_bytes()
        (folder / "train.tsv").write_text("\n".join(["zebra quartz\tjumbo", *lines]), encoding="utf-8")
        with pytest.raises(RunError, match="was trained on other data"):
            train(make_config(run, training__updates=3, **settings))
        after = (tmp_path / run / "metrics.jsonl").read_bytes(), (tmp_path / run / "config.toml").read_bytes()
        assert after == before
        (folder / "train.tsv").write_text("\n".join(lines), encoding="utf-8")
        assert train(make_config(run, training__updates=3, **settings)).updates == 3


def test_another_version_that_would_prepare_otherwise_goes_on_with_what_is_there(
    make_config: MakeConfig,
    tmp_path: Path,
    outcome_of: Callable[[Path], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = {"data__cache": str(tmp_path / "cache")}
    train(make_config("unbroken", training__updates=12, training__validate_every=4, **cache))
    for updates in (4, 12):
        config = make_config(training__updates=updates, training__validate_every=4, **cache)
        train(config)
        monkeypatch.setattr("transduce.data.inputs.PREPARATION_VERSION", "another")
    found, expected = outcome_of(Path(config.output)), outcome_of(tmp_path / "unbroken")
    weights = [name for name in expected if name.startswith("weights/")]
    assert weights
    assert [name for name in weights if found[name] != expected[name]] == []

    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(RunError, match=r"the version of Transduce or SentencePiece has changed"):
        train(make_config(training__updates=16, training__validate_every=4, **cache))


def test_a_warmup_that_outlasts_the_run_is_told_of(make_config: MakeConfig, watcher: Any) -> None:
    for updates, expected in ((4, 1), (5, 0)):
        told = watcher()
        train(make_config(f"run-{updates}", training__updates=updates), told)
        assert sum("the learning rate is still rising" in text for text in told.said) == expected


def test_several_corpora(make_config: MakeConfig, corpus: Path, tmp_path: Path, watcher: Any) -> None:
    lines = (corpus / "train.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    lines = [line for line in lines if len(set(line.split("\t"))) == 2]  # cleaning drops copies
    for name, some in (("a.tsv", lines[:60]), ("b.tsv", [*lines[50:], "\t"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    (tmp_path / "validation.tsv").write_bytes((corpus / "validation.tsv").read_bytes())

    def config(weight: float, updates: int) -> RunConfig:
        corpora = [{"pairs": "a.tsv"}, {"pairs": "b.tsv", "weight": weight}]
        given = {"data__folder": str(tmp_path), "data__pairs": None, "data__corpora": corpora}
        return make_config("weighted", training__updates=updates, **given)

    told = watcher()
    folder = train(config(0.5, 2), told).folder
    data = json.loads((folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[0])
    a, b = data["corpora"]
    assert (a["name"], a["weight"], b["name"], b["weight"]) == ("a.tsv", 1.0, "b.tsv", 0.5)
    assert (a["cleaning"]["duplicate"], b["cleaning"]["duplicate"], b["cleaning"]["blank"]) == (0, 10, 1)
    assert data["num_pairs"] == a["cleaning"]["kept"] + b["cleaning"]["kept"] == data["cleaning"]["kept"]
    said = [sentence for sentence in told.said if sentence.startswith("    b.tsv: ")]
    assert said == [
        f"    b.tsv: {b['cleaning']['kept']:,} pairs (left out: blank 1, duplicate 10), each 0.5 times an epoch"
    ]
    with pytest.raises(RunError, match=r"data\.corpora: was .*'weight': 0\.5.* now .*'weight': 2\.0"):
        train(config(2.0, 4))
    assert train(config(0.5, 4)).updates == 4


def test_mistakes_are_found_before_anything_is_written(make_config: MakeConfig, corpus: Path, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"data__pairs": None, "data__validation_pairs": None}, ConfigError),
        ({"training__device": "warp drive"}, ConfigError),
        ({"data__pairs": "missing.tsv"}, CorpusError),
        ({"data__pairs": "-"}, CorpusError),
    ]
    for changes, error in cases:
        with pytest.raises(error):
            train(make_config(data__cache=str(tmp_path / "cache"), **changes))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"text__algorithm": "unigram", "text__bpe_dropout": 0.1}, "bpe_dropout"),
        (
            {"model__positions": "learned", "model__max_positions": 80, "search__min_length": 81},
            "writes no more tokens",
        ),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_an_earlier_run_makes_way_only_for_one_that_can_be(
    make_config: MakeConfig,
    outcome_of: Callable[[Path], dict[str, Any]],
    changes: dict[str, Any],
    error: str,
    restart: bool,
) -> None:
    config = make_config(training__updates=1)
    if restart:
        train(config)
    before = outcome_of(Path(config.output)) if restart else None
    with pytest.raises(ConfigError, match=error):
        train(make_config(training__updates=1, search__max_extra_length=100, **changes), restart=restart)
    assert (outcome_of(Path(config.output)) if restart else None) == before
    assert Path(config.output).exists() == restart


def test_standard_input_can_be_the_text(make_config: MakeConfig, corpus: Path) -> None:
    with (corpus / "train.tsv").open("rb") as file:
        result = train(make_config(data__pairs="-", training__updates=1), standard_input=file)
    assert result.updates == 1


def test_learned_positions_reach_as_far_as_they_are_asked_to(
    make_config: MakeConfig, corpus: Path, tmp_path: Path
) -> None:
    learned = {"model__positions": "learned", "model__max_positions": 16, "training__updates": 4}
    # The search may look 50 tokens further than the source; the table of positions ends before.
    result = train(make_config(**learned))
    assert "\n" not in Translator.load(result.folder).translate(["sun moon " * 40])[0]

    (tmp_path / "long.tsv").write_text(
        (corpus / "train.tsv").read_text(encoding="utf-8") + "sun " * 20 + "\t" + "moon " * 20 + "\n", encoding="utf-8"
    )
    too_few = make_config("other", data__pairs=str(tmp_path / "long.tsv"), **learned)
    with pytest.raises(ConfigError, match=r"max_positions = 16: the text has a sentence of \d+ tokens; raise it"):
        train(too_few)
    assert not Path(too_few.output).exists()
