"""From a configuration to a trained model: the main job, start to end."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import torch

from transduce.bundle import Bundle
from transduce.config import RunConfig, TextConfig, to_toml
from transduce.data import PreparedData, plan_batches, prepare, select_epoch_pairs
from transduce.errors import ConfigError, RunError, TrainingError, TransduceError, WriteError, is_out_of_memory
from transduce.training.determinism import deterministic_kernels
from transduce.training.interruption import stop_wish
from transduce.training.introduction import introduce
from transduce.training.model_memory import check_model_memory
from transduce.training.precision import settled_precision
from transduce.training.ranks import Ranks, joined_ranks, may_start_anew
from transduce.training.reporter import Reporter, SilentReporter
from transduce.training.result import TrainingResult
from transduce.training.run_folder import RunFolder, settings_digest
from transduce.training.start import settled_start
from transduce.training.tensorboard import check_tensorboard
from transduce.training.trainer import Trainer
from transduce.translation import find_device
from transduce.translation.allocator import keep_few_kernels, keep_freed_memory

SMALLEST_VOCABULARY = 264
"""Of a tokenizer that is trained: 256 bytes, the special symbols and a few letters."""

FILE_SYSTEM_PATIENCE = 90.0
"""Seconds after which a file that one machine has written is seen by another: NFS remembers what was not there."""


def train(
    config: RunConfig,
    reporter: Reporter | None = None,
    *,
    restart: bool = False,
    standard_input: BinaryIO | None = None,
) -> TrainingResult:
    """Train the run that `config` describes, from wherever its folder says it is.

    Everything that can be wrong with settings, folder and text is found before the run's folder is changed, but for
    what a killed process left half done there, which is put right first.

    Args:
        config: the whole run.
        reporter: is told how it goes; nobody unless given.
        restart: delete what the run's folder holds of an earlier run.
        standard_input: where `data.pairs = "-"` is read from.

    Raises:
        BundleError, ConfigError, CorpusError, RunError: something given breaks a rule.
        BusyError: another process is training in the folder.
        MissingExtraError: TensorBoard is asked for and not installed.
        Interrupted: by Ctrl-C or SIGTERM; the same call goes on from there.
        TrainingError: loss, gradients or weights are no longer numbers; a file could not be written; or another rank
            was lost.
        EndedElsewhere: another of the ranks that torchrun has started says what is wrong.
    """
    with joined_ranks() as ranks:
        watcher = reporter if reporter is not None and ranks.is_first else SilentReporter()
        return _train(config, watcher, ranks, restart=restart, standard_input=standard_input)


def _train(
    config: RunConfig, reporter: Reporter, ranks: Ranks, *, restart: bool, standard_input: BinaryIO | None
) -> TrainingResult:
    if not config.data.training_corpora:
        raise ConfigError("there is nothing to train on: give data.source and data.target, data.pairs or data.corpora")
    device = ranks.own_device(find_device(config.training.device))
    if config.training.tensorboard:
        check_tensorboard()
    folder = RunFolder(Path(config.output))
    config, text, start = settled_start(config, folder, _cache(config), reporter.say, restart=restart)
    config = _with_precision(config, device)
    _check_ranks(config, ranks)
    # Before the tokenizer exists, its smallest size stands for it.
    known = "vocabulary" in config.model.model_fields_set
    check_model_memory(config if known else config.with_vocabulary(SMALLEST_VOCABULARY), device, ranks)
    if restart and may_start_anew():
        raise RunError(
            f"{folder.path}: with --restart, torchrun --max-restarts would delete the run whenever a rank has failed: "
            f"leave out one of the two"
        )
    folder.check(config, restart=restart, say=reporter.say)
    ranks.wait()  # now that all have seen the folder, the first may change it
    with folder.alone() if ranks.is_first else nullcontext(), deterministic_kernels(device):
        ranks.wait()
        if ranks.any(not folder.is_in_use(FILE_SYSTEM_PATIENCE)):
            raise RunError(
                f"{folder.path}: not every rank sees that the first is at work there: give all of them an output "
                f"in a folder that their machines share"
            )
        return _train_alone(
            config, text, start, folder, reporter, ranks, restart=restart, standard_input=standard_input
        )


def _cache(config: RunConfig) -> Path:
    return Path(config.data.cache) if config.data.cache else Path(config.output).parent / ".cache"


def _train_alone(
    config: RunConfig,
    text: TextConfig,
    start: Bundle | None,
    folder: RunFolder,
    reporter: Reporter,
    ranks: Ranks,
    *,
    restart: bool,
    standard_input: BinaryIO | None,
) -> TrainingResult:
    """The same, in a folder that no process writes to but the first rank; `text` is what the text is prepared with."""
    started = time.perf_counter()
    if ranks.is_first:
        folder.check(config, restart=restart)  # again: until now another process may have been at work
        folder.recover()
    begun = None if restart else folder.metrics.first().get("digests")
    prepared = ranks.after_first(
        lambda: prepare(
            config.data, text, _cache(config), standard_input=standard_input, begun=begun, report=reporter.say
        )
    )
    config = config.with_vocabulary(prepared.tokenizer.vocabulary)
    config = _with_updates(config, prepared, None if restart else folder.saved_config(), ranks)
    _check_positions(config, prepared)
    check_model_memory(config, ranks.own_device(find_device(config.training.device)), ranks)
    keep_freed_memory()
    keep_few_kernels()
    _check_alike(folder, ranks, to_toml(config), prepared.digests["all"])  # else the first collective may never end
    with stop_wish(reporter.say) as stop:
        trainer = Trainer(_with_lengths_seen(config, prepared), prepared, folder, reporter, start, ranks, started)
        trainer.updater.should_stop = lambda: stop.wished
        if not restart:
            trainer.resume()
        trainer.state.settings = settings_digest(config)
        _check_alike(folder, ranks, trainer.state.start, trainer.state.update, trainer.state.best)
        again = "the same command without --restart" if restart else "the same command"
        with closing(trainer.updater.processes), _failures_explained(folder, again):
            trainer.fit_into_memory()  # before an earlier run makes way for one that cannot be
            if ranks.is_first:
                folder.begin(config, restart=restart)
                folder.forget_after(trainer.state.update, finished=trainer.state.finished, say=reporter.say)
                introduce(trainer)
                trainer.trackers.begin()
            try:
                return trainer.run(stop, again)
            except TransduceError:  # stopped, or diverged: the report shows it up to here
                if ranks.is_first:
                    trainer.trackers.report()
                raise


@contextmanager
def _failures_explained(folder: RunFolder, again: str) -> Iterator[None]:
    """Of a full disk, Python does not say which file did not fit, and of full memory nobody what becomes of the run."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, WriteError) as error:
        raise TrainingError(
            f"{folder.path}: training stopped, because a file could not be read or written: {error}; what was saved "
            f"is intact: put that right, and {again} goes on from the last checkpoint"
        ) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"{folder.path}: training stopped, because memory is full; what was saved is intact: end other programs, "
            f"and {again} goes on from the last checkpoint. If it is validation that takes too much, a lower "
            f"search.batch_tokens needs less; if it is training, a new run with a lower training.batch_tokens"
        ) from error


