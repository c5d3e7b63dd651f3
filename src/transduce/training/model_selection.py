"""Selection of the best model of a run among the validated models and, at the end, averages of their weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import JsonValue

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    RecordedScore,
    average_weights,
    check_new_bundle,
    list_checkpoints,
    load_checkpoint,
    load_tensors,
    save_bundle,
    standing_folder,
)
from transduce.config import RunConfig, TransformerConfig
from transduce.data import PreparedData
from transduce.errors import BundleError, RunError, UserError
from transduce.model import Transformer
from transduce.training.checkpoints import RunState
from transduce.training.diagnosis import Diagnosis
from transduce.training.reporting.metrics import environment
from transduce.training.reporting.progress import Reporter
from transduce.training.run_folder import RunFolder
from transduce.training.updater import Updater
from transduce.training.validation import Validation, Validator


@dataclass(frozen=True)
class Average:
    """Of what the weights of a model are the mean.

    Args:
        averaged_checkpoints: how many of the last checkpoints; 1 is no average.
        ema_decay: decay of the moving average of all updates' weights; 0 is no average.
    """

    averaged_checkpoints: int = 1
    ema_decay: float = 0.0

    def __str__(self) -> str:
        if self.ema_decay:
            return f"moving average of the weights with decay {self.ema_decay}"
        if self.averaged_checkpoints == 1:
            return "weights of the last update, not averaged"
        return f"average of the last {self.averaged_checkpoints} checkpoints"


NO_AVERAGE = Average()


def averaged_model(folder: RunFolder, updates: Sequence[int], config: TransformerConfig) -> Transformer:
    """The mean of the weights in the checkpoints of `updates` (paper 6.1), on the CPU."""
    weights = average_weights(
        load_checkpoint(folder.checkpoints, update, ["weights"])[0]["weights"] for update in updates
    )
    model = Transformer(config)
    load_tensors(model, weights, f"the average of {len(updates)} checkpoints")
    return model.eval()


def _is_undamaged(folder: RunFolder, update: int, say: Callable[[str], None]) -> bool:
    try:
        load_checkpoint(folder.checkpoints, update, [])
    except BundleError as error:
        say(f"the checkpoint of update {update} is left out of the average: {error}")
        return False
    return True


def averages(folder: RunFolder, updater: Updater, say: Callable[[str], None]) -> Iterator[tuple[Average, Transformer]]:
    """The models that are tried when a run ends, beside the one that its validations have measured.

    The mean of the kept checkpoints, if there are several; and, where validations measure a moving average of the
    weights, the weights themselves. `say` is told which checkpoints are damaged and left out, and of a mean that cannot
    be made, why.
    """
    updates = [update for update in list_checkpoints(folder.checkpoints) if _is_undamaged(folder, update, say)]
    if len(updates) > 1:
        average = Average(averaged_checkpoints=len(updates))
        try:
            model = averaged_model(folder, updates, updater.model.config).to(updater.device)
        except BundleError as error:
            say(f"there is no {average}: {error}")
        else:
            yield average, model
    if updater.moving_average is not None:
        yield NO_AVERAGE, updater.model


def average_run(run: Path, last: int, output: Path, *, force: bool = False) -> list[int]:
    """Average the weights of the `last` checkpoints of the run in `run` into the bundle `output`.

    The bundle carries no scores, since nobody has measured it yet. Returns the updates of the checkpoints. A bundle
    that is there is replaced only with `force`.

    Raises:
        RunError: there is no run, or it keeps fewer checkpoints.
        UserError: `last` is less than 1, or `output` lies in `run`.
        BundleError: a checkpoint is damaged.
        OutputError: `output` holds something that is not replaced, or cannot be written.
        WriteError: writing failed, as on a full disk.
    """
    folder = RunFolder(run)
    if not folder.config_file.is_file():
        raise RunError(f"{run}: is no run: it has no {folder.config_file.name}; give the folder of a run")
    if output.resolve().is_relative_to(run.resolve()):
        raise UserError(f"--output {output}: lies in the run's own folder, whose models are the run's: choose another")
    if last < 1:
        raise UserError(f"--last {last}: must be at least 1")
    check_new_bundle(output, force=force)
    updates = list_checkpoints(folder.checkpoints)
    if len(updates) < last:
        raise RunError(
            f"{folder.checkpoints}: holds {len(updates)} checkpoints, {last} were asked for: ask for fewer with "
            f"--last, or train with a higher training.keep_checkpoints"
        )
    if not standing_folder(folder.last).exists():
        raise RunError(f"{run}: has no {folder.last.name}/ yet: its first validation makes it; train further")
    bundle = Bundle.open(folder.last)
    chosen = updates[-last:]
    model = averaged_model(folder, chosen, bundle.model_config)
    training = {**bundle.description.training, "update": chosen[-1], "averaged_checkpoints": last}
    for name in ("epochs", "seconds", "validation_loss", "scored_pairs"):  # of another model
        training.pop(name, None)
    description = bundle.description.model_copy(update={"scores": [], "training": training})
    save_bundle(output, model, bundle.load_tokenizer(), description, lambda _: check_new_bundle(output, force=force))
    return chosen


class Candidates:
    """They are validated, written and put on record. Only for whoever is alone in the folder: the first rank.

    Args:
        config: of the run.
        prepared: its data, with the text that decides.
        folder: where `last/` and `best/` are written.
        reporter: is told what came out.
        log: puts figures of a kind on record.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: PreparedData,
        folder: RunFolder,
        reporter: Reporter,
        log: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self._config = config
        self._prepared = prepared
        self._folder = folder
        self._reporter = reporter
        self._log = log
        self._validator = Validator(prepared.validation, prepared.tokenizer, config)
        self.diagnosis = Diagnosis(config, prepared, folder.metrics, log, reporter.say)

    def validate(self, model: Transformer, state: RunState, average: Average = NO_AVERAGE) -> None:
        """Validate the model as it is now: it becomes `last`, and `best` if it is better than all before it.

        `average` says of what its weights are the mean.
        """
        validation = self._validator.validate(model)
        is_best = self._is_best(validation, state)
        quality, ties = validation.quality(self._config.training.best_by), validation.ties
        if state.best_single is None or [quality, *ties] > [state.best_single, *state.best_single_ties]:
            state.best_single, state.best_single_ties, state.without_gain = quality, ties, 0
        else:
            state.without_gain += 1
        for place in [self._folder.last, *([self._folder.best] if is_best and self._is_best_yet(validation) else [])]:
            self._folder.make_way(place, self._reporter.say)
            save_model(place, model, self._prepared, self._config, state, validation, average)
        self._record("validation", validation, state, is_best=is_best)
        self.diagnosis.tell()

    def average(self, updater: Updater, state: RunState) -> None:
        """Try every average of the weights; one becomes `best` only if it is better than all before it."""
        for average, model in averages(self._folder, updater, self._reporter.say):
            validation = self._validator.validate(model)
            is_best = self._is_best(validation, state)
            if is_best and self._is_best_yet(validation):
                self._folder.make_way(self._folder.best, self._reporter.say)
                save_model(self._folder.best, model, self._prepared, self._config, state, validation, average)
            self._reporter.say(f"{average}:")
            self._record("average", validation, state, is_best=is_best, average=average)

    def best_is_lost(self, state: RunState) -> bool:
        """Whether `best/` is missing or damaged though there was one; says so."""
        if state.best is None:
            return False
        try:
            Bundle.open(self._folder.best)
        except BundleError as error:
            self._reporter.say(f"the best model so far is lost: {error}; another takes its place")
            return True
        return False

    def _is_best(self, validation: Validation, state: RunState) -> bool:
        """Whether it is better than all before it in this run; then it is the one to beat."""
        quality, ties = validation.quality(self._config.training.best_by), validation.ties
        is_best = state.best is None or [quality, *ties] > [state.best, *state.best_ties]
        if is_best:
            state.best, state.best_ties = quality, ties
        return is_best

    def _is_best_yet(self, validation: Validation) -> bool:
        """Whether nothing better lies in `best/`: a run that was killed may have come further than its checkpoint."""
        best_by = self._config.training.best_by
        before = recorded_quality(self._folder.best, best_by)
        if before is None or [validation.quality(best_by), *validation.ties] >= before:
            return True
        self._reporter.say(f"{self._folder.best} is better, from before this run was stopped, and is kept")
        return False

    def _record(
        self, kind: str, validation: Validation, state: RunState, *, is_best: bool, average: Average | None = None
    ) -> None:
        figures = {"perplexity": validation.perplexity, "is_best": is_best, **asdict(validation)}
        figures |= {} if average is None else asdict(average)
        self._log(kind, figures)
        self._reporter.validated(state.update, validation, is_best=is_best)


