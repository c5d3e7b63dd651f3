"""Machines that share no folder: torchrun's agents on this one, each in a folder of its own."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from transduce.config import RunConfig, load_run_config, to_toml
from transduce.training import Ranks, agree_on_run, train
from transduce.training.distributed.agreement import _choose_first, describe_shared_settings

MakeConfig = Callable[..., RunConfig]
OutcomeOf = Callable[[Path], dict[str, Any]]

SOURCE = Path(__file__).parents[3] / "src"
SETTINGS = {
    "output": "run",
    "data__cache": None,
    "model__dropout": 0.2,
    "text__bpe_dropout": 0.1,
    "training__updates": 30,
    "training__batch_tokens": 24,
    "training__validate_every": 10,
    "training__checkpoint_every": 6,
}


class Machine:
    """A folder, and torchrun's agent with one rank in it; every warning is an error."""

    started: ClassVar[list["Machine"]] = []

    def __init__(
        self,
        folder: Path,
        port: int,
        *options: str,
        num_machines: int = 2,
        max_restarts: int = 3,
        program: Sequence[str] = ("-m", "transduce", "train", "recipe.toml"),
    ) -> None:
        self.folder = folder
        self.run = folder / "run"
        folder.mkdir(exist_ok=True)
        launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={num_machines}", "--nproc-per-node=1"]
        launcher += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", f"--max-restarts={max_restarts}"]
        environment = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
        self.process = subprocess.Popen(
            [*launcher, *program, *options],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self.port = port
        self.started.append(self)

    def wait_for_store(self) -> None:
        """Until this machine has the store of the rendezvous, which is that of the first that asks for it."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", self.port)):
                return
            time.sleep(0.05)
        pytest.fail(f"has no store: {self.process.communicate(timeout=60)}")

    def wait_for_lines(self, count: int) -> None:
        """Until there are so many lines of metrics."""
        metrics, deadline = self.run / "metrics.jsonl", time.monotonic() + 300
        while self.process.poll() is None and time.monotonic() < deadline:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.002)
        pytest.fail(f"ended or hung before it was interrupted: {self.process.communicate(timeout=60)}")

    def end(self) -> tuple[int, str, str]:
        output, messages = self.process.communicate(timeout=300)
        return self.process.returncode, output, messages

    def end_silently(self) -> None:
        """Its rank has ended without a word; torchrun may complain that the machine with its store went first."""
        code, output, messages = self.end()
        assert (code, output) == (0, ""), messages
        assert re.match(r"$|\[?W\d{4} [^\n]*(TCPStore|torch/distributed)", messages), messages


@pytest.fixture(autouse=True)
def no_machine_is_left() -> Iterator[None]:
    yield
    for machine in Machine.started:
        machine.process.kill()
        machine.process.communicate()
    Machine.started.clear()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def with_recipe(make_config: MakeConfig, tmp_path: Path) -> Callable[..., Path]:
    """A folder with a recipe; another has nothing."""

    def make(name: str, **changes: Any) -> Path:
        (tmp_path / name).mkdir()
        config = make_config(**{**SETTINGS, **changes})
        (tmp_path / name / "recipe.toml").write_text(to_toml(config), encoding="utf-8")
        return tmp_path / name

    return make


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.exhaustive
def test_machines_train_as_one_does_and_one_that_is_replaced_changes_nothing(
    with_recipe: Callable[..., Path], outcome_of: OutcomeOf, tmp_path: Path, port: int
) -> None:
    alone = Machine(with_recipe("alone"), port, num_machines=1)
    assert alone.end()[0] == 0
    # Of the same name, machines are ordered by the ids of their processes: torchrun's first is the one without a run.
    other = Machine(tmp_path / "other", port)
    one = Machine(with_recipe("one", training__batch_tokens=12), port)
    code, output, messages = one.end()
    assert (code, output) == (0, ""), messages
    assert messages.count("does not share the folder of the run") == 1
    other.end_silently()
    expected = outcome_of(one.run)
    # The updates are those of one process with twice the budget, but for dropout and rounding.
    kinds = [[(line["kind"], line["update"]) for line in outcome_of(each.run)["metrics"]] for each in (one, alone)]
    assert kinds[0] == kinds[1]
    assert not other.run.exists()
    (data,) = [path for path in (tmp_path / "other" / ".cache").iterdir() if path.is_dir()]
    copied = {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    original = tmp_path / "one" / ".cache" / data.name
    assert copied == {path.name: path.read_bytes() for path in original.rglob("*") if path.is_file()}

    one = Machine(with_recipe("again", training__batch_tokens=12), port + 1)
    one.wait_for_store()  # if the other had it, nobody could go on without that one
    other = Machine(tmp_path / "lost", port + 1)
    one.wait_for_lines(16)
    other.process.kill()
    replaced = Machine(tmp_path / "replaced", port + 1)
    code, output, messages = one.end()
    assert (code, output) == (0, ""), messages
    assert "resuming after update" in messages
    assert "a bug in Transduce" not in messages
    assert replaced.end()[0] == 0
    assert_same(outcome_of(one.run), expected)
    other.end()


@pytest.mark.exhaustive
def test_a_sharded_run_goes_on_from_a_model_that_only_one_machine_has(
    with_recipe: Callable[..., Path], outcome_of: OutcomeOf, tmp_path: Path, port: int
) -> None:
    changes = {"training__sharding": "fsdp", "training__start_from": "model/best", "training__batch_tokens": 12}
    folders = [with_recipe(name, **changes) for name in ("whole", "stopped")]
    first, _ = load_run_config(folders[0] / "recipe.toml", settings=["training.updates=2"])
    training = first.training.model_copy(update={"start_from": None, "sharding": "none", "device": "cpu"})
    train(first.model_copy(update={"training": training, "output": str(folders[0] / "model")}))
    shutil.copytree(folders[0] / "model", folders[1] / "model")

    one, other = Machine(folders[0], port), Machine(tmp_path / "other", port)
    assert one.end()[0] == other.end()[0] == 0
    one, other = Machine(folders[1], port + 1), Machine(tmp_path / "other", port + 1)
    one.wait_for_lines(16)
    for machine in (one, other):
        machine.process.send_signal(signal.SIGTERM)
    messages = one.end()[2] + other.end()[2]  # the first to end says it
    assert messages.count("the same command resumes from there") == 1
    one, other = Machine(folders[1], port + 2), Machine(tmp_path / "other", port + 2)
    code, output, messages = one.end()
    assert (code, output) == (0, ""), messages
    assert "resuming after update" in messages
    assert other.end()[0] == 0
    assert_same(outcome_of(one.run), outcome_of(folders[0] / "run"))


@pytest.mark.exhaustive
def test_another_run_in_the_same_place_is_not_taken_for_this_one(
    with_recipe: Callable[..., Path], tmp_path: Path, port: int
) -> None:
    folders = [with_recipe(name) for name in ("one", "other")]
    for folder, updates in zip(folders, (2, 1), strict=True):
        config, _ = load_run_config(folder / "recipe.toml", settings=[f"training.updates={updates}"])
        train(config.model_copy(update={"output": str(folder / "run")}))
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in str(path))
    machines = [Machine(folder, port, "--set=training.updates=3", max_restarts=0) for folder in folders]
    messages = "".join(machine.end()[2] for machine in machines)
    assert "is another run than that of" in messages
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in str(path)) == before


@pytest.mark.exhaustive
def test_a_machine_that_sees_the_run_but_no_recipe_goes_on_with_it(
    with_recipe: Callable[..., Path], tmp_path: Path, port: int
) -> None:
    folder = with_recipe("one", output=str(tmp_path / "shared" / "run"))
    for updates in (2, 3):
        one = Machine(folder, port + updates, f"--set=training.updates={updates}", max_restarts=0)
        other = Machine(tmp_path / "other", port + updates, max_restarts=0)
        code, output, messages = one.end()
        assert (code, output) == (0, ""), messages + other.end()[2]
        other.end_silently()
        assert messages.count("does not share the folder of the run") == 1
        assert f"trained {updates} updates" in messages
    assert "resuming after update 2" in messages
    assert list((tmp_path / "other").iterdir()) == []
    assert [path for path in (tmp_path / "shared").rglob("*") if "-copy" in path.name or "shared-" in path.name] == []


@pytest.mark.exhaustive
def test_remote_machines_may_share_a_disk_with_each_other(
    with_recipe: Callable[..., Path], tmp_path: Path, port: int
) -> None:
    one = Machine(with_recipe("one"), port, "--set=training.updates=2", num_machines=3, max_restarts=0)
    others = [Machine(tmp_path / "other", port, num_machines=3, max_restarts=0) for _ in range(2)]
    code, output, messages = one.end()
    assert (code, output) == (0, ""), messages
    for other in others:
        other.end_silently()
    (data,) = [path for path in (tmp_path / "other" / ".cache").iterdir() if path.is_dir()]
    assert data.name == next(path.name for path in (tmp_path / "one" / ".cache").iterdir() if path.is_dir())


CONNECTED_BY_THE_CALLER = """
import sys
from pathlib import Path
from transduce.config import load_run_config
from transduce.training import connect_ranks, train
config, _ = load_run_config(Path("recipe.toml"), settings=sys.argv[1:])
with connect_ranks():
    folder = train(config).folder
assert str(folder) == "run", folder
"""


@pytest.mark.exhaustive
def test_ranks_that_the_caller_has_connected_go_on_only_with_the_run_of_the_first(
    with_recipe: Callable[..., Path], tmp_path: Path, port: int
) -> None:
    (tmp_path / "train.py").write_text(CONNECTED_BY_THE_CALLER, encoding="utf-8")
    program = (str(tmp_path / "train.py"),)
    folders = [with_recipe(name) for name in ("one", "other")]
    machines = [Machine(folder, port, "training.updates=2", program=program, max_restarts=0) for folder in folders]
    found = [machine.end() for machine in machines]
    assert [code for code, _, _ in found] == [0, 0], found
    assert sum(machine.run.exists() for machine in machines) == 1

    folders.sort(key=lambda folder: (folder / "run").exists())  # torchrun's first is the one without it
    machines = [Machine(folder, port + 1, "training.updates=3", program=program, max_restarts=0) for folder in folders]
    messages = "".join(machine.end()[2] for machine in machines)
    assert "call `train` outside of `connect_ranks`" in messages


def test_the_first_rank_has_the_run_or_else_the_lowest_number() -> None:
    def rank(updates: int | None) -> dict[str, Any]:
        return {} if updates is None else {"settings": "", "updates": updates}

    assert _choose_first([rank(None), rank(None)]) is None
    assert _choose_first([rank(None), rank(-1), rank(-1)]) == 1
    assert _choose_first([rank(-1), rank(0), rank(500), rank(500)]) == 2


def test_one_process_agrees_with_itself(make_config: MakeConfig) -> None:
    config = make_config()
    assert agree_on_run(Ranks(), lambda: config) == (Ranks(), config)


def test_only_folders_may_differ_between_machines(make_config: MakeConfig) -> None:
    one = describe_shared_settings(make_config())
    assert describe_shared_settings(make_config("other", data__folder="/data", data__cache=None)) == one
    assert describe_shared_settings(make_config(training__seed=7)) != one