def _with_precision(config: RunConfig, device: torch.device) -> RunConfig:
    """The same run with what `auto` stands for here: where it stands for something else, the run does not go on."""
    precision = settled_precision(config.training.precision, device, config.model.d_model)
    return config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})


def _check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """What a single process can do, and several cannot."""
    if ranks.size == 1:
        return
    if config.data.pairs == "-":
        raise ConfigError(
            f'data.pairs = "-": {ranks.size} ranks cannot all read standard input: give a file with the pairs'
        )
    if config.model.normalization == "batch":
        raise ConfigError(
            f'model.normalization = "batch" takes its statistics over a whole batch, which {ranks.size} ranks '
            f'share: train it in one process, or set it to "layer"'
        )
    if config.training.ema_decay and config.training.sharding == "fsdp":
        raise ConfigError(
            f"training.ema_decay = {config.training.ema_decay} keeps a second whole model on each of the {ranks.size} "
            f'ranks, which training.sharding = "fsdp" is there to avoid: set sharding to "none", or ema_decay to 0'
        )


def _check_alike(folder: RunFolder, ranks: Ranks, *found: object) -> None:
    """All ranks must be about to do the same: on several machines, they may have been told or have found otherwise."""
    digest = hashlib.sha256("\n".join(map(str, found)).encode()).digest()
    if not ranks.agree(int.from_bytes(digest[:7])):
        raise RunError(
            f"{folder.path}: the ranks have different settings, or do not find the same there: give all "
            f"of them the same recipe, the same options, a folder that all machines share, and, if their processors "
            f"differ, a training.precision other than auto"
        )


def _with_updates(config: RunConfig, prepared: PreparedData, saved: RunConfig | None, ranks: Ranks) -> RunConfig:
    """The same run with as many updates as its `training.epochs` have; those of the run that is `saved`, if it goes on.

    How many batches an epoch has differs a little from one to the next; those of the first are counted.
    """
    training = config.training
    if training.epochs is None:
        return config
    updates = saved.training.updates if saved is not None and saved.training.epochs == training.epochs else 0
    if not updates:
        pairs = select_epoch_pairs(prepared, training.seed, 0)
        budget = ranks.size * training.batch_tokens
        num_batches = len(plan_batches(prepared.train.lengths, budget, training.seed, 0, pairs))
        updates = max(1, round(training.epochs * num_batches / training.accumulation))
    return config.model_copy(update={"training": training.model_copy(update={"updates": updates})})


def _check_positions(config: RunConfig, prepared: PreparedData) -> None:
    """Learned positions must reach to the end of all that is read, and of the shortest that may be written."""
    if config.model.positions != "learned":
        return
    tokenizer, (sources, targets) = prepared.tokenizer, zip(*prepared.validation, strict=True)
    validation = [*tokenizer.encode_all(sources), *tokenizer.encode_targets(targets)]
    longest = max(int(prepared.train.lengths.max()), 1 + max(map(len, validation)))
    if longest > config.model.max_positions:
        raise ConfigError(
            f"model.max_positions = {config.model.max_positions}: the text has a sentence of {longest} tokens; raise "
            f"it to at least that, or lower text.max_pieces if the sentence is not one of the validation text"
        )
    if config.search.min_length > config.model.max_positions:
        raise ConfigError(
            f"search.min_length = {config.search.min_length}: a model of {config.model.max_positions} learned "
            f"positions (model.max_positions) writes no more tokens than that: ask for fewer"
        )


def _with_lengths_seen(config: RunConfig, prepared: PreparedData) -> RunConfig:
    """The same run, whose model translates nothing at a time that is longer than all it was trained on.

    Of a longer text a model leaves most out; cut into parts, all of it is translated.
    """
    longest = int(prepared.train.lengths[:, 0].max()) - 1  # without </s>
    search = config.search.model_copy(update={"max_pieces": max(8, min(config.search.max_pieces, longest))})
    return config.model_copy(update={"search": search})
