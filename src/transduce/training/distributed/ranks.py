"""Ranks: the processes that torchrun starts to train one model together, or this process alone."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from transduce.errors import ConfigError, EndedElsewhere, Interrupted, TrainingError

LONGEST_WAIT = timedelta(days=1)
"""Timeout for another rank, which may have a corpus to prepare or a long text to translate."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one model. All of them must call the same methods in the same order.

    All tensors given to its methods lie on the CPU.
    """

    rank: int = 0
    """Number of this process, from 0."""
    size: int = 1
    """Number of processes."""
    launcher: int = 0
    """Process id of torchrun; 0 if it is not known."""

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
        """The values of all ranks, in their order; as many from each."""
        if self.size == 1:
            return [values]
        gather_full_tensors = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gather_full_tensors, values)
        return gather_full_tensors

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
        """Wait until every rank has called this."""
        self.max(0)

    def call_first_rank_first(self, make: Callable[[], Result]) -> Result:
        """Call `make` on the first rank, then on the others, which find on the disk what the first has written."""
        if not self.is_first:
            self.barrier()
        result = make()
        if self.is_first:
            self.barrier()
        return result

    def select_device(self, device: torch.device) -> torch.device:
        """The device that this rank computes on: each rank of a machine has a GPU of its own.

        Raises:
            ConfigError: there are more ranks than GPUs, or the device cannot be one of several.
        """
        if self.size == 1 or device.type == "cpu":
            return device
        if device.type != "cuda":
            raise ConfigError(f"training.device: {self.size} ranks cannot train on {device}: set it to cpu or cuda")
        number = int(os.environ["LOCAL_RANK"])
        if number >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {self.rank} needs GPU {number} of this machine, counted from 0, and it has "
                f"{torch.cuda.device_count()}: give torchrun a lower --nproc-per-node"
            )
        torch.cuda.set_device(number)
        return torch.device("cuda", number)

    def _all_reduce(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values, operation)
        return values


ALONE = Ranks()


@contextmanager
def connect_ranks() -> Iterator[Ranks]:
    """Connect the ranks that torchrun has started, by gloo, and GPUs by NCCL; without torchrun there is one rank.

    An error of one rank ends all of them, and only that rank raises it.

    Raises:
        ConfigError: torchrun is set up so that it cannot restart what fails on one of several machines.
        EndedElsewhere: another rank has ended first.
        TrainingError: another rank was killed.
    """
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size(), os.getppid() if dist.is_torchelastic_launched() else 0)
        return
    if not dist.is_torchelastic_launched() or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    # Imported after the connection is made, it would never release it: gloo's threads would disturb the process's end.
    import_module("torch.distributed.nn")
    store, rank, size = _find_other_ranks()
    try:
        dist.init_process_group(choose_backend(), store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
        yield Ranks(rank, size, os.getppid())
    except BaseException as error:
        try:
            is_first_to_end = store.add("ended", 1) == 1
        except dist.DistError:  # torchrun itself was killed
            is_first_to_end = rank == 0
        # NCCL would wait for ranks that are still at work; a requested end is known to all.
        uses_nccl = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if dist.is_initialized() and (isinstance(error, Interrupted) or not uses_nccl):
            dist.destroy_process_group()
        if not is_first_to_end:
            raise EndedElsewhere from error
        if _is_lost_connection(error):
            raise TrainingError(
                f"rank {rank} has lost another rank, which ended without a word; started again, the run goes on from "
                f"its last checkpoint, as torchrun does by itself with --max-restarts"
            ) from error
        raise
    # A sharded model is a cycle of references, which holds the connection: see above.
    gc.collect()
    dist.destroy_process_group()


def choose_backend() -> str:
    """The backends of torch.distributed; by default, a machine with a GPU would have none for tensors on the CPU."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def can_restart() -> bool:
    """Whether torchrun repeats the command when a rank has failed (`--max-restarts`)."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def _find_other_ranks() -> tuple[Store, int, int]:
    """The store where ranks find each other's addresses, the number of this rank, and the number of ranks."""
    is_kept = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == str(True)
    if is_kept and can_restart() and os.environ["GROUP_WORLD_SIZE"] != "1":
        if os.environ["RANK"] != "0":
            raise EndedElsewhere
        raise ConfigError(
            "on several machines, torchrun --max-restarts needs --rdzv-backend=c10d and in its environment "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: otherwise, what it starts anew does not find each other"
        )
    store, rank, size = next(rendezvous("env://", timeout=LONGEST_WAIT))
    if is_kept:
        # The store outlives the processes, and restarted ones would find the addresses of those that failed. Each
        # machine counts starts for itself: hence the error above.
        store = PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    return store, rank, size


def _is_lost_connection(error: BaseException) -> bool:
    """Whether NCCL or gloo, which has no error class of its own, has lost its connection."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
