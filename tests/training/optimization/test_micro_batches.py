import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transduce.bundle import load_checkpoint, save_checkpoint
from transduce.config import RunConfig, TrainingConfig, TransformerConfig
from transduce.data import Batch
from transduce.errors import TrainingError, is_out_of_memory
from transduce.model import Transformer
from transduce.training import Ranks, UpdateFigures, Updater, train
from transduce.training.optimization.memory import probe_memory
from transduce.training.optimization.micro_batches import (
    MIN_TOKENS,
    NUM_SUMS,
    MicroBatchProcesses,
    choose_parallel_micro_batches,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, no process is forked")
CPU = torch.device("cpu")
VOCABULARY = 40


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def batch(seed: int, rows: int) -> Batch:
    random = np.random.default_rng(seed)

    def side() -> list[np.ndarray]:
        return [np.append(random.integers(2, VOCABULARY - 1, size=random.integers(1, 9)), 1) for _ in range(rows)]

    return Batch.from_ids(side(), side(), VOCABULARY - 1)


def make_updater(micro_batches: int, dropout: float = 0.0, **changes: Any) -> Updater:
    """An updater whose model has the same weights every time."""
    torch.manual_seed(5)
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 1, "d_model": 16, "d_ff": 24, "num_heads": 2}
    model = Transformer(TransformerConfig(vocabulary=VOCABULARY, dropout=dropout, **sizes))
    settings = {"schedule": "linear", "learning_rate": 1e-2, "warmup": 2, "adam_epsilon": 1e-3, "precision": "float32"}
    updater = Updater(model, TrainingConfig(**{**settings, **changes}), CPU)
    updater.parallel_micro_batches = micro_batches
    return updater


def run(updater: Updater) -> tuple[list[UpdateFigures], list[Tensor], int]:
    """Figures and weights of three updates of two batches each, the second of other size; and how many processes."""
    figures = [updater.update(number, [batch(number, 7), batch(-number % 7, 4)]) for number in (1, 2, 3)]
    num_processes = 1 + len(updater.processes._others)
    updater.processes.close()
    return figures, [parameter.detach().clone() for parameter in updater.model.parameters()], num_processes


@pytest.mark.exhaustive
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_the_bits_do_not_depend_on_how_many_processes_compute(
    set_threads: Callable[[int], None], micro_batches: int
) -> None:
    found = {}
    for threads in (1, 2, 3):
        set_threads(threads)
        figures, weights, found[threads] = run(make_updater(micro_batches, dropout=0.3, clip_norm=0.5))
        assert torch.get_num_threads() == threads
        if threads == 1:
            expected = figures, weights
        assert figures == expected[0]
        assert all(torch.equal(one, other) for one, other in zip(weights, expected[1], strict=True))
    assert found == {1: 1, 2: 2, 3: 3}


def test_neither_do_those_of_muon_depend_on_it(set_threads: Callable[[int], None]) -> None:
    found = {}
    for threads in (1, 2):
        set_threads(threads)
        updater = make_updater(2, dropout=0.3, optimizer="muon")
        found[threads] = run(updater)
        assert updater.muon is not None
        assert updater.muon.num_threads == threads
    assert found[1][0] == found[2][0]
    assert all(torch.equal(one, other) for one, other in zip(found[1][1], found[2][1], strict=True))


def test_they_know_the_loss_scale_of_float16(
    set_threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.optimization.updater.LOSS_SCALE_INTERVAL", 1)
    found = {}
    for threads in (1, 2):
        set_threads(threads)
        found[threads] = run(make_updater(2, precision="float16"))
    assert [figures.loss_scale for figures in found[1][0]] == [2**16, 2**17, 2**18]
    assert found[1][0] == found[2][0]
    assert all(torch.equal(one, other) for one, other in zip(found[1][1], found[2][1], strict=True))


def test_they_compute_what_the_whole_batch_does(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    (divided, weights, _), (whole, expected, _) = run(make_updater(2)), run(make_updater(1))
    for one, other in zip(divided, whole, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-4)
        assert (one.num_target_tokens, one.padding_share) == (other.num_target_tokens, other.padding_share)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


def test_equal_rows_are_dropped_out_unequally() -> None:
    twice = Batch.from_ids([[5, 6, 1]] * 2, [[7, 8, 1]] * 2, VOCABULARY - 1)
    once = Batch.from_ids([[5, 6, 1]], [[7, 8, 1]], VOCABULARY - 1)
    losses = [make_updater(2, dropout=0.3).update(1, [given]).loss for given in (twice, once)]
    assert losses[0] != losses[1]


def test_several_ranks_divide_no_batch() -> None:
    updater = make_updater(2)
    assert updater.has_parallel_micro_batches
    updater.ranks = Ranks(0, 2)
    assert not updater.has_parallel_micro_batches


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))


