"""A microscopic model that has learned to spell words backwards, and what it takes to call commands."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from transduce.cli import main

SOURCE = Path(__file__).parents[2] / "src"
WORDS = ("ba", "do", "fi", "ku", "le", "mo", "na", "pe", "ri", "su", "ta", "vo")
RECIPE = """
[data]
source = "train.source"
target = "train.target"
validation_source = "valid.source"
validation_target = "valid.target"
source_language = "en"

[text]
vocabulary = 300

[model]
num_encoder_layers = 1
num_decoder_layers = 1
d_model = 16
d_ff = 32
num_heads = 2
dropout = 0.0

[training]
updates = 6
batch_tokens = 400
schedule = "linear"
learning_rate = 1e-2
warmup = 2
log_every = 2
validate_every = 1000
checkpoint_every = 2
scorecard_sentences = 0

[search]
max_extra_length = 8
max_pieces = 24
"""


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    exit_code: int
    output: bytes
    messages: str

    @property
    def lines(self) -> list[str]:
        """Of standard output; each ends in a line feed."""
        assert not self.output or self.output.endswith(b"\n")
        return self.output.decode("utf-8").split("\n")[:-1]


Transduce = Callable[..., Answer]


def make_pairs(num_pairs: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different sentences of a few words, and the same with every word spelled backwards."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    sentences: dict[str, str] = {}
    while len(sentences) < num_pairs:
        words = chance.choices(WORDS, k=chance.randint(1, 5))
        sentences[" ".join(words)] = " ".join(word[::-1] for word in words)
    return list(sentences.items())


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def fill(folder: Path) -> None:
    """The files that RECIPE names, and the recipe."""
    for name, num_pairs, seed in (("train", 300, 0), ("valid", 10, 1)):
        for side, lines in zip(("source", "target"), zip(*make_pairs(num_pairs, seed), strict=True), strict=True):
            write_lines(folder / f"{name}.{side}", list(lines))
    (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model has learned something, so that translations differ; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    fill(folder)
    settings = ["training.updates=160", "training.warmup=20", "model.d_model=32", "training.checkpoint_every=80"]
    places = [f"data.folder={folder}", f"output={folder / 'runs' / 'model'}"]
    arguments = ["train", str(folder / "tiny.toml"), *(f"--set={setting}" for setting in [*settings, *places])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", None)  # pytest's own is not like any that commands meet
        with pytest.raises(SystemExit) as leaving:
            main(arguments)
    assert leaving.value.code == 0
    return folder / "runs" / "model"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: an own folder with text and a recipe, and no settings in the environment."""
    for name in os.environ:
        if name.startswith("TRANSDUCE_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "workspace"
    folder.mkdir()
    fill(folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def transduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Transduce:
    """Call a command in this process, as `transduce ARGUMENTS < standard_input` would."""

    def call(*arguments: object, standard_input: bytes | None = b"") -> Answer:
        path = tmp_path / "standard-input"
        path.write_bytes(standard_input or b"")
        capfdbinary.readouterr()
        with path.open(encoding="utf-8") as stream, monkeypatch.context() as patch:
            # None is what Python gives to a process whose standard input is closed.
            patch.setattr(sys, "stdin", None if standard_input is None else stream)
            with pytest.raises(SystemExit) as leaving:
                main([str(argument) for argument in arguments])
        output, messages = capfdbinary.readouterr()
        code = leaving.value.code
        assert isinstance(code, int)
        return Answer(code, output, messages.decode("utf-8"))

    return call


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes | None]]:
    """Everything in a folder, to be compared: files with their bytes, folders with None."""

    def read(folder: Path) -> dict[str, bytes | None]:
        paths = sorted(folder.rglob("*"))
        return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}

    return read


@pytest.fixture
def start(workspace: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Begin a command in a process of its own, on one core; its streams are pipes unless given."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TRANSDUCE_")}
    variables = inherited | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "TERM": "xterm"}

    def begin(*arguments: object, environment: Mapping[str, str] | None = None, **streams: Any) -> Any:
        return subprocess.Popen(
            [sys.executable, "-m", "transduce", *map(str, arguments)],
            env=variables | (environment or {}),
            cwd=workspace,
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        )

    return begin


@pytest.fixture
def process(start: Callable[..., subprocess.Popen[bytes]]) -> Transduce:
    """Call a command in a process of its own."""

    def call(*arguments: object, standard_input: bytes = b"", **options: Any) -> Answer:
        with start(*arguments, **options) as running:
            output, messages = running.communicate(standard_input)
        return Answer(running.returncode, output or b"", (messages or b"").decode("utf-8"))

    return call
