"""The processes that train one model together, as many as torchrun has started; or this one alone."""

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
"""For another rank, which may have a corpus to prepare or a long text to translate."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one model. All of them must call the same methods in the same order.

    Args:
        rank: number of this process, from 0.
        size: how many there are.
        launcher: the process that has started them; 0 if that is not known.
    """

    rank: int = 0
    size: int = 1
    launcher: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes the run's folder, and talks."""
        return self.rank == 0

    @property
    def is_orphan(self) -> bool:
        """Whether torchrun is gone: killed, it cannot end what it has started."""
        return bool(self.launcher) and os.getppid() != self.launcher

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, in place; values lie on the CPU."""
        return self._reduced(values, dist.ReduceOp.SUM)

    @property
    def num_here(self) -> int:
        """How many of them share this machine, and on a CPU its memory."""
        return int(os.environ["LOCAL_WORLD_SIZE"]) if self.size > 1 else 1

    def largest(self, number: int) -> int:
        """The largest of the numbers of all ranks."""
        return int(self._reduced(torch.tensor(number), dist.ReduceOp.MAX))

    def any(self, wished: bool) -> bool:
        """Whether at least one rank wishes it."""
        return bool(self.largest(int(wished)))

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of all ranks, in their order; as many from each, and they lie on the CPU."""
        if self.size == 1:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gathered, values)
        return gathered

    def agree(self, number: int) -> bool:
        """Whether all ranks have the same number, of at most 63 bits."""
        largest, negative_of_smallest = self._reduced(torch.tensor([number, -number]), dist.ReduceOp.MAX).tolist()
        return bool(largest == -negative_of_smallest)

    def from_first(self, values: Tensor) -> Tensor:
        """The first rank's values, in place; they lie on the CPU."""
        if self.size > 1:
            dist.broadcast(values, src=0)
        return values

    def wait(self) -> None:
        """Until every rank is here."""
        self.any(wished=False)

    def after_first(self, make: Callable[[], Made]) -> Made:
        """What `make` returns. The first rank calls it alone; the others then find what that has put on the disk."""
        if not self.is_first:
            self.wait()
        made = make()
        if self.is_first:
            self.wait()
        return made

    def own_device(self, device: torch.device) -> torch.device:
        """The device that this rank computes on: of several GPUs, each rank of a machine has its own.

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

    def _reduced(self, values: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values, operation)
        return values


ALONE = Ranks()


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Within, the ranks that torchrun has started are connected: by gloo, and GPUs by NCCL. Without it there is one.

    What ends one rank ends all of them, and one alone says why.

    Raises:
        ConfigError: torchrun cannot start anew what fails on one of several machines.
        EndedElsewhere: another rank has ended first.
        TrainingError: another rank has ended without a word, as a process does that is killed.
    """
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size(), os.getppid() if dist.is_torchelastic_launched() else 0)
        return
    if not dist.is_torchelastic_launched() or os.environ["WORLD_SIZE"] == "1":
        yield ALONE
        return
    # Imported after the connection, it would hold it for ever: gloo's threads would disturb the end of the process.
    import_module("torch.distributed.nn")
    store, rank, size = _meeting_place()
    try:
        dist.init_process_group(backend(), store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
        yield Ranks(rank, size, os.getppid())
    except BaseException as error:
        try:
            is_first_to_end = store.add("ended", 1) == 1
        except dist.DistError:  # torchrun itself was killed
            is_first_to_end = rank == 0
        # NCCL would wait for ranks that are still at work; of an end that was asked for, all know.
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
    # A sharded model is a ring of references, which holds the connection beyond its end: see above.
    gc.collect()
    dist.destroy_process_group()


def backend() -> str:
    """What carries values between ranks. Left to torch, those on the CPU of a machine with a GPU would have nothing."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def may_start_anew() -> bool:
    """Whether torchrun gives the same command again when a rank has failed (`--max-restarts`)."""
    return os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"


def _meeting_place() -> tuple[Store, int, int]:
    """Where ranks find each other's addresses; this one's number, and how many there are."""
    is_kept = os.environ["TORCHELASTIC_USE_AGENT_STORE"] == str(True)
    if is_kept and may_start_anew() and os.environ["GROUP_WORLD_SIZE"] != "1":
        if os.environ["RANK"] != "0":
            raise EndedElsewhere
        raise ConfigError(
            "on several machines, torchrun --max-restarts needs --rdzv-backend=c10d and in its environment "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: otherwise, what it starts anew does not find each other"
        )
    store, rank, size = next(rendezvous("env://", timeout=LONGEST_WAIT))
    if is_kept:
        # It outlives the processes, and those that are started anew would find the addresses of those that failed.
        # Each machine counts starts for itself: hence the error above.
        store = PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    return store, rank, size


def _is_lost_connection(error: BaseException) -> bool:
    """Of gloo, which has no error of its own, or of NCCL."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
