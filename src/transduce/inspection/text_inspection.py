"""The inspection of one sentence: its translation, and the model's computation of it, as a document."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from textwrap import dedent
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import ConfigError, UserError
from transduce.inspection.attention import (
    AttentionId,
    AttentionRecord,
    Recorder,
    collect_head_arithmetic,
    list_heads,
    log_probabilities,
    make_all_maps,
    run_teacher_forced,
)
from transduce.inspection.document import (
    Alternative,
    Choice,
    CodePlace,
    Continuation,
    Head,
    InspectionDocument,
    InspectionRequest,
    LayerPredictions,
    ModelFacts,
    PositionTable,
    Prediction,
    PrunedHead,
    Side,
    Step,
    TextConfidence,
    WordConfidence,
    pack_exact,
)
from transduce.inspection.searches import SentenceSearches, check_length, make_search_tree, make_searches
from transduce.model import (
    ATTENTION_SCORES,
    DecoderLayer,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    OutputProjection,
    RelativeScore,
    ResidualConnection,
    RotaryPositions,
    TokenEmbedding,
    Transformer,
    as_transformer,
    attention_weights,
    causal_attention_mask,
    sinusoids,
)
from transduce.search import Hypothesis, length_penalty
from transduce.search.beam import SentenceSearch
from transduce.search.constraints import find_repeating_tokens
from transduce.text import Tokenizer
from transduce.translation import Confidence, Translator, find_pytorch_engine
from transduce.translation.confidence.calibration import score_words
from transduce.translation.engines.networks import evaluation_mode

NUM_ALTERNATIVES = 5
"""Number of tokens listed for each position."""

NUM_PREDICTIONS = 3
"""Number of tokens listed for each layer and position."""

NUM_CONTINUATIONS = 4
"""Number of alternative tokens tried at each position."""


def make_source_side(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> Side:
    """The source as the network reads it."""
    pieces = tokenizer.pieces(ids)
    words = number_words(pieces)
    return Side(text=text, pieces=pieces, ids=list(ids), words=words, log_probabilities=None, steps=None)


def make_target_side(
    text: str, ids: Sequence[int], log_probs: Float[Tensor, "target vocabulary"], tokenizer: Tokenizer
) -> Side:
    """A target; `log_probs` are those of all tokens at each of its positions."""
    pieces = tokenizer.pieces(ids)
    chosen = log_probs.gather(1, torch.tensor(ids, device=log_probs.device)[:, None])
    ranks = (log_probs > chosen).sum(dim=1) + 1
    probabilities = log_probs.exp()
    entropies = torch.special.entr(probabilities.cpu().double()).sum(dim=1)
    best = find_most_probable(probabilities, NUM_ALTERNATIVES, tokenizer)
    steps = [
        Step(chosen_rank=rank, entropy=round(entropy, 6), alternatives=alternatives)
        for rank, entropy, alternatives in zip(ranks.tolist(), entropies.tolist(), best, strict=True)
    ]
    return Side(
        text=text,
        pieces=pieces,
        ids=list(ids),
        words=number_words(pieces),
        log_probabilities=round_all(chosen.squeeze(1).tolist()),
        steps=steps,
    )


def find_most_probable(
    probabilities: Float[Tensor, "target vocabulary"], count: int, tokenizer: Tokenizer
) -> list[list[Choice]]:
    """The `count` most probable tokens of each position, best first."""
    best, tokens = probabilities.topk(min(count, probabilities.size(1)), dim=1)
    return [
        [
            Choice(token=token, piece=piece, probability=round(probability, 6))
            for token, piece, probability in zip(ids, tokenizer.pieces(ids), row, strict=True)
        ]
        for ids, row in zip(tokens.tolist(), best.tolist(), strict=True)
    ]


def round_all(values: Sequence[float]) -> list[float]:
    """Numbers rounded to six decimals, beyond the precision of float32."""
    return [round(value, 6) for value in values]


def number_words(pieces: Sequence[str]) -> list[int]:
    """For each piece the number of the word that it helps to spell; the last piece, `</s>`, has its own number.

    Pieces that spell no word at all, as spaces at the end, belong to the word before them.
    """
    # Each piece carries its own number in place of a score.
    words = score_words(pieces, [float(index) for index in range(len(pieces))])
    of_piece = {int(index): number for number, (_, indices) in enumerate(words) for index in indices}
    numbers: list[int] = []
    for index in range(len(pieces)):
        numbers.append(of_piece.get(index, numbers[-1] if numbers else 0))
    if pieces and pieces[-1] == "</s>":
        numbers[-1] = len(words)
    return numbers


def predict_from_layers(
    model: Transformer, outputs: Sequence[Float[Tensor, "1 target d_model"]], tokenizer: Tokenizer
) -> LayerPredictions:
    """The logit lens (nostalgebraist 2020): the output projection, applied to the output of each decoder layer."""
    predictions, norms = [], []
    for output in outputs:
        best = find_most_probable(log_probabilities(model, output)[0].exp(), NUM_PREDICTIONS, tokenizer)
        predictions.append([[Prediction(piece=one.piece, probability=one.probability) for one in row] for row in best])
        norms.append([round(norm, 4) for norm in output[0].float().norm(dim=-1).tolist()])
    return LayerPredictions(predictions=predictions, norms=norms)


def make_position_table(model: Transformer, length: int) -> PositionTable:
    """The first `length` positional encodings (paper 3.5)."""
    table = None if isinstance(model.positions, NoPositions) else pack_exact(model.positions(length))
    return PositionTable(kind=model.config.positions, table=table)


def find_continuations(searches: SentenceSearches, target: Side) -> list[Continuation]:
    """The four most probable other tokens at each position after the prefix, each continued by greedy search."""
    others = [
        (position, choice)
        for position, step in enumerate(target.steps or [])
        if position >= len(searches.prefix)
        for choice in [one for one in step.alternatives if one.token != target.ids[position]][:NUM_CONTINUATIONS]
        if choice.probability > 0
        and searches.has_room_after((*target.ids[:position], choice.token))
        and choice.token not in find_repeating_tokens(target.ids[:position], searches.config.no_repeat_ngram)
    ]
    found = searches.run_greedy_search([(*target.ids[:position], choice.token) for position, choice in others])
    return [
        Continuation(
            position=position,
            token=choice.token,
            piece=choice.piece,
            probability=choice.probability,
            text=searches.decode(hypothesis.ids),
            pieces=searches.tokenizer.pieces(hypothesis.ids),
            log_probabilities=round_all(hypothesis.token_scores),
        )
        for (position, choice), hypothesis in zip(others, found, strict=True)
    ]


MAX_LOGITS = 2**24
"""Maximum number of logits held at once when the target is scored."""


def prune_each_head(
    searches: SentenceSearches, target: Sequence[int], heads: Sequence[Head], report: Callable[[str], None]
) -> list[PrunedHead]:
    """The same search with each of the heads pruned, one at a time, and the log-probability of `target` (ids) without
    that head.
    """
    found = searches.search_without_each_head(heads, report)
    of_target = _score_without_heads(searches, heads, target)
    before = searches.decode(target)
    texts = [searches.decode(hypothesis.ids) for hypothesis in found]
    return [
        PrunedHead(
            **dict(head),
            text=text,
            log_probability=round(sum(hypothesis.token_scores), 6),
            changed=text != before,
            log_probability_of_target=round(log_probability, 6),
        )
        for head, hypothesis, text, log_probability in zip(heads, found, texts, of_target, strict=True)
    ]


def _score_without_heads(searches: SentenceSearches, heads: Sequence[Head], target: Sequence[int]) -> list[float]:
    found: list[float] = []
    size = max(1, MAX_LOGITS // (len(target) * searches.model.config.vocabulary))
    for first in range(0, len(heads), size):
        searches.check_cancelled()
        chosen = heads[first : first + size]
        target_ids = torch.tensor([list(target)] * len(chosen), device=searches.device)
        head_mask = searches.make_head_mask([[head] for head in chosen])
        outputs = run_teacher_forced(searches.model, searches.make_source_ids(len(chosen)), target_ids, head_mask)
        of_all = log_probabilities(searches.model, outputs[-1])
        found += of_all.gather(2, target_ids[:, :, None]).cpu().double().sum(dim=(1, 2)).tolist()
    return found


def locate_code(config: TransformerConfig) -> dict[str, CodePlace]:
    """For each topic, the source lines of the function that computes it in a model of this configuration."""
    positions: dict[str, Callable[..., Any]] = {
        "sinusoidal": sinusoids,
        "learned": LearnedPositions.forward,
        "relative": RelativeScore.forward,
        "rotary": RotaryPositions.forward,
        "none": NoPositions.forward,
    }
    functions: dict[str, Callable[..., Any]] = {
        "scaled_dot_product": ATTENTION_SCORES[config.attention_score](config.d_k).forward,
        "mask": causal_attention_mask,
        "softmax": attention_weights,
        "multi_head": MultiHeadAttention.attend,
        "residual": ResidualConnection.forward,
        "positions": positions[config.positions],
        "encoder_layer": EncoderLayer.forward,
        "decoder_layer": DecoderLayer.forward,
        "beam_search": SentenceSearch.advance,
        "length_penalty": length_penalty,
        "embedding": TokenEmbedding.forward,
        "output": OutputProjection.forward,
    }
    return {topic: _locate(function) for topic, function in functions.items()}


@cache
def _locate(function: Callable[..., Any]) -> CodePlace:
    lines, first = inspect.getsourcelines(function)
    file = f"src/{function.__module__.replace('.', '/')}.py"
    return CodePlace(file=file, line=first, source=dedent("".join(lines)).rstrip())


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


def inspect_text(
    translator: Translator,
    request: InspectionRequest,
    about: InspectedModel | None = None,
    report: Callable[[str], None] = lambda _: None,
    check_cancelled: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """An `InspectionDocument` as a JSON object; computed in float32, regardless of the engine's precision.

    Args:
        translator: with the native engine and one model.
        request: the sentence and the requested parts.
        about: further facts about the model for the document.
        report: receives progress of slow parts.
        check_cancelled: is called before every step that takes a while; an exception from it ends the inspection.

    Raises:
        ConfigError: the engine is not the native one, or has several models, or its model has relative positions.
        UserError: the model is no Transformer, the text is blank, a side has more than 128 tokens, or a token or head
            does not exist.
    """
    engine = find_pytorch_engine(translator.engine)
    if engine is None:
        raise ConfigError(f"{type(translator.engine).__name__} does not support inspection: use the engine native")
    if len(engine.models) > 1:
        raise ConfigError(f"an ensemble of {len(engine.models)} models: inspect one model at a time")
    model = as_transformer(engine.model, "inspecting")
    config = model.config
    if config.positions == "relative":
        raise ConfigError(
            'model.positions = "relative": inspection shows attention as products of queries, keys and values, without '
            "the vectors that relative positions add for each distance; inspect a model with other positions"
        )
    known = set(list_heads(config))
    for head in (*request.arithmetic, *request.masked_heads, *request.without_each):
        if head not in known:
            raise UserError(
                f"head {head} (from 1): this model has {config.num_encoder_layers} layers in the encoder, "
                f"{config.num_decoder_layers} in the decoder, and {config.num_heads} heads in each attention"
            )
    searches = make_searches(translator, model, request, check_cancelled)
    with evaluation_mode([model]), torch.inference_mode():
        document = _make_document(searches, request, translator, about or InspectedModel(), report)
    return document.model_dump(mode="json")


def _make_document(
    searches: SentenceSearches,
    request: InspectionRequest,
    translator: Translator,
    about: InspectedModel,
    report: Callable[[str], None],
) -> InspectionDocument:
    model, tokenizer, include = searches.model, searches.tokenizer, request.include
    traced = searches.run_traced_beam_search()
    best = traced.finished[0]
    check_length("translation", len(best.ids), model.max_length)
    (greedy,) = searches.run_greedy_search([searches.prefix])
    outputs, target, records = _score_target(searches, best.ids, searches.decode(best.ids))
    reference = None
    if request.reference is not None and request.reference.strip():
        ids = tokenizer.as_target(tokenizer.encode_targets([request.reference])[0])
        check_length("reference", len(ids), model.max_length)
        reference = _score_target(searches, ids, request.reference)[1]
    longest = max(len(searches.source), len(best.ids))
    heads = list_heads(model.config) if "pruned_heads" in include else list(dict.fromkeys(request.without_each))
    heads = [head for head in heads if head not in request.masked_heads]
    return InspectionDocument(
        model=ModelFacts(
            name=about.name,
            source_language=translator.source_language,
            target_language=translator.target_language,
            parameters=model.num_parameters,
            digest=about.digest,
            config=model.config.model_dump(mode="json"),
        ),
        source=make_source_side(request.text, searches.source, tokenizer),
        target=target,
        reference=reference,
        greedy=_score_target(searches, greedy.ids, searches.decode(greedy.ids))[1],
        alternatives=[
            Alternative(
                text=searches.decode(hypothesis.ids),
                score=round(hypothesis.score, 6),
                log_probability=round(sum(hypothesis.token_scores), 6),
                pieces=tokenizer.pieces(hypothesis.ids),
                log_probabilities=round_all(hypothesis.token_scores),
            )
            for hypothesis in traced.finished[: searches.config.beam]
        ],
        confidence=_make_text_confidence(about.confidence, target.pieces, best) if about.confidence else None,
        attention=make_all_maps(records) if "attention" in include else None,
        positions=make_position_table(model, longest) if "positions" in include else None,
        search=make_search_tree(traced, greedy, searches) if "search" in include else None,
        layers=predict_from_layers(model, outputs, tokenizer) if "layers" in include else None,
        arithmetic=collect_head_arithmetic(
            records, request.arithmetic, model.config, as_many_as_fit="arithmetic" in include
        ),
        masked_heads=request.masked_heads,
        pruned_heads=prune_each_head(searches, best.ids, heads, report),
        continuations=find_continuations(searches, target) if "continuations" in include else [],
        code=locate_code(model.config),
    )


def _score_target(
    searches: SentenceSearches, ids: Sequence[int], text: str
) -> tuple[list[Tensor], Side, Mapping[AttentionId, AttentionRecord]]:
    """The outputs of the decoder layers for a target, the target with its scores, and the record of every attention."""
    recorder = Recorder(searches.model, searches.make_head_mask([[]]))
    target_ids = torch.tensor([list(ids)], device=searches.device)
    outputs = run_teacher_forced(searches.model, searches.make_source_ids(1), target_ids, recorder)
    log_probs = log_probabilities(searches.model, outputs[-1])[0]
    return outputs, make_target_side(text, ids, log_probs, searches.tokenizer), recorder.records


def _make_text_confidence(confidence: Confidence, pieces: Sequence[str], best: Hypothesis) -> TextConfidence:
    words = confidence.estimate_words(pieces, best.token_scores)
    return TextConfidence(
        sentence=round(confidence.estimate_chrf(best.token_scores), 2),
        words=[WordConfidence(word=word, confidence=round(certain, 4)) for word, certain in words],
    )
