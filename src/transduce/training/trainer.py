"""The training loop: repeated updates and, at intervals, metrics, validations and checkpoints."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from transduce.baselines import make_encoder_decoder
from transduce.bundle import Bundle, find_latest_checkpoint, list_checkpoints
from transduce.config import RunConfig
from transduce.data import Batch, PreparedData, count_max_repetitions, remove_epochs
from transduce.errors import DivergedError, RunError, TrainingInterruptedError
from transduce.kernels.device import find_device
from transduce.training.checkpoints import RunState, compute_batches_digest, compute_weights_digest
from transduce.training.distributed import SINGLE_RANK, Ranks, gather_model
from transduce.training.distributed.batches import (
    BatchPosition,
    iterate_batches,
    load_epoch_store,
    split_into_sequential_micro_batches,
)
from transduce.training.initialization.initial_embeddings import initialize_embeddings
from transduce.training.initialization.transfer import copy_spread_layers, transfer_weights
from transduce.training.model_selection.checkpoint_averaging import NO_AVERAGE
from transduce.training.model_selection.final_measurements import (
    compare_with_baseline,
    find_baseline,
    measure_behaviour,
    name_baseline,
)
from transduce.training.model_selection.stopping import (
    DIVERGENCE_ADVICE,
    MAX_SKIPPED_IN_A_ROW,
    METRIC_NAMES,
    StopRequest,
    explain_early_stop,
    has_plateaued,
    is_finite,
    make_divergence_error,
    should_stop_early,
)
from transduce.training.model_selection.validation import ModelSelection
from transduce.training.optimization.guided_alignment import train_alignment_model
from transduce.training.optimization.memory import SAFE_SHARE, probe_memory
from transduce.training.optimization.micro_batches import choose_parallel_micro_batches
from transduce.training.optimization.schedule import Decay, plan_decay
from transduce.training.optimization.updater import UpdateFigures, Updater, UpdateStoppedError
from transduce.training.reporting import Progress, Reporter, Throughput, describe_forecast
from transduce.training.reporting.report import Trackers
from transduce.training.run_folder import RunFolder


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    folder: Path
    """Folder of the run; `folder/best` is the model to use."""
    updates: int
    seconds: float
    """Seconds of training, over all sessions; without validation."""
    best: float
    """The best figure of validation, in terms of `training.best_by` (for "loss", its negative)."""
    comparison: Mapping[str, Any] | None = None
    """The line of metrics with the comparison of the best model and the run's baseline, if there is one: see
    `compare_with_baseline`."""


class Trainer:
    """Trains the model of one run in its folder.

    Args:
        config: the configuration of the run; `prepared` is its data, and `folder` its folder.
        reporter: receives the progress of training.
        start: the bundle whose weights training starts from; random weights unless given.
        ranks: the processes that train the model together.
        start_time: `time.perf_counter` at the beginning of this session; default: now.
        is_resumed: whether there is a checkpoint, which `resume` will load.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: PreparedData,
        folder: RunFolder,
        reporter: Reporter,
        start: Bundle | None = None,
        ranks: Ranks = SINGLE_RANK,
        start_time: float | None = None,
        *,
        is_resumed: bool = False,
    ) -> None:
        self._start_time = time.perf_counter() if start_time is None else start_time
        self.config = config
        self.prepared = prepared
        self.folder = folder
        self.reporter = reporter
        self.ranks = ranks
        self.device = ranks.select_device(find_device(config.training.device))
        torch.manual_seed(config.training.seed)
        self.model = make_encoder_decoder(config.model).to(self.device)
        if start is not None and config.training.start_vocabulary == "new":
            num_shared = transfer_weights(self.model, start, prepared.tokenizer)
            reporter.report(
                f"{num_shared:,} of {config.model.vocabulary:,} tokens have their vectors from {start.folder}"
            )
        elif start is not None:
            copy_spread_layers(self.model, start)
        elif config.training.initial_embeddings == "cooccurrence" and not is_resumed:
            reporter.report("computing co-occurrence embeddings")
            initialize_embeddings(self.model, prepared.train, config.training.seed, ranks)
        self.updater = Updater(self.model, config.training, self.device, ranks)
        origin = "" if start is None else start.digest
        num_micro_batches = choose_parallel_micro_batches(config, self.device, ranks)
        data = prepared.digests["all"]
        self.state = RunState(data=data, start=origin, ranks=ranks.size, parallel_micro_batches=num_micro_batches)
        self.updater.parallel_micro_batches = num_micro_batches
        self.trackers = Trackers(folder, config, reporter.report)
        self.selection = ModelSelection(config, prepared, folder, reporter, self._log)
        self._elapsed_before = 0.0
        self._throughput = Throughput()
        self._memory_messages: list[str] = []

    def resume(self) -> None:
        """Load the latest undamaged checkpoint, if there is one; nothing on disk is changed.

        Raises:
            RunError: the run was trained on other data, has no checkpoint yet and started from other weights, or none
                of its checkpoints can be read.
        """
        checkpoint = find_latest_checkpoint(self.folder.checkpoints, self.reporter.report)
        if checkpoint is None:
            if list_checkpoints(self.folder.checkpoints):
                raise RunError(
                    f"{self.folder.checkpoints}: none of the checkpoints can be read, for the reasons above: restore "
                    "them, or start over with --restart, which deletes them"
                )
            first_line = self.folder.metrics.first()  # which is written before any checkpoint
            self._check_same_data(first_line.get("digests", self.prepared.digests)["all"])
            if first_line.get("start", self.state.start) != self.state.start:
                raise RunError(
                    f"{self.folder.path}: was started from other weights than {self.config.training.start_from} has "
                    "now: restore them, choose another output, or start over with --restart"
                )
            if first_line:
                earlier = first_line.get("micro_batches", 1)  # the name in a run that an earlier version began
                num_micro_batches = first_line.get("parallel_micro_batches", earlier)
                self.state.parallel_micro_batches = self.updater.parallel_micro_batches = num_micro_batches
            return
        self._check_same_data(checkpoint.state["data"])
        self.state = RunState.load(self.folder, checkpoint.update, self.updater)
        self.updater.parallel_micro_batches = self.state.parallel_micro_batches
        self._elapsed_before = self.state.elapsed
        self.reporter.report(f"resuming after update {checkpoint.update:,}")
        if self.state.ranks != self.ranks.size:
            self.reporter.report(
                f"the run began on {self.state.ranks} ranks and continues on {self.ranks.size}, which share the same "
                "batches: figures will differ by rounding and by the random numbers of dropout"
            )

    def _check_same_data(self, data: object) -> None:
        if data != self.prepared.digests["all"]:
            raise RunError(
                f"{self.folder.path}: was trained on other data: a file, a setting of data or text, or (if the cache "
                f"of prepared data is gone) the version of Transduce or SentencePiece has changed. Restore it, choose "
                f"another output, or start over with --restart"
            )

    def discard_lost_best(self) -> None:
        """If `best/` is missing or damaged, discard its figures, so that the next validated model becomes the best.

        A finished run then chooses its final model again. All ranks call this together, after they have loaded the same
        checkpoint; the first one looks at the folder.
        """
        if self.ranks.any(self.ranks.is_first and self.selection.is_best_lost(self.state)):
            self.state.best, self.state.finished = None, False

    def run(self, stop: StopRequest, resume_hint: str = "the same command") -> None:
        """Train to the last update, or until early stopping ends the run; `finish` comes next.

        Args:
            stop: is checked after every update.
            resume_hint: the command to resume after an interruption, for the message.

        Raises:
            TrainingInterruptedError: `stop` was requested; the state is saved.
            TrainingError: loss, gradients or weights are not finite.
        """
        if self.state.finished and self._is_at_end():
            self.reporter.report(f"nothing to do: training ended after update {self.state.update:,}")
            if self.state.decay is not None and self.config.training.updates > self.state.update:
                self.reporter.report(
                    "the learning-rate decay is already finished: for longer training start a new run, with another "
                    "output or --restart"
                )
            return
        self.state.finished = False
        self._remove_outdated()
        for message in self._memory_messages:
            self.reporter.report(message)
        text, training = self.config.text, self.config.training
        stream = iterate_batches(self.prepared, text, training, self.state.place, self.ranks, self.state.ranks)
        self._throughput = Throughput(self._elapsed)  # the first validation by the clock counts from here
        while not self._is_at_end():
            has_new_end = False
            with suppress(UpdateStoppedError):  # the state is that of the last whole update, and is saved as such
                self._update(stream)
                has_new_end = self._plan_end()
                self.selection.diagnosis.measure(self.model, self.state.update, self.ranks)
                if self._is_validation_due() or self._is_at_end():
                    self._validate()
                    self._lower_rate_at_plateau()
            # Checked once: a later request is granted after the next update.
            should_stop = self.ranks.any(stop.is_requested or self.ranks.is_orphan)
            # Decisions based on the clock are saved at once, so that a killed run resumes with the same decision.
            is_due = self._is_due_every(training.checkpoint_every) or self._is_at_end() or should_stop or has_new_end
            if self.state.update and is_due:
                self._checkpoint()
            # Requested while the last checkpoint was saved, it would be forgotten.
            if should_stop or (self._is_at_end() and self.ranks.any(stop.is_requested)):
                raise TrainingInterruptedError(
                    f"stopped after update {self.state.update:,}; {resume_hint} resumes from there"
                )

    def finish(self) -> TrainingResult:
        """Choose the final model, compare it with the baseline, and measure its scorecard.

        The choice validates averages of the weights and fits the search. After an interruption, a further call
        does not repeat those of the three steps that were completed.
        """
        if not self.state.finished:
            self.discard_lost_best()
            if self.state.best is None:  # interrupted before the first validation, and resumed without further updates
                num_without_gain = self.state.without_gain
                self._validate()
                self.state.without_gain = num_without_gain  # a run that ended by early stopping does not continue
            self._try_averages_and_fit_search()
            if self.ranks.is_file_writer:
                seed, epoch = self.config.training.seed, self.state.place.epoch
                remove_epochs(self.prepared, self.config.text, seed, before=epoch + 1)
            self.state.finished = True
            self._checkpoint()
        if (cause := explain_early_stop(self.config.training, self.folder.metrics.read())) is not None:
            self.reporter.report(cause)
        best = self.state.best if self.state.best is not None else -math.inf
        comparison = self._measure_best() if self.ranks.is_first else None
        self.ranks.wait_for_first()  # for five minutes only, torchrun waits for the ranks of another machine to end
        return TrainingResult(self.folder.path, self.state.update, self.state.seconds, best, comparison)

    def prepare_updates(self) -> None:
        """Learn the alignment of the training text, if the model is guided by one, and try the largest batch.

        A batch that does not fit into memory is split, so that an update covers the same pairs on any machine. A
        resumed run has micro-batches of the same size as before, or smaller ones. Nothing is done if no update is left
        to do. Nothing is written, and `run` reports the result.

        Raises:
            ConfigError: the tokenizer does not support `text.bpe_dropout`.
            TrainingError: memory cannot hold a single pair.
        """
        if self._is_at_end():
            return
        training, state = self.config.training, self.state
        if training.guided_alignment:
            self.reporter.report("learning a word alignment")
            self.updater.set_alignment_model(train_alignment_model(self.prepared.train, self.config.model.vocabulary))
            self.ranks.barrier()  # a slower machine takes longer
        self.reporter.report("trying the largest batch")
        lengths = load_epoch_store(self.prepared, self.config.text, training, state.place.epoch, self.ranks).lengths
        is_resumed, before, share = state.update > 0, state.sequential_micro_batches, self._tokens_per_rank
        times, safe_share = count_max_repetitions(self.prepared), 1.0 if is_resumed else SAFE_SHARE
        left = training.time_limit_seconds - self._elapsed
        fit = probe_memory(self.updater, lengths, share, before, safe_share, times)
        if fit.sequential_micro_batches > before:
            state.sequential_micro_batches = fit.sequential_micro_batches
            warning = "; dropout then uses other random numbers than in an uninterrupted run" if is_resumed else ""
            self._memory_messages.append(
                f"batches of {share:,} tokens per side do not fit into memory: each is computed in parts of "
                f"{share // fit.sequential_micro_batches:,}, and an update covers the same pairs as before{warning}"
            )
        prefix = f"each of {self.ranks.size} ranks: " if self.ranks.size > 1 else ""
        self._memory_messages.append(prefix + fit.describe(self._last_update - state.update, left))
        if left < (min(training.warmup, self._last_update) - state.update) * fit.seconds_per_update:
            self._memory_messages.append(
                f"warning: training.warmup = {training.warmup:,}: the time is over before the learning rate has "
                "reached its peak; lower it, give more time, or choose a smaller preset"
            )

    @property
    def _tokens_per_rank(self) -> int:
        """Tokens of a batch, on either side, that each rank computes."""
        return self.config.training.batch_tokens * self.state.ranks // self.ranks.size

    @property
    def _elapsed(self) -> float:
        """Seconds of the run so far, over all sessions, including validations and all other work."""
        return self._elapsed_before + time.perf_counter() - self._start_time

    @property
    def _last_update(self) -> int:
        """The last update of the run, as far as it is determined."""
        return self.config.training.updates if self.state.decay is None else self.state.decay.end

    def _is_at_end(self) -> bool:
        at_end = self.state.update >= self._last_update
        return at_end or should_stop_early(self.config.training, self.state.without_gain)

    def _plan_end(self) -> bool:
        """Plan the decay of schedule = "warmup_stable_decay" after an update; returns whether the clock has changed it.

        The end of the decay is the end of the run.
        """
        training, state = self.config.training, self.state
        if training.schedule != "warmup_stable_decay":
            return False
        before = state.decay
        # The end validates this model, the averages that `ModelSelection` tries, and about three settings of search.
        num_validations = 1 + (training.ema_decay > 0) + (training.keep_checkpoints > 1)
        num_validations += 2 * training.fit_length_penalty + training.fit_no_repeat_ngram
        # What is measured then takes about as long: two models translate for a comparison, one for the scorecard.
        num_validations += 2 * (find_baseline(self.config) is not None) + (training.scorecard_sentences > 0)
        left = training.time_limit_seconds - self._elapsed - num_validations * self._throughput.validation_seconds
        # Over so many updates that the share of each in the validations between them is exact.
        many = 1000 if training.validate_every == "auto" else 1000 * training.validate_every
        per_update = self._throughput.seconds_remaining(many, training.validate_every) / many
        found = plan_decay(training, before, state.update, left, per_update)
        if training.time_limit is not None and self.ranks.size > 1:  # each has its own clock
            numbers = (0.0, 0.0, 0.0) if found is None else (found.start, found.end, found.factor)
            start, end, factor = self.ranks.broadcast(torch.tensor(numbers, dtype=torch.float64)).tolist()
            found = Decay(int(start), int(end), factor) if end else None
        state.decay = found
        return training.time_limit is not None and found != before

    def _is_validation_due(self) -> bool:
        every = self.config.training.validate_every
        if every != "auto":
            return self._is_due_every(every)
        return self.ranks.any(self.ranks.is_first and self._throughput.is_validation_due(self._elapsed))

    def _is_due_every(self, every: int) -> bool:
        return self.state.update % every == 0

    def _measure_best(self) -> Mapping[str, Any] | None:
        """Compare the best model with the baseline and measure its behaviour, unless that was done before.

        A baseline that is another one than before is compared anew.

        Returns the line of metrics with the comparison, if there is one.
        """
        config, report = self.config, self.reporter.report
        known, baseline = self._read_final_lines(), name_baseline(config)
        if "comparison" not in known or baseline not in {None, known["comparison"]["systems"][0]["system"]}:
            comparison = compare_with_baseline(config, self.prepared, self.folder, self.state.start, report)
            if comparison is not None:
                self._log("comparison", comparison)
        if "scorecard" not in known:
            behaviour = measure_behaviour(config, self.prepared, self.folder, report)
            if behaviour is not None:
                self._log("scorecard", behaviour)
        return self._read_final_lines().get("comparison")

    def _read_final_lines(self) -> Mapping[str, Mapping[str, Any]]:
        """The last line of metrics of each kind after the last update."""
        return {line["kind"]: line for line in self.folder.metrics.read() if line["update"] == self.state.update}

    def _update(self, stream: Iterator[tuple[BatchPosition, Batch]]) -> None:
        started = time.perf_counter()
        taken = list(islice(stream, self.config.training.accumulation))
        number = self.state.update + 1
        batches = [batch for _, batch in taken]
        # A rank's share may be larger by one pair, and is not split for that.
        is_split = self.state.sequential_micro_batches > 1
        max_tokens = self._tokens_per_rank // self.state.sequential_micro_batches
        micro_batches = split_into_sequential_micro_batches(batches, max_tokens, self.ranks) if is_split else batches
        figures = self.updater.update(number, micro_batches, self.state.decay, self.state.num_plateaus)
        self.state.update = number
        self.state.place = taken[-1][0]
        self.state.batches_digest = compute_batches_digest(self.state.batches_digest, batches, self.ranks)
        # Computed here, as it is part of the time that training takes.
        digest = compute_weights_digest(self.model) if self._is_due_every(self.config.training.log_every) else ""
        seconds = time.perf_counter() - started
        self.state.seconds += seconds
        self._throughput.add_update(figures.num_target_tokens, seconds)
        if figures.is_skipped:
            self._report_skipped(figures, taken)
        else:
            self.state.skipped_in_a_row = 0
            self._report_progress(figures, max_tokens, digest)

    def _report_skipped(self, figures: UpdateFigures, taken: Sequence[tuple[BatchPosition, Batch]]) -> None:
        """Count and report a skipped update; the last of too many in a row ends the run."""
        state = self.state
        state.skipped += 1
        state.skipped_in_a_row += 1
        # As text: JSON has neither NaN nor infinity.
        found = {"loss": str(figures.loss), "gradient_norm": str(figures.gradient_norm), **asdict(state.place)}
        self._log("skipped", {**found, "skipped": state.skipped})
        finding = f"its loss is {figures.loss}, the norm of its gradient {figures.gradient_norm}"
        if figures.loss_scale is not None:
            finding += f" with a loss scale of {figures.loss_scale:,}, which is {self.updater.loss_scale.factor:,} now"
        self.reporter.report(f"warning: update {state.update:,} is skipped, and the model is unchanged: {finding}")
        if state.skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise make_divergence_error(state.update, state.skipped_in_a_row, finding, taken, self.prepared.tokenizer)

    def _report_progress(self, figures: UpdateFigures, max_tokens: int, digest: str) -> None:
        state = self.state
        to_go, seconds_remaining = self._estimate_remaining()
        speed, epochs = self._throughput.tokens_per_second, state.place.epochs
        progress = Progress(state.update, state.update + to_go, epochs, figures, speed, seconds_remaining)
        self.reporter.report_progress(progress)
        if digest:
            known = {name: value for name, value in asdict(figures).items() if value is not None}
            line = {"epochs": epochs, "batch_tokens": max_tokens, "tokens_per_second": speed, **known}
            line |= {"skipped": state.skipped, "batches_digest": state.batches_digest, "weights_digest": digest}
            self._log("training", line)
            self._throughput.begin_line()

    def _estimate_remaining(self) -> tuple[int, float]:
        """Updates that are left, and their seconds with validations, both within the time limit."""
        training = self.config.training
        updates = self._last_update - self.state.update
        seconds = self._throughput.seconds_remaining(updates, training.validate_every)
        left = max(0.0, training.time_limit_seconds - self._elapsed)
        return (int(updates * left / seconds), left) if seconds > left else (updates, seconds)

    def _validate(self) -> None:
        started = time.perf_counter()
        moving = self.updater.moving_average
        model = gather_model(self.model, self.ranks) if moving is None else moving.model
        if self.ranks.is_first:
            average = NO_AVERAGE if moving is None else {**NO_AVERAGE, "ema_decay": moving.decay}
            self.selection.validate(model, self.state, average)
        self._broadcast_best()
        self._throughput.add_validation(time.perf_counter() - started, self._elapsed)
        last_update = self.state.update + self._estimate_remaining()[0]
        if self.ranks.is_first and (expected := describe_forecast(self.folder.metrics.read(), last_update)) is not None:
            self.reporter.report(expected)

    def _lower_rate_at_plateau(self) -> None:
        """Lower the learning rate of all later updates if validations have not improved for long enough."""
        training, state = self.config.training, self.state
        if has_plateaued(training, state.without_gain):
            state.num_plateaus += 1
            if self._is_at_end():
                return
            self.reporter.report(
                f"{state.without_gain} validations in a row without a better {METRIC_NAMES[training.best_by]}: the "
                f"learning rate of later updates is {training.plateau_factor**state.num_plateaus:.3g} times the peak"
            )

    def _try_averages_and_fit_search(self) -> None:
        if self.ranks.is_first:
            self.selection.try_averages(self.updater, self.state)
            self.selection.fit_search(self.device)
        self._broadcast_best()

    def _broadcast_best(self) -> None:
        """Send the first rank's best figure and its number of validations without a gain to all, for early stopping."""
        self.ranks.wait_for_first()  # it has translated
        found = torch.tensor([self.state.best or 0.0, self.state.without_gain], dtype=torch.float64)
        self.state.best, num_without_gain = self.ranks.broadcast(found).tolist()
        self.state.without_gain = int(num_without_gain)

    def _log(self, kind: str, figures: Mapping[str, object]) -> None:
        if self.ranks.is_first:
            line = {**figures, "seconds": self.state.seconds}
            self.trackers.append(self.folder.metrics.append(kind, self.state.update, line))

    def _checkpoint(self) -> None:
        if not is_finite(self.model):
            raise DivergedError(
                f"training has diverged: weights are not finite after update {self.state.update}, and the "
                f"checkpoints before it are kept; {DIVERGENCE_ADVICE}"
            )
        self.state.elapsed = self._elapsed
        self.state.replaced = self.state.unscheduled
        self.state.unscheduled = 0 if self._is_due_every(self.config.training.checkpoint_every) else self.state.update
        self.state.save(self.folder, self.updater)
        self._remove_outdated()

    def _remove_outdated(self) -> None:
        if self.ranks.is_first:
            self.folder.remove_outdated(self.state.update, self.state.replaced, self.config.training.keep_checkpoints)
