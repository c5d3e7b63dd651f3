"""A run is a folder: what is in it, and who may go on in it."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from transduce.bundle import list_checkpoints, locked, recover_checkpoints, recover_folders, remove_folder
from transduce.config import RunConfig, flatten, load_run_config, to_toml
from transduce.errors import RunError
from transduce.training.metrics import MetricsLog

MAY_DIFFER = {
    "output",
    "data.folder",
    "data.cache",
    "model.vocabulary",
    "training.device",
    "training.sharding",
    "training.updates",
    "training.patience",
    "training.log_every",
    "training.validate_every",
    "training.checkpoint_every",
    "training.keep_checkpoints",
    "training.tensorboard",
    "search.batch_tokens",
}
"""Settings that may change when a run goes on: none of them changes what was computed so far.

`model.vocabulary` is decided by text and tokenizer, and is not known before they are read.
"""


class RunFolder:
    """The folder of one run, as ARCHITECTURE.md draws it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self._unfinished = path / "config.toml.tmp"
        self._lock = path / ".lock"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best"
        self.last = path / "last"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"
        self.metrics = MetricsLog(path / "metrics.jsonl")

    def check(self, config: RunConfig, *, restart: bool) -> None:
        """Whether a run of `config` may begin or go on here; nothing is changed.

        Raises:
            RunError: the folder holds something else, or a run with other settings.
        """
        for place in (self.path, *self.path.parents):
            if place.exists() and not place.is_dir():
                raise RunError(f"{place}: is a file; a run needs a folder: choose another output")
        if not self.config_file.exists():
            found = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
            # A crash at the very beginning leaves an unfinished config.toml, and its lock, which no longer locks.
            if foreign := sorted(found - {self._unfinished.name, self._lock.name, self._cache_within(config)}):
                raise RunError(
                    f"{self.path}: is not empty (it holds {foreign[0]}) and is not a run: choose another output"
                )
        elif not restart:
            self._check_same(config)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other process from training here; the folder is made if need be, and gone again if left empty.

        Raises:
            BusyError: another process is training here.
            RunError: the folder cannot be written.
        """
        made = [place for place in (self.path, *self.path.parents) if not place.exists()]
        with ExitStack() as stack:
            stack.callback(_remove_empty, made)
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.path, self._lock))
            except OSError as error:
                raise RunError(
                    f"{self.path}: cannot be written ({error.strerror}), and a run needs that: choose another output, "
                    f"or see to it that it can be written"
                ) from error
            yield

    def recover(self) -> None:
        """Put right what a killed process left half done. Only for whoever is alone here."""
        recover_folders(self.path, f"{self.best.name}|{self.last.name}")
        recover_checkpoints(self.checkpoints)
        for lock in (*self.path.glob(".*.lock"), *self.checkpoints.glob(".*.lock")):
            lock.unlink()

    def begin(self, config: RunConfig, *, restart: bool) -> None:
        """Make the folder, or with `restart` empty it of the run it holds, and save the resolved configuration."""
        if restart:
            for place in (self.checkpoints, self.best, self.last, self.tensorboard):
                shutil.rmtree(place, ignore_errors=True)
            # config.toml stays until it is replaced: while it is there, the folder is known as that of a run.
            for place in (self.metrics.path, self.report):
                place.unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        self._unfinished.write_text(to_toml(config), encoding="utf-8", newline="\n")
        self._unfinished.replace(self.config_file)

    def forget_after(self, update: int, *, finished: bool, say: Callable[[str], None]) -> None:
        """Forget what was done after `update`, and the average if the run is not `finished`: all of it comes again.

        Checkpoints after `update`, which were passed over, would count among those that are kept. They get another
        name: the user has just been told what could be done about them.
        """
        for later in list_checkpoints(self.checkpoints):
            if later > update:
                place = self.checkpoints / f"{later:09d}"
                aside = next(
                    name for number in count(1) if not (name := Path(f"{place}.passed-over-{number}")).exists()
                )
                place.rename(aside)
                say(f"what was passed over is kept as {aside}; the run does not need it")
        if damaged := self.metrics.damaged_lines():
            say(f"{self.metrics.path}: left out what cannot be read, lines {', '.join(map(str, damaged))}")
        self.metrics.truncate_after(update, average=finished)

    def remove_checkpoints(self, updates: Iterable[int]) -> None:
        """Remove the checkpoints of `updates`."""
        for update in updates:
            remove_folder(self.checkpoints / f"{update:09d}")

    def _cache_within(self, config: RunConfig) -> str:
        """What of this folder holds prepared text, which is there before the run is; "" if the cache lies elsewhere."""
        cache, here = Path(config.data.cache or "/").resolve(), self.path.resolve()
        return cache.relative_to(here).parts[0] if here in cache.parents else ""

    def _check_same(self, config: RunConfig) -> None:
        before, _ = load_run_config(self.config_file)
        may_differ = MAY_DIFFER - ({"training.updates"} if config.training.schedule == "linear" else set())
        old, new = (flatten(run.model_dump()) for run in (before, config))
        changed = [key for key in new if old[key] != new[key] and key not in may_differ]
        if changed:
            lines = "\n".join(f"  {key}: was {old[key]!r}, now {new[key]!r}" for key in changed)
            raise RunError(
                f"{self.path}: holds a run with other settings:\n{lines}\n"
                f"choose another output, set them back, or start over with --restart, which deletes that run"
            )


def _remove_empty(folders: Iterable[Path]) -> None:
    with suppress(OSError):  # the first that is in use ends it
        for folder in folders:
            folder.rmdir()
