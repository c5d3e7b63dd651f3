"""The inspection of one sentence: its translation, and how the model came to it, as a document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transduce.bundle import Bundle
from transduce.inspection.attention import AttentionRecord, Recorder, collect_head_arithmetic, make_all_maps
from transduce.inspection.document import (
    Alternative,
    Head,
    InspectionDocument,
    ModelFacts,
    Side,
    TextConfidence,
    WordConfidence,
)
from transduce.inspection.head_mask import Place, list_heads, log_probabilities, run_forced
from transduce.inspection.parts import (
    find_continuations,
    locate_code,
    make_position_table,
    make_source_side,
    make_target_side,
    predict_from_layers,
    prune_each_head,
    round_all,
)
from transduce.inspection.request import InspectionRequest, check_heads, check_length, get_single_model, make_searches
from transduce.inspection.searches import SentenceSearches, make_search_tree
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.translation import Confidence, Translator
from transduce.translation.engines.inference_model import evaluation_mode


@dataclass(frozen=True)
class InspectedModel:
    """Facts about a model besides its weights.

    Args:
        name: the name to show.
        digest: SHA-256 of its weights.
        confidence: the confidence measured for it, if any.
    """

    name: str = ""
    digest: str | None = None
    confidence: Confidence | None = None

    @classmethod
    def of(cls, bundle: Bundle, name: str) -> "InspectedModel":
        """The facts about a bundle.

        Raises:
            BundleError: its calibration.json is damaged, or another model's.
        """
        return cls(name, bundle.digest, Confidence.load(bundle))


def inspect_text(
    translator: Translator,
    request: InspectionRequest,
    about: InspectedModel | None = None,
    report: Callable[[str], None] = lambda _: None,
    checkpoint: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """An `InspectionDocument` as a JSON object; computed in float32, whatever the precision of the engine is.

    Args:
        translator: with the native engine and one model.
        request: the sentence, and what is wanted.
        about: what the document says of the model besides.
        report: is told of progress, where it takes long.
        checkpoint: is called before every step that takes a while; an exception from it ends the inspection.

    Raises:
        ConfigError: the engine is another one, or has several models.
        UserError: the text is blank, a side has more than 128 tokens, or there is no such token or head.
    """
    model = get_single_model(translator)
    check_heads([*request.arithmetic, *request.heads_off, *request.without_each], model)
    searches = make_searches(translator, model, request, checkpoint)
    known = about or InspectedModel()
    with evaluation_mode([model]), torch.inference_mode():
        document = _make_document(searches, request, _make_facts(translator, model, known), known.confidence, report)
    return document.model_dump(mode="json")


def _make_document(
    searches: SentenceSearches,
    request: InspectionRequest,
    facts: ModelFacts,
    confidence: Confidence | None,
    report: Callable[[str], None],
) -> InspectionDocument:
    model, tokenizer, include = searches.model, searches.tokenizer, request.include
    traced = searches.traced()
    best = traced.finished[0]
    check_length("translation", len(best.ids), model.longest)
    (greedy,) = searches.greedy([searches.prefix])
    outputs, target, records = _score_target(searches, best.ids, searches.text(best.ids))
    return InspectionDocument(
        model=facts,
        source=make_source_side(request.text, searches.source, tokenizer),
        target=target,
        reference=_make_reference(searches, request.reference),
        greedy=_score_target(searches, greedy.ids, searches.text(greedy.ids))[1],
        alternatives=[
            _make_alternative(searches, hypothesis) for hypothesis in traced.finished[: searches.config.beam]
        ],
        confidence=None if confidence is None else _make_text_confidence(confidence, target.pieces, best),
        attention=make_all_maps(records) if "attention" in include else None,
        positions=make_position_table(model, max(len(searches.source), len(best.ids)))
        if "positions" in include
        else None,
        search=make_search_tree(traced, greedy, searches) if "search" in include else None,
        layers=predict_from_layers(model, outputs, tokenizer) if "layers" in include else None,
        arithmetic=collect_head_arithmetic(
            records, request.arithmetic, model.config, as_many_as_fit="arithmetic" in include
        ),
        switched_off=request.heads_off,
        heads_off=prune_each_head(searches, best.ids, _list_heads_to_prune(request, model), report),
        continuations=find_continuations(searches, target) if "continuations" in include else [],
        code=locate_code(model.config),
    )


def _list_heads_to_prune(request: InspectionRequest, model: Transformer) -> list[Head]:
    """The heads to prune one at a time."""
    heads = list_heads(model.config) if "heads_off" in request.include else list(dict.fromkeys(request.without_each))
    return [head for head in heads if head not in request.heads_off]


def _make_facts(translator: Translator, model: Transformer, known: InspectedModel) -> ModelFacts:
    return ModelFacts(
        name=known.name,
        source_language=translator.source_language,
        target_language=translator.target_language,
        parameters=model.num_parameters,
        digest=known.digest,
        config=model.config.model_dump(mode="json"),
    )


def _score_target(
    searches: SentenceSearches, ids: Sequence[int], text: str
) -> tuple[list[Tensor], Side, Mapping[Place, AttentionRecord]]:
    """The outputs of the decoder layers for a target, the target with its scores, and the record of every attention."""
    recorder = Recorder(searches.model, searches.make_head_mask([[]]))
    target_ids = torch.tensor([list(ids)], device=searches.device)
    outputs = run_forced(searches.model, searches.source_ids(1), target_ids, recorder)
    log_probs = log_probabilities(searches.model, outputs[-1])[0]
    return outputs, make_target_side(text, ids, log_probs, searches.tokenizer), recorder.records


def _make_reference(searches: SentenceSearches, text: str | None) -> Side | None:
    if text is None or not text.strip():
        return None
    (ids,) = searches.tokenizer.encode_targets([text])
    target = searches.tokenizer.as_target(ids)
    check_length("reference", len(target), searches.model.longest)
    return _score_target(searches, target, text)[1]


def _make_alternative(searches: SentenceSearches, hypothesis: Hypothesis) -> Alternative:
    return Alternative(
        text=searches.text(hypothesis.ids),
        score=round(hypothesis.score, 6),
        log_probability=round(sum(hypothesis.token_scores), 6),
        pieces=searches.tokenizer.pieces(hypothesis.ids),
        log_probabilities=round_all(hypothesis.token_scores),
    )


def _make_text_confidence(confidence: Confidence, pieces: Sequence[str], best: Hypothesis) -> TextConfidence:
    words = confidence.words(pieces, best.token_scores)
    return TextConfidence(
        sentence=round(confidence.sentence(best.token_scores), 2),
        words=[WordConfidence(word=word, confidence=round(certain, 4)) for word, certain in words],
    )
