"""Agreement of the ranks before training: on the settings, the first rank, and which ranks see the run's folder.

The first rank is the one whose machine has the run, not necessarily torchrun's rank 0: with the `c10d` rendezvous,
torchrun orders machines by name. Only the first rank's machine needs the recipe and the text, and it keeps the run.
"""

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from torch import distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from transduce.config import RunConfig, parse_duration, parse_resolved_config, to_toml
from transduce.errors import RunError, UserError
from transduce.training.distributed import MAX_WAIT, Ranks, choose_backend
from transduce.training.run_folder import RunFolder

VISIBLE_WITHIN = 5.0
"""Seconds after which a file on a shared file system is visible to all machines, if its name was never looked up."""

DIFFERENT_SETTINGS = (
    "the ranks have different settings, or find different files there: give all of them the same recipe, the same "
    "options, the same text, and, if their processors differ, a training.precision other than auto"
)
"""The end of a message about ranks that cannot train together."""


def agree_on_run(ranks: Ranks, resolve: Callable[[], RunConfig]) -> tuple[Ranks, RunConfig]:
    """Make all ranks agree on one run, and return the renumbered ranks and the run; a single rank only calls `resolve`.

    Rank 0 of the returned ranks has the run's folder; the ranks of machines that cannot see that folder are remote.
    Collective operations now have the timeout `training.rank_timeout`, except those for long waits.

    Args:
        ranks: the ranks that `connect_ranks` has returned.
        resolve: makes the configuration of the run. A remote machine may lack the recipe or the text; where `resolve`
            fails for that reason, the machine takes the settings of the first rank.

    Raises:
        UserError, OSError: `resolve` fails on all machines, or on some rank of the machine that has the run.
        RunError: the ranks have different settings; or a machine has another run in the same folder; or the run is not
            on the machine of torchrun's rank 0, and the ranks cannot be renumbered, as the caller initialised
            torch.distributed itself.
    """
    if ranks.size == 1:
        return ranks, resolve()
    own, failure = None, None
    try:
        own = resolve()
    except (UserError, OSError) as error:
        failure = error
    found = [json.loads(text) for text in ranks.gather_texts(json.dumps(_describe_rank(own)))]
    first = _choose_first(found)
    if first is None or (failure is not None and found[ranks.rank]["machine"] == found[first]["machine"]):
        raise failure or RunError("no rank has settings to train with")
    if own is not None and found[ranks.rank]["settings"] != found[first]["settings"]:
        raise RunError(f"{own.output}: {DIFFERENT_SETTINGS}")
    hosts = [each["host"] for each in found[first:] + found[:first]]
    machines = [each["machine"] for each in found[first:] + found[:first]]
    if ranks.store is not None:
        ranks.barrier()  # finds out here that a rank has failed: connecting again would wait for it in vain
        ranks = _renumber(ranks, ranks.store, first, found[first]["timeout"])
    elif first != 0:
        raise RunError("the run is on the machine of another rank than 0: call `train` outside of `connect_ranks`")
    given = parse_resolved_config(ranks.broadcast_text("" if own is None else to_toml(own)))
    config = given if own is None else own
    remote, sees_run = _find_remote_machines(ranks, Path(config.output), machines, has_settings=own is not None)
    if not remote:
        return ranks, config
    is_remote = machines[ranks.rank] in remote
    if is_remote and not sees_run and RunFolder(Path(config.output)).holds_run():
        raise RunError(
            f"{config.output} on {socket.gethostname()}: is another run than that of {hosts[0]}, with which the folder "
            "is not shared: move it away, or choose another output"
        )
    ranks.barrier()  # as above, before the new group is made
    members = [0, *(machines.index(machine) for machine in remote)]
    file_group = dist.new_group(members, timeout=MAX_WAIT, backend="gloo")
    names = tuple(hosts[machines.index(machine)] for machine in remote)
    ranks = replace(ranks, is_remote=is_remote, remote_hosts=names, file_group=file_group)
    if is_remote:
        replacements = {"output": config.output, "data": {"cache": config.data.cache}} if own is not None else {}
        config = _replace_folders(given, replacements)
    return ranks, config


def share_settings(ranks: Ranks, config: RunConfig) -> RunConfig:
    """On remote ranks, the first rank's settings with this rank's own folders; on all other ranks, `config` itself."""
    if not ranks.remote_hosts:
        return config
    given = ranks.broadcast_text(to_toml(config) if ranks.is_first else "")
    replacements = {"output": config.output, "data": {"cache": config.data.cache}}
    return _replace_folders(parse_resolved_config(given), replacements) if ranks.is_remote else config


