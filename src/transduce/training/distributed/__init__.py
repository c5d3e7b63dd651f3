"""Training one model in several processes, called ranks: those that torchrun starts, or this process alone.

Each rank has a copy of the model (DDP), or a shard of every tensor (FSDP2; Zhao et al. 2023). Importing the class of
sharded tensors, `DTensor`, takes half a second, so a sharded tensor is recognised by its method `full_tensor` instead.
"""

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, ProcessGroup, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from transduce.baselines import make_encoder_decoder
from transduce.bundle import collect_model_tensors, load_tensors
from transduce.data import Batch
from transduce.errors import ConfigError, OtherRankEndedError, TrainingError, TrainingInterruptedError
from transduce.model import EncoderDecoder, Transformer

MAX_WAIT = timedelta(days=1)
"""Timeout for waiting until another rank has finished long work, such as preparing a corpus or translating a text."""

ANSWER_SECONDS = 5.0
"""Seconds that every rank has to report that it is alive, after one of them has timed out waiting for another."""

_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True)
class Ranks:
    """One of the processes that train a model, and its communication with the others.

    All ranks must call the methods that communicate in the same order. The tensors passed to them must be on the CPU,
    except that `sum` also takes those on the rank's GPU.
    """

    rank: int = 0
    """Number of this process, from 0."""
    size: int = 1
    """Number of processes."""
    launcher: int = 0
    """Process id of torchrun; 0 if unknown."""
    is_remote: bool = False
    """Whether this rank's machine cannot see the run's folder; the first rank then sends it copies of the files."""
    remote_hosts: tuple[str, ...] = ()
    """Host names of the machines that cannot see the run's folder."""
    store: Store | None = field(default=None, compare=False, repr=False)
    """The store in which the ranks find each other's addresses; None unless `connect_ranks` has connected them."""
    long_timeout_group: ProcessGroup | None = field(default=None, compare=False, repr=False)
    """Process group for long waits, with the timeout `MAX_WAIT`. None: the default group, which has the same timeout
    until `agree_on_run` replaces it by a group with the timeout `training.rank_timeout`."""
    file_group: ProcessGroup | None = field(default=None, compare=False, repr=False)
    """Process group for sending files, of the ranks for which `is_file_writer` is true; None if no rank is remote."""

    @property
    def is_file_writer(self) -> bool:
        """Whether this rank writes prepared data to disk: true of the first rank and of one rank per remote machine."""
        return self.is_first or (self.is_remote and os.environ["LOCAL_RANK"] == "0")

    @property
    def is_first(self) -> bool:
        """Whether this rank writes the run's folder and reports to the user."""
        return self.rank == 0

    @property
    def is_orphan(self) -> bool:
        """Whether torchrun was killed, which leaves the ranks running."""
        return bool(self.launcher) and os.getppid() != self.launcher

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        return self._all_reduce(values, dist.ReduceOp.SUM)

    @property
    def local_size(self) -> int:
        """Number of ranks on this machine, which share the memory of its CPU."""
        return int(os.environ["LOCAL_WORLD_SIZE"]) if self.size > 1 else 1

    def max(self, number: int) -> int:
        """The maximum of the numbers of all ranks."""
        return int(self._all_reduce(torch.tensor(number), dist.ReduceOp.MAX))

    def any(self, condition: bool) -> bool:
        """Whether the condition holds on at least one rank."""
        return bool(self.max(int(condition)))

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of all ranks, in the order of the ranks; every rank must give a tensor of the same shape."""
        if self.size == 1:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gathered, values)
        return gathered

    def are_equal(self, number: int) -> bool:
        """Whether all ranks have the same number, of at most 63 bits."""
        maximum, negative_minimum = self._all_reduce(torch.tensor([number, -number]), dist.ReduceOp.MAX).tolist()
        return bool(maximum == -negative_minimum)

    def broadcast(self, values: Tensor) -> Tensor:
        """The first rank's values, in place."""
        if self.size > 1:
            dist.broadcast(values, src=0)
        return values

    def barrier(self) -> None:
        """Wait until every rank has called this, for up to `MAX_WAIT`: each may have been at work for long."""
        if self.size > 1:
            dist.all_reduce(torch.tensor(0), group=self.long_timeout_group)

    def wait_for_first(self) -> None:
        """Wait until the first rank has called this, for up to `MAX_WAIT`; it does not wait for the others.

        To be called after work that the first rank does alone, such as a validation, because the operations that follow
        have a shorter timeout.
        """
        if self.size > 1:
            dist.broadcast(torch.tensor(0), src=0, group=self.long_timeout_group)

    def broadcast_text(self, text: str) -> str:
        """The first rank's text; others wait for it as in `wait_for_first`."""
        if self.size == 1:
            return text
        content = text.encode()
        size = torch.tensor(len(content))
        dist.broadcast(size, src=0, group=self.long_timeout_group)
        values = torch.empty(int(size), dtype=torch.uint8)
        if self.is_first:
            values.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        dist.broadcast(values, src=0, group=self.long_timeout_group)
        return values.numpy().tobytes().decode()

    def gather_texts(self, text: str) -> list[str]:
        """The texts of all ranks, in their order."""
        content = text.encode()
        longest = self.max(len(content))
        padded = torch.frombuffer(bytearray(content.ljust(longest + 1, b"\0")), dtype=torch.uint8)
        return [values.numpy().tobytes().rstrip(b"\0").decode() for values in self.gather(padded)]

    def call_on_file_writers_first(self, make: Callable[[], _ResultT]) -> _ResultT:
        """Call `make` on all ranks: first on those that write files (`is_file_writer`), then on those that read."""
        if not self.is_file_writer:
            self.barrier()
        result = make()
        if self.is_file_writer:
            self.barrier()
        return result

    def select_device(self, device: torch.device) -> torch.device:
        """The device that this rank computes on: each rank of a machine has its own GPU.

        Raises:
            ConfigError: there are more ranks than GPUs, or the type of device does not support several ranks.
        """
        if self.size == 1 or device.type == "cpu":
            return device
        if device.type != "cuda":
            raise ConfigError(f"training.device: {self.size} ranks cannot train on {device}: set it to cpu or cuda")
        number = int(os.environ["LOCAL_RANK"])
        if number >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {self.rank} needs GPU {number} of this machine, counted from 0, but it has "
                f"{torch.cuda.device_count()}: give torchrun a lower --nproc-per-node"
            )
        torch.cuda.set_device(number)
        return torch.device("cuda", number)

    def _all_reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values, operation)
        return values


