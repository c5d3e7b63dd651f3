"""Training of one run: from its configuration to its best model."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, cast

import torch

from transduce.bundle import (
    Bundle,
    Languages,
    apply_start_from,
    find_bundle,
    find_latest_checkpoint,
    has_checkpoint,
    inherit_search_settings,
)
from transduce.config import PRESETS, DataConfig, RunConfig, TextConfig, TransformerConfig
from transduce.data import PreparedData, find_prepared_tokenizer, plan_batches, select_epoch_pairs
from transduce.data.settings_for_size import describe_expected_quality, warn_of_few_pairs
from transduce.errors import (
    BundleError,
    ConfigError,
    RunError,
    TrainingError,
    TrainingInterruptedError,
    TransduceError,
    UserError,
    WriteError,
    is_out_of_memory,
)
from transduce.kernels.device import find_device, resolve_precision
from transduce.kernels.memory import keep_few_kernels, keep_freed_memory
from transduce.pages import format_count
from transduce.text import Tokenizer
from transduce.training.diagnosis.measurements import measure_text
from transduce.training.distributed import Ranks, can_restart, connect_ranks
from transduce.training.distributed.agreement import (
    DIFFERENT_SETTINGS,
    agree_on_run,
    describe_shared_settings,
    share_settings,
)
from transduce.training.distributed.copies import share_prepared_data, share_run
from transduce.training.model_selection.final_measurements import check_baseline
from transduce.training.model_selection.stopping import catch_stop_signals
from transduce.training.optimization.memory import check_model_memory
from transduce.training.optimization.updater import use_deterministic_algorithms
from transduce.training.reporting import Reporter, SilentReporter, count_lengths, describe_environment
from transduce.training.reporting.report import check_tensorboard, describe_rule
from transduce.training.run_folder import RunFolder, compute_settings_digest
from transduce.training.screened_data import prepare_screened
from transduce.training.synthetic import has_synthetic_text, make_synthetic_text
from transduce.training.trainer import Trainer, TrainingResult
from transduce.translation.engines.engine import check_search_memory, count_token_bytes

MIN_VOCABULARY = 264
"""Minimum vocabulary of a trained tokenizer: 256 bytes, the special symbols and a few letters."""

FILE_SYSTEM_TIMEOUT = 90.0
"""Seconds to wait until a file written by one machine is visible on another: NFS caches that a file was missing."""


def train(
    config: RunConfig,
    reporter: Reporter | None = None,
    *,
    restart: bool = False,
    standard_input: BinaryIO | None = None,
    ranks: Ranks | None = None,
) -> TrainingResult:
    """Train the run that `config` describes, from its beginning or from the last checkpoint in its folder.

    Settings, folder and text are checked before the run's folder is changed, except that the traces of a killed
    process in it are cleaned up first.

    Args:
        config: the configuration of the run.
        reporter: shows how it goes; nothing is shown unless given.
        restart: delete an earlier run in the folder.
        standard_input: where `data.pairs = "-"` is read from.
        ranks: the ranks that have agreed on `config` by `agree_on_run`; default: those that torchrun has started, if it
            has, agree first. Of them, the first alone reports.

    Raises:
        BundleError, ConfigError, CorpusError, RunError: bundle, settings, text or folder are invalid.
        BusyError: another process is training in the folder.
        MissingExtraError: TensorBoard is requested but not installed.
        TrainingInterruptedError: by Ctrl-C or SIGTERM during updates, or by Ctrl-C after the last; the same call goes
            on from there. Otherwise, either has its usual effect, as there is nothing to save.
        TrainingError: loss, gradients or weights are not finite; a file could not be written; or another rank
            was lost, or has not answered in time.
        OtherRankEndedError: another rank started by torchrun reports the error.
    """
    if ranks is None:
        with connect_ranks() as connected:
            agreed, config = agree_on_run(connected, lambda: config)
            return train(config, reporter, restart=restart, standard_input=standard_input, ranks=agreed)
    shown = SilentReporter() if reporter is None or not ranks.is_first else reporter
    return _train(config, shown, ranks, standard_input, restart=restart)


def _train(
    config: RunConfig, reporter: Reporter, ranks: Ranks, standard_input: BinaryIO | None, *, restart: bool
) -> TrainingResult:
    if not config.data.training_corpora:
        raise ConfigError(
            "no training text: give --source and --target, or --pairs; or in a recipe data.source and data.target, "
            "data.pairs, or data.corpora"
        )
    device = ranks.select_device(find_device(config.training.device))
    folder, text, start = RunFolder(Path(config.output)), config.text, None
    if not ranks.is_remote:
        if config.training.tensorboard:
            check_tensorboard()
        check_baseline(config)
        config, text, start = _resolve_start(config, folder, config.cache_folder, reporter.report, restart=restart)
        if not restart:
            config = _keep_precision(config, folder, device, reporter.report)
    config = _set_precision(share_settings(ranks, config), device)
    _check_ranks(config, ranks)
    if not ranks.is_remote:
        # Before the tokenizer exists, its smallest size stands for it.
        known = "vocabulary" in config.model.model_fields_set
        check_model_memory(config if known else config.with_vocabulary(MIN_VOCABULARY), device, ranks)
    if restart and can_restart():
        raise RunError(
            f"{folder.path}: with --restart, torchrun --max-restarts would delete the run whenever a rank fails: leave "
            "out one of them"
        )
    if not ranks.is_remote:
        folder.check(config, restart=restart, report=reporter.report)
    ranks.barrier()  # now that all have seen the folder, the first may change it
    with folder.lock() if ranks.is_first else nullcontext(), use_deterministic_algorithms(device):
        ranks.barrier()
        is_locked = ranks.is_remote or folder.is_locked(FILE_SYSTEM_TIMEOUT)
        ranks.barrier()
        if ranks.any(not is_locked):
            raise RunError(
                f"{folder.path}: not every rank sees the lock of the first, though its machine shares the folder above "
                "it: give all of them an output in a folder that all machines share, or that none does"
            )
        if ranks.remote_hosts:
            reporter.report(
                f"{', '.join(ranks.remote_hosts)}: does not share the folder of the run, and gets settings, prepared "
                "text and checkpoint over the network"
            )
        return _train_in_folder(config, text, start, folder, reporter, ranks, standard_input, restart=restart)


def _train_in_folder(
    config: RunConfig,
    text: TextConfig,
    start: Bundle | None,
    folder: RunFolder,
    reporter: Reporter,
    ranks: Ranks,
    standard_input: BinaryIO | None,
    *,
    restart: bool,
) -> TrainingResult:
    """Train in a folder that only the first rank writes to; `text` is the configuration for preparing the text."""
    if ranks.is_first:
        folder.check(config, restart=restart)  # again: until now another process may have been at work
        folder.recover()
    recorded_digests = None if restart else folder.metrics.first().get("digests")
    data = _add_synthetic_text(config, reporter, recorded_digests)
    started = time.perf_counter()
    prepared = share_prepared_data(
        ranks,
        config,
        lambda: prepare_screened(
            data,
            text,
            config.cache_folder,
            standard_input=standard_input,
            recorded_digests=recorded_digests,
            report=reporter.report,
        ),
    )
    config = config.with_vocabulary(prepared.tokenizer.vocabulary)
    config = _set_updates(config, prepared, None if restart else folder, ranks)
    config = _share_updates(config, ranks)
    _check_positions(config, prepared)
    device = ranks.select_device(find_device(config.training.device))
    check_model_memory(config, device, ranks)
    keep_freed_memory()
    keep_few_kernels()
    # Otherwise the first collective may never end.
    _check_same_on_all_ranks(folder, ranks, describe_shared_settings(config), prepared.digests["all"])
    limited = _limit_max_pieces(config, prepared)
    model, beam, max_pieces = limited.model, limited.search.beam, limited.search.max_pieces
    beam_bytes = count_token_bytes(model, beam)
    check_search_memory(f"search.beam = {beam:,}", beam, max_pieces, model.vocabulary, beam_bytes, device)
    resume_hint = "the same command without --restart" if restart else "the same command"
    with ExitStack() as at_end, _explain_failures(folder, resume_hint):
        with share_run(ranks, folder, config.cache_folder, start, restart=restart) as (readable, bundle):
            is_resumed = not restart and has_checkpoint(readable.checkpoints)
            trainer = Trainer(limited, prepared, readable, reporter, bundle, ranks, started, is_resumed=is_resumed)
            at_end.callback(trainer.updater.processes.close)
            if not restart:
                trainer.resume()
        trainer.folder = folder  # a copy by `share_run` is gone
        trainer.state.settings = compute_settings_digest(config)
        _check_same_on_all_ranks(folder, ranks, trainer.state.start, trainer.state.update, trainer.state.best)
        trainer.discard_lost_best()
        trainer.prepare_updates()  # before an earlier run is deleted for one that cannot start
        # From here to the last update there is a state to save: before and after, a signal ends the process at once.
        with catch_stop_signals(reporter.report) as stop:
            trainer.updater.should_stop = lambda: stop.is_requested
            if ranks.is_first:
                folder.begin(config, restart=restart)
                folder.truncate_after(trainer.state.update, is_finished=trainer.state.finished, report=reporter.report)
                _report_start(trainer)
                trainer.trackers.begin()
            ranks.wait_for_first()
            with _report_at_error(trainer):
                trainer.run(stop, resume_hint)
        with _report_at_error(trainer):
            try:
                return trainer.finish()
            except KeyboardInterrupt:
                raise TrainingInterruptedError(
                    f"stopped after the last update; {resume_hint} goes on with the choice of the final model"
                ) from None


def _add_synthetic_text(
    config: RunConfig, reporter: Reporter, recorded_digests: Mapping[str, str] | None
) -> DataConfig:
    """The settings of the run's text with the synthetic text that models make; those models are trained if needed.

    A run that has begun goes on with the files of synthetic text among its `recorded_digests`.
    """
    if not has_synthetic_text(config.data):
        return config.data

    def train_other(other: RunConfig) -> Path:
        return train(other, reporter).folder / "best"

    known = [Path(name).name for name in recorded_digests or {}]
    return make_synthetic_text(config, config.cache_folder, train_other, reporter.report, known)


@contextmanager
def _report_at_error(trainer: Trainer) -> Iterator[None]:
    """Write report.html once more if the run is stopped or diverges during the block."""
    try:
        yield
    except TransduceError:
        if trainer.ranks.is_first:
            trainer.trackers.update_report()
        raise


def _resolve_start(
    config: RunConfig, folder: RunFolder, cache: Path, report: Callable[[str], None], *, restart: bool
) -> tuple[RunConfig, TextConfig, Bundle | None]:
    """The run with its network and tokenizer, the configuration for preparing its text, and the bundle it starts from.

    A fine-tuning run needs that bundle only until its first checkpoint: then its network is in the saved configuration
    and its tokenizer with the prepared data, as the bundle may have been moved or trained further.
    """
    path, saved = config.training.start_from, None if restart else folder.load_config()
    if path is None or saved is None or saved.training.start_from != path or not has_checkpoint(folder.checkpoints):
        config, bundle = apply_start_from(config)
        return config, config.text, bundle
    given = {name: getattr(config.model, name) for name in config.model.model_fields_set - {"vocabulary"}}
    model = saved.model.model_copy(update=given)  # where they contradict each other, the folder is checked for it
    has_new_vocabulary = config.training.start_vocabulary == "new"
    tokenizer = None if has_new_vocabulary else saved.text.tokenizer
    text = config.text.model_copy(update={"tokenizer": config.text.tokenizer or tokenizer})
    first_line, present = folder.metrics.first(), None
    with suppress(BundleError):
        present = Bundle.open(find_bundle(Path(path))).digest
    if first_line.get("start") != present:
        report(f"training.start_from = {path!r}: is missing, or has other weights; the run continues without it")
    own = find_prepared_tokenizer(cache, first_line.get("digests", {}).get("all", ""))
    known = text
    if (
        own is not None
        and not has_new_vocabulary
        and _read_tokenizer_files(text.tokenizer) != _read_tokenizer_files(own)
    ):
        known = text.model_copy(update={"tokenizer": str(own)})
    languages = Languages(source=saved.data.source_language, target=saved.data.target_language)
    config = inherit_search_settings(config.model_copy(update={"model": model, "text": text}), saved.search, languages)
    return config, known, None


def _read_tokenizer_files(tokenizer: str | Path | None) -> object:
    try:
        return None if tokenizer is None else Tokenizer.load(Path(tokenizer)).files
    except UserError:
        return None


@contextmanager
def _explain_failures(folder: RunFolder, resume_hint: str) -> Iterator[None]:
    """Turn errors of a full disk or full memory into errors that name the folder and say how to resume."""

    def explain_next_step(cause: str) -> str:
        if has_checkpoint(folder.checkpoints):
            return f"checkpoints are intact: {cause}, and {resume_hint} resumes from the last checkpoint"
        return f"there is no checkpoint: {cause}, and {resume_hint} begins anew"

    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, WriteError) as error:
        raise TrainingError(
            f"{folder.path}: training stopped, because a file could not be read or written: {error}; "
            f"{explain_next_step('fix the cause')}"
        ) from error
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"{folder.path}: training stopped, because memory is full; {explain_next_step('close other programs')}. If "
            "validation needs too much, lower search.batch_tokens; if training does, start a new run with a lower "
            "training.batch_tokens"
        ) from error


def _keep_precision(
    config: RunConfig, folder: RunFolder, device: torch.device, report: Callable[[str], None]
) -> RunConfig:
    """Replace the precision `auto` by that of the run in the folder, if one has begun there.

    A resumed run must not change its precision. It is reported if `auto` means another one on this machine.
    """
    before = folder.load_config()
    if before is None or config.training.precision != "auto":
        return config
    kept = before.training.precision
    here = _set_precision(config, device).training.precision
    if kept != here:
        report(
            f"the run goes on in {kept}, in which it began; on this machine, training.precision = 'auto' means {here}, "
            "which may be faster"
        )
    return config.with_training(precision=kept)


def _set_precision(config: RunConfig, device: torch.device) -> RunConfig:
    """The run with the precision that `auto` means on this machine, which must stay the same when it is resumed."""
    dtype = resolve_precision(config.training.precision, device, config.model.d_model).compute_dtype
    precision = str(dtype).removeprefix("torch.")
    return config.with_training(precision=precision)


def _check_ranks(config: RunConfig, ranks: Ranks) -> None:
    """Raise `ConfigError` if a setting does not allow for several ranks, and there are several."""
    if ranks.size == 1:
        return
    if config.data.pairs == "-":
        raise ConfigError(
            f'data.pairs = "-": {ranks.size} ranks cannot share standard input: give a file with the pairs'
        )
    if has_synthetic_text(config.data):
        raise ConfigError(
            "data.teacher, data.monolingual_target, data.monolingual_source: text is translated by one process, not by "
            f"{ranks.size} ranks: translate them with `transduce translate`, and give the pairs as corpora with tag "
            "and synthetic"
        )
    if config.model.normalization == "batch":
        raise ConfigError(
            f'model.normalization = "batch" computes statistics over a whole batch, which is split over {ranks.size} '
            'ranks: train in one process, or set it to "layer"'
        )
    if config.training.ema_decay and config.training.sharding == "fsdp":
        raise ConfigError(
            f"training.ema_decay = {config.training.ema_decay} keeps a second whole model on each of the {ranks.size} "
            f'ranks, which training.sharding = "fsdp" is meant to avoid: set sharding to "none", or ema_decay to 0'
        )


def _check_same_on_all_ranks(folder: RunFolder, ranks: Ranks, *found: object) -> None:
    """Check that all ranks have the same values; on several machines, settings or folders may differ."""
    ranks.barrier()  # to find them may have taken long
    digest = hashlib.sha256("\n".join(map(str, found)).encode()).digest()
    if not ranks.are_equal(int.from_bytes(digest[:7])):
        raise RunError(f"{folder.path}: {DIFFERENT_SETTINGS}")


def _set_updates(config: RunConfig, prepared: PreparedData, folder: RunFolder | None, ranks: Ranks) -> RunConfig:
    """The run with `training.updates` computed from `training.epochs`, if given, and the batches of the first epoch.

    A run that is resumed from a checkpoint in `folder` with the same epochs keeps its updates. Otherwise its batches
    are counted for the number of ranks with which it began, as their size stays the same.
    """
    training = config.training
    if training.epochs is None:
        return config
    checkpoint = None if folder is None else find_latest_checkpoint(folder.checkpoints, lambda _: None)
    saved = None if folder is None or checkpoint is None else folder.load_config()
    if saved is not None and saved.training.epochs == training.epochs:
        updates = saved.training.updates
    else:
        pairs = select_epoch_pairs(prepared, training.seed, 0)
        num_ranks = ranks.size if checkpoint is None else cast("int", checkpoint.state.get("ranks", 1))
        budget = num_ranks * training.batch_tokens
        num_batches = len(plan_batches(prepared.train.lengths, budget, training.seed, 0, pairs))
        updates = max(1, round(training.epochs * num_batches / training.accumulation))
    return config.with_training(updates=updates)


def _share_updates(config: RunConfig, ranks: Ranks) -> RunConfig:
    """The run with the first rank's number of updates, which may be that of its saved configuration."""
    if not ranks.remote_hosts:
        return config
    updates = int(ranks.broadcast_text(str(config.training.updates)))
    return config.with_training(updates=updates)