def describe_shared_settings(config: RunConfig) -> str:
    """All settings that must be the same on all ranks: those of folders may differ."""
    return to_toml(_replace_folders(config, {"output": "", "data": {"folder": "", "cache": ""}}))


def _replace_folders(config: RunConfig, replacements: dict[str, Any]) -> RunConfig:
    """A copy of the configuration with other folders: `replacements` has "output", and under "data" settings of it."""
    data = config.data.model_copy(update=replacements.get("data", {}))
    return config.model_copy(update={"output": replacements.get("output", config.output), "data": data})


def _describe_rank(own: RunConfig | None) -> dict[str, Any]:
    """This rank's machine and, if it could resolve the settings, their digest, its timeout and its last update."""
    description = {"machine": int(os.environ["GROUP_RANK"]), "host": socket.gethostname()}
    if own is None:
        return description
    folder = RunFolder(Path(own.output))
    return {
        **description,
        "settings": hashlib.sha256(describe_shared_settings(own).encode()).hexdigest(),
        "timeout": parse_duration(own.training.rank_timeout),
        "updates": folder.find_last_update(),
    }


def _choose_first(found: Sequence[dict[str, Any]]) -> int | None:
    """The rank, by torchrun's number, with the most updates of the run; None if no rank could resolve the settings."""
    candidates = [number for number, each in enumerate(found) if "settings" in each]
    return max(candidates, key=lambda number: (found[number]["updates"], -number), default=None)


def _renumber(ranks: Ranks, store: Store, first: int, timeout: float) -> Ranks:
    """Connect the ranks again, numbered in the same cyclic order, such that `first` gets number 0."""
    store = PrefixStore("agreed", store)
    number = (ranks.rank - first) % ranks.size
    dist.destroy_process_group()
    limit = timedelta(seconds=timeout)
    dist.init_process_group(choose_backend(), store=store, rank=number, world_size=ranks.size, timeout=limit)
    return replace(ranks, rank=number, long_timeout_group=dist.new_group(timeout=MAX_WAIT, backend="gloo"))


def _find_remote_machines(
    ranks: Ranks, output: Path, machines: Sequence[int], *, has_settings: bool
) -> tuple[list[int], bool]:
    """The remote machines, in their order, and whether this rank sees the run's folder.

    A machine is remote if one of its ranks does not see a file that the first rank writes, or could not resolve the
    settings (`has_settings`), for lack of the recipe or the text. The file is written into the run's folder or, if that
    does not exist yet, into the nearest existing folder above it, as no folder is made before all checks are done.
    """
    if len(set(machines)) == 1:
        return [], True
    folders = [output, *output.parents]
    with _write_token(folders) if ranks.is_first else _no_token() as written:
        level, name = json.loads(ranks.broadcast_text(json.dumps(written)))
        is_seen = ranks.is_first or not name
        if not is_seen and level < len(folders):
            is_seen = _wait_for_file(folders[level] / name)
        ranks.barrier()
        is_shared = [text == "1" for text in ranks.gather_texts(str(int(is_seen and has_settings)))]
    ranks.barrier()  # so that the file is removed before a rank lists the contents of the folder
    apart = {machine for machine, shared in zip(machines, is_shared, strict=True) if not shared}
    return [machine for machine in dict.fromkeys(machines) if machine in apart and machine != machines[0]], is_seen


@contextmanager
def _write_token(folders: Sequence[Path]) -> Iterator[tuple[int, str]]:
    """Keep an empty file in a folder while the block runs, by which other machines see whether they share the folder.

    That folder is the first of `folders` that exists; the name of the file is random.

    Yields the index of that folder and the name of the file. The name is "" if the file cannot be written; the reason
    is reported later, when the run's folder is made.
    """
    level, name = next(number for number, folder in enumerate(folders) if folder.exists()), f".shared-{uuid4().hex}"
    token = folders[level] / name
    try:
        token.touch()
    except OSError:
        name = ""
    try:
        yield level, name
    finally:
        with suppress(OSError):
            token.unlink(missing_ok=True)


@contextmanager
def _no_token() -> Iterator[tuple[int, str]]:
    yield 0, ""


def _wait_for_file(path: Path) -> bool:
    """Wait for a file that another machine has written, up to `VISIBLE_WITHIN` seconds; returns whether it is there."""
    until = time.monotonic() + VISIBLE_WITHIN
    while not (found := path.exists()) and time.monotonic() < until:
        time.sleep(0.2)
    return found