SINGLE_RANK = Ranks()


@contextmanager
def connect_ranks() -> Iterator[Ranks]:
    """Connect the ranks that torchrun has started: by gloo for tensors on the CPU, by NCCL for tensors on GPUs.

    Without torchrun there is one rank. An error of one rank ends all of them: that rank raises it, and all others raise
    `OtherRankEndedError`.

    Raises:
        ConfigError: torchrun is configured such that workers restarted on one of several machines cannot rendezvous.
        OtherRankEndedError: another rank has ended first.
        TrainingError: another rank was killed, or has not answered in time.
    """
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size(), os.getppid() if dist.is_torchelastic_launched() else 0)
        return
    if not dist.is_torchelastic_launched() or os.environ["WORLD_SIZE"] == "1":
        yield SINGLE_RANK
        return
    # Import before init_process_group. Imported later, the module keeps the process group alive, and gloo's threads
    # disturb shutdown.
    import_module("torch.distributed.nn")
    store, rank, size = _find_other_ranks()
    try:
        store.set(f"host {rank}", socket.gethostname())
        dist.init_process_group(choose_backend(), store=store, rank=rank, world_size=size, timeout=MAX_WAIT)
        yield Ranks(rank, size, os.getppid(), store=store)
    except BaseException as error:
        is_late = _is_timeout(error)
        silent = _find_silent_ranks(store, rank, size) if is_late else ""
        # If the store does not answer, its machine hangs or torchrun was killed. Then rank 0, and every rank whose wait
        # has timed out, counts as the first and reports the error.
        default = rank == 0 or is_late
        is_first_to_end = _call_within(ANSWER_SECONDS, lambda: store.add("ended", 1) == 1, default=default)
        # Not where this would wait: with gloo for a rank that hangs, with NCCL for ranks that are still at work. After
        # a requested stop no rank is at work, as all know of it.
        uses_nccl = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if dist.is_initialized() and not is_late and (isinstance(error, TrainingInterruptedError) or not uses_nccl):
            dist.destroy_process_group()
        if not is_first_to_end:
            raise OtherRankEndedError from error
        if is_late:
            raise _make_timeout_error(error, rank, silent) from error
        if _is_lost_connection(error):
            raise TrainingError(
                f"rank {rank} has lost another rank, which exited without an error message; the same command resumes "
                "from the last checkpoint, as torchrun --max-restarts does automatically"
            ) from error
        raise
    # A sharded model is part of a cycle of references that keeps the process group alive: see the import above.
    gc.collect()
    dist.destroy_process_group()


