"""Real processes, started by torchrun and connected by gloo; where there are GPUs, one for each, by NCCL."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from transduce.bundle import Bundle, save_bundle
from transduce.config import RunConfig, to_toml
from transduce.data import PreparedData
from transduce.errors import ConfigError, OtherRankEndedError, RunError, TrainingInterruptedError
from transduce.training import Ranks, RunFolder, connect_ranks, train, verify_resume
from transduce.training.checkpoints import compute_batches_digest
from transduce.training.distributed import _make_timeout_error
from transduce.training.distributed.batches import BatchPosition, iterate_batches
from transduce.training.run import _check_ranks

MakeConfig = Callable[..., RunConfig]
OutcomeOf = Callable[[Path], dict[str, Any]]
MetricsOf = Callable[[Path], list[dict[str, Any]]]

SOURCE = Path(__file__).parents[3] / "src"
# Of three ranks with 12 tokens each, the longest sentences leave one without a share.
PLAIN = {
    "model__dropout": 0.0,
    "training__updates": 48,
    "training__accumulation": 2,
    "training__validate_every": 12,
    "training__checkpoint_every": 6,
}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a GPU for each rank")],
    ),
]


class Torchrun:
    """`torchrun`, and below it a process for each rank; every warning is an error."""

    def __init__(
        self, num_ranks: int, program: list[str], *options: str, environment: dict[str, str] | None = None
    ) -> None:
        # A folder and a port of its own, so that nobody else's torchrun is in its way.
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
        usual = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
        usual["PYTHONFAULTHANDLER"] = "1"  # a crash in compiled code says where
        self.process = subprocess.Popen(
            [*launcher, *options, *program],
            env={"PATH": os.environ["PATH"], **usual, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    @classmethod
    def training(
        cls, num_ranks: int, config: RunConfig, *options: str, environment: dict[str, str] | None = None
    ) -> "Torchrun":
        recipe = Path(config.output).with_suffix(".toml")
        recipe.write_text(to_toml(config), encoding="utf-8")
        return cls(num_ranks, ["-m", "transduce", "train", str(recipe)], *options, environment=environment)

    def wait_for(self, metrics: Path, num_lines: int) -> None:
        """Until there are so many lines of metrics."""
        deadline = time.monotonic() + 300
        while self.process.poll() is None and time.monotonic() < deadline:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= num_lines:
                return
            time.sleep(0.002)
        pytest.fail(f"ended or hung before it was interrupted: {self.process.communicate(timeout=60)}")

    @property
    def ranks(self) -> list[int]:
        """The process ids of the ranks."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(number) for number in children.read_text(encoding="ascii").split()]

    def end(self) -> tuple[int, str, str]:
        output, messages = self.process.communicate(timeout=300)
        return self.process.returncode, output, messages


def assert_close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """The figures of the same updates, as far as they do not depend on who computed how much of a batch."""
    assert [(line["kind"], line["update"]) for line in found] == [(line["kind"], line["update"]) for line in expected]
    for line, expected_line in zip(found, expected, strict=True):
        for name in {"loss", "cross_entropy", "learning_rate"} & line.keys():
            assert line[name] == pytest.approx(expected_line[name], abs=1e-5), (line["update"], name)
        for name in {"accuracy", "num_target_tokens", "epochs", "is_best"} & line.keys():
            assert line[name] == expected_line[name], (line["update"], name)


@pytest.mark.exhaustive
# An orthogonal step makes small directions of the gradient large, and differences of rounding with them.
@pytest.mark.parametrize(("optimizer", "num_updates"), [("adam", 48), ("muon", 24)])
@pytest.mark.parametrize("device", DEVICES)
def test_several_equal_one(
    make_config: MakeConfig, metrics_of: MetricsOf, device: str, optimizer: str, num_updates: int
) -> None:
    num_ranks = 3 if device == "cpu" else min(3, torch.cuda.device_count())
    settings = {**PLAIN, "training__device": device, "training__updates": num_updates}
    settings |= {"training__optimizer": optimizer}
    one = train(make_config("one", training__batch_tokens=36, **settings))

    settings["training__batch_tokens"] = 36 // num_ranks
    config = make_config("several", **settings)
    code, output, messages = Torchrun.training(num_ranks, config).end()
    assert (code, output) == (0, ""), messages
    assert f"on {num_ranks} ranks of {device}, sharding none" in messages
    assert messages.count(f"trained {num_updates} updates") == 1
    assert_close(metrics_of(Path(config.output)), metrics_of(one.folder))


