"""One sentence, its translation, and everything that can be seen of how it came about."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.inspection.attention import AttentionRecord, Recorder, all_maps, arithmetic
from transduce.inspection.document import (
    Alternative,
    Head,
    InspectionDocument,
    ModelFacts,
    Side,
    TextConfidence,
    WordConfidence,
)
from transduce.inspection.forward_pass import Place, forced, log_probabilities
from transduce.inspection.head_mask import all_heads
from transduce.inspection.parts import (
    code_places,
    continuations,
    layer_predictions,
    position_table,
    rounded,
    source_side,
    target_side,
    without_each_head,
)
from transduce.inspection.request import InspectionRequest, asked_searches, check_heads, check_length, one_model
from transduce.inspection.searches import SentenceSearches, search_tree
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.translation import Confidence, Translator
from transduce.translation.network import evaluating


@dataclass(frozen=True)
class InspectedModel:
    """What is known of a model besides its weights.

    Args:
        name: what people call it.
        digest: SHA-256 of its weights.
        confidence: how far its translations can be trusted, if that was measured.
    """

    name: str = ""
    digest: str | None = None
    confidence: Confidence | None = None

    @classmethod
    def of(cls, bundle: Bundle, name: str) -> "InspectedModel":
        """That of a bundle.

        Raises:
            BundleError: its calibration.json is damaged, or another model's.
        """
        return cls(name, bundle.digest, Confidence.load(bundle))


def inspect_text(
    translator: Translator,
    request: InspectionRequest,
    about: InspectedModel | None = None,
    say: Callable[[str], None] = lambda _: None,
    checkpoint: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """An `InspectionDocument` as a JSON object; computed in float32, whatever the precision of the engine is.

    Args:
        translator: with the native engine and one model.
        request: the sentence, and what is wanted.
        about: what the document says of the model besides.
        say: is told of progress, where it takes long.
        checkpoint: is called again and again, before every step that takes a while; what it raises ends the inspection.

    Raises:
        ConfigError: the engine is another one, or has several models.
        UserError: the text is blank, a side has more than 128 tokens, or there is no such token or head.
    """
    model = one_model(translator)
    check_heads([*request.arithmetic, *request.heads_off, *request.without_each], model)
    searches = asked_searches(translator, model, request, checkpoint)
    known = about or InspectedModel()
    with evaluating([model]), torch.inference_mode():
        document = _document(searches, request, _facts(translator, model, known), known.confidence, say)
    return document.model_dump(mode="json")


def _document(
    searches: SentenceSearches,
    request: InspectionRequest,
    facts: ModelFacts,
    confidence: Confidence | None,
    say: Callable[[str], None],
) -> InspectionDocument:
    model, tokenizer, include = searches.model, searches.tokenizer, request.include
    traced = searches.traced()
    best = traced.finished[0]
    check_length("translation", len(best.ids), model.longest)
    (greedy,) = searches.greedy([searches.prefix])
    outputs, target, records = _judged(searches, best.ids, searches.text(best.ids))
    return InspectionDocument(
        model=facts,
        source=source_side(request.text, searches.source, tokenizer),
        target=target,
        reference=_reference(searches, request.reference),
        greedy=_judged(searches, greedy.ids, searches.text(greedy.ids))[1],
        alternatives=[_alternative(searches, hypothesis) for hypothesis in traced.finished[: searches.config.beam]],
        confidence=None if confidence is None else _text_confidence(confidence, target.pieces, best),
        attention=all_maps(records) if "attention" in include else None,
        positions=position_table(model, max(len(searches.source), len(best.ids))) if "positions" in include else None,
        search=search_tree(traced, greedy, searches) if "search" in include else None,
        layers=layer_predictions(model, outputs, tokenizer) if "layers" in include else None,
        arithmetic=arithmetic(records, request.arithmetic, model.config, as_many_as_fit="arithmetic" in include),
        switched_off=request.heads_off,
        heads_off=without_each_head(searches, best.ids, _tried(request, model), say),
        continuations=continuations(searches, target) if "continuations" in include else [],
        code=code_places(model.config),
    )


def _tried(request: InspectionRequest, model: Transformer) -> list[Head]:
    """The heads that are switched off one at a time."""
    heads = all_heads(model.config) if "heads_off" in request.include else list(dict.fromkeys(request.without_each))
    return [head for head in heads if head not in request.heads_off]


def _facts(translator: Translator, model: Transformer, known: InspectedModel) -> ModelFacts:
    return ModelFacts(
        name=known.name,
        source_language=translator.source_language,
        target_language=translator.target_language,
        parameters=model.num_parameters,
        digest=known.digest,
        config=model.config.model_dump(mode="json"),
    )


def _judged(
    searches: SentenceSearches, ids: Sequence[int], text: str
) -> tuple[list[Tensor], Side, Mapping[Place, AttentionRecord]]:
    """What the layers of the decoder hand on when they read a target, what the model thinks of it, all attention."""
    recorder = Recorder(searches.switches([[]]))
    target_ids = torch.tensor([list(ids)], device=searches.device)
    outputs = forced(searches.model, searches.source_ids(1), target_ids, recorder)
    log_probs = log_probabilities(searches.model, outputs[-1])[0]
    return outputs, target_side(text, ids, log_probs, searches.tokenizer), recorder.records


def _reference(searches: SentenceSearches, text: str | None) -> Side | None:
    if text is None or not text.strip():
        return None
    (ids,) = searches.tokenizer.encode_targets([text])
    target = searches.tokenizer.as_target(ids)
    check_length("reference", len(target), searches.model.longest)
    return _judged(searches, target, text)[1]


def _alternative(searches: SentenceSearches, hypothesis: Hypothesis) -> Alternative:
    return Alternative(
        text=searches.text(hypothesis.ids),
        score=round(hypothesis.score, 6),
        log_probability=round(sum(hypothesis.token_scores), 6),
        pieces=searches.tokenizer.pieces(hypothesis.ids),
        log_probabilities=rounded(hypothesis.token_scores),
    )


def _text_confidence(confidence: Confidence, pieces: Sequence[str], best: Hypothesis) -> TextConfidence:
    words = confidence.words(pieces, best.token_scores)
    return TextConfidence(
        sentence=round(confidence.sentence(best.token_scores), 2),
        words=[WordConfidence(word=word, confidence=round(certain, 4)) for word, certain in words],
    )
