import gzip
import json
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
SMALL = [
    f"--set={setting}"
    for setting in (
        "text.vocabulary=300",
        "model.num_encoder_layers=1",
        "model.num_decoder_layers=1",
        "model.d_model=16",
        "model.d_ff=32",
        "model.num_heads=2",
        "training.updates=2",
        "training.warmup=1",
        "search.max_extra_length=2",
        "data.held_out=5",
    )
]
KNOWN = "runs/.cache/digests.json"
"""Which files have not changed: learned as soon as they are two seconds old, by any command."""
FILES = {"config.toml", "metrics.jsonl", "report.html", "best", "last", "checkpoints"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def bundle(folder: Path) -> Any:
    return json.loads((folder / "last" / "bundle.json").read_text(encoding="utf-8"))


@pytest.mark.exhaustive
def test_two_files_are_enough(transduce: Any, workspace: Path) -> None:
    answer = transduce("train", "--source", "train.source", "--target", "train.target", "--output", "run", *SMALL)
    assert (answer.exit_code, answer.output) == (0, b"")
    assert names(workspace / "run") == FILES
    assert 'preset = "low-resource"' in (workspace / "run" / "config.toml").read_text(encoding="utf-8")
    assert "5 of 300 pairs are held out for validation" in answer.messages
    assert "update 2/2" in answer.messages
    assert answer.messages.endswith("the model is in run/best, the report in run/report.html\n")
    assert "\x1b" not in answer.messages
    assert transduce("translate", "run/best", standard_input=b"ba do\n").exit_code == 0


def test_a_recipe_and_what_is_set_over_it(transduce: Any, workspace: Path) -> None:
    changed = ["--set", "training.updates=4", "--set", "model.d_model=8", "--set", "data.target_language = de"]
    answer = transduce("train", "tiny.toml", *changed, "--validation-source", "valid.source")
    assert answer.exit_code == 0
    saved = bundle(workspace / "runs" / "tiny")
    assert (saved["training"]["update"], saved["model"]["d_model"]) == (4, 8)
    assert saved["languages"] == {"source": "en", "target": "de"}


@pytest.mark.exhaustive
def test_the_same_command_again_has_nothing_to_do(transduce: Any, workspace: Path, contents: Any) -> None:
    assert transduce("train", "tiny.toml").exit_code == 0
    before = contents(workspace)
    again = transduce("train", "tiny.toml")
    assert again.exit_code == 0
    assert "Prepared data found" in again.messages
    assert "nothing to do: training ended after update 6" in again.messages
    after = contents(workspace)
    assert {**after, KNOWN: None} == {**before, KNOWN: None}


@pytest.mark.exhaustive
def test_more_updates_go_on_and_restart_begins_anew(transduce: Any, workspace: Path) -> None:
    constant = ["--set", "training.schedule=inverse_square_root"]
    assert transduce("train", "tiny.toml", *constant).exit_code == 0
    more = transduce("train", "tiny.toml", *constant, "--set", "training.updates=8")
    assert (more.exit_code, bundle(workspace / "runs" / "tiny")["training"]["update"]) == (0, 8)
    assert "resuming after update 6" in more.messages
    anew = transduce("train", "tiny.toml", "--restart", "--set", "training.updates=2")
    assert (anew.exit_code, bundle(workspace / "runs" / "tiny")["training"]["update"]) == (0, 2)
    assert "resuming" not in anew.messages
    assert names(workspace / "runs" / "tiny") == FILES
    assert names(workspace / "runs" / "tiny" / "checkpoints") == {"000000002"}


@pytest.mark.exhaustive
def test_pairs_on_standard_input(transduce: Any, workspace: Path) -> None:
    sides = [(workspace / f"train.{side}").read_bytes().split(b"\n") for side in ("source", "target")]
    pairs = b"".join(b"%s\t%s\n" % pair for pair in zip(*sides, strict=True) if all(pair))
    answer = transduce("train", "--pairs", "-", "--output", "run", *SMALL, standard_input=pairs)
    assert answer.exit_code == 0
    assert "5 of 300 pairs are held out" in answer.messages
    assert names(workspace / "run") == FILES
    assert len(names(workspace / ".cache")) == 1


@pytest.mark.exhaustive
def test_every_form_of_text_gives_the_same_pairs(transduce: Any, workspace: Path) -> None:
    sources, targets = (
        (workspace / f"train.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("source", "target")
    )
    pairs = list(zip(sources, targets, strict=True))
    table = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    records = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs).encode()
    (workspace / "pairs.tsv").write_bytes(table)
    (workspace / "pairs.jsonl").write_bytes(records)
    (workspace / "pairs.tsv.gz").write_bytes(gzip.compress(table))
    (workspace / "train.source.gz").write_bytes(gzip.compress((workspace / "train.source").read_bytes()))
    forms = [["--source", name, "--target", "train.target"] for name in ("train.source", "train.source.gz")]
    forms += [["--pairs", name] for name in ("pairs.tsv", "pairs.jsonl", "pairs.tsv.gz")]
    for number, form in enumerate(forms, start=1):
        answer = transduce("train", *form, "--output", f"run-{number}", *SMALL)
        assert answer.exit_code == 0, answer.messages
        prepared = [path.read_bytes() for path in (workspace / ".cache").glob("*/train/ids.bin")]
        assert len(prepared) == number
        assert len(set(prepared)) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["environment", "--set"])
