"""What the probe finds, and that nothing shows that it was there."""

import copy
import json
import re
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
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from transduce.config import UNLIMITED_UPDATES, RunConfig, TrainingConfig, TransformerConfig
from transduce.data import plan_batches
from transduce.errors import ConfigError, TrainingInterruptedError
from transduce.model import Transformer
from transduce.training import Updater, train
from transduce.training.distributed import SINGLE_RANK
from transduce.training.optimization import memory
from transduce.training.optimization.memory import (
    BYTES_PER_PARAMETER,
    BatchShape,
    check_model_memory,
    find_largest_shapes,
    probe_memory,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def a_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "get_available_memory", lambda _: 10**9)
    monkeypatch.setattr(memory, "get_available_addresses", lambda _: None)


def check(training: dict[str, Any] | None = None, **model: Any) -> None:
    config = RunConfig(model=TransformerConfig(**model), training=TrainingConfig(**(training or {})))
    check_model_memory(config, CPU, SINGLE_RANK)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"d_model": 16_000}, "model.d_model = 16,000"),
        ({"d_model": 2**31 - 8}, "model.d_model = 2,147,483,640"),
        ({"d_ff": 100_000}, "model.d_ff = 100,000"),
        ({"num_decoder_layers": 10**9}, "model.num_decoder_layers = 1,000,000,000"),
        ({"vocabulary": 1_000_000}, "text.vocabulary = 1,000,000"),
        ({"positions": "learned", "max_positions": 10**6}, "model.max_positions = 1,000,000"),
        ({"num_heads": 1000, "d_k": 64, "d_v": 64}, "model.num_heads = 1,000"),
        ({"d_model": 1024, "d_ff": 50_000}, "model.d_ff = 50,000"),
    ],
)
def test_a_model_that_cannot_fit_is_refused_by_the_setting_that_is_the_cause(
    settings: dict[str, Any], name: str
) -> None:
    started = time.process_time()
    with pytest.raises(
        ConfigError, match=rf"^{name}: a model of [\d,]+ parameters needs at least [\d,.]+ GB .* 1.0 GB"
    ):
        check(**settings)
    assert time.process_time() - started < 1