# With dropout that differs between the two passes of R-Drop, and not between ranks.
WITH_TWO_PASSES = """
import sys, torch
from transduce.cli import main
from transduce.model import Dropout

def scale(self, inputs):
    if not self.training:
        return inputs
    first, second = inputs.chunk(2)
    return torch.cat([first, 1.3 * second])

Dropout.forward = scale
main(["train", *sys.argv[1:]])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_r_drop_weight_decay_and_plateaus_on_ranks_are_those_of_one_process(
    make_config: MakeConfig, metrics_of: MetricsOf, tmp_path: Path, sharding: str
) -> None:
    program = tmp_path / "train.py"
    program.write_text(WITH_TWO_PASSES, encoding="utf-8")
    settings = {**PLAIN, "model__dropout": 0.2, "training__updates": 16, "training__r_drop": 5.0}
    settings |= {"training__weight_decay": 0.5, "training__clip_norm": 0.5, "training__validate_every": 2}
    settings |= {"training__schedule": "plateau", "training__plateau_patience": 1, "training__learning_rate": 0.1}
    found = []
    for num_ranks in (1, 2):
        config = make_config(
            f"ranks-{num_ranks}", **settings, training__batch_tokens=40 // num_ranks, training__sharding=sharding
        )
        recipe = tmp_path / f"{num_ranks}.toml"
        recipe.write_text(to_toml(config), encoding="utf-8")
        code, output, messages = Torchrun(num_ranks, [str(program), str(recipe)]).end()
        assert (code, output) == (0, ""), messages
        found.append(metrics_of(Path(config.output)))
    assert_close(*found)
    for line, other in zip(*found, strict=True):
        if line["kind"] == "training":
            assert 0 < line["divergence"] == pytest.approx(other["divergence"], rel=1e-3)
    rates = [line["learning_rate"] for line in found[0] if line["kind"] == "training"]
    assert rates[-1] < max(rates)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("num_ranks", "sharding"), [(3, "none"), (2, "fsdp")])
@pytest.mark.parametrize("device", DEVICES)
def test_the_death_of_one_changes_nothing(
    make_config: MakeConfig, outcome_of: OutcomeOf, device: str, num_ranks: int, sharding: str
) -> None:
    num_ranks = num_ranks if device == "cpu" else min(num_ranks, torch.cuda.device_count())
    settings = {**PLAIN, "model__dropout": 0.2, "training__device": device, "training__sharding": sharding}
    settings |= {"training__r_drop": 5.0, "training__weight_decay": 0.1}
    settings |= {"training__batch_tokens": 36 // num_ranks}
    config, killed = make_config("whole", **settings), make_config("killed", **settings)
    code, output, messages = Torchrun.training(num_ranks, config).end()
    assert (code, output) == (0, ""), messages

    torchrun = Torchrun.training(num_ranks, killed, "--max-restarts=1")
    torchrun.wait_for(Path(killed.output) / "metrics.jsonl", 16)
    os.kill(torchrun.ranks[1], signal.SIGKILL)
    code, output, messages = torchrun.end()
    assert (code, output) == (0, ""), messages
    # On a busy machine, torchrun ends the others before they notice.
    assert messages.count("has lost another rank") <= 1
    assert "a bug in Transduce" not in messages
    assert "resuming after update" in messages
    found, expected = outcome_of(Path(killed.output)), outcome_of(Path(config.output))
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_goes_from_one_process_to_a_sharded_model_and_back(
    make_config: MakeConfig, metrics_of: MetricsOf, unbroken: Callable[..., dict[str, Any]], watcher: Any, device: str
) -> None:
    # 24 updates, over which rounding stays below 5e-7; after update 41 of this model the same difference becomes 1e-5.
    settings = {**PLAIN, "training__updates": 24, "training__device": device}
    settings |= {"training__batch_tokens": 40, "training__clip_norm": 0.5}
    config = make_config(**settings, training__sharding="fsdp")
    folder = Path(config.output)
    with pytest.raises(TrainingInterruptedError):
        train(make_config(**settings), watcher(4, signal.SIGTERM))

    torchrun = Torchrun.training(2, config)
    torchrun.wait_for(folder / "metrics.jsonl", 12)
    torchrun.process.send_signal(signal.SIGTERM)
    _, output, messages = torchrun.end()
    assert output == ""
    assert "resuming after update 4" in messages
    assert "the run began on 1 ranks and continues on 2" in messages
    assert f"on 2 ranks of {device}, sharding fsdp" in messages
    assert messages.count("the same command resumes from there") == 1
    last = metrics_of(folder)[-1]["update"]
    assert 4 < last < 24

    told = watcher()
    train(config, told)
    assert told.updates == list(range(last + 1, 25))
    assert_close(metrics_of(folder), unbroken(**settings)["metrics"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("device", DEVICES)
def test_ranks_write_shards_that_any_number_of_them_goes_on_from(
    make_config: MakeConfig,
    metrics_of: MetricsOf,
    unbroken: Callable[..., dict[str, Any]],
    watcher: Any,
    device: str,
    optimizer: str,
) -> None:
    settings = {**PLAIN, "training__updates": 24, "training__device": device, "training__keep_checkpoints": 9}
    settings |= {"training__clip_norm": 0.5, "training__optimizer": optimizer}
    most = 3 if device == "cpu" else min(3, torch.cuda.device_count())
    folder = Path(make_config().output)
    for num_ranks, updates in ((most, 6), (2, 12)):
        # Batches stay what they were when the run began.
        ranks = make_config(
            **(settings | {"training__updates": updates, "training__batch_tokens": 36 // most}),
            training__sharding="fsdp",
        )
        code, output, messages = Torchrun.training(num_ranks, ranks).end()
        assert (code, output) == (0, ""), messages
        files = {path.name for path in (folder / "checkpoints" / f"{updates:09d}").iterdir()}
        shards = {f"{number}of{num_ranks}" for number in range(1, num_ranks + 1)}
        assert files == {
            "checkpoint.json",
            *(f"{part}.{shard}.safetensors" for part in ("weights", "optimizer") for shard in shards),
        }
    told = watcher()
    train(make_config(**settings, training__batch_tokens=36 // most), told)
    assert told.updates == list(range(13, 25))
    found = [line for line in metrics_of(folder) if line["kind"] == "training"]
    expected = unbroken(**settings, training__batch_tokens=36 // most * most)["metrics"]
    assert_close(found, [line for line in expected if line["kind"] == "training"])


# The second rank has no space left for its shard.
WITH_A_FULL_DISK = """
import os, sys
from transduce.bundle import checkpoint
from transduce.cli import main