def choose_backend() -> str:
    """The backends of torch.distributed: gloo for tensors on the CPU, and NCCL for GPUs if there are any.

    They are named explicitly because PyTorch's default on a machine with a GPU has no backend for tensors on the CPU.
    """
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def can_restart() -> bool:
    """Whether torchrun repeats the command when a rank has failed (`--max-restarts`)."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def _find_other_ranks() -> tuple[Store, int, int]:
    """The store where ranks find each other's addresses, the number of this rank, and the number of ranks."""
    is_store_of_torchrun = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == str(True)
    if is_store_of_torchrun and can_restart() and os.environ["GROUP_WORLD_SIZE"] != "1":
        if os.environ["RANK"] != "0":
            raise OtherRankEndedError
        raise ConfigError(
            "on several machines, torchrun --max-restarts needs --rdzv-backend=c10d and in its environment "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: otherwise restarted workers cannot rendezvous"
        )
    store, rank, size = next(rendezvous("env://", timeout=MAX_WAIT))
    if is_store_of_torchrun:
        # Torchrun's store outlives the ranks, so restarted ranks would find the addresses of those that failed. The
        # prefix prevents that, but each machine counts restarts separately: hence the error above.
        store = PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    return store, rank, size


def _is_lost_connection(error: BaseException) -> bool:
    """Whether NCCL or gloo, which has no error class of its own, has lost its connection."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _is_timeout(error: BaseException) -> bool:
    """Whether gloo has waited for another rank in vain."""
    return isinstance(error, RuntimeError) and "gloo" in str(error) and "Timed out" in str(error)


def _make_timeout_error(error: BaseException, rank: int, silent: str) -> TrainingError:
    is_max_wait = f"{MAX_WAIT // timedelta(milliseconds=1)}ms" in str(error)  # a limit that no setting changes
    limit = "for a day" if is_max_wait else "for longer than training.rank_timeout"
    advice = "" if is_max_wait else ". If a rank is only slow, raise training.rank_timeout"
    return TrainingError(
        f"rank {rank} has waited for {silent} {limit}: a process hangs or is stopped, or the network between the "
        "machines is interrupted; end what is left of the run there, and the same command resumes from the last "
        f"checkpoint, as torchrun --max-restarts does automatically{advice}"
    )


def _find_silent_ranks(store: Store, rank: int, size: int) -> str:
    """Name the ranks that do not report that they are alive, by torchrun's numbers and the names of their machines."""

    def find() -> str:
        store.set(f"alive {rank}", "")
        time.sleep(ANSWER_SECONDS)
        silent = [number for number in range(size) if not store.check([f"alive {number}"])]
        return ", ".join(f"rank {number} on {store.get(f'host {number}').decode()}" for number in silent)

    # The store is usually that of torchrun, otherwise that of rank 0: then rank 0 is silent if the store is.
    is_store_of_rank_0 = os.environ["TORCHELASTIC_USE_AGENT_STORE"] != str(True)
    unknown = "rank 0" if is_store_of_rank_0 and rank != 0 else "another rank"
    return _call_within(2 * ANSWER_SECONDS, find, default="") or unknown


