"""Validation of a model: its teacher-forced loss, and its translations scored against untouched references."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import RunConfig, SearchConfig
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.evaluation import Score, corpus_scores
from transduce.kernels.threads import Workers
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.training.diagnosis.output_checks import commonest_share, repetition_share, token_f1
from transduce.training.loss import label_smoothed_cross_entropy
from transduce.training.stopping import REMEDY
from transduce.translation import NativeEngine, Translator, batch_by_length

METRICS = ("bleu", "chrf")

PENALTY_STEP = 0.5

MOST_PENALTY = 3.0
"""A length penalty beyond which nothing changed in any corpus that was tried (docs/experiments.md)."""


@dataclass(frozen=True)
class Sample:
    """A validation sentence, its translation by the model, and its reference."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """Figures of one validation: loss and accuracy of the whole text, the others of the pairs that are translated."""

    loss: float
    """Cross-entropy without smoothing, in nats a target token."""
    accuracy: float
    """Share of target tokens predicted right, teacher-forced."""
    scores: tuple[Score, ...]
    """BLEU and chrF of beam-search translations, with signatures and 95 % confidence intervals."""
    samples: tuple[Sample, ...]
    """A few of the translations to read."""
    token_f1: float
    """F1 of the translations' tokens against those of the references; see `diagnosis.token_f1`."""
    commonest_share: float = 0.0
    """Share of different sources that have the most frequent translation."""
    repetition_share: float = 0.0
    """Share of translations that repeat themselves."""

    @property
    def perplexity(self) -> float:
        """exp(loss), per token of this model's own vocabulary."""
        return math.exp(min(self.loss, 700.0))

    def quality(self, best_by: str) -> float:
        """The figure that decides which model is best; higher is better."""
        if best_by == "loss":
            return -self.loss
        return next(score.value for score in self.scores if score.metric.lower() == best_by)

    @property
    def ties(self) -> list[float]:
        """What decides between models of equal quality, as at first, when BLEU is 0: chrF, then the negative loss."""
        return [self.quality("chrf"), self.quality("loss")]


class Validator:
    """Translates and scores the validation text with any model."""

    num_samples = 3

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, config: RunConfig) -> None:
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.config = config
        self._workers = Workers()

    def validate(self, model: Transformer) -> Validation:
        """Compute all figures for the model, whose mode and weights stay as they are.

        Raises:
            TrainingError: the model's logits are not finite.
        """
        loss, accuracy = self._teacher_forced(model)
        if not math.isfinite(loss):
            raise TrainingError(f"training has diverged: the loss on the validation text is {loss}; {REMEDY}")
        sources, references = self._scored_texts()
        translations = self._translate(model, self.config.search)
        samples = [Sample(*triple) for triple in zip(sources, translations, references, strict=True)]
        chosen = samples[:: max(1, len(samples) // self.num_samples)][: self.num_samples]
        scores = corpus_scores(translations, references, METRICS, confidence=True)
        f1 = token_f1(*(self.tokenizer.encode_targets(side) for side in (translations, references)))
        shares = commonest_share(sources, translations), repetition_share(sources, translations)
        return Validation(loss, accuracy, tuple(scores), tuple(chosen), f1, *shares)

    def fit_length_penalty(self, model: Transformer, scores: Sequence[Score]) -> tuple[float, list[Score]]:
        """The length penalty with the best translations of the validation text, and their scores.

        It is sought upwards from that of the settings, in steps of `PENALTY_STEP` as long as each is better than the
        one before, and downwards where the first step up is not.

        Args:
            model: whose translations are scored; BLEU decides, or chrF where `training.best_by` says so.
            scores: with the length penalty of the settings.
        """
        metric = "chrf" if self.config.training.best_by == "chrf" else "bleu"
        _, references = self._scored_texts()

        def quality(found: Sequence[Score]) -> float:
            return next(score.value for score in found if score.metric.lower() == metric)

        first = best = self.config.search.length_penalty
        best_scores = list(scores)
        for step in (PENALTY_STEP, -PENALTY_STEP):
            while 0 <= best + step <= MOST_PENALTY:
                search = self.config.search.model_copy(update={"length_penalty": round(best + step, 6)})
                found = corpus_scores(self._translate(model, search), references, METRICS, confidence=True)
                if quality(found) <= quality(best_scores):
                    break
                best, best_scores = search.length_penalty, found
            if best != first:
                break
        return best, best_scores

    def _scored_texts(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The sources that are translated, and their references."""
        sources, references = zip(*self.pairs[: self.config.training.max_validation_pairs or None], strict=True)
        return sources, references

    def _translate(self, model: Transformer, search: SearchConfig) -> list[str]:
        engine = NativeEngine(model, self.tokenizer.end_id)
        translator = Translator(engine, self.tokenizer, search, self.config.data.source_language)
        return translator.translate(self._scored_texts()[0])

    def _teacher_forced(self, model: Transformer) -> tuple[float, float]:
        device = next(model.parameters()).device
        tokenizer, (source_texts, target_texts) = self.tokenizer, zip(*self.pairs, strict=True)
        sides = (
            [tokenizer.as_source(ids) for ids in tokenizer.encode_all(source_texts)],
            [tokenizer.as_target(ids) for ids in tokenizer.encode_targets(target_texts)],
        )
        was_training = model.training
        model.eval()

        @torch.inference_mode()
        def sums_over_tokens(indices: list[int]) -> Tensor:
            sources, targets = ([side[index] for index in indices] for side in sides)
            batch = Batch.from_ids(sources, targets, self.tokenizer.pad_id).to(device)
            memory = model.encode(batch.source_ids, batch.source_mask)
            hidden = model.decode_hidden(batch.target_ids, batch.target_mask, memory, batch.source_mask)
            states, right = hidden[batch.target_mask], batch.target_ids[batch.target_mask]
            losses = label_smoothed_cross_entropy(states, model.projection.weight, right, 0.0, model.projection.bias)
            sums = torch.stack([losses.cross_entropy, losses.num_correct]).cpu().double()
            return torch.cat([sums, torch.tensor([batch.num_target_tokens])])

        parts = list(batch_by_length([max(map(len, pair)) for pair in zip(*sides, strict=True)], 4096))
        # A batch a thread: threads that share one batch wait for each other, long beside other programs.
        num_threads = torch.get_num_threads() if device.type == "cpu" else 1
        one_by_one = num_threads == 1
        sums = map(sums_over_tokens, parts) if one_by_one else self._workers.map(sums_over_tokens, parts, num_threads)
        cross_entropy, num_correct, num_tokens = torch.stack(list(sums)).sum(dim=0).tolist()
        model.train(was_training)
        return cross_entropy / num_tokens, num_correct / num_tokens
