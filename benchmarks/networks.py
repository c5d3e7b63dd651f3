"""Two machines without a common folder train one model over a bad network: is the run what it is over a good one?

    python benchmarks/networks.py --delay 20 --loss 1

Each machine is a network namespace with a folder of its own, and has torchrun with one rank; packets between the two
pass through this process, which delays and loses them. The runs: over a network without delay, the one that the others
are compared with; with delay and loss; with the second machine killed and its folder deleted, `--away` seconds before
it comes back empty; and with the connection interrupted for as long. Compared are every line of metrics with the
digests of batches and weights, and every byte of weights, optimiser, `best/` and `last/`. Prints a table and, last, a
line of JSON.

Linux only, as root: namespaces and devices are made by `ip`, and deleted at the end.
"""

import argparse
import contextlib
import fcntl
import heapq
import itertools
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from kills import kill
from resume import SETTINGS, write_text

from transduce.config import load_run_config, remove_settings, to_toml
from transduce.training import RunFolder
from transduce.training.verification import find_differences, read_last_update

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""Of Linux: makes a device whose packets a program reads and writes."""

NAMESPACES = ("transduce-a", "transduce-b")
DEVICES = ("transduce0", "transduce1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29_500
IP = shutil.which("ip") or "ip"
TIME_LIMIT = 900.0
"""Seconds that a run may take."""


class Network(threading.Thread):
    """Passes packets between two devices, each after a delay, and loses some, until `stop` is called.

    Args:
        devices: file descriptors of both.
    """

    def __init__(self, devices: tuple[int, int]) -> None:
        super().__init__(daemon=True)
        self.devices = devices
        self.delay, self.loss, self.is_cut = 0.0, 0.0, False
        self.num_packets = self.num_lost = 0
        self._is_stopped = False
        self._random = np.random.default_rng(1)

    def run(self) -> None:
        """Read, wait, write."""
        waiting: list[tuple[float, int, int, bytes]] = []
        order = itertools.count()
        while not self._is_stopped:
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.2
            readable, _, _ = select.select(self.devices, [], [], min(left, 0.2))
            for device in readable:
                packet = os.read(device, 65_536)
                self.num_packets += 1
                if self.is_cut or self._random.random() < self.loss:
                    self.num_lost += 1
                    continue
                other = self.devices[1 - self.devices.index(device)]
                heapq.heappush(waiting, (time.monotonic() + self.delay, next(order), other, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, other, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the device is not up yet
                    os.write(other, packet)

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped = True
        self.join()


class Scenario(NamedTuple):
    """What happens to a run."""

    name: str
    is_bad: bool = False
    """Whether packets are late and lost."""
    is_killed: bool = False
    """Whether the second machine is killed and comes back empty."""
    is_cut: bool = False
    """Whether the connection is interrupted."""


SCENARIOS = (
    Scenario("good"),
    Scenario("late and lost packets", is_bad=True),
    Scenario("and a machine killed, back empty", is_bad=True, is_killed=True),
    Scenario("and the connection interrupted", is_bad=True, is_cut=True),
)


def main() -> None:
    """Make the network, train over it, compare, print; exit code 1 if a run differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--delay", type=float, default=20.0, help="milliseconds, each way")
    parser.add_argument("--loss", type=float, default=1.0, help="percent of the packets")
    parser.add_argument("--away", type=float, default=20.0, help="seconds")
    given = parser.parse_args()
    results = []
    with contextlib.ExitStack() as at_end:
        network = at_end.enter_context(make_network())
        folder = Path(at_end.enter_context(tempfile.TemporaryDirectory(prefix="transduce-networks-")))
        reference: RunFolder | None = None
        for number, scenario in enumerate(SCENARIOS):
            result, run = train_over(network, scenario, folder / str(number), given)
            reference = reference or run
            result["differences"] = find_differences(run, reference)
            print(describe(result), flush=True)
            results.append(result)
    print(json.dumps({"runs": results, **vars(given), "torch": torch.__version__}))
    sys.exit(any(result["differences"] for result in results))


def describe(result: dict[str, object]) -> str:
    """A line of the table."""
    differences = result["differences"]
    words = "; ".join(differences) if isinstance(differences, list) and differences else "equal to the bit"
    return (
        f"{result['name']:<34} {result['seconds']:>5} s, {result['starts']} starts, {result['lost']:>6} lost: {words}"
    )


