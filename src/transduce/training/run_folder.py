"""The folder of a run: its files, and which run may be resumed in it."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from transduce.bundle import (
    find_latest_checkpoint,
    is_bundle,
    list_checkpoints,
    list_foreign_files,
    recover_checkpoints,
    remove_checkpoints,
)
from transduce.config import SCHEDULES_BY_LENGTH, RunConfig, flatten, load_resolved_config, to_toml
from transduce.errors import BusyError, ConfigError, RunError
from transduce.storage import (
    UNFINISHED_PATTERN,
    flush_to_disk,
    lock_folder,
    recover_folders,
    remove_folder,
    remove_if_left_empty,
    replace_file,
)
from transduce.training.reporting import MetricsLog

MAY_DIFFER = {
    "output",
    "data.folder",
    "data.cache",
    "data.examine",
    "data.translation_workers",
    "model.vocabulary",
    "training.device",
    "training.sharding",
    "training.rank_timeout",
    "training.updates",
    "training.epochs",
    "training.time_limit",
    "training.patience",
    "training.log_every",
    "training.validate_every",
    "training.checkpoint_every",
    "training.keep_checkpoints",
    "training.tensorboard",
    "training.baseline",
    "training.fit_no_repeat_ngram",
    "training.scorecard_sentences",
    "search.batch_tokens",
}
"""Settings that may change when a run is resumed: none of them affects the updates made so far.

