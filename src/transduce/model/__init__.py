"""The network of the paper: from source and target ids to logits."""

from transduce.model.attention import (
    ATTENTION_SCORES,
    AdditiveScore,
    DotScore,
    KeysAndValues,
    MultiHeadAttention,
    RelativeScore,
    attention_weights,
    causal_attention_mask,
    source_attention_mask,
)
from transduce.model.embeddings import (
    EXCLUDED_TOKEN_BIAS,
    LearnedPositions,
    NoPositions,
    OutputProjection,
    RotaryPositions,
    SinusoidalPositions,
    TokenEmbedding,
    sinusoids,
)
from transduce.model.encoder_decoder import EncoderDecoder
from transduce.model.stacks import Decoder, DecoderLayer, DecoderState, Encoder, EncoderLayer
from transduce.model.sublayers import (
    BatchNormalization,
    Dropout,
    FeedForward,
    GatedFeedForward,
    LayerNormalization,
    ResidualConnection,
    RMSNormalization,
)
from transduce.model.transformer import Transformer, as_transformer, cross_attention_weights

__all__ = [
    "ATTENTION_SCORES",
    "EXCLUDED_TOKEN_BIAS",
    "AdditiveScore",
    "BatchNormalization",
    "Decoder",
    "DecoderLayer",
    "DecoderState",
    "DotScore",
    "Dropout",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "FeedForward",
    "GatedFeedForward",
    "KeysAndValues",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "NoPositions",
    "OutputProjection",
    "RMSNormalization",
    "RelativeScore",
    "ResidualConnection",
    "RotaryPositions",
    "SinusoidalPositions",
    "TokenEmbedding",
    "Transformer",
    "as_transformer",
    "attention_weights",
    "causal_attention_mask",
    "cross_attention_weights",
    "sinusoids",
    "source_attention_mask",
]
