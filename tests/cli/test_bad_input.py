"""What people get wrong: every message names it and says what to do, and nothing is left behind."""

import gzip
import json
import re
import resource
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REMEDY = re.compile(
    r"\b(give|set|choose|check|convert|use|must|did you mean|needs|start over|delete|correct|rename|pipe|looks like|"
    r"ask for|cannot be changed|download or create|leave|only bundles|at least|at line|is a TOML file|update it|"
    r"fix|restore|import it|is neither a preset)\b"
)
TEXT = "train --source train.source --target train.target --output out"


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def change(path: Path, **values: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | values), encoding="utf-8")


@dataclass(frozen=True)
class Mistake:
    """A command that cannot be done.

    Args:
        command: its arguments, with a space between; `model` and `run` are copies of a good bundle and run.
        named: what the message says: the value or the file, and what is wrong with it.
        files: what else lies in the working directory.
        damage: what is done to the working directory before.
        environment: variables.
        exit_code: 2 where the user can correct it.
    """

    command: str
    named: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    damage: Callable[[Path], object] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)
    exit_code: int = 2


def of_pairs(name: str, content: bytes, *named: str, settings: str = "") -> Mistake:
    """A file of pairs that is wrong."""
    return Mistake(f"train --pairs {name} --output out{settings}", (name, *named), {name: content})


def of_source(name: str, content: bytes, *named: str) -> Mistake:
    """A source side that is wrong; the target has two lines."""
    command = f"train --source {name} --target two --output out"
    return Mistake(command, (name, *named), {"two": b"ab\nod\n", name: content})


def of_recipe(text: str, *named: str) -> Mistake:
    """A recipe that is wrong."""
    return Mistake("train wrong.toml", named, {"wrong.toml": text.encode()})


def of_model(damage: Callable[[Path], object], *named: str) -> Mistake:
    """A bundle that is damaged."""
    return Mistake("translate model", named, damage=lambda folder: damage(folder / "model"))


