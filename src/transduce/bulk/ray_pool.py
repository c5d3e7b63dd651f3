"""Workers that are actors of Ray, on this machine or on all machines of a cluster."""

import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from transduce.bulk.block_translator import BlockTranslatorSettings, Failure, TranslatedBlock
from transduce.bulk.blocks import Block
from transduce.bulk.dispatching import Answer, WorkerLost, WorkerReady
from transduce.bulk.processes import load_or_describe, translate_or_describe
from transduce.errors import ConfigError, MissingExtraError, TransduceError

LOCAL = "local"
"""The address that starts a Ray of its own on this machine."""

_CONNECT_SECONDS = 10.0
_SECONDS_UNTIL_NOTICE = 30.0
"""Seconds without any worker after which the user is told that no worker has started yet."""


class RayPool:
    """Actors of Ray, each of which loads the model and translates one block at a time.

    Blocks and translations pass through Ray's object store: only this process reads and writes files. The folder of the
    model and an installed Transduce have to be on every machine, at the same path.

    Args:
        settings: what the actors need to load.
        digest: that of the model, see `BlockTranslatorSettings.find_model_digest`.
        num_workers: number of actors; None: as many as the cluster has cores, or GPUs with the device cuda.
        address: as of `ray.init`, for example "auto", "10.0.0.1:6379" or "ray://10.0.0.1:10001"; "local" starts Ray.
        report: receives messages about Ray.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: there is no Ray at the address.
    """

    def __init__(
        self,
        settings: BlockTranslatorSettings,
        digest: str,
        num_workers: int | None,
        address: str = LOCAL,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ray = _import_ray()
        self._report = report
        _connect(self._ray, address)
        unit = "GPU" if settings.device == "cuda" else "CPU"
        there_are = int(self._ray.cluster_resources().get(unit, 0))
        self.num_workers = num_workers or max(1, there_are)
        if self.num_workers > there_are:
            report(f"Ray has {there_are} of {self.num_workers} {unit}s: workers without one wait until there are more")
        resources = {"num_cpus": 1, "num_gpus": int(unit == "GPU")}
        self._actor_class = self._ray.remote(**resources, max_restarts=0)(RayWorker)
        self._settings = self._ray.put((settings, digest))
        self._actors: dict[int, Any] = {}
        self._answers: dict[Any, int] = {}
        """The worker of each answer that is expected."""
        self._process_ids: dict[int, int] = {}
        self._num_started = 0
        self._has_answered = False

    def find_process_ids(self) -> list[int]:
        """The ids of the processes of all actors that have loaded the model, each on its machine."""
        return list(self._process_ids.values())

    def start(self) -> int:
        """Start an actor, which loads the model, and return its number as a worker."""
        worker = self._num_started
        self._num_started += 1
        self._actors[worker] = actor = self._actor_class.remote(self._settings)
        self._answers[actor.find_state.remote()] = worker
        return worker

    def submit(self, worker: int, block: Block) -> None:
        """Give a block to a worker that is free, without waiting for its translation."""
        answer = self._actors[worker].translate.remote(block.lines, block.numbers, block.path)
        self._answers[answer] = worker

    def wait(self) -> tuple[int, Answer]:
        """Wait for the next answer of any worker, and return the worker's number and the answer."""
        while not (done := self._ray.wait(list(self._answers), timeout=_SECONDS_UNTIL_NOTICE)[0]):
            if not self._has_answered:
                self._report("no worker has started yet: Ray has no free core, or is still loading the model")
        self._has_answered = True
        worker = self._answers.pop(done[0])
        try:
            answer: Answer = self._ray.get(done[0])
        except self._ray.exceptions.RayError as error:
            del self._actors[worker]
            self._process_ids.pop(worker, None)
            return worker, WorkerLost(_shorten(error))
        if isinstance(answer, WorkerReady):
            self._process_ids[worker] = answer.process_id
        return worker, answer

    def close(self) -> None:
        """End all actors, whatever they are doing."""
        self._ray.shutdown()


class RayWorker:
    """The actor: a translator, or what went wrong when it was loaded."""

    def __init__(self, given: tuple[BlockTranslatorSettings, str]) -> None:
        self._translator = load_or_describe(*given)

    def find_state(self) -> WorkerReady | Failure:
        """Whether the model was loaded."""
        return self._translator if isinstance(self._translator, Failure) else WorkerReady(os.getpid())

    def translate(self, lines: list[str], numbers: Sequence[int], path: str) -> TranslatedBlock | Failure:
        """The translation of a block."""
        if isinstance(self._translator, Failure):
            return self._translator
        return translate_or_describe(self._translator, lines, numbers, path)


def _import_ray() -> Any:  # noqa: ANN401 - a module without types
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless asked for
    try:
        import ray  # noqa: PLC0415 - an optional package
    except ImportError:
        raise MissingExtraError("ray", "scale", "--ray") from None
    return ray


def _connect(ray: Any, address: str) -> None:  # noqa: ANN401 - a module without types
    _check_address(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address, logging_level="error", log_to_driver=False, include_dashboard=_choose_dashboard(address)
        )
    except (ConnectionError, ValueError) as error:
        raise ConfigError(
            f"--ray {address}: there is no Ray ({_shorten(error)}): start it by: ray start --head"
        ) from None
    except Exception as error:
        raise TransduceError(
            f"--ray {address}: Ray does not start ({type(error).__name__}: {_shorten(error)})"
        ) from error
    signal.signal(signal.SIGTERM, before)  # Ray has put its own there


def _check_address(address: str) -> None:
    """Check that a server accepts connections at the address of a Ray cluster, as `ray.init` would try for minutes.

    Raises:
        ConfigError: none does.
    """
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdigit():
        return
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
            pass
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--ray {address}: there is no Ray ({error}): start it by: ray start --head") from None


def _choose_dashboard(address: str) -> bool | None:
    """No dashboard for a Ray of our own; where Ray is there already, it may not be asked for one."""
    return False if address == LOCAL else None


def _shorten(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