def test_the_folder_of_the_text_can_be_given_apart(
    transduce: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    texts = workspace / "texts"
    texts.mkdir()
    for name in ("train.source", "train.target"):
        (workspace / name).rename(texts / name)
    given = ["--source", "train.source", "--target", "train.target", "--output", "run", *SMALL]
    if way == "environment":
        monkeypatch.setenv("TRANSDUCE_DATA_FOLDER", "texts")
    else:
        given += ["--set", "data.folder=texts"]
    assert transduce("train", *given).exit_code == 0
    assert 'folder = "texts"' in (workspace / "run" / "config.toml").read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_the_corpus_decides_unless_somebody_does(transduce: Any, workspace: Path) -> None:
    given = ["--source", "train.source", "--target", "train.target", "--output", "run", *SMALL]
    # Against the schedule of the base preset this rate would be a contradiction; that of a small corpus has one.
    assert transduce("train", *given, "--set", "training.learning_rate=1e-3").exit_code == 0


def commands(page: str, word: str) -> list[list[str]]:
    """The words of every command in the blocks of `page` that have `word`, `transduce` left out."""
    blocks = re.findall(r"^```bash\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks if word in block for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.exhaustive
def test_the_readme_goes_from_one_model_to_the_next(transduce: Any, workspace: Path, run_folder: Path) -> None:
    shutil.copytree(run_folder, workspace / "runs" / "mine")
    for name, side in (("ours.en", "source"), ("ours.de", "target")):
        (workspace / f"train.{side}").rename(workspace / name)
    train, translate = commands((PROJECT / "README.md").read_text(encoding="utf-8"), "start_from")
    answer = transduce(*train, "--set", "training.updates=4", "--set", "training.warmup=1")
    assert answer.exit_code == 0, answer.messages
    assert "model of runs/mine, " in answer.messages
    ours, mine = (
        json.loads((workspace / "runs" / name / "best" / "bundle.json").read_bytes()) for name in ("ours", "mine")
    )
    assert ours["model"] == mine["model"]
    assert ours["training"]["start_from"] == "runs/mine"
    # What follows is a redirection.
    translated = transduce(*translate[:2], standard_input=b"ba do\n")
    assert (translated.exit_code, len(translated.lines)) == (0, 1)

    recipe = workspace / "tuned.toml"
    recipe.write_text('[training]\nstart_from = "runs/mine"\n', encoding="utf-8")
    shown = transduce("config", "show", recipe).lines
    assert f"d_model = {mine['model']['d_model']}  # training.start_from" in shown
    assert 'tokenizer = "runs/mine/best/tokenizer.model"  # training.start_from' in shown
    assert json.loads(transduce("info", recipe, "--json").output)["model"] == mine["model"]
    refused = transduce(*train, "--set", "output=runs/other", "--set", "model.d_model=64")
    assert refused.exit_code == 2
    assert "model.d_model = 64, the bundle's is 32" in refused.messages
    assert not (workspace / "runs" / "other").exists()


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until `path` is there; whatever a slow machine needs, but not for ever."""
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    pytest.fail(f"{path} does not appear")


def test_ctrl_c_saves_and_the_same_command_goes_on(
    start: Callable[..., subprocess.Popen[bytes]], workspace: Path, transduce: Any
) -> None:
    long = ["train", "tiny.toml", "--set", "training.schedule=inverse_square_root", "--set", "training.updates="]
    long[-1] += "1000000"
    with start(*long, stdin=subprocess.DEVNULL) as running:
        wait_for(workspace / "runs" / "tiny" / "checkpoints" / "000000002", running)
        running.send_signal(signal.SIGINT)
        output, messages = running.communicate()
    assert (running.returncode, output) == (130, b"")
    assert messages.decode().rstrip().endswith("the same command resumes from there")
    assert b"Traceback" not in messages
    saved = max(int(name) for name in names(workspace / "runs" / "tiny" / "checkpoints"))
    enough = [*long[:-1], f"training.updates={saved + 2}"]
    again = transduce(*enough)
    assert again.exit_code == 0
    assert f"resuming after update {saved:,}" in again.messages


@pytest.mark.exhaustive
def test_ctrl_c_during_preparation_leaves_nothing(
    start: Callable[..., subprocess.Popen[bytes]], workspace: Path, contents: Any
) -> None:
    before = contents(workspace)
    with start("train", "--pairs", "-", "--output", "new/run", *SMALL) as running:
        assert running.stdin is not None
        running.stdin.write(b"ba do\tab od\n")
        running.stdin.flush()
        wait_for(workspace / "new" / ".cache", running)
        while running.poll() is None:
            # Python misses a signal between two reads until the next one: people press again, too, though not while it
            # tidies up, which may take some seconds on a busy machine.
            running.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                running.wait(30)
        assert running.returncode == 130
        assert running.stderr is not None
        messages = running.stderr.read().decode().splitlines()
        assert messages[0].startswith("the size of standard input is unknown; using preset low-resource")
        assert messages[1:] == ["transduce: interrupted"]
    assert {**contents(workspace), KNOWN: None} == {**before, KNOWN: None}


def test_who_has_chosen_a_preset_is_not_told_how(transduce: Any, workspace: Path) -> None:
    answer = transduce("train", "--pairs", "-", "--set", "preset=small", "--output", "new", standard_input=b"")
    assert answer.exit_code == 2
    assert "using preset" not in answer.messages


@pytest.mark.exhaustive
def test_training_needs_no_standard_input(transduce: Any, workspace: Path) -> None:
    assert transduce("train", "tiny.toml", standard_input=None).exit_code == 0


@pytest.mark.exhaustive
def test_the_proof_that_a_run_can_be_resumed(
    transduce: Any, workspace: Path, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.verification.NUM_KILLS", 1)
    monkeypatch.setenv("TRANSDUCE_TRAINING_SEED", "3")  # below --set, and no business of the processes
    before = contents(workspace)
    answer = transduce("train", "tiny.toml", "--verify-resume", "--set=training.seed=2", "--set=model.dropout=0.2")
    assert answer.exit_code == 0, answer.messages
    assert len(answer.lines) == 1
    assert re.match(
        r"EQUAL: 6 updates, killed after.* update [1-6] while a checkpoint was being written, ", answer.lines[0]
    )
    # a line about the data, one each update, the middle, the end, and the average
    assert "10 lines of metrics" in answer.lines[0]
    assert "training.checkpoint_every = 1 (was 2)" in answer.messages
    assert names(workspace / "runs") == {".cache"}
    shutil.rmtree(workspace / "runs")
    assert {**contents(workspace), KNOWN: None} == {**before, KNOWN: None}


@pytest.mark.exhaustive
def test_a_run_that_cannot_be_resumed_alike_is_kept(
    transduce: Any, workspace: Path, contents: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert transduce("train", "tiny.toml").exit_code == 0
    before = contents(workspace)
    # No kill is needed: whoever changes the second run while the first one trains makes it another.
    monkeypatch.setattr("transduce.training.verification.NUM_KILLS", 0)

    def change() -> None:
        text = ""
        while not text.endswith("\n"):  # half written, it would be written over
            time.sleep(0.01)
            for found in (workspace / "runs").glob("*.partial/killed.toml"):
                text = found.read_text(encoding="utf-8")
        found.write_text(text.replace("seed = 1\n", "seed = 2\n"), encoding="utf-8")

    meddler = threading.Thread(target=change)
    meddler.start()
    answer = transduce("train", "tiny.toml", "--verify-resume")
    meddler.join()
    assert answer.exit_code == 1
    assert answer.lines[0].startswith("DIFFERENT: 6 updates")
    assert "metrics.jsonl, line 2, update 1: " in answer.lines[1]
    assert "  checkpoints/000000006/weights.safetensors" in answer.lines
    (kept,) = (workspace / "runs").glob("tiny-verification.*.differing")
    assert str(Path("runs") / kept.name) in answer.messages.splitlines()[-1]
    assert names(kept) == {f"{run}{ending}" for run in ("killed", "unbroken") for ending in ("", ".toml", ".log")}
    shutil.rmtree(kept)
    assert {**contents(workspace), KNOWN: None} == {**before, KNOWN: None}


@pytest.mark.exhaustive
def test_ctrl_c_during_the_proof_leaves_nothing(
    start: Callable[..., subprocess.Popen[bytes]], workspace: Path, contents: Any
) -> None:
    before = contents(workspace)
    with start("train", "tiny.toml", "--verify-resume", stdin=subprocess.DEVNULL) as running:
        while not list((workspace / "runs").glob("*.partial/unbroken/.lock")):
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        output, messages = running.communicate()
    assert (running.returncode, output) == (130, b"")
    assert messages.decode().splitlines()[-1] == "transduce: interrupted"
    assert names(workspace / "runs") <= {".cache"}
    shutil.rmtree(workspace / "runs", ignore_errors=True)
    assert {**contents(workspace), KNOWN: None} == {**before, KNOWN: None}


def test_a_run_cannot_be_deleted_and_left_alone(transduce: Any, workspace: Path) -> None:
    answer = transduce("train", "tiny.toml", "--verify-resume", "--restart")
    assert (answer.exit_code, answer.output) == (2, b"")
    assert "--restart and --verify-resume" in answer.messages


def test_a_time_that_is_none(transduce: Any) -> None:
    answer = transduce("train", "--source", "a", "--target", "b", "--output", "run", "--time", "30")
    assert answer.exit_code == 2
    assert '--time: "30" must be a duration such as "90s", "30m", "2h" or "1h30m"' in answer.messages


@pytest.mark.exhaustive
def test_a_run_without_a_recipe_ends_in_the_time_that_is_given(transduce: Any, workspace: Path) -> None:
    given = [
        "--source=train.source",
        "--target=train.target",
        "--output=timed",
        "--time=3s",
        *(one for one in SMALL if "updates" not in one),
    ]
    answer = transduce("train", *given)
    assert answer.exit_code == 0
    config = (workspace / "timed" / "config.toml").read_text(encoding="utf-8")
    assert 'preset = "low-resource"' in config
    assert 'time_limit = "3s"' in config
    assert bundle(workspace / "timed")["training"]["ema_decay"] in {0.0, 0.999}
    again = transduce("train", *given)
    assert (again.exit_code, "nothing to do" in again.messages) == (0, True)