`model.vocabulary` is determined by text and tokenizer, and unknown before they are read.
"""

_SHARED_FILE_PATTERN = r"\.shared-[0-9a-f]{32}"
"""The names of the files by which machines find out whether they share the folder, as a regular expression."""

PASSED_OVER = "passed-over"
"""Suffix for the name of a checkpoint that is damaged, or later than a damaged one."""


def compute_settings_digest(config: RunConfig) -> str:
    """SHA-256 of the settings that may not change.

    Defaults are left out, so that a setting added by a later version does not change the digest.
    """
    usual, may_differ = _flatten_without_paths(RunConfig()), _may_differ(config)
    given = _flatten_without_paths(config)
    deciding = {key: value for key, value in given.items() if value != usual[key] and key not in may_differ}
    return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()


_FILES = ("source", "target", "pairs", "validation_source", "validation_target", "validation_pairs")


def _flatten_without_paths(config: RunConfig) -> dict[str, Any]:
    """All settings by dotted name; in place of each path of text, whether it is given: text has a digest of its own."""

    def remove_paths(data: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value is not None if name in _FILES else value for name, value in data.items()}

    settings = config.model_dump()
    data = remove_paths(settings["data"])
    if data["corpora"] is not None:
        data["corpora"] = [remove_paths(corpus) for corpus in data["corpora"]]
    return flatten(settings | {"data": data})


def _may_differ(config: RunConfig) -> set[str]:
    """`MAY_DIFFER` without the setting that the learning rates of this schedule depend on.

    That is `training.updates`, or `training.epochs` if given, for "linear" and "cosine", and `training.validate_every`
    for "plateau".
    """
    if config.training.schedule in SCHEDULES_BY_LENGTH:
        # Where epochs are given, updates are computed from them, and unknown until the text is prepared.
        return MAY_DIFFER - {"training.updates" if config.training.epochs is None else "training.epochs"}
    return MAY_DIFFER - ({"training.validate_every"} if config.training.schedule == "plateau" else set())


_WHY_LENGTH_STAYS = (
    "with this training.schedule, the learning rate of every update depends on the length of the run, so the updates "
    "made would have been different. To train this model further, start a new run with training.start_from"
)


class RunFolder:
    """The folder of one run; ARCHITECTURE.md lists what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self._lock = path / ".lock"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best"
        self.last = path / "last"
        self.report = path / "report.html"
        self.tensorboard = path / "tensorboard"
        self.metrics = MetricsLog(path / "metrics.jsonl")

    def check(self, config: RunConfig, *, restart: bool, report: Callable[[str], None] = lambda _: None) -> None:
        """Check that a run of `config` may begin or be resumed here; nothing is changed, and damage is reported.

        Raises:
            RunError: the folder contains other files, or a run with other settings.
        """
        try:
            self._check_place(config, report, restart=restart)
        except OSError as error:  # as for a name that is too long, and a folder that may not be entered
            raise RunError(
                f"{self.path}: cannot be read ({error.strerror}): make it readable, or choose another output"
            ) from error

    def _check_place(self, config: RunConfig, report: Callable[[str], None], *, restart: bool) -> None:
        for place in (self.path, *self.path.parents):
            if place.is_symlink() and not place.exists():
                raise RunError(
                    f"{place}: is a link to {place.readlink()}, which is not a folder: create it, or choose another "
                    "output"
                )
            if place.exists() and not place.is_dir():
                raise RunError(f"{place}: is a file; a run needs a folder: choose another output")
        if not self.holds_run():
            found = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
            # A crash at the very beginning leaves an unfinished config.toml and a stale lock.
            found -= {self._lock.name, *self._find_text_names(config), *self._list_unfinished_files(found)}
            if foreign := sorted(found):
                raise RunError(
                    f"{self.path}: is not empty (it contains {foreign[0]}) and is not a run: choose another output"
                )
            return
        self._check_own_files()
        if not restart:
            self._check_same_settings(config, report)

    def _check_own_files(self) -> None:
        """Check that no file is in the place of a folder of the run, and no folder in the place of a file.

        Otherwise this would be found when it is written, maybe hours later. Report and TensorBoard's files are not
        needed: a run goes on without them.
        """
        for place in (self.checkpoints, self.best, self.last):
            if place.exists() and not place.is_dir():
                raise RunError(f"{place}: is a file, and the run writes a folder there: move it elsewhere")
        for place in (self.config_file, self.metrics.path):
            if place.is_dir():
                raise RunError(f"{place}: is a folder, and the run writes a file there: move it elsewhere")

    def holds_run(self) -> bool:
        """Whether a run has begun here: other programs have a config.toml, too."""
        has_run_files = self.load_config() is not None or self.metrics.path.exists() or is_bundle(self.best)
        return self.config_file.exists() and (has_run_files or bool(list_checkpoints(self.checkpoints)))

    def find_last_update(self) -> int:
        """The update of the latest checkpoint here, damaged or not; 0 without one, and -1 if there is no run."""
        return max(list_checkpoints(self.checkpoints), default=0) if self.holds_run() else -1

    def load_config(self) -> RunConfig | None:
        """The configuration that is saved with the run; None if it is missing or damaged."""
        try:
            return load_resolved_config(self.config_file)
        except ConfigError:
            return None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process from training here; the folder is made if needed, and removed if it stays empty.

        Raises:
            BusyError: another process is training here.
            RunError: the folder cannot be written.
        """
        with remove_if_left_empty(self.path), ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_folder(self.path, self._lock))
            except OSError as error:
                raise RunError(
                    f"{self.path}: cannot be written ({error.strerror}): make it writable, or choose another output"
                ) from error
            yield

    def is_locked(self, timeout: float = 0) -> bool:
        """Whether some process has locked the folder, as this machine sees it after at most `timeout` seconds."""
        until = time.monotonic() + timeout
        while not (found := self._lock.exists()) and time.monotonic() < until:
            time.sleep(0.5)
        return found

    def recover(self) -> None:
        """Clean up after a killed process; only for the process that has locked the folder."""
        recover_folders(self.path, f"{self.best.name}|{self.last.name}")
        recover_checkpoints(self.checkpoints)
        for name in self._list_unfinished_files(path.name for path in self.path.iterdir()):
            (self.path / name).unlink(missing_ok=True)
        for lock in (self.path / f".{self.best.name}.lock", self.path / f".{self.last.name}.lock"):
            # Leaving the lock removes it, unless a living process holds it.
            with suppress(BusyError), lock_folder(self.path, lock):
                pass
        for lock in self.checkpoints.glob(".*.lock"):
            lock.unlink()

    def begin(self, config: RunConfig, *, restart: bool) -> None:
        """Make the folder, or with `restart` empty it of the run it holds, and save the resolved configuration."""
        if restart:
            self._delete_run_files()
        self.path.mkdir(parents=True, exist_ok=True)
        with replace_file(self.config_file) as beside:
            beside.write_text(to_toml(config), encoding="utf-8", newline="\n")
        flush_to_disk(self.path)

    def truncate_after(self, update: int, *, is_finished: bool, report: Callable[[str], None]) -> None:
        """Remove the metrics that a run resumed from `update` will write again: see `MetricsLog.truncate_after`.

        Checkpoints after `update`, which were passed over as damaged, are renamed, so that they do not count among
        those that are kept, but can still be repaired by the user.
        """
        for later in list_checkpoints(self.checkpoints):
            if later > update:
                aside = _set_aside(self.checkpoints / f"{later:09d}", PASSED_OVER)
                report(f"the damaged checkpoint was moved to {aside}; the run does not need it")
        if damaged := self.metrics.find_damaged_lines():
            report(f"{self.metrics.path}: left out unreadable lines: {', '.join(map(str, damaged))}")
        self.metrics.truncate_after(update, is_finished=is_finished)

    def set_aside_foreign(self, bundle: Path, report: Callable[[str], None]) -> None:
        """Rename the folder in the place of `bundle` if it is damaged or holds files that are not of a bundle."""
        if bundle.is_dir() and not is_bundle(bundle):
            report(f"{bundle}: is no longer a bundle; it was moved to {_set_aside(bundle, 'damaged')}")
        elif bundle.is_dir() and (foreign := list_foreign_files(bundle)):
            report(
                f"{bundle}: contains {foreign[0]}, which is not a bundle file; the folder was moved to "
                f"{_set_aside(bundle, 'kept')}"
            )

    def remove_outdated(self, update: int, replaced: int, keep: int) -> None:
        """Remove all checkpoints but the latest `keep`, and the unscheduled one of update `replaced` (0: none).

        That of `update` stays, even if it is the unscheduled one. A checkpoint that was made only because the run was
        stopped must not be averaged, so that the run ends like an uninterrupted one.
        """
        if replaced in list_checkpoints(self.checkpoints) and replaced != update:
            remove_folder(self.checkpoints / f"{replaced:09d}")
        remove_checkpoints(self.checkpoints, keep)

    def _delete_run_files(self) -> None:
        """Remove the files of a run, and no others.

        config.toml stays until it is replaced, so that the folder is recognised as that of a run.
        """
        remove_checkpoints(self.checkpoints, keep=0)
        passed_over = self.checkpoints.glob(f"[0-9]*.{PASSED_OVER}-*")
        for place in [*passed_over, *filter(is_bundle, (self.best, self.last))]:
            if place in (self.best, self.last) and list_foreign_files(place):
                _set_aside(place, "kept")
            else:
                remove_folder(place)
        for place in (self.metrics.path, self.report, *self.tensorboard.glob("events.out.tfevents.*")):
            place.unlink(missing_ok=True)
        for place in (self.checkpoints, self.tensorboard):
            with suppress(OSError):  # it is in use, or not there
                place.rmdir()

    def _list_unfinished_files(self, names: Iterable[str]) -> list[str]:
        """The files among `names` that are of an unfinished write (`replace_file`), or of `_SHARED_FILE_PATTERN`."""
        files = "|".join(re.escape(path.name) for path in (self.config_file, self.metrics.path, self.report))
        pattern = f"({files}){UNFINISHED_PATTERN}|{_SHARED_FILE_PATTERN}"
        return [name for name in names if re.fullmatch(pattern, name, re.ASCII)]

    def _find_text_names(self, config: RunConfig) -> set[str]:
        """Names in this folder that hold text, given or prepared, which may exist before the run."""
        here = self.path.resolve()
        places = [Path(config.data.folder).resolve(), config.cache_folder.resolve()]
        return {place.relative_to(here).parts[0] for place in places if here in place.parents}

    def _check_same_settings(self, config: RunConfig, report: Callable[[str], None]) -> None:
        before = self.load_config()
        changes = [] if before is None else _list_changed_settings(before, config)
        if before is not None and not changes:
            return
        # Either the settings given or the file may be wrong; the checkpoints record which.
        checkpoint = find_latest_checkpoint(self.checkpoints, lambda _: None)
        recorded = checkpoint.state.get("settings") if checkpoint is not None else None
        if recorded == compute_settings_digest(config):
            report(f"{self.config_file}: is damaged, and is rewritten: the given settings are those of the run")
        elif before is None or recorded not in {None, compute_settings_digest(before)}:
            raise RunError(
                f"{self.config_file}: is damaged, and no checkpoint was made with the given settings: restore an "
                "undamaged copy or the former settings, choose another output, or start over with --restart, which "
                "deletes that run"
            )
        else:
            lines = "\n".join(changes)
            has_other_length = "  training.updates: " in lines or "  training.epochs: " in lines
            reason = f"{_WHY_LENGTH_STAYS}\n" if has_other_length else ""
            raise RunError(
                f"{self.path}: contains a run with other settings:\n{lines}\n{reason}"
                "choose another output, restore the former settings, or start over with --restart, which deletes that "
                "run"
            )


def _list_changed_settings(before: RunConfig, after: RunConfig) -> list[str]:
    deciding, may_differ = _flatten_without_paths(after), _may_differ(after)
    earlier = _flatten_without_paths(before)
    changed = [key for key in deciding if earlier[key] != deciding[key] and key not in may_differ]
    old, new = flatten(before.model_dump()), flatten(after.model_dump())
    return [f"  {key}: was {old[key]!r}, now {new[key]!r}" for key in changed]


def _set_aside(place: Path, word: str) -> Path:
    aside = next(name for number in count(1) if not (name := Path(f"{place}.{word}-{number}")).exists())
    place.rename(aside)
    return aside