@contextlib.contextmanager
def make_network() -> Iterator[Network]:
    """Two namespaces with a device each, and the thread between them."""
    descriptors: list[int] = []
    try:
        for device, namespace, address in zip(DEVICES, NAMESPACES, ADDRESSES, strict=True):
            descriptors.append(os.open("/dev/net/tun", os.O_RDWR))
            fcntl.ioctl(descriptors[-1], TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
            for command in (
                ["netns", "add", namespace],
                ["link", "set", device, "netns", namespace],
                ["-n", namespace, "addr", "add", f"{address}/24", "dev", device],
                ["-n", namespace, "link", "set", device, "up"],
                ["-n", namespace, "link", "set", "lo", "up"],
            ):
                subprocess.run([IP, *command], check=True)
        network = Network((descriptors[0], descriptors[1]))
        network.start()
        try:
            yield network
        finally:
            network.stop()
    finally:
        for namespace in NAMESPACES:
            subprocess.run([IP, "netns", "del", namespace], check=False)
        for descriptor in descriptors:
            os.close(descriptor)


def train_over(
    network: Network, scenario: Scenario, folder: Path, given: argparse.Namespace
) -> tuple[dict[str, object], RunFolder]:
    """Train on both machines while the scenario happens; what it took, and the run of the first machine."""
    machines = [folder / name for name in ("a", "b")]
    for machine in machines:
        machine.mkdir(parents=True)
    write_text(machines[0])
    arguments = SETTINGS | {"training.updates": given.updates, "training.batch_tokens": 200, "output": "run"}
    config, _ = load_run_config(None, arguments=arguments)
    (machines[0] / "recipe.toml").write_text(to_toml(config), encoding="utf-8")
    run = RunFolder(machines[0] / "run")
    network.delay, network.loss = (given.delay / 1000, given.loss / 100) if scenario.is_bad else (0.0, 0.0)
    lost, started = network.num_lost, time.monotonic()
    processes = [start(number, machine) for number, machine in enumerate(machines)]
    try:
        if scenario.is_killed or scenario.is_cut:
            wait_for_update(run, processes[0], given.updates // 3)
        if scenario.is_killed:
            kill(processes[1])
            shutil.rmtree(machines[1])
            machines[1].mkdir()
            time.sleep(given.away)
            processes[1] = start(1, machines[1])
        if scenario.is_cut:
            network.is_cut = True
            time.sleep(given.away)
            network.is_cut = False
        for process, machine in zip(processes, machines, strict=True):
            if process.wait(TIME_LIMIT):
                words = machine.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
                raise SystemExit(f"{scenario.name}: training failed with {process.returncode}: {words[-3000:]}")
    finally:
        network.is_cut = False
        for process in processes:
            if process.poll() is None:
                kill(process)
    starts = machines[0].with_suffix(".log").read_text(encoding="utf-8").count("on 2 ranks of cpu")
    seconds = round(time.monotonic() - started)
    return {"name": scenario.name, "seconds": seconds, "starts": starts, "lost": network.num_lost - lost}, run


def start(number: int, machine: Path) -> subprocess.Popen[bytes]:
    """Start torchrun on a machine, in its folder; what it says is beside that."""
    launcher = [IP, "netns", "exec", NAMESPACES[number], sys.executable, "-m", "torch.distributed.run"]
    options = ["--nnodes=2", "--nproc-per-node=1", "--max-restarts=9", "--rdzv-id=networks", "--rdzv-backend=c10d"]
    addresses = [
        f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}",
        f"--rdzv-conf=is_host={1 - number}",
        f"--local-addr={ADDRESSES[number]}",
    ]
    environment = remove_settings(os.environ) | {
        "GLOO_SOCKET_IFNAME": DEVICES[number],
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with machine.with_suffix(".log").open("ab") as log:
        return subprocess.Popen(
            [*launcher, *options, *addresses, "-m", "transduce", "train", "recipe.toml"],
            cwd=machine,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def wait_for_update(run: RunFolder, process: subprocess.Popen[bytes], update: int) -> None:
    """Until the run has come so far, or has ended."""
    deadline = time.monotonic() + TIME_LIMIT
    while read_last_update(run) < update and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
