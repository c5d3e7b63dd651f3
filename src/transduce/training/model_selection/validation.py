"""Validation of a model by its loss and its translations, and selection of the best model of a run."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.bundle import (
    Bundle,
    BundleDescription,
    Languages,
    RecordedScore,
    list_checkpoints,
    load_checkpoint,
    save_bundle,
)
from transduce.config import RunConfig, SearchConfig
from transduce.data import Batch, PreparedData
from transduce.errors import BundleError, CorpusError, DivergedError
from transduce.evaluation import Score, score_corpus
from transduce.kernels.device import map_on_cores
from transduce.model import EncoderDecoder
from transduce.text import Tokenizer
from transduce.training.checkpoints import RunState
from transduce.training.diagnosis import Diagnosis
from transduce.training.model_selection.checkpoint_averaging import NO_AVERAGE, average_checkpoints
from transduce.training.model_selection.stopping import DIVERGENCE_ADVICE
from transduce.training.optimization.loss import compute_losses
from transduce.training.optimization.updater import Updater
from transduce.training.reporting import Reporter, Sample, Validation, describe_environment, rank_validation
from transduce.training.run_folder import RunFolder
from transduce.translation import PROBLEMS, PyTorchEngine, Translator, batch_by_length
from transduce.translation.engines.networks import evaluation_mode

VALIDATION_METRICS = ("bleu", "chrf")
"""The metrics of validations, as `transduce.evaluation.METRICS` names them."""

PENALTY_STEP = 0.5
"""Difference between two length penalties that `Validator.fit_search` tries."""

MAX_PENALTY = 3.0
"""A length penalty above which no tested corpus showed any change (docs/experiments.md)."""

NO_REPEAT_NGRAM = 4
"""The `no_repeat_ngram` that `Validator.fit_search` tries: of a model of news, it was as good as 3 and forbids less
(docs/experiments.md)."""

MAX_PIECES = 2048
"""Pieces of a side of a validation pair up to which it counts for the loss, unless `text.max_pieces` is more. A longer
text is translated in parts, but its loss is computed as a whole, in memory that grows with the square of its length."""


class Validator:
    """Translates and scores the validation text with any model.

    Raises:
        CorpusError: every pair is too long for the loss.
    """

    num_samples = 3

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, config: RunConfig) -> None:
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.config = config
        self.max_pieces = max(MAX_PIECES, config.text.max_pieces)
        sources, targets = zip(*pairs, strict=True)
        lengths = zip(tokenizer.encode_all(sources), tokenizer.encode_targets(targets), strict=True)
        is_short = [max(map(len, sides)) <= self.max_pieces for sides in lengths]
        self.short_pairs = list(compress(pairs, is_short))
        """The pairs that count for the loss."""
        if not self.short_pairs:
            raise CorpusError(
                f"every pair of the validation text has a side of more than {self.max_pieces:,} pieces, too many to "
                "compute its loss: give one sentence per line, or raise text.max_pieces"
            )

    def validate(self, model: EncoderDecoder) -> Validation:
        """Compute all metrics of the model; its mode and weights are unchanged.

        Raises:
            DivergedError: the model's logits are not finite.
        """
        loss, accuracy = compute_teacher_forced_metrics(model, self.tokenizer, self.short_pairs)
        if not math.isfinite(loss):
            raise DivergedError(
                f"training has diverged: the loss on the validation text is {loss}; {DIVERGENCE_ADVICE}"
            )
        sources, references = self._get_scored_texts()
        translations = self._translate(model, self.config.search)
        samples = [Sample(*triple) for triple in zip(sources, translations, references, strict=True)]
        chosen = samples[:: max(1, len(samples) // self.num_samples)][: self.num_samples]
        scores = score_corpus(translations, references, VALIDATION_METRICS, confidence=True)
        f1 = compute_token_f1(*(self.tokenizer.encode_targets(side) for side in (translations, references)))
        shares = compute_commonest_share(sources, translations), compute_repetition_share(sources, translations)
        return Validation(loss, accuracy, tuple(scores), tuple(chosen), f1, *shares)

    def fit_search(self, model: EncoderDecoder, scores: Sequence[Score]) -> tuple[SearchConfig, list[Score]]:
        """Find the settings of the search that translate the validation text best, of those tried, and their scores.

        With `training.fit_no_repeat_ngram`, n-grams are not repeated if that is better by both BLEU and chrF. With
        `training.fit_length_penalty`, the length penalty goes up in steps of `PENALTY_STEP` as long as each step
        improves the score, and down instead if the first step up does not.

        Args:
            model: the model to translate with; length penalties are compared by BLEU, or by chrF if `training.best_by`
                is "chrf".
            scores: the scores with the configured settings.
        """
        training, best, best_scores = self.config.training, self.config.search, list(scores)
        if training.fit_no_repeat_ngram and not best.no_repeat_ngram:
            search = best.model_copy(update={"no_repeat_ngram": NO_REPEAT_NGRAM})
            found = self._score(model, search)
            if all(_get_value(found, metric) > _get_value(best_scores, metric) for metric in VALIDATION_METRICS):
                best, best_scores = search, found
        metric = "chrf" if training.best_by == "chrf" else "bleu"
        first = best
        for step in (PENALTY_STEP, -PENALTY_STEP) if training.fit_length_penalty else ():
            while 0 <= best.length_penalty + step <= MAX_PENALTY:
                search = best.model_copy(update={"length_penalty": round(best.length_penalty + step, 6)})
                found = self._score(model, search)
                if _get_value(found, metric) <= _get_value(best_scores, metric):
                    break
                best, best_scores = search, found
            if best != first:
                break
        return best, best_scores

    def _score(self, model: EncoderDecoder, search: SearchConfig) -> list[Score]:
        _, references = self._get_scored_texts()
        return score_corpus(self._translate(model, search), references, VALIDATION_METRICS, confidence=True)

    def _get_scored_texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        sources, references = zip(*self.pairs[: self.config.training.max_validation_pairs or None], strict=True)
        return sources, references

    def _translate(self, model: EncoderDecoder, search: SearchConfig) -> list[str]:
        engine = PyTorchEngine(model, self.tokenizer.end_id)
        translator = Translator(engine, self.tokenizer, search, self.config.data.source_language)
        return translator.translate(self._get_scored_texts()[0])


def _get_value(scores: Sequence[Score], metric: str) -> float:
    return next(score.value for score in scores if score.metric.lower() == metric)


class TeacherForcedMetrics(NamedTuple):
    """How well a model predicts each token of given translations from the source and the tokens before it."""

    loss: float
    """Cross-entropy in nats per token, without label smoothing."""
    accuracy: float
    """Share of tokens whose probability is the highest of all."""


def compute_teacher_forced_metrics(
    model: EncoderDecoder, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> TeacherForcedMetrics:
    """How well a model, without dropout, predicts the targets of pairs of text; its mode and weights are unchanged."""
    device = next(model.parameters()).device
    source_texts, target_texts = zip(*pairs, strict=True)
    sides = (
        [tokenizer.as_source(ids) for ids in tokenizer.encode_all(source_texts)],
        [tokenizer.as_target(ids) for ids in tokenizer.encode_targets(target_texts)],
    )

    @torch.inference_mode()
    def sum_over_tokens(indices: list[int]) -> Tensor:
        sources, targets = ([side[index] for index in indices] for side in sides)
        batch = Batch.from_ids(sources, targets, tokenizer.pad_id).to(device)
        losses = compute_losses(model, batch, smoothing=0.0)
        sums = torch.stack([losses.cross_entropy, losses.num_correct]).cpu().double()
        return torch.cat([sums, torch.tensor([batch.num_target_tokens])])

    batches = list(batch_by_length([max(map(len, pair)) for pair in zip(*sides, strict=True)], 4096))
    # One batch per thread: threads that share one batch wait for each other, especially next to other programs.
    num_threads = torch.get_num_threads() if device.type == "cpu" else 1
    one_by_one = num_threads == 1
    with evaluation_mode([model]):
        sums = map(sum_over_tokens, batches) if one_by_one else map_on_cores(sum_over_tokens, batches, num_threads)
        cross_entropy, num_correct, num_tokens = torch.stack(list(sums)).sum(dim=0).tolist()
    return TeacherForcedMetrics(cross_entropy / num_tokens, num_correct / num_tokens)


def compute_token_f1(hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """F1 of the tokens of all hypotheses against those of their references, regardless of order; from 0 to 1.

    It is compared with the teacher-forced accuracy, and is about as high for a healthy model. Compared position by
    position, an additional word at the beginning would make all later tokens wrong.
    """
    pairs = [
        (Counter(hypothesis), Counter(reference)) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    num_common = sum((hypothesis & reference).total() for hypothesis, reference in pairs)
    num_tokens = sum(hypothesis.total() + reference.total() for hypothesis, reference in pairs)
    return 2 * num_common / num_tokens if num_tokens else 1.0


def compute_commonest_share(sources: Sequence[str], translations: Sequence[str]) -> float:
    """Share of different sources that have the most frequent of all translations, from 0 to 1; 0 for one source."""
    different = dict(zip(sources, translations, strict=True))
    return max(Counter(different.values()).values()) / len(different) if len(different) > 1 else 0.0


def compute_repetition_share(sources: Sequence[str], translations: Sequence[str]) -> float:
    """Share of translations that repeat the same words or characters consecutively, from 0 to 1."""
    return sum(map(PROBLEMS["repetition"], sources, translations)) / len(sources)


def _list_fitted(given: SearchConfig, fitted: SearchConfig) -> dict[str, int | float]:
    """The settings of the search that are fitted and differ, with their fitted values."""
    names = ("no_repeat_ngram", "length_penalty")
    return {name: getattr(fitted, name) for name in names if getattr(fitted, name) != getattr(given, name)}


@dataclass
class ModelSelection:
    """Validates models, writes them to `last/` and `best/`, and logs their figures; used by the first rank alone.

    `log` writes figures of a kind to metrics.jsonl.
    """

    config: RunConfig
    prepared: PreparedData
    folder: RunFolder
    reporter: Reporter
    log: Callable[[str, Mapping[str, object]], None]

    def __post_init__(self) -> None:
        self._validator = Validator(self.prepared.validation, self.prepared.tokenizer, self.config)
        short_pairs = self._validator.short_pairs
        if num_long := len(self.prepared.validation) - len(short_pairs):
            self.reporter.report(
                f"{num_long:,} of {len(self.prepared.validation):,} validation pairs have a side of more than "
                f"{self._validator.max_pieces:,} pieces: they are translated and scored, but left out of the loss"
            )
        short = replace(self.prepared, validation=short_pairs)
        self.diagnosis = Diagnosis(self.config, short, self.folder.metrics, self.log, self.reporter.report)

    def validate(self, model: EncoderDecoder, state: RunState, average: Mapping[str, int | float] = NO_AVERAGE) -> None:
        """Validate the model and save it as `last/`, and as `best/` if it is better than all before it."""
        validation = self._validator.validate(model)
        rank = validation.rank(self.config.training.best_by)
        if state.best_single is None or rank > [state.best_single, *state.best_single_ties]:
            (state.best_single, *state.best_single_ties), state.without_gain = rank, 0
        else:
            state.without_gain += 1
        self._save(self.folder.last, model, state, validation, average)
        is_best = self._save_if_best(model, state, validation, average)
        self._record("validation", validation, state, is_best=is_best)
        self.diagnosis.report_findings()

    def try_averages(self, updater: Updater, state: RunState) -> None:
        """Validate every average of the weights when a run ends; one becomes `best/` only if it is better than all."""
        for name, average, model in self._iterate_averages(updater):
            validation = self._validator.validate(model)
            is_best = self._save_if_best(model, state, validation, average)
            self.reporter.report(f"{name}:")
            self._record("average", validation, state, is_best=is_best, **average)

    def fit_search(self, device: torch.device) -> None:
        """Set the length penalty and `no_repeat_ngram` of `best/` to those that translate the validation text best.

        That is done as `training.fit_length_penalty` and `training.fit_no_repeat_ngram` say.
        """
        training = self.config.training
        if not (training.fit_length_penalty or training.fit_no_repeat_ngram):
            return
        bundle, given = Bundle.open(self.folder.best), self.config.search
        fitted = bundle.description
        changes = _list_fitted(given, fitted.search)
        if not changes:  # else it was fitted before this run was stopped
            model = bundle.load_model().to(device)
            recorded = [Score(**score.model_dump(exclude={"data"})) for score in fitted.scores]
            search, found = self._validator.fit_search(model, recorded)
            changes = _list_fitted(given, search)
            if not changes:
                return
            changed = {
                "search": fitted.search.model_copy(update=changes),
                "scores": [RecordedScore(**asdict(score), data="validation") for score in found],
                "training": {**fitted.training, **{f"fitted_{name}": value for name, value in changes.items()}},
            }
            fitted, tokenizer = fitted.model_copy(update=changed), bundle.load_tokenizer()
            self.folder.set_aside_foreign(self.folder.best, self.reporter.report)
            save_bundle(self.folder.best, model, tokenizer, fitted)
        scores = [score.model_dump(exclude={"data"}) for score in fitted.scores]
        self.log("fitted_search", {**changes, "scores": scores})
        settings = [f"{name} {value:g} instead of {getattr(given, name):g}" for name, value in changes.items()]
        self.reporter.report(
            f"{' and '.join(settings).replace('length_penalty', 'length penalty')} for {self.folder.best}, fitted on "
            f"the validation text: " + ", ".join(f"{score.metric} {score.value:.2f}" for score in fitted.scores)
        )

    def is_best_lost(self, state: RunState) -> bool:
        """Whether `best/` is missing or damaged though there was one, which is reported."""
        if state.best is None:
            return False
        try:
            Bundle.open(self.folder.best)
        except BundleError as error:
            self.reporter.report(f"the best model so far is lost: {error}; it will be replaced by another")
            return True
        return False

    def _iterate_averages(self, updater: Updater) -> Iterator[tuple[str, Mapping[str, int | float], EncoderDecoder]]:
        """Name, record of averaging, and model of each candidate for `best/` that no validation has measured.

        These are the mean of the kept checkpoints, if there are several; and if validations measure a moving average,
        the weights themselves. Damaged checkpoints are reported and left out.
        """
        updates = []
        for update in list_checkpoints(self.folder.checkpoints):
            try:
                load_checkpoint(self.folder.checkpoints, update, [])
            except BundleError as error:
                self.reporter.report(f"the checkpoint of update {update} is left out of the average: {error}")
            else:
                updates.append(update)
        if len(updates) > 1:
            name = f"average of the last {len(updates)} checkpoints"
            try:
                model = average_checkpoints(self.folder, updates, updater.model.config).to(updater.device)
            except BundleError as error:
                self.reporter.report(f"there is no {name}: {error}")
            else:
                yield name, {**NO_AVERAGE, "averaged_checkpoints": len(updates)}, model
        if updater.moving_average is not None:
            yield "weights of the last update, not averaged", NO_AVERAGE, updater.model

    def _save_if_best(
        self, model: EncoderDecoder, state: RunState, validation: Validation, average: Mapping[str, int | float]
    ) -> bool:
        """Whether the validation is better than all before it in this run; then the model becomes `best/`."""
        rank = validation.rank(self.config.training.best_by)
        is_best = state.best is None or rank > [state.best, *state.best_ties]
        if not is_best:
            return False
        state.best, *state.best_ties = rank
        # A run that was killed may have come further than its checkpoint.
        before = read_recorded_rank(self.folder.best, self.config)
        if before is None or rank >= before:
            self._save(self.folder.best, model, state, validation, average)
        else:
            self.reporter.report(f"{self.folder.best} is better, from before this run was stopped, and is kept")
        return True

    def _record(self, kind: str, validation: Validation, state: RunState, *, is_best: bool, **average: object) -> None:
        figures = {"perplexity": validation.perplexity, "is_best": is_best, **asdict(validation), **average}
        self.log(kind, figures)
        self.reporter.report_validation(state.update, validation, is_best=is_best)

    def _save(
        self,
        folder: Path,
        model: EncoderDecoder,
        state: RunState,
        validation: Validation,
        average: Mapping[str, int | float],
    ) -> None:
        config, prepared = self.config, self.prepared
        self.folder.set_aside_foreign(folder, self.reporter.report)
        start_from = {"start_from": config.training.start_from, "start_from_sha256": state.start}
        languages = Languages(source=config.data.source_language, target=config.data.target_language)
        description = BundleDescription(
            model=config.model,
            search=config.search,
            languages=languages,
            data=prepared.digests,
            scores=[RecordedScore(**asdict(score), data="validation") for score in validation.scores],
            training={
                **(start_from if state.start else {"preset": config.preset}),
                "update": state.update,
                "epochs": round(state.place.epochs, 2),
                "seconds": round(state.seconds, 1),
                "seed": config.training.seed,
                **average,
                "validation_loss": validation.loss,
                "pairs": len(prepared.train),
                "validation_pairs": len(prepared.validation),
                "scored_pairs": len(prepared.validation[: config.training.max_validation_pairs or None]),
                "cleaning": {**prepared.cleaning},
                "environment": {**describe_environment(next(model.parameters()).device, config.training.precision)},
            },
        )
        save_bundle(folder, model, prepared.tokenizer, description)


def read_recorded_rank(folder: Path, config: RunConfig) -> list[float] | None:
    """The `Validation.rank` that the bundle in `folder` records.

    None if it cannot be read, or if the bundle's search was fitted, so that it is not the run's.
    """
    try:
        description = Bundle.open(folder).description
    except BundleError:
        return None
    if _list_fitted(config.search, description.search):
        return None
    loss = description.training.get("validation_loss")
    figures = {"scores": description.model_dump()["scores"], "loss": loss if isinstance(loss, float) else math.nan}
    rank = rank_validation(figures, config.training.best_by)
    return None if any(map(math.isnan, rank)) else rank