def in_other_processes(compute: Callable[[Batch, int, int], Tensor]) -> MicroBatchProcesses:
    """Two processes; this one does nothing but to give the gradient 1."""
    model, own = Weights(), os.getpid()

    def gradient(given: Batch, seed: int, num_tokens: int) -> Tensor:
        model.weight.grad = torch.ones(3)
        return torch.zeros(NUM_SUMS, dtype=torch.float64) if os.getpid() == own else compute(given, seed, num_tokens)

    return MicroBatchProcesses(model, gradient, 2)


@pytest.mark.parametrize(("error", "is_of_memory"), [(RuntimeError("std::bad_alloc"), True), (ValueError("no"), False)])
def test_what_goes_wrong_elsewhere_goes_wrong_here(error: Exception, is_of_memory: bool) -> None:
    def fail(*_: object) -> Tensor:
        raise error

    with pytest.raises(RuntimeError, match=str(error)) as found:
        in_other_processes(fail).sum_gradients([(batch(1, 2), 0)] * 2, 1)
    assert is_out_of_memory(found.value) == is_of_memory


def test_a_process_that_is_killed_ends_the_run_with_a_word() -> None:
    def die(*_: object) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    with pytest.raises(TrainingError, match="killed, as Linux does when memory is full"):
        in_other_processes(die).sum_gradients([(batch(1, 2), 0)] * 2, 1)


def test_seed_batch_and_number_of_tokens_arrive(tmp_path: Path) -> None:
    given, seed, num_tokens = batch(3, 4), 2**64 - 3, 7

    def check(found: Batch, *numbers: int) -> Tensor:
        assert numbers == (seed, num_tokens)
        assert all(torch.equal(value, getattr(given, name)) for name, value in vars(found).items())
        return torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)

    processes = in_other_processes(check)
    for _ in range(2):  # the first answer is out of the way of the second
        assert processes.sum_gradients([(given, 0), (given, seed)], num_tokens).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert all((parameter.grad == 2).all() for parameter in processes._parameters)