def _call_within(seconds: float, function: Callable[[], _ResultT], *, default: _ResultT) -> _ResultT:
    """Return what `function` returns, or `default` if that takes longer than `seconds` or the store is unreachable.

    The function runs in a thread, as the store's own timeout has no effect while the process that holds it is stopped.
    """
    results: list[_ResultT] = []

    def call() -> None:
        with suppress(dist.DistError):
            results.append(function())

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else default


def wrap_for_distributed(
    module: nn.Module, model: EncoderDecoder, sharding: str, ranks: Ranks, device: torch.device
) -> nn.Module:
    """Wrap `module` so that every backward pass ends in the mean gradient of all ranks; a single rank needs no wrapper.

    `module` contains `model`, takes a `Batch`, and returns a tuple that begins with the loss. With `sharding` "fsdp",
    each rank keeps its shard of every parameter of `model`.
    """
    if ranks.size == 1:
        return module
    ranks.barrier()  # some ranks may have read the weights from slow disks
    if sharding == "none":
        parallel = DistributedDataParallel(module)
        parallel.broadcast_buffers = False  # buffers are constants, the same on all ranks
        # DDP sums gradients in the order of its first backward pass, and with three ranks or more the order affects
        # rounding. A first pass over a batch without a loss makes a resumed run sum in the same order.
        parallel(Batch.from_ids([[0]], [[0]], model.pad_id).mask_loss().to(device))[0].backward()
        parallel.zero_grad()
        return parallel
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - see above
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - see above

    mesh = init_device_mesh(device.type, (ranks.size,))
    # Weights are gathered only when a layer is called as a whole, which other networks do not do in every step.
    for layer in (*model.encoder.layers, *model.decoder.layers) if isinstance(model, Transformer) else ():
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def is_sharded(module: nn.Module) -> bool:
    """Whether each rank holds only a shard of the weights."""
    return any(hasattr(parameter, "full_tensor") for parameter in module.parameters())


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Keep gradients on the rank, to be summed over all ranks by a later backward pass outside of this context.

    With FSDP they are summed at once: unsharded gradients would take the memory that it saves.
    """
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """The unsharded tensor; of a sharded one, all ranks call this together."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def get_shard(tensor: Tensor) -> Tensor:
    """This rank's rows of a sharded tensor, without copying them; a tensor that is not sharded is returned whole."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def find_shard_rows(own: Tensor) -> slice:
    """The rows of the full tensor that this rank holds; all rows if the tensor `own` is not sharded."""
    if not hasattr(own, "device_mesh"):
        return slice(0, len(own))
    # As in torch.chunk, all ranks have equally many rows, except that the last ones may have fewer or none.
    longest = -(-len(own) // own.device_mesh.size())
    start = min(len(own), own.device_mesh.get_local_rank() * longest)
    return slice(start, start + len(get_shard(own)))


def make_shard(rows: Tensor, own: Tensor) -> Tensor:
    """Make a tensor with the device and the sharding of `own` from this rank's `rows`; see `find_shard_rows`."""
    rows = rows.to(own.device)
    if not (hasattr(own, "device_mesh") and hasattr(own, "placements")):
        return rows
    from torch.distributed.tensor import DTensor  # noqa: PLC0415 - see above

    # Without shape and stride, DTensor would assume that all ranks have equally many rows.
    return DTensor.from_local(
        rows, own.device_mesh, own.placements, run_check=False, shape=own.shape, stride=own.stride()
    )


def gather_full_tensors(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """All tensors unsharded on the first rank, on the CPU if they were sharded; nothing on the other ranks."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        unsharded = full_tensor(tensor)
        if ranks.is_first:
            found[name] = tensor if unsharded is tensor else unsharded.cpu()
    return found


def gather_model(model: EncoderDecoder, ranks: Ranks) -> EncoderDecoder:
    """The model itself, or if it is sharded, on the first rank an unsharded copy; all ranks call this together."""
    if not is_sharded(model):
        return model
    weights = gather_full_tensors(collect_model_tensors(model), ranks)
    if not ranks.is_first:
        return model
    copy = make_encoder_decoder(model.config)
    load_tensors(copy, weights, "the sharded model")
    return copy.to(next(model.parameters()).device)