MISTAKES = {
    # Text
    "a missing file": Mistake("train --source nope --target train.target", ("nope", "there is no such file")),
    "a folder": Mistake("train --source folder --target train.target", ("folder is a folder",), {"folder/a": b""}),
    "an empty file": of_source("empty", b"", "empty has 0 lines and two has 2"),
    "two empty files": Mistake("train --source a --target b", ("a", "b", "empty"), {"a": b"", "b": b""}),
    "unequal numbers of lines": of_source("three", b"a\nb\nc\n", "three has 3 lines and two has 2"),
    "not UTF-8": of_source("latin", "ba\ndö\n".encode("latin-1"), "line 2", "0xf6 is not UTF-8"),
    "UTF-16": of_source("wide", "ba\ndo\n".encode("utf-16"), "line 1", "UTF-16", "iconv"),
    "cut off": of_source("text.gz", gzip.compress(b"ba\ndo\n" * 99)[:-9], "damaged or truncated"),
    "gzip by another name": of_source("text", gzip.compress(b"ba\ndo\n"), "rename it to end in .gz"),
    "not gzip": of_source("text.gz", b"ba\ndo\n", "ends in .gz, but is not gzip"),
    "too few columns": of_pairs("a.tsv", b"ba\tab\ndo\n", "line 2", "1 of 2 required columns", "'do'"),
    "a column that is no number": of_pairs("a.tsv", b"", '"x"', settings=' --set data.columns=["1","x"]'),
    "three columns": Mistake(f"{TEXT} --set data.columns=[1,2,3]", ("--set: data.columns = [1, 2, 3]", "fewer items")),
    "not JSON": of_pairs("a.jsonl", b'{"source": "a", "target": "b"}\nba\n', "line 2", "must be a JSON object"),
    "a missing key": of_pairs("a.jsonl", b'{"source": "a", "de": "b"}\n', "line 1", "'target'", "'de'"),
    "a number for a text": of_pairs("a.jsonl", b'{"source": "a", "target": 7}\n', "line 1", "must be text", "7"),
    "an unknown form": of_pairs("a.xlsx", b"ba,ab\n", ".tsv, .csv, .json, .jsonl", ".parquet or .zip"),
    "CSV without names": of_pairs("a.csv", b"bado,dofi\n", "its first row must name the columns", "'bado'"),
    "too few cells": of_pairs("a.csv", b"source,target\nba,ab\ndo\n", "line 3", "has 1 cells", "'do'"),
    "not Parquet": of_pairs("a.parquet", b"ba\tab\n", "damaged, truncated or of another format"),
    "not zip": of_pairs("a.zip", b"ba\tab\n", "not a zip file"),
    "not TMX": of_pairs("a.tmx", b"<html/>", "line 1", "its root element is <html>"),
    "entities in TMX": of_pairs(
        "a.tmx", b'<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>', "line 1", "declares the entity 'a'"
    ),
    "TMX without languages": of_pairs(
        "a.tmx", b'<tmx><tu><tuv lang="en"/><tuv lang="en"><seg>a</seg></tuv></tu></tmx>', "'en'", "--source-language"
    ),
    "another folder for pairs": Mistake(
        "train --pairs folder --output out", ("folder is a folder", "state.json"), {"folder/a": b""}
    ),
    "all splits of a data set": Mistake(
        "train --pairs folder --output out",
        ("has the splits 'train', 'test'", "folder/train"),
        {"folder/dataset_dict.json": b'{"splits": ["train", "test"]}'},
    ),
    "a side alone": Mistake("train --source train.source", ("source is given without", "target: give both")),
    "both forms": Mistake(f"{TEXT} --pairs a.tsv", ("pairs and", "source are both given")),
    "no text": Mistake("train", ("no training text", "data.source")),
    "no text in the recipe": of_recipe("", "no training text"),
    "nothing on standard input": Mistake("train --pairs - --output out", ("standard input", "empty")),
    "validation of unequal lengths": Mistake(
        f"{TEXT} --validation-source two --validation-target valid.target",
        ("two has 2 lines and valid.target has 10",),
        {"two": b"ba\ndo\n"},
    ),
    "blank validation": Mistake(
        f"{TEXT} --validation-source blank --validation-target blank", ("blank", "text on both sides"), {"blank": b"\n"}
    ),
    "nothing but copies": Mistake(
        "train --source train.source --target train.source --set text.vocabulary=280",
        ("none of the 300 pairs", "copy 300"),
    ),
    "the reference is blank": Mistake("train --source blank --target blank", ("blank",), {"blank": b"\n \n"}),
    # Settings
    "a missing recipe": Mistake("train nope.toml", ("nope.toml", "there is no such file")),
    "a folder for a recipe": Mistake("train folder", ("folder", "is a folder"), {"folder/a": b""}),
    "not TOML": of_recipe("updates 7", "wrong.toml", "not valid TOML", "line 1"),
    "a recipe that is not UTF-8": Mistake("train a.toml", ("a.toml", "not UTF-8"), {"a.toml": b"# \xff"}),
    "an unknown key": of_recipe("[training]\nupdate = 7", "wrong.toml", "'training.update'", "'training.updates'"),
    "an unknown section": of_recipe("[trainings]\nupdates = 7", "wrong.toml", "'trainings.updates'"),
    "a wrong type": of_recipe('[training]\nupdates = "many"', "wrong.toml", "training.updates = 'many'", "integer"),
    "out of range": of_recipe("[model]\ndropout = 1.5", "wrong.toml", "model.dropout = 1.5", "less than 1"),
    "a contradiction": of_recipe("[model]\nd_model = 100", "d_model = 100", "num_heads = 8"),
    "a rate without effect": of_recipe("[training]\nlearning_rate = 0.1", "learning_rate = 0.1", "no effect"),
    "an unknown preset": of_recipe('preset = "huge"', '"huge"', "tiny, small, base"),
    "an unknown device": Mistake(f"{TEXT} --set training.device=tpu9", ("'tpu9'", "cpu")),
    "a setting without a value": Mistake(f"{TEXT} --set training.updates", ("--set training.updates", "key=value")),
    "an unknown setting": Mistake(f"{TEXT} --set beam=2", ("--set", "'beam'", "'search.beam'")),
    "a section for a setting": Mistake(f"{TEXT} --set model=2", ("--set", "'model' is a section")),
    "a setting of the wrong type": Mistake(f"{TEXT} --set search.beam=two", ("--set: search.beam = 'two'",)),
    "an unknown variable": Mistake(
        TEXT, ("TRANSDUCE_DATA_FOLDERS", "TRANSDUCE_DATA_FOLDER?"), environment={"TRANSDUCE_DATA_FOLDERS": "a"}
    ),
    "settings to show": Mistake("config show --set search.beam=0", ("--set: search.beam = 0",)),
    # The tokenizer
    "a vocabulary too large": Mistake(f"{TEXT} --set text.vocabulary=5000", ("text.vocabulary = 5000", "at most")),
    "a vocabulary too small": Mistake(f"{TEXT} --set text.vocabulary=100", ("vocabulary = 100", "from 264")),
    "not a tokenizer": Mistake(
        f"{TEXT} --set text.tokenizer=spm", ("spm: is not a SentencePiece model",), {"spm": b"nothing"}
    ),
    "no such tokenizer": Mistake(f"{TEXT} --set text.tokenizer=spm", ('tokenizer = "spm"', "not a file")),
    # Where the run goes
    "a file for a run": Mistake(
        f"{TEXT} --output file".replace(" --output out", ""), ("file: is a file",), {"file": b""}
    ),
    "another's folder": Mistake(TEXT, ("out: is not empty (it contains mine)",), {"out/mine": b""}),
    "a folder below a file": Mistake(f"{TEXT}/run", ("out: is a file",), {"out": b""}),
    "a run with other settings": Mistake(
        "train run/config.toml --output run --set model.d_ff=64", ("model.d_ff: was 32, now 64", "--restart")
    ),
    "a demonstration in another's folder": Mistake("demo --output out", ("out: is not empty",), {"out/mine": b""}),
    "a demonstration of no updates": Mistake("demo --output out --updates 0", ("training.updates = 0",)),
    # Models
    "one wrong bit": of_model(lambda model: flip(model / "weights.safetensors"), "weights.safetensors", "SHA-256"),
    "cut off weights": of_model(lambda model: cut(model / "weights.safetensors"), "weights.safetensors", "bytes"),
    "a missing tokenizer": of_model(lambda model: (model / "tokenizer.model").unlink(), "tokenizer.model: is missing"),
    "a wrong tokenizer": of_model(lambda model: flip(model / "tokenizer.model"), "tokenizer.model", "SHA-256"),
    "a description cut off": of_model(lambda model: cut(model / "bundle.json"), "bundle.json: is not JSON"),
    "a newer bundle": of_model(
        lambda model: change(model / "bundle.json", format_version=99), "bundle.json", "version 99", "update it"
    ),
    "unknown settings of a bundle": of_model(lambda model: change(model / "bundle.json", colour="red"), "colour"),
    "a Hugging Face model": Mistake("translate hf", ("hf", "Hugging Face"), {"hf/config.json": b"{}"}),
    "a folder with something else": Mistake("translate a", ("a: is not a bundle", "a/best/bundle.json"), {"a/b": b""}),
    "no such model": Mistake("translate nope", ("nope: there is no such folder",)),
    "a file for a model": Mistake("translate train.source", ("train.source: is a file",)),
    "more than the beam": Mistake("translate model --num-best 9", ("--num-best 9:", "beam, 4")),
    "none at all": Mistake("translate model --num-best 0", ("--num-best 0:",)),
    "no beam": Mistake("translate model --beam 0", ("--beam 0:",)),
    "no such device": Mistake("translate model --device tpu9", ("'tpu9'", "cpu")),
    # Evaluation, average, information
    "a test set of unequal lengths": Mistake(
        "evaluate model --source train.source --reference valid.target",
        ("train.source has 300 lines and valid.target has 10",),
    ),
    "a tokenisation that there is not": Mistake(
        "evaluate model --source valid.source --reference valid.target --tokenize moses", ("'moses'", "13a, none")
    ),
    "no references": Mistake("evaluate model --source train.source --reference nope", ("nope: there is no such file",)),
    "an empty test set": Mistake("evaluate model --source a --reference a", ("a", "empty"), {"a": b""}),
    "an evaluation without beam": Mistake(
        "evaluate model --source valid.source --reference valid.target --beam 0", ("--beam 0",)
    ),
    "an average of no run": Mistake("average model --output out", ("model: is not a run",)),
    "an average of a damaged checkpoint": Mistake(
        "average run --last 2 --output out",
        ("000000080/weights.safetensors", "SHA-256"),
        damage=lambda folder: flip(folder / "run" / "checkpoints" / "000000080" / "weights.safetensors"),
    ),
    "an average into a file": Mistake("average run --last 1 --output a", ("a: is not a folder",), {"a": b""}),
    "an average into another's folder": Mistake(
        "average run --last 1 --output out", ("out: contains other files",), {"out/mine": b""}
    ),
    "neither preset nor path": Mistake("info bse", ("bse: is neither a preset", "base")),
    "a vocabulary for a bundle": Mistake("info model --vocabulary 8", ("--vocabulary 8", "model")),
    "information about nonsense": Mistake("info a.bin", ("a.bin", "UTF-8"), {"a.bin": b"\xff\x00"}),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_nothing_is_left(
    transduce: Any,
    workspace: Path,
    run_folder: Path,
    contents: Any,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Mistake,
) -> None:
    arguments = mistake.command.split(" ")
    for name, origin in {"model": run_folder / "best", "run": run_folder}.items():
        if name in arguments:
            shutil.copytree(origin, workspace / name)
    for name, content in mistake.files.items():
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_bytes(content)
    mistake.damage(workspace)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    before = contents(workspace)
    answer = transduce(*arguments, standard_input=b"ba do\n" if "translate" in arguments else b"")
    assert answer.exit_code == mistake.exit_code, answer.messages
    assert answer.output == b""
    message = answer.messages[answer.messages.rindex("transduce: ") :]
    for words in mistake.named:
        assert words in message
    assert REMEDY.search(message)
    assert "Traceback" not in answer.messages
    assert "a bug in Transduce" not in answer.messages
    assert contents(workspace) == before


def no_file_above(num_bytes: int) -> None:
    """What a full disk does, done by the kernel; Python ignores the signal that comes with it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@pytest.mark.exhaustive
def test_a_full_disk_leaves_no_half_of_a_checkpoint(process: Any, transduce: Any, workspace: Path) -> None:
    assert transduce("train", "tiny.toml", "--set", "training.updates=2", "--set", "output=other/run").exit_code == 0
    cache = ["--set", f"data.cache={workspace / 'other' / '.cache'}"]
    answer = process("train", "tiny.toml", *cache, preexec_fn=lambda: no_file_above(10_000))
    assert (answer.exit_code, answer.output) == (1, b"")
    assert "checkpoints/000000002: could not be written; nothing was changed" in answer.messages
    assert "Traceback" not in answer.messages
    run = workspace / "runs" / "tiny"
    assert {path.name for path in run.iterdir()} == {"config.toml", "metrics.jsonl", "checkpoints"}
    assert not list((run / "checkpoints").iterdir())
    assert transduce("train", "tiny.toml", *cache).exit_code == 0


def test_a_full_disk_leaves_no_half_of_prepared_text(transduce: Any, workspace: Path, contents: Any) -> None:
    before = contents(workspace)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        answer = transduce("train", "tiny.toml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (answer.exit_code, answer.output) == (1, b"")
    assert "File too large" in answer.messages
    assert "a bug" not in answer.messages
    assert contents(workspace) == before


def test_data_that_changed_is_not_mixed_into_a_run(transduce: Any, workspace: Path, contents: Any) -> None:
    assert transduce("train", "tiny.toml").exit_code == 0
    lines = (workspace / "train.source").read_bytes()
    (workspace / "train.source").write_bytes(lines.replace(b"ba", b"ab"))
    before = contents(workspace / "runs" / "tiny")
    answer = transduce("train", "tiny.toml")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "was trained on other data" in answer.messages
    assert contents(workspace / "runs" / "tiny") == before