def test_processes_hold_nothing_open_and_end_with_what_uses_them(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        processes = in_other_processes(lambda *_: torch.zeros(NUM_SUMS, dtype=torch.float64))
        processes.sum_gradients([(batch(1, 2), 0)] * 2, 1)
        (folder,) = [Path("/proc") / str(process._id) for process in processes._others]
        held = {str(descriptor.readlink()) for descriptor in (folder / "fd").iterdir()}
        assert lock.name not in held
    assert len(held) == 2  # nothing at all, and the pipe
    assert os.devnull in held
    del processes
    assert not folder.exists()


IN_A_PROCESS_OF_ITS_OWN = """
import os, time
import torch
from torch import nn
from transduce.data import Batch
from transduce.training.optimization.micro_batches import NUM_SUMS, MicroBatchProcesses

def gradient(*_):
    if os.getpid() != own:
        for number in processes_wish:
            os.kill(os.getpid(), number)
    return torch.zeros(NUM_SUMS, dtype=torch.float64)

import signal
processes_wish = signal.SIGINT, signal.SIGTERM
own = os.getpid()
processes = MicroBatchProcesses(nn.Linear(2, 2), gradient, 3)
processes.sum_gradients([(Batch.from_ids([[1]], [[1]], 2), 0)] * 3, 1)
print(*[one._id for one in processes._others], flush=True)
time.sleep(60)
"""


@pytest.mark.exhaustive
def test_they_end_with_a_process_that_is_killed_and_with_nothing_less() -> None:
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folders = [Path("/proc") / number for number in process.stdout.readline().split()]
        assert [folder.exists() for folder in folders] == [True, True]
        process.kill()
    end = time.monotonic() + 30
    while any(folder.exists() and "(zombie)" not in (folder / "status").read_text("utf-8") for folder in folders):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_batch_is_divided_among_the_threads_if_there_is_enough_of_it(
    make_config: Callable[..., RunConfig], set_threads: Callable[[int], None]
) -> None:
    def chosen(threads: int, ranks: int = 1, device: torch.device = CPU, **changes: Any) -> int:
        set_threads(threads)
        return choose_parallel_micro_batches(make_config(**changes), device, Ranks(0, ranks))

    assert chosen(2, training__batch_tokens=2048) == 2
    assert chosen(1, training__batch_tokens=2048) == 1
    assert chosen(2, training__batch_tokens=2 * MIN_TOKENS) == 2
    assert chosen(2, training__batch_tokens=2 * MIN_TOKENS - 1) == 1
    assert chosen(4, training__batch_tokens=3 * MIN_TOKENS) == 3
    assert chosen(8, training__batch_tokens=25_000) == 8
    assert chosen(9, training__batch_tokens=25_000) == 1
    assert chosen(2, ranks=2, training__batch_tokens=2048) == 1
    assert chosen(2, device=torch.device("cuda"), training__batch_tokens=2048) == 1
    assert chosen(2, training__batch_tokens=2048, model__normalization="batch") == 1
    assert chosen(2, training__batch_tokens=2048, model__normalization="rms") == 2


def test_the_probe_leaves_no_trace(set_threads: Callable[[int], None]) -> None:
    set_threads(2)
    updater = make_updater(2, dropout=0.2)
    before = [parameter.detach().clone() for parameter in updater.model.parameters()], torch.get_rng_state()
    fit = probe_memory(updater, np.array([[3, 4], [9, 7], [5, 5]]), 60)
    assert fit.sequential_micro_batches == 1
    assert fit.seconds_per_update > 0
    assert len(updater.processes._others) == 1
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before[1])
    for parameter, old in zip(updater.model.parameters(), before[0], strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_that_was_killed_goes_on_with_its_micro_batches_on_any_number_of_threads(
    threads: int,
    make_config: Callable[..., RunConfig],
    outcome_of: Callable[[Path], dict[str, Any]],
    watcher: Any,
    killed: type[BaseException],
    set_threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transduce.training.optimization.micro_batches.MIN_TOKENS", 20)
    set_threads(2)
    expected = outcome_of(train(make_config("unbroken")).folder)
    assert expected["state"]["parallel_micro_batches"] == 2
    for end_at in (3, 13):  # before there is a checkpoint, and after the first
        with pytest.raises(killed):
            train(make_config("broken"), watcher(end_at))
        set_threads(threads)
    found = outcome_of(train(make_config("broken")).folder)
    # The one thing that says where it was computed.
    for name in ("best", "last"):
        assert found[name]["training"]["environment"].pop("threads") == str(threads)
        expected[name]["training"]["environment"].pop("threads")
    different = [name for name in expected if found[name] != expected[name]]
    assert not different


@pytest.mark.exhaustive
def test_a_run_of_an_earlier_version_goes_on_undivided(
    make_config: Callable[..., RunConfig],
    watcher: Any,
    killed: type[BaseException],
    set_threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its checkpoints say nothing of micro-batches."""
    with pytest.raises(killed):
        train(make_config(training__checkpoint_every=4), watcher(10))
    checkpoints = Path(make_config().output) / "checkpoints"
    tensors, state = load_checkpoint(checkpoints, 8)
    assert state.pop("parallel_micro_batches") == 1
    save_checkpoint(checkpoints, 8, tensors, state)
    set_threads(2)
    monkeypatch.setattr("transduce.training.optimization.micro_batches.MIN_TOKENS", 20)
    going_on = watcher()
    train(make_config(training__checkpoint_every=4), going_on)
    assert going_on.updates[0] == 9
    assert not any("micro-batches" in text for text in going_on.said)
    afresh = watcher()
    train(make_config("afresh", training__updates=2), afresh)
    assert any("each batch as 2 micro-batches" in text for text in afresh.said)


def test_a_run_that_an_earlier_version_began_keeps_its_number_before_the_first_checkpoint(
    make_config: Callable[..., RunConfig],
    watcher: Any,
    killed: type[BaseException],
    set_threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its metrics.jsonl says `micro_batches`."""
    monkeypatch.setattr("transduce.training.optimization.micro_batches.MIN_TOKENS", 20)
    set_threads(2)
    with pytest.raises(killed):
        train(make_config(training__updates=4), watcher(2))
    metrics = Path(make_config().output) / "metrics.jsonl"
    text = metrics.read_text(encoding="utf-8")
    assert text.count('"parallel_micro_batches": 2') == 1
    metrics.write_text(text.replace("parallel_micro_batches", "micro_batches"), encoding="utf-8")
    set_threads(1)
    folder = train(make_config(training__updates=4)).folder
    assert load_checkpoint(folder / "checkpoints", 4)[1]["parallel_micro_batches"] == 2
