"""Models that may become `best/`: every one that is validated, and at the end the averages of weights."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

import torch

from transduce.bundle import Bundle, RecordedScore, save_bundle
from transduce.config import RunConfig
from transduce.data import PreparedData
from transduce.errors import BundleError
from transduce.evaluation import Score
from transduce.model import Transformer
from transduce.training.diagnosis import Diagnosis
from transduce.training.outcome import NO_AVERAGE, Average, averages, recorded_quality, save_model
from transduce.training.reporter import Reporter
from transduce.training.run_folder import RunFolder
from transduce.training.state import RunState
from transduce.training.step import Updater
from transduce.training.validation import Validation, Validator


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

    def fit_length_penalty(self, device: torch.device) -> None:
        """Give `best` the length penalty by which it translates the validation text best."""
        bundle, given = Bundle.open(self._folder.best), self._config.search.length_penalty
        if bundle.description.search.length_penalty == given:  # else it was fitted before this run was stopped
            bundle = self._with_fitted_penalty(bundle, device)
        fitted = bundle.description
        if fitted.search.length_penalty == given:
            return
        scores = [score.model_dump(exclude={"data"}) for score in fitted.scores]
        self._log("length_penalty", {"length_penalty": fitted.search.length_penalty, "scores": scores})
        self._reporter.say(
            f"length penalty {fitted.search.length_penalty:g} instead of {given:g} for {self._folder.best}, fitted on "
            f"the validation text: " + ", ".join(f"{score.metric} {score.value:.2f}" for score in fitted.scores)
        )

    def _with_fitted_penalty(self, bundle: Bundle, device: torch.device) -> Bundle:
        """`best` as it is written anew, or as it was where no other length penalty is better."""
        before, model = bundle.description, bundle.load_model().to(device)
        recorded = [Score(**score.model_dump(exclude={"data"})) for score in before.scores]
        penalty, scores = self._validator.fit_length_penalty(model, recorded)
        if penalty == before.search.length_penalty:
            return bundle
        changed = {
            "search": before.search.model_copy(update={"length_penalty": penalty}),
            "scores": [RecordedScore(**asdict(score), data="validation") for score in scores],
            "training": {**before.training, "fitted_length_penalty": penalty},
        }
        self._folder.make_way(self._folder.best, self._reporter.say)
        save_bundle(self._folder.best, model, bundle.load_tokenizer(), before.model_copy(update=changed))
        return Bundle.open(self._folder.best)

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
        before = recorded_quality(self._folder.best, best_by, self._config.search)
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
