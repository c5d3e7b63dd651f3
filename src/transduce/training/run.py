"""From a configuration to a trained model: the main job, start to end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import torch

from transduce.bundle import Bundle, started
from transduce.config import RunConfig
from transduce.data import PreparedData, prepare
from transduce.errors import ConfigError, TrainingError, TransduceError
from transduce.training.allocator import keep_freed_memory
from transduce.training.environment import environment
from transduce.training.interruption import stop_wish
from transduce.training.length_histogram import length_histogram
from transduce.training.precision import settled_precision
from transduce.training.reporter import Reporter, SilentReporter
from transduce.training.run_folder import RunFolder
from transduce.training.tensorboard import check_tensorboard
from transduce.training.trainer import Trainer, TrainingResult
from transduce.translation import find_device


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
        TrainingError: loss, gradients or weights are no longer numbers; or a file could not be written.
    """
    reporter = reporter or SilentReporter()
    if not config.data.training_corpora:
        raise ConfigError("there is nothing to train on: give data.source and data.target, data.pairs or data.corpora")
    device = find_device(config.training.device)
    if config.training.tensorboard:
        check_tensorboard()
    config, start = started(config)
    config = _with_precision(config, device)
    folder = RunFolder(Path(config.output))
    folder.check(config, restart=restart)
    with folder.alone():
        return _train_alone(config, start, folder, reporter, restart=restart, standard_input=standard_input)


def _train_alone(
    config: RunConfig,
    start: Bundle | None,
    folder: RunFolder,
    reporter: Reporter,
    *,
    restart: bool,
    standard_input: BinaryIO | None,
) -> TrainingResult:
    """The same, in a folder that no other process writes to."""
    folder.check(config, restart=restart)  # again: until now another process may have been at work
    folder.recover()
    cache = Path(config.data.cache) if config.data.cache else folder.path.parent / ".cache"
    prepared = prepare(config.data, config.text, cache, standard_input=standard_input, talk=reporter.say)
    config = config.with_vocabulary(prepared.tokenizer.vocabulary)
    _check_positions(config, prepared)
    keep_freed_memory()
    with stop_wish() as stop:
        trainer = Trainer(_with_lengths_seen(config, prepared), prepared, folder, reporter, start)
        if not restart:
            trainer.resume()
        with _failing_files_named(folder):
            folder.begin(config, restart=restart)
            folder.forget_after(trainer.state.update, finished=trainer.state.finished)
            _introduce(trainer)
            trainer.trackers.begin()
            try:
                return trainer.run(stop)
            except TransduceError:  # stopped, or diverged: the report shows it up to here
                trainer.trackers.report()
                raise


@contextmanager
def _failing_files_named(folder: RunFolder) -> Iterator[None]:
    """Of a full disk, Python does not say which file did not fit, and nobody what becomes of the run."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TrainingError(
            f"{folder.path}: training stopped, because a file could not be read or written: {error}; what was saved "
            f"is intact: put that right, and the same command goes on from the last checkpoint"
        ) from error


def _with_precision(config: RunConfig, device: torch.device) -> RunConfig:
    """The same run with what `auto` stands for here: where it stands for something else, the run does not go on."""
    precision = settled_precision(config.training.precision, device, config.model.d_model)
    return config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})


def _check_positions(config: RunConfig, prepared: PreparedData) -> None:
    """Learned positions must reach to the end of every sentence that training and validation will read."""
    if config.model.positions != "learned":
        return
    validation = prepared.tokenizer.encode_all([side for pair in prepared.validation for side in pair])
    longest = max(int(prepared.train.lengths.max()), 1 + max(map(len, validation)))
    if longest > config.model.max_positions:
        raise ConfigError(
            f"model.max_positions = {config.model.max_positions}: the text has a sentence of {longest} tokens; raise "
            f"it to at least that, or lower text.max_pieces if the sentence is not one of the validation text"
        )


def _with_lengths_seen(config: RunConfig, prepared: PreparedData) -> RunConfig:
    """The same run, whose model translates nothing at a time that is longer than all it was trained on.

    Of a longer text a model leaves most out; cut into parts, all of it is translated.
    """
    longest = int(prepared.train.lengths[:, 0].max()) - 1  # without </s>
    search = config.search.model_copy(update={"max_pieces": max(8, min(config.search.max_pieces, longest))})
    return config.model_copy(update={"search": search})


def _left_out(cleaning: dict[str, int]) -> str:
    return ", ".join(f"{rule} {count:,}" for rule, count in cleaning.items() if count and rule != "kept") or "none"


def _introduce(trainer: Trainer) -> None:
    """Say, and put on record, what is about to be trained on what."""
    config, prepared, log = trainer.config, trainer.prepared, trainer.folder.metrics
    parameters, start = trainer.model.num_parameters, config.training.start_from
    model = f"{config.preset} model" if start is None else f"model of {start}"
    if not log.read():
        facts = {"num_pairs": len(prepared.train), "num_parameters": parameters, "vocabulary": config.model.vocabulary}
        facts["num_validation_pairs"] = len(prepared.validation)
        log.append(
            "data",
            0,
            {
                **facts,
                "cleaning": prepared.cleaning,
                "corpora": [asdict(corpus) for corpus in prepared.corpora],
                "lengths": length_histogram(prepared.train.lengths),
                "digests": prepared.digests,
                "environment": environment(trainer.device, config.training.precision),
            },
        )
    trainer.reporter.say(
        f"{len(prepared.train):,} pairs to train on (left out: {_left_out(prepared.cleaning)}), "
        f"{len(prepared.validation):,} to validate with"
    )
    for corpus in prepared.corpora if len(prepared.corpora) > 1 else []:
        trainer.reporter.say(
            f"    {corpus.name}: {corpus.cleaning['kept']:,} pairs (left out: {_left_out(corpus.cleaning)}), each "
            f"{corpus.weight:g} times an epoch"
        )
    trainer.reporter.say(
        f"{model}, {parameters:,} parameters, {config.model.vocabulary:,} token ids; "
        f"on {trainer.device}, precision {config.training.precision}; {config.training.updates:,} updates of at most "
        f"{config.training.batch_tokens * config.training.accumulation:,} tokens a side; texts of more than "
        f"{config.search.max_pieces} pieces are translated in parts"
    )