write = checkpoint.write_tensors

def fail(path, tensors, metadata=None):
    if os.environ["RANK"] == "1" and "000000006" in str(path) and not os.path.exists(sys.argv[2]):
        open(sys.argv[2], "w").close()
        raise OSError(28, "No space left on device")
    write(path, tensors, metadata)

checkpoint.write_tensors = fail
main(["train", sys.argv[1]])
"""


@pytest.mark.exhaustive
def test_where_one_shard_cannot_be_written_there_is_no_checkpoint(
    make_config: MakeConfig, outcome_of: OutcomeOf, tmp_path: Path
) -> None:
    settings = {**PLAIN, "training__updates": 12, "training__batch_tokens": 20, "training__sharding": "fsdp"}
    config, whole = make_config("full", **settings), make_config("whole", **settings)
    recipe, program, mark = (tmp_path / name for name in ("recipe.toml", "train.py", "was-full"))
    recipe.write_text(to_toml(config), encoding="utf-8")
    program.write_text(WITH_A_FULL_DISK, encoding="utf-8")
    code, _, messages = Torchrun(2, [str(program), str(recipe), str(mark)]).end()
    assert code != 0
    assert messages.count("No space left on device") == 1, messages
    assert "a bug in Transduce" not in messages
    assert list((Path(config.output) / "checkpoints").iterdir()) == []
    for one, arguments in ((config, [str(program), str(recipe), str(mark)]), (whole, None)):
        torchrun = Torchrun.training(2, one) if arguments is None else Torchrun(2, arguments)
        code, _, messages = torchrun.end()
        assert code == 0, messages
    found, expected = outcome_of(Path(config.output)), outcome_of(Path(whole.output))
    assert [name for name in expected if found[name] != expected[name]] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", ["recurrent", "convs2s", "bytenet"])
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_other_networks_are_trained_by_ranks_as_by_one_process(
    make_config: MakeConfig, metrics_of: MetricsOf, architecture: str, sharding: str
) -> None:
    settings = {**PLAIN, "training__updates": 16, "model__architecture": architecture, "training__clip_norm": 0.5}
    one = train(make_config("one", **settings, training__batch_tokens=40))
    config = make_config("two", **settings, training__batch_tokens=20, training__sharding=sharding)
    code, output, messages = Torchrun.training(2, config).end()
    assert (code, output) == (0, ""), messages
    assert_close(metrics_of(Path(config.output)), metrics_of(one.folder))


@pytest.mark.exhaustive
def test_ranks_whose_launcher_was_killed_save_their_work_and_end(make_config: MakeConfig) -> None:
    settings = {**PLAIN, "training__updates": 200, "training__checkpoint_every": 150, "training__batch_tokens": 24}
    config = make_config(**settings)
    folder = Path(config.output)
    torchrun = Torchrun.training(2, config)
    torchrun.wait_for(folder / "metrics.jsonl", 10)
    torchrun.process.kill()
    _, output, messages = torchrun.end()  # which is when the ranks have closed it, too
    assert output == ""
    assert messages.count("the same command resumes from there") == 1, messages
    assert "a bug in Transduce" not in messages
    (checkpoint,) = (folder / "checkpoints").iterdir()
    assert int(checkpoint.name) < 150


# A Mac has an accelerator, and values on the CPU nevertheless.
ON_A_MAC = """
import torch
from torch import distributed
from transduce.training.distributed import Ranks, choose_backend
torch._C._get_accelerator = lambda *_: torch.device("mps")
distributed.init_process_group(choose_backend(), store=distributed.HashStore(), rank=0, world_size=1)
assert Ranks(0, 2).sum(torch.ones(3)).tolist() == [1, 1, 1]
distributed.destroy_process_group()
"""


@pytest.mark.exhaustive
def test_values_on_the_cpu_are_summed_whatever_accelerator_there_is() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)}
    subprocess.run([sys.executable, "-c", ON_A_MAC], env=environment, check=True, timeout=300)


# What only rank 1 is told would have the ranks wait for each other, or send each other what does not fit.
TOLD_OTHERWISE = """
import os, sys
from transduce.cli import main
main(["train", sys.argv[1], *(["--set=" + sys.argv[2]] if os.environ["RANK"] == "1" else [])])
"""

# As on machines that share no folder.
WITH_FOLDERS_OF_THEIR_OWN = """
import os, sys
from transduce.cli import main
from transduce.training import run
run.FILE_SYSTEM_TIMEOUT = 0.1
main(["train", sys.argv[1], f"--set=output={sys.argv[2]}/{os.environ['RANK']}"])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("program", "argument", "words"),
    [
        (TOLD_OTHERWISE, "training.seed=7", "the ranks have different settings"),
        (TOLD_OTHERWISE, "training.sharding=fsdp", "the ranks have different settings"),
        (TOLD_OTHERWISE, "model.d_ff=48", "the ranks have different settings"),
        (WITH_FOLDERS_OF_THEIR_OWN, "folders", "not every rank sees the lock of the first"),
    ],
)
def test_ranks_that_cannot_work_together_end_with_one_message(
    make_config: MakeConfig, tmp_path: Path, program: str, argument: str, words: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(make_config()), encoding="utf-8")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    argument = str(tmp_path / argument) if argument == "folders" else argument
    code, output, messages = Torchrun(2, [str(tmp_path / "train.py"), str(recipe), argument]).end()
    assert (code, output) == (1, "")
    said = [line for line in messages.splitlines() if line.startswith("transduce: ")]
    assert len(said) == 1, messages
    assert words in said[0]
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "folders").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("own_store", ["0", "1"])
def test_a_rank_that_is_stopped_is_named_in_time(make_config: MakeConfig, own_store: str) -> None:
    config = make_config(**PLAIN, training__batch_tokens=24, training__rank_timeout="3s")
    torchrun = Torchrun.training(2, config, environment={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": own_store})
    torchrun.wait_for(Path(config.output) / "metrics.jsonl", 6)
    hanging = int(own_store == "0")  # the one that has the store, if a rank has it
    os.kill(torchrun.ranks[hanging], signal.SIGSTOP)
    code, output, messages = torchrun.end()
    assert (code, output) == (1, "")
    said = [line for line in messages.splitlines() if line.startswith("transduce: ")]
    assert len(said) == 1, messages
    assert f"rank {1 - hanging} has waited for rank {hanging}" in said[0]
    assert "training.rank_timeout" in said[0]


def test_only_a_timeout_that_can_be_set_is_advised_to_be_raised() -> None:
    set_by_user, longest = (
        str(_make_timeout_error(RuntimeError(f"gloo: Timed out waiting {limit}ms for recv"), 0, "rank 1 on host"))
        for limit in (600_000, 86_400_000)
    )
    assert "rank 0 has waited for rank 1 on host for longer than training.rank_timeout: " in set_by_user
    assert "raise training.rank_timeout" in set_by_user
    assert "rank 0 has waited for rank 1 on host for a day: " in longest
    assert "rank_timeout" not in longest


# The first rank takes longer than the others would wait for it within updates.
TAKING_LONG = """
import sys, time
from transduce.cli import main
from transduce.training import run
from transduce.training.model_selection import validation
from transduce.training.run import prepare_screened

def prepare_slowly(*arguments, **options):
    time.sleep(5)
    return prepare_screened(*arguments, **options)

def validate_slowly(self, *arguments):
    time.sleep(5)
    return validate(self, *arguments)

validate = validation.ModelSelection.validate
validation.ModelSelection.validate = validate_slowly
run.prepare_screened = prepare_slowly
main(["train", *sys.argv[1:]])
"""


@pytest.mark.exhaustive
def test_a_rank_that_prepares_or_validates_is_waited_for(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(training__updates=2, training__batch_tokens=24, training__rank_timeout="3s")
    recipe, program = tmp_path / "recipe.toml", tmp_path / "train.py"
    recipe.write_text(to_toml(config), encoding="utf-8")
    program.write_text(TAKING_LONG, encoding="utf-8")
    code, output, messages = Torchrun(2, [str(program), str(recipe)]).end()
    assert (code, output) == (0, ""), messages


# Rank 1 has no memory to spare, so that it refuses whatever has rows enough for a forecast.
WITHOUT_MEMORY = """
import os, sys
from transduce.cli import main
from transduce.training.optimization import memory
if os.environ["RANK"] == "1":
    memory._get_free_memory_per_rank = lambda _: 0
main(["train", *sys.argv[1:]])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, the system does not say what is free")
def test_what_one_rank_cannot_hold_all_compute_in_parts(
    make_config: MakeConfig, metrics_of: MetricsOf, tmp_path: Path
) -> None:
    changes = {"training__log_every": 1, "training__validate_every": 100, "model__dropout": 0.0}
    changes |= {"text__bpe_dropout": 0.2, "training__warmup": 100}
    config = make_config("parts", training__batch_tokens=200, training__updates=8, **changes)
    recipe, program = tmp_path / "recipe.toml", tmp_path / "train.py"
    recipe.write_text(to_toml(config), encoding="utf-8")
    program.write_text(WITHOUT_MEMORY, encoding="utf-8")
    code, _, messages = Torchrun(2, [str(program), str(recipe)]).end()
    assert code == 0, messages
    assert messages.count("batches of 200 tokens per side do not fit into memory") == 1
    assert messages.count("each of 2 ranks: training needs") == 1
    sharded = ["--set=training.updates=12", "--set=training.sharding=fsdp"]
    code, _, messages = Torchrun(2, [str(program), str(recipe), *sharded]).end()
    assert code == 0, messages
    assert "do not fit" not in messages
    assert messages.count("each of 2 ranks: training needs") == 1
    assert "for 4 updates, excluding validation" in messages
    found, expected = (
        [line for line in metrics_of(folder) if line["kind"] == "training"]
        for folder in (
            Path(config.output),
            train(make_config("one", training__batch_tokens=400, training__updates=12, **changes)).folder,
        )
    )
    assert_close(found, expected)
    (part,) = {line["batch_tokens"] for line in found}
    assert part < 200
    assert found[-1]["epochs"] > 1


@pytest.mark.exhaustive
def test_ranks_skip_an_update_together(
    make_config: MakeConfig, prepare_for: Callable[..., PreparedData], metrics_of: MetricsOf, tmp_path: Path
) -> None:
    (tmp_path / "plain.tsv").write_text("sun moon\tmoon sun\n", encoding="utf-8")
    changes = {"data__validation_pairs": str(tmp_path / "plain.tsv"), "training__best_by": "loss"}
    changes |= {"model__tied_embeddings": "none", "model__dropout": 0.0, "training__log_every": 1}
    sound = Bundle.open(train(make_config("sound", training__updates=1, **changes)).folder / "best")
    model, tokenizer = sound.load_model(), sound.load_tokenizer()
    with torch.no_grad():
        model.source_embedding.weight[tokenizer.encode("été")[1:]] = 3e38
    save_bundle(tmp_path / "unsound", model, tokenizer, sound.description)
    changes |= {"training__start_from": str(tmp_path / "unsound"), "training__ema_decay": 0.9}

    one = metrics_of(train(make_config("one", training__batch_tokens=24, **changes)).folder)
    config = make_config("two", training__batch_tokens=12, **changes)
    code, _, messages = Torchrun.training(2, config).end()
    assert code == 0, messages
    two = metrics_of(Path(config.output))
    assert_close(
        [line for line in two if line["kind"] != "skipped"], [line for line in one if line["kind"] != "skipped"]
    )
    skipped, expected = ([line["update"] for line in lines if line["kind"] == "skipped"] for lines in (two, one))
    assert skipped == expected
    assert skipped
    assert messages.count("is skipped, and the model is unchanged") == len(skipped)

    digest, prepared = "", prepare_for(config)
    streams = [
        iterate_batches(prepared, config.text, config.training, BatchPosition(), Ranks(rank, 2), planned_ranks=2)
        for rank in range(2)
    ]
    digests = []
    for _ in range(config.training.updates):
        own = [compute_batches_digest(digest, [next(stream)[1]]) for stream in streams]
        digest = hashlib.sha256(bytes.fromhex("".join(own))).hexdigest()
        digests.append(digest)
    lines = [line for line in two if line["kind"] == "training"]
    assert [line["batches_digest"] for line in lines] == [digests[line["update"] - 1] for line in lines]


@pytest.mark.exhaustive
def test_a_busy_folder_ends_all_ranks_with_one_message(make_config: MakeConfig) -> None:
    config = make_config()
    with RunFolder(Path(config.output)).lock():
        code, output, messages = Torchrun.training(2, config).end()
    assert (code, output) == (1, "")
    said = [line for line in messages.splitlines() if line.startswith("transduce: ")]
    assert len(said) == 1, messages
    assert f"is in use by process {os.getpid()}" in said[0]


def test_the_proof_of_resumption_is_for_one_process(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.training.verification.connect_ranks", lambda: nullcontext(Ranks(0, 2)))
    with pytest.raises(ConfigError, match="run it without torchrun"):
        verify_resume(make_config(), pytest.fail)


def test_several_machines_need_a_new_store_for_every_start(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun = {"RUN_ID": "run", "MAX_RESTARTS": "3", "RESTART_COUNT": "0", "USE_AGENT_STORE": "True"}
    for name, value in torchrun.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    for name, value in {"WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"), connect_ranks():
        pass
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(OtherRankEndedError), connect_ranks():
        pass


def test_one_rank_connects_nothing() -> None:
    alone = Ranks()
    assert alone.is_first
    assert (
        alone.sum(torch.tensor(3))
        == alone.broadcast(torch.tensor(3))
        == alone.max(3)
        == alone.gather(torch.tensor(3))[0]
        == 3
    )
    assert alone.local_size == 1
    assert (alone.any(condition=True), alone.any(condition=False), alone.are_equal(-5)) == (True, False, True)
    assert alone.call_on_file_writers_first(lambda: "made") == "made"
    assert alone.select_device(torch.device("cuda")) == torch.device("cuda")


def test_every_rank_has_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "99")
    ranks = Ranks(rank=99, size=100)
    assert ranks.select_device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ConfigError, match="needs GPU 99 of this machine"):
        ranks.select_device(torch.device("cuda"))
    with pytest.raises(ConfigError, match="100 ranks cannot train on mps"):
        ranks.select_device(torch.device("mps"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data__pairs": "-"}, "standard input"),
        ({"model__normalization": "batch"}, "whole batch"),
        ({"training__ema_decay": 0.9, "training__sharding": "fsdp"}, "second whole model"),
    ],
)
def test_what_only_one_process_can_do(make_config: MakeConfig, changes: dict[str, Any], named: str) -> None:
    _check_ranks(make_config(**changes), Ranks())
    with pytest.raises(ConfigError, match=named):
        _check_ranks(make_config(**changes), Ranks(0, 2))


def test_torchrun_never_starts_a_run_over(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(training__updates=1)
    train(config)
    before = json.dumps(sorted(str(path) for path in Path(config.output).rglob("*")))
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    with pytest.raises(RunError, match="leave out one of them"):
        train(config, restart=True)
    assert json.dumps(sorted(str(path) for path in Path(config.output).rglob("*"))) == before


def test_a_rank_knows_when_its_launcher_is_gone() -> None:
    assert not Ranks().is_orphan
    assert not Ranks(1, 2, os.getppid()).is_orphan
    assert Ranks(1, 2, os.getpid()).is_orphan  # nobody is started by itself