def _check_positions(config: RunConfig, prepared: PreparedData) -> None:
    """Raise `ConfigError` if the text, or `search.min_length`, needs more positions than the model has."""
    if not config.model.has_position_limit:
        return
    tokenizer, (sources, targets) = prepared.tokenizer, zip(*prepared.validation, strict=True)
    validation = [*tokenizer.encode_all(sources), *tokenizer.encode_targets(targets)]
    longest = max(int(prepared.train.lengths.max()), 1 + max(map(len, validation)))
    if longest > config.model.max_positions:
        raise ConfigError(
            f"model.max_positions = {config.model.max_positions}: the text has a sentence of {longest} tokens; raise "
            "it to at least that, or, for a training sentence, lower text.max_pieces"
        )
    if config.search.min_length > config.model.max_positions:
        raise ConfigError(
            f"search.min_length = {config.search.min_length}: a model with {config.model.max_positions} learned "
            "positions (model.max_positions) cannot write more tokens: lower min_length"
        )


def _limit_max_pieces(config: RunConfig, prepared: PreparedData) -> RunConfig:
    """The run with `search.max_pieces` of at most its longest training source: models omit much of longer texts."""
    longest = int(prepared.train.lengths[:, 0].max()) - 1  # without </s>
    search = config.search.model_copy(update={"max_pieces": max(8, min(config.search.max_pieces, longest))})
    return config.model_copy(update={"search": search})


