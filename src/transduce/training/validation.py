"""How good the model is now: teacher-forced loss, and its real translations against untouched references."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transduce.config import RunConfig
from transduce.data import Batch
from transduce.errors import TrainingError
from transduce.evaluation import Score, corpus_scores
from transduce.kernels.threads import Workers
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.training.diagnosis import commonest_share, repetition_share, token_f1
from transduce.training.divergence import REMEDY
from transduce.training.loss import label_smoothed_cross_entropy
from transduce.translation import NativeEngine, Translator, batch_by_length


@dataclass(frozen=True)
class Sample:
    """One validation sentence, what the model made of it, and what it should be."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """Figures of one validation.

    Args:
        loss: cross-entropy without smoothing, in nats a target token, of the whole validation text.
        accuracy: share of target tokens predicted right, teacher-forced.
        scores: BLEU and chrF of beam-search translations, with signatures and 95 % confidence intervals; of the first
            `training.max_validation_pairs`.
        samples: a few of them to read.
        token_f1: how much of the references' tokens these translations have, from 0 to 1; see `diagnosis.token_f1`.
        commonest_share: share of different sources that have the most frequent translation.
        repetition_share: share of translations that repeat themselves.
    """

    loss: float
    accuracy: float
    scores: tuple[Score, ...]
    samples: tuple[Sample, ...]
    token_f1: float
    commonest_share: float = 0.0
    repetition_share: float = 0.0

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
        """What decides between models of equal quality: chrF, then the loss, negative as higher is better.

        The first models of a small corpus all have a BLEU of 0.
        """
        return [self.quality("chrf"), self.quality("loss")]


class Validator:
    """The validation text, and the settings by which it is translated and scored."""

    num_samples = 3

    def __init__(self, pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, config: RunConfig) -> None:
        self.pairs = pairs
        self.tokenizer = tokenizer
        self.config = config
        self._workers = Workers()

    def validate(self, model: Transformer) -> Validation:
        """All figures for the model as it is; its mode and weights are left alone.

        Raises:
            TrainingError: the model's logits are not finite.
        """
        loss, accuracy = self._teacher_forced(model)
        if not math.isfinite(loss):
            raise TrainingError(f"training has diverged: the loss on the validation text is {loss}; {REMEDY}")
        engine = NativeEngine(model, self.tokenizer.end_id)
        translator = Translator(engine, self.tokenizer, self.config.search, self.config.data.source_language)
        sources, references = zip(*self.pairs[: self.config.training.max_validation_pairs or None], strict=True)
        translations = translator.translate(sources)
        samples = [Sample(*triple) for triple in zip(sources, translations, references, strict=True)]
        chosen = samples[:: max(1, len(samples) // self.num_samples)][: self.num_samples]
        scores = corpus_scores(translations, references, ("bleu", "chrf"), confidence=True)
        f1 = token_f1(*(self.tokenizer.encode_targets(side) for side in (translations, references)))
        shares = commonest_share(sources, translations), repetition_share(sources, translations)
        return Validation(loss, accuracy, tuple(scores), tuple(chosen), f1, *shares)

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
        # A batch a thread: those that share one batch wait for each other, long beside other programs.
        num_threads = torch.get_num_threads() if device.type == "cpu" else 1
        one_by_one = num_threads == 1
        sums = map(sums_over_tokens, parts) if one_by_one else self._workers.map(sums_over_tokens, parts, num_threads)
        cross_entropy, num_correct, num_tokens = torch.stack(list(sums)).sum(dim=0).tolist()
        model.train(was_training)
        return cross_entropy / num_tokens, num_correct / num_tokens