def save_model(
    folder: Path,
    model: Transformer,
    prepared: PreparedData,
    config: RunConfig,
    state: RunState,
    validation: Validation,
    average: Average = NO_AVERAGE,
) -> None:
    """Write `model` as a bundle that says what it was trained on, how far, and how good it proved to be."""
    description = BundleDescription(
        model=config.model,
        search=config.search,
        languages=Languages(source=config.data.source_language, target=config.data.target_language),
        data=prepared.digests,
        scores=[RecordedScore(**asdict(score), data="validation") for score in validation.scores],
        training={
            **_origin(config, state),
            "update": state.update,
            "epochs": round(state.place.epochs, 2),
            "seconds": round(state.seconds, 1),
            "seed": config.training.seed,
            **asdict(average),
            "validation_loss": validation.loss,
            "pairs": len(prepared.train),
            "validation_pairs": len(prepared.validation),
            "scored_pairs": len(prepared.validation[: config.training.max_validation_pairs or None]),
            "cleaning": {**prepared.cleaning},
            "environment": {**environment(next(model.parameters()).device, config.training.precision)},
        },
    )
    save_bundle(folder, model, prepared.tokenizer, description)


def recorded_quality(folder: Path, best_by: str) -> list[float] | None:
    """`Validation.quality` and `ties` of the bundle in `folder`, as it says of itself; None if they cannot be read."""
    try:
        description = Bundle.open(folder).description
    except BundleError:
        return None
    figures = {score.metric.lower(): score.value for score in description.scores}
    loss = description.training.get("validation_loss")
    if isinstance(loss, float):
        figures["loss"] = -loss
    wanted = (best_by, "chrf", "loss")
    return [figures[name] for name in wanted] if figures.keys() >= {*wanted} else None


def _origin(config: RunConfig, state: RunState) -> dict[str, JsonValue]:
    """Where network and first weights came from."""
    if not state.start:
        return {"preset": config.preset}
    return {"start_from": config.training.start_from, "start_from_sha256": state.start}