def _find_ignored_settings(config: RunConfig) -> list[str]:
    """Names of model settings without effect in this network, but with values other than those of default or preset."""
    usual = TransformerConfig().model_dump() | PRESETS[config.preset].get("model", {})
    own, derived = config.model.select_own_settings(), {"d_k", "d_v"}
    return [
        name
        for name, value in config.model.model_dump().items()
        if name not in own and name not in derived and value != usual[name]
    ]


def _report_pairs(prepared: PreparedData, *, may_warn: bool, report: Callable[[str], None]) -> None:
    """Report how many pairs there are, and warn of few ones if `may_warn`."""
    report(
        f"{format_count(len(prepared.train), 'training pair')} (left out: {_describe_cleaning(prepared.cleaning)}), "
        f"{format_count(len(prepared.validation), 'validation pair')}"
    )
    if may_warn and (few := warn_of_few_pairs(len(prepared.train))) is not None:
        report(few)
    for corpus in prepared.corpora if len(prepared.corpora) > 1 else []:
        report(
            f"    {corpus.name}: {format_count(corpus.cleaning['kept'], 'pair')} "
            f"(left out: {_describe_cleaning(corpus.cleaning)}), each {corpus.weight:g} times per epoch"
        )


def _report_start(trainer: Trainer) -> None:
    """Report model, text and machine, and log them as the first line of metrics.jsonl."""
    config, prepared, log = trainer.config, trainer.prepared, trainer.folder.metrics
    parameters, start = trainer.model.num_parameters, config.training.start_from
    model = f"{config.preset} model" if start is None else f"model of {start}"
    if config.model.architecture != "transformer":
        model += f", {config.model.architecture} network"
    machine = describe_environment(trainer.device, config.training.precision)
    if first_line := log.first():
        _report_other_machine(first_line.get("environment", {}), machine, trainer.reporter)
    else:
        facts = {
            "num_pairs": len(prepared.train),
            "num_parameters": parameters,
            "vocabulary": config.model.vocabulary,
            "num_validation_pairs": len(prepared.validation),
            "start": trainer.state.start,
            "parallel_micro_batches": trainer.state.parallel_micro_batches,
            "cleaning": prepared.cleaning,
            "corpora": [asdict(corpus) for corpus in prepared.corpora],
            "lengths": count_lengths(prepared.train.lengths),
            "text": asdict(measure_text(prepared)),
            "digests": prepared.digests,
            "environment": machine,
        }
        log.append("data", 0, facts)
    report = trainer.reporter.report
    _report_pairs(prepared, may_warn=start is None and not first_line, report=report)
    budget = trainer.state.ranks * config.training.batch_tokens * config.training.accumulation
    length, decay = config.training.describe_length(), trainer.state.decay
    if decay is not None and config.training.time_limit is None and decay.end != config.training.updates:
        length = f"{decay.end:,} updates"
        if trainer.state.update < decay.end:
            report(
                f"the learning-rate decay has begun: the run ends with update {decay.end:,}; for another length start "
                "a new run, with another output or --restart"
            )
    report(
        f"{model}, {parameters:,} parameters, {config.model.vocabulary:,} token ids; "
        f"on {_describe_device(trainer)}, precision {config.training.precision}; "
        f"updates of at most {budget:,} tokens per side, ending after {length}; "
        f"texts of more than {config.search.max_pieces} pieces are translated in parts"
    )
    # A model that is trained further brings its settings along: its user gave none of them.
    if start is None and (ignored := _find_ignored_settings(config)):
        names = ", ".join(f"model.{name}" for name in ignored)
        report(f"warning: without effect in a {config.model.architecture} network with these settings: {names}")
    if (
        not first_line
        and config.preset == "low-resource"
        and config.model.architecture == "transformer"
        and (quality := describe_expected_quality(len(prepared.train))) is not None
    ):
        report(quality)
    if (warmup := config.training.warmup) > config.training.updates:
        report(
            f"warning: training.warmup = {warmup:,}: the run ends after {config.training.updates:,} updates, before "
            "the learning rate has reached its peak; lower it, or train longer"
        )
    if config.training.patience and config.training.schedule == "warmup_stable_decay" and not first_line:
        report(
            f"warning: training.patience = {config.training.patience}: may end the run before its learning rate has "
            "begun to fall, from which models gain most; leave it out"
        )
    trainer.selection.diagnosis.report_findings()


def _describe_cleaning(cleaning: dict[str, int]) -> str:
    left_out = {describe_rule(rule): count for rule, count in cleaning.items() if count and rule != "kept"}
    return ", ".join(f"{rule} {count:,}" for rule, count in left_out.items()) or "none"


def _describe_device(trainer: Trainer) -> str:
    ranks, sharding = trainer.ranks.size, trainer.config.training.sharding
    if ranks > 1:
        return f"{ranks} ranks of {trainer.device.type}, sharding {sharding}"
    if trainer.updater.has_parallel_micro_batches:
        return f"{trainer.device}, each batch as {trainer.updater.parallel_micro_batches} micro-batches"
    return str(trainer.device)


def _report_other_machine(before: Mapping[str, str], now: Mapping[str, str], reporter: Reporter) -> None:
    changed = [
        f"{name} was {before[name]}, now {now[name]}" for name in now if before.get(name, now[name]) != now[name]
    ]
    if changed:
        reporter.report(
            f"the environment has changed since the run began ({'; '.join(changed)}): figures may differ from those "
            "of an uninterrupted run, by rounding and by the random numbers of dropout"
        )
