"""The parts of an inspection document: both sides, layers, positions, continuations, pruned heads, and source code."""

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from textwrap import dedent
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.inspection.document import (
    Choice,
    CodePlace,
    Continuation,
    Head,
    LayerPredictions,
    PositionTable,
    Prediction,
    PrunedHead,
    Side,
    Step,
    pack_exact,
)
from transduce.inspection.forward_pass import log_probabilities, run_forced
from transduce.inspection.searches import SentenceSearches
from transduce.model import (
    AdditiveScore,
    DecoderLayer,
    DotScore,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    OutputProjection,
    ResidualConnection,
    TokenEmbedding,
    Transformer,
    attention_weights,
    causal_attention_mask,
    sinusoids,
)
from transduce.search import length_penalty
from transduce.search.beam import SentenceSearch
from transduce.text import Tokenizer
from transduce.translation.confidence.words import score_words

NUM_ALTERNATIVES = 5
"""Tokens that are named for each position."""


def make_source_side(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> Side:
    """The source as the network reads it."""
    pieces = tokenizer.pieces(ids)
    return Side(
        text=text,
        pieces=pieces,
        ids=list(ids),
        words=number_words(pieces),
        log_probabilities=None,
        steps=None,
    )


def make_target_side(
    text: str, ids: Sequence[int], log_probs: Float[Tensor, "target vocabulary"], tokenizer: Tokenizer
) -> Side:
    """A target; `log_probs` are those of all tokens at each of its positions."""
    pieces = tokenizer.pieces(ids)
    chosen = log_probs.gather(1, torch.tensor(ids, device=log_probs.device)[:, None])
    ranks = (log_probs > chosen).sum(dim=1) + 1
    probabilities = log_probs.exp()
    entropies = torch.special.entr(probabilities.cpu().double()).sum(dim=1)
    best, tokens = probabilities.topk(min(NUM_ALTERNATIVES, probabilities.size(1)), dim=1)
    steps = [
        Step(
            chosen_rank=rank,
            entropy=round(entropy, 6),
            alternatives=[
                Choice(token=token, piece=piece, probability=round(probability, 6))
                for token, piece, probability in zip(row_tokens, tokenizer.pieces(row_tokens), row_best, strict=True)
            ],
        )
        for rank, entropy, row_tokens, row_best in zip(
            ranks.tolist(), entropies.tolist(), tokens.tolist(), best.tolist(), strict=True
        )
    ]
    return Side(
        text=text,
        pieces=pieces,
        ids=list(ids),
        words=number_words(pieces),
        log_probabilities=round_all(chosen.squeeze(1).tolist()),
        steps=steps,
    )


def round_all(values: Sequence[float]) -> list[float]:
    """Numbers rounded to six decimals, more than float32 is sure of."""
    return [round(value, 6) for value in values]


def number_words(pieces: Sequence[str]) -> list[int]:
    """For each piece the number of the word that it helps to spell; the last piece, `</s>`, has a number of its own.

    Pieces that spell no word at all, as spaces at the end, belong to the word before them.
    """
    # In place of a score every piece brings its own number.
    words = score_words(pieces, [float(place) for place in range(len(pieces))])
    of_piece = {int(place): number for number, (_, places) in enumerate(words) for place in places}
    numbers: list[int] = []
    for place in range(len(pieces)):
        numbers.append(of_piece.get(place, numbers[-1] if numbers else 0))
    if pieces and pieces[-1] == "</s>":
        numbers[-1] = len(words)
    return numbers


NUM_PREDICTIONS = 3
"""Tokens that are named for each layer and position."""


def predict_from_layers(model: Transformer, outputs: Sequence[Tensor], tokenizer: Tokenizer) -> LayerPredictions:
    """The logit lens (nostalgebraist 2020): the output projection, applied to the output of each decoder layer.

    Args:
        model: in evaluation mode.
        outputs: of each layer, [1, target, d_model] (`passes.decode`).
        tokenizer: names the tokens.
    """
    predictions, norms = [], []
    for output in outputs:
        probabilities = log_probabilities(model, output)[0].exp()
        best, tokens = probabilities.topk(min(NUM_PREDICTIONS, probabilities.size(1)), dim=1)
        predictions.append(
            [
                [
                    Prediction(piece=piece, probability=round(probability, 6))
                    for piece, probability in zip(tokenizer.pieces(row), row_best, strict=True)
                ]
                for row, row_best in zip(tokens.tolist(), best.tolist(), strict=True)
            ]
        )
        norms.append([round(norm, 4) for norm in output[0].float().norm(dim=-1).tolist()])
    return LayerPredictions(predictions=predictions, norms=norms)


def make_position_table(model: Transformer, length: int) -> PositionTable:
    """The first `length` rows of what is added to the embeddings (paper 3.5)."""
    table = None if isinstance(model.positions, NoPositions) else pack_exact(model.positions(length))
    return PositionTable(kind=model.config.positions, table=table)


NUM_CONTINUATIONS = 4
"""Other tokens that are tried at each position."""


def find_continuations(searches: SentenceSearches, target: Side) -> list[Continuation]:
    """The four most probable other tokens at each position after the prefix, each continued by greedy search."""
    others = [
        (position, choice)
        for position, step in enumerate(target.steps or [])
        if position >= len(searches.prefix)
        for choice in [one for one in step.alternatives if one.token != target.ids[position]][:NUM_CONTINUATIONS]
        if choice.probability > 0
    ]
    found = searches.greedy([(*target.ids[:position], choice.token) for position, choice in others])
    return [
        Continuation(
            position=position,
            token=choice.token,
            piece=choice.piece,
            probability=choice.probability,
            text=searches.text(hypothesis.ids),
            pieces=searches.tokenizer.pieces(hypothesis.ids),
            log_probabilities=round_all(hypothesis.token_scores),
        )
        for (position, choice), hypothesis in zip(others, found, strict=True)
        if hypothesis.score > -inf  # no_repeat_ngram may forbid what the prefix itself repeats
    ]


MOST_LOGITS = 2**24
"""Logits that are held at a time when the target is scored."""


def prune_each_head(
    searches: SentenceSearches, target: Sequence[int], heads: Sequence[Head], report: Callable[[str], None]
) -> list[PrunedHead]:
    """The same search with each of the heads pruned, one at a time, and the log-probability of `target` (ids) so."""
    num_done = 0

    def done(num_more: int) -> None:
        nonlocal num_done
        num_done += num_more
        report(f"{num_done} of {len(heads)} heads switched off, one at a time")

    found = searches.without_each(heads, done)
    of_target = _score_without_heads(searches, heads, target)
    before = searches.text(target)
    texts = [searches.text(hypothesis.ids) for hypothesis in found]
    return [
        PrunedHead(
            attention=head.attention,
            layer=head.layer,
            head=head.head,
            text=text,
            log_probability=round(sum(hypothesis.token_scores), 6),
            changed=text != before,
            log_probability_of_target=round(log_probability, 6),
        )
        for head, hypothesis, text, log_probability in zip(heads, found, texts, of_target, strict=True)
    ]


def _score_without_heads(searches: SentenceSearches, heads: Sequence[Head], target: Sequence[int]) -> list[float]:
    found: list[float] = []
    size = max(1, MOST_LOGITS // (len(target) * searches.model.config.vocabulary))
    for first in range(0, len(heads), size):
        searches.checkpoint()
        chosen = heads[first : first + size]
        target_ids = torch.tensor([list(target)] * len(chosen), device=searches.device)
        head_mask = searches.make_head_mask([[head] for head in chosen])
        outputs = run_forced(searches.model, searches.source_ids(len(chosen)), target_ids, head_mask)
        of_all = log_probabilities(searches.model, outputs[-1])
        found += of_all.gather(2, target_ids[:, :, None]).cpu().double().sum(dim=(1, 2)).tolist()
    return found


def locate_code(config: TransformerConfig) -> dict[str, CodePlace]:
    """For each topic, the source lines of the function that computes it in a model of this configuration."""
    positions: dict[str, Callable[..., Any]] = {
        "sinusoidal": sinusoids,
        "learned": LearnedPositions.forward,
        "none": NoPositions.forward,
    }
    score = AdditiveScore if config.attention_score == "additive" else DotScore
    places: dict[str, Callable[..., Any]] = {
        "scaled_dot_product": score.forward,
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
    return {topic: _locate(function) for topic, function in places.items()}


@cache
def _locate(function: Callable[..., Any]) -> CodePlace:
    lines, first = inspect.getsourcelines(function)
    file = f"src/{function.__module__.replace('.', '/')}.py"
    return CodePlace(file=file, line=first, source=dedent("".join(lines)).rstrip())
