"""Which lines of the source compute what is shown."""

import inspect
from collections.abc import Callable
from functools import cache
from textwrap import dedent
from typing import Any

from transduce.config import TransformerConfig
from transduce.inspection.document import CodePlace
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
    attention_weights,
    causal_attention_mask,
    sinusoids,
)
from transduce.search import length_penalty
from transduce.search.sentence import SentenceSearch


def code_places(config: TransformerConfig) -> dict[str, CodePlace]:
    """For each topic the function that a model of this shape computes it with."""
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
    return {topic: _place(function) for topic, function in places.items()}


@cache
def _place(function: Callable[..., Any]) -> CodePlace:
    lines, first = inspect.getsourcelines(function)
    file = f"src/{function.__module__.replace('.', '/')}.py"
    return CodePlace(file=file, line=first, source=dedent("".join(lines)).rstrip())