def test_the_limit_is_what_the_parameters_need(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = BYTES_PER_PARAMETER * TransformerConfig().num_parameters
    for there, is_enough in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(memory, "get_available_memory", lambda _, there=there: there)
        if is_enough:
            check()
        else:
            with pytest.raises(ConfigError, match=r"^a model of .*; choose a smaller preset$"):
                check()
    monkeypatch.setattr(memory, "get_available_memory", lambda _: needed)
    with pytest.raises(ConfigError):  # a fifth number for each
        check({"ema_decay": 0.9})
    monkeypatch.setattr(memory, "get_available_memory", lambda _: None)
    check(d_model=16_000)


LENGTHS = np.array([[5, 7], [9, 3], [4, 4], [8, 8]] * 1000)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, the system does not say what is free")


@given(
    arrays(np.int64, st.tuples(st.integers(1, 30), st.just(2)), elements=st.integers(1, 12)),
    st.integers(1, 80),
    st.integers(0, 5),
    st.integers(1, 3),
)
def test_no_batch_is_larger(lengths: np.ndarray, batch_tokens: int, epoch: int, num_ranks: int) -> None:
    def costs(rows: int, source: int, target: int) -> tuple[int, int]:
        return rows * (source + target), rows * (source**2 + source * target + target**2)

    shapes = find_largest_shapes(lengths, batch_tokens, num_ranks)
    most = [max(costs(*shape)[kind] for shape in shapes) for kind in (0, 1)]
    for batch in plan_batches(lengths, batch_tokens, 1, epoch):
        for share in (batch[rank::num_ranks] for rank in range(min(num_ranks, len(batch)))):
            found = costs(len(share), *lengths[share].max(axis=0))
            assert found[0] <= most[0]
            assert found[1] <= most[1]
    for shape in shapes:
        rows_of_all = num_ranks * (shape.rows - 1) + 1
        assert rows_of_all * max(shape.source, shape.target) <= batch_tokens or shape.rows == 1


def test_a_pair_counts_as_often_as_an_epoch_has_it(
    make_updater: Callable[..., Updater], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, times = np.array([[3, 4], [9, 9], [2, 2]]), np.array([50, 1, 2])
    repeated = np.repeat(lengths, times, axis=0)
    for batch_tokens in (10, 100, 1000):
        assert find_largest_shapes(lengths, batch_tokens, 2, times) == find_largest_shapes(repeated, batch_tokens, 2)
    monkeypatch.setattr("transduce.training.optimization.memory._run_shapes", lambda *_: 1.0)
    found, expected = probe_memory(make_updater(), lengths, 60, times=times), probe_memory(make_updater(), repeated, 60)
    assert found.seconds_per_update == pytest.approx(expected.seconds_per_update)


def test_short_pairs_make_the_most_tokens_and_long_ones_the_most_attention() -> None:
    lengths = np.array([[10, 10]] * 50 + [[61, 61]])
    # 61 fits once into 100, 10 ten times.
    assert find_largest_shapes(lengths, 100) == [BatchShape(10, 10, 10), BatchShape(1, 61, 61)]


@pytest.fixture
def make_updater() -> Callable[..., Updater]:
    def make(batch_tokens: int = 60, d_ff: int = 24, **changes: Any) -> Updater:
        torch.manual_seed(5)
        sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2}
        config = TransformerConfig(vocabulary=40, dropout=0.2, d_ff=d_ff, normalization="batch", **sizes)
        return Updater(Transformer(config), TrainingConfig(batch_tokens=batch_tokens, **changes), CPU)

    return make


def everything(updater: Updater) -> list[Any]:
    """Whatever could carry a trace."""
    tensors = [*updater.model.parameters(), *updater.model.buffers(), torch.get_rng_state()]
    gradients = [parameter.grad for parameter in updater.model.parameters()]
    states = [kinds for optimizer in updater.optimizers for kinds in optimizer.state.values()]
    moments = [value for kinds in states for value in kinds.values()]
    return [
        [tensor.detach().numpy().tobytes() for tensor in [*tensors, *moments]],
        gradients,
        [part.training for part in updater.model.modules()],
        copy.deepcopy(updater.adam.param_groups[0]["lr"]),
    ]


@pytest.mark.parametrize("num_updates", [0, 1])
@pytest.mark.parametrize("mode", [True, False])
def test_it_leaves_no_trace(make_updater: Callable[..., Updater], num_updates: int, mode: bool) -> None:
    updater = make_updater()
    for number in range(num_updates):
        updater.update(number + 1, [BatchShape(2, 3, 4).make_batch(updater.model.pad_id)])
    updater.model.train(mode)
    before = everything(updater)
    fit = probe_memory(updater, LENGTHS, 60)
    assert everything(updater) == before
    assert fit.sequential_micro_batches == 1
    assert fit.seconds_per_update > 0


@pytest.mark.exhaustive
def test_a_run_is_the_same_without_it(
    make_config: Callable[..., RunConfig],
    outcome_of: Callable[[Path], dict[str, Any]],
    unbroken: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"training__updates": 5, "model__normalization": "batch"}
    expected = unbroken(**changes)
    monkeypatch.setattr("transduce.training.trainer.Trainer.prepare_updates", lambda _: None)
    assert outcome_of(train(make_config(**changes)).folder) == expected


def test_the_time_counts_the_tokens_of_an_update(
    make_updater: Callable[..., Updater], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.optimization.memory._run_shapes", lambda *_: 1.0)
    once, more = (probe_memory(make_updater(accumulation=number), LENGTHS, 60).seconds_per_update for number in (1, 40))
    assert more == pytest.approx(40 * once)


IN_A_PROCESS_OF_ITS_OWN = """
import json
import resource
from pathlib import Path

import numpy as np
import torch

from transduce.config import TrainingConfig, TransformerConfig
from transduce.errors import TrainingError
from transduce.model import Transformer
from transduce.kernels.memory import get_available_memory, get_used_memory, give_back_freed_memory, keep_freed_memory
from transduce.training import Updater
from transduce.training.optimization import memory

CPU = torch.device("cpu")
LENGTHS = np.array([[5, 7], [9, 3], [4, 4], [8, 8]] * 1000)


def make_updater(batch_tokens: int, d_ff: int = 1024) -> Updater:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "d_model": 16, "num_heads": 2}
    config = TransformerConfig(vocabulary=40, dropout=0.2, d_ff=d_ff, normalization="batch", **sizes)
    return Updater(Transformer(config), TrainingConfig(batch_tokens=batch_tokens), CPU)


def allow_more(number: int) -> None:
    give_back_freed_memory()
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + number, limits[1]))


def micro_batches(free: int, safe_share: float = memory.SAFE_SHARE) -> int:
    memory.get_available_memory = lambda _: free
    found = memory.probe_memory(make_updater(4000), LENGTHS, 4000, 1, safe_share).sequential_micro_batches
    memory.get_available_memory = get_available_memory
    return found


def refuse_the_first(updater: Updater, shapes: list[memory.BatchShape]) -> float:
    seconds = tried(updater, shapes)
    sizes.append(get_used_memory(CPU))
    if len(sizes) == 1:
        raise MemoryError
    return seconds


keep_freed_memory()
limits = resource.getrlimit(resource.RLIMIT_AS)
found = {}
needed = 80_000_000  # for 4,000 tokens a side of 1,024 numbers in each of several places
found["with so much free"] = [micro_batches(free) for free in (100 * needed, needed // 2, needed // 16)]
found["with such a safe share"] = [micro_batches(2**30, share) for share in (1.0, 0.01)]
tried, sizes = memory._run_shapes, []
memory._run_shapes = refuse_the_first
fit = memory.probe_memory(make_updater(4000), LENGTHS, 4000)
found["after one refusal"] = fit.sequential_micro_batches, sizes[0], fit.used
memory._run_shapes = tried

updater = make_updater(8000, d_ff=2048)
before = [one.clone() for one in (*updater.model.state_dict().values(), torch.get_rng_state())]
modes = [part.training for part in updater.model.modules()]
allow_more(150_000_000)
fit = memory.probe_memory(updater, LENGTHS, 8000)
after = [*updater.model.state_dict().values(), torch.get_rng_state()]
traces = [not torch.equal(one, old) for one, old in zip(after, before)]
traces += [one.grad is not None for one in updater.model.parameters()]
traces += [bool(updater.adam.state), updater.adam.param_groups[0]["lr"] != 0.0]
traces += [[part.training for part in updater.model.modules()] != modes]
found["when refused"] = fit.sequential_micro_batches, any(traces), fit.used, fit.available
resource.setrlimit(resource.RLIMIT_AS, limits)

updater = make_updater(60, d_ff=65_536)
allow_more(2 * sum(one.nbytes for one in updater.model.parameters()) + 30_000_000)  # a single pair takes 240 MB more
try:
    memory.probe_memory(updater, np.array([[900, 900]]), 60)
except TrainingError as error:
    found["of one pair"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found_alone() -> dict[str, Any]:
    """What the probe finds in a process that nothing else takes memory from, or gives some back to."""
    if sys.platform != "linux":
        pytest.skip("elsewhere, the system does not say what is free")
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=-1, check=True, timeout=300).stdout)
    return found


@pytest.mark.exhaustive
def test_parts_are_as_small_as_what_is_free(found_alone: dict[str, Any]) -> None:
    much, less, little = found_alone["with so much free"]
    assert much == 1
    assert 2 <= less < little < 2**9


def test_a_run_that_goes_on_takes_all_that_is_free(found_alone: dict[str, Any]) -> None:
    everything_free, a_hundredth = found_alone["with such a safe share"]
    assert everything_free == 1 < a_hundredth


@linux_only
def test_it_never_goes_back_to_larger_parts(make_updater: Callable[..., Updater]) -> None:
    assert probe_memory(make_updater(batch_tokens=4000), LENGTHS, 4000, 8).sequential_micro_batches == 8


def test_a_batch_that_is_refused_memory_is_halved(found_alone: dict[str, Any]) -> None:
    micro_batches, left_a_trace, taken, there = found_alone["when refused"]
    assert micro_batches >= 2
    assert not left_a_trace
    assert there < taken + 150_000_000  # what is there is what this process is allowed


def test_what_did_not_fit_is_not_what_is_needed(found_alone: dict[str, Any]) -> None:
    micro_batches, refused, taken = found_alone["after one refusal"]
    assert micro_batches == 2
    assert taken < refused - 20_000_000


def test_a_pair_that_does_not_fit_ends_the_run(found_alone: dict[str, Any]) -> None:
    words = "a pair of up to 900 tokens per side: lower text.max_pieces"
    assert words in found_alone["of one pair"]


@pytest.mark.parametrize(
    "words",
    [
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "could not create a primitive",
        "could not create a memory object",
        "std::bad_alloc",
    ],
)
def test_memory_is_refused_in_many_words(
    make_updater: Callable[..., Updater], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    attempts: list[list[BatchShape]] = []

    def refuse_the_first(_: Updater, shapes: list[BatchShape]) -> float:
        attempts.append(shapes)
        if len(attempts) == 1:
            raise RuntimeError(words)
        return 0.1

    monkeypatch.setattr("transduce.training.optimization.memory._run_shapes", refuse_the_first)
    assert probe_memory(make_updater(), LENGTHS, 60).sequential_micro_batches == 2


def test_what_another_rank_was_refused_is_given_back_here_too(
    make_updater: Callable[..., Updater], monkeypatch: pytest.MonkeyPatch
) -> None:
    updater = make_updater()
    given_back: list[Updater] = []
    answers = [False, False, True, False, False, False]  # the third: whether anyone was refused a whole batch
    monkeypatch.setattr("transduce.training.optimization.memory._release_memory", given_back.append)
    monkeypatch.setattr(type(updater.ranks), "any", lambda *_: answers.pop(0))
    assert probe_memory(updater, LENGTHS, 60).sequential_micro_batches == 2
    assert given_back == [updater]


def test_an_error_that_is_another_stays_one(make_updater: Callable[..., Updater]) -> None:
    updater = make_updater()
    updater.model.encoder = torch.nn.Linear(3, 3)
    with pytest.raises(TypeError):
        probe_memory(updater, LENGTHS, 60)


def test_what_a_run_will_take_is_said_before_its_first_update(
    make_config: Callable[..., RunConfig], watcher: Any
) -> None:
    class Order(watcher):  # type: ignore[misc]  # a fixture is no type
        def report_progress(self, progress: Any) -> None:
            super().report_progress(progress)
            self.said.append("an update")

    told = Order()
    train(make_config(training__updates=2), told)
    before = told.said[: told.said.index("an update")]
    assert "for 2 updates, excluding validation" in before[-1]
    if sys.platform == "linux":
        found = re.match(r"training needs ([0-9.]+) GB", before[-1])
        assert found is not None
        assert float(found[1]) < 4  # of which the tests' own process has most
    assert not any("do not fit" in text for text in told.said)


@pytest.mark.parametrize(("warmup", "is_told"), [(1, False), (10**8, True)])
def test_a_warmup_that_the_time_does_not_suffice_for_is_told(
    make_config: Callable[..., RunConfig], watcher: Any, warmup: int, is_told: bool
) -> None:
    settings = {"training__time_limit": "4s", "training__updates": UNLIMITED_UPDATES, "training__warmup": warmup}
    reporter = watcher()
    train(make_config(**settings, training__schedule="warmup_stable_decay", training__learning_rate=1e-3), reporter)
    assert (
        any("the time is over before the learning rate has reached its peak" in line for line in reporter.said)
        == is_told
    )


@pytest.mark.exhaustive
@linux_only
def test_a_run_stays_with_the_parts_it_began_with(
    make_config: Callable[..., RunConfig],
    outcome_of: Callable[[Path], dict[str, Any]],
    metrics_of: Callable[[Path], list[dict[str, Any]]],
    watcher: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"model__d_ff": 512, "training__batch_tokens": 400, "training__updates": 6, "training__log_every": 1}
    roomy = train(make_config("roomy", **changes)).folder
    config, unbroken = make_config("run", **changes), make_config("unbroken", **changes)
    with monkeypatch.context() as patch:
        # What a batch this small takes, in whole pages, is a matter of luck.
        patch.setattr("transduce.training.optimization.memory._estimate_bytes", lambda _, shape: shape.num_tokens)
        patch.setattr("transduce.training.run.check_model_memory", lambda *_: None)
        patch.setattr(memory, "get_available_memory", lambda _: 300)
        told = watcher(3, signal.SIGTERM)
        train(unbroken)
        with pytest.raises(TrainingInterruptedError):
            train(config, told)
    (said,) = [text for text in told.said if "do not fit" in text]
    again = watcher()
    train(config, again)
    assert not any("do not fit" in text for text in again.said)
    assert outcome_of(Path(config.output)) == outcome_of(Path(unbroken.output))
    lines, whole = (
        [line for line in metrics_of(run) if line["kind"] == "training"] for run in (Path(unbroken.output), roomy)
    )
    assert {line["batch_tokens"] for line in whole} == {400}
    (part,) = {line["batch_tokens"] for line in lines}
    assert part < 400
    assert f"batches of 400 tokens per side do not fit into memory: each is computed in parts of {part}," in said
    # The same pairs in every update.
    assert [line["num_target_tokens"] for line in lines] == [line["num_target_tokens"] for line in whole]
    assert [line["epochs"] for line in lines] == [line["epochs"] for line in whole]
    assert lines[0]["loss"] == pytest.approx(whole[0]["loss"], rel=0.05)
