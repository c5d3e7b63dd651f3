"""The network of the paper and nothing else: source and target ids in, logits out."""

from transduce.model.attention import (
    AdditiveScore,
    DotScore,
    KeysAndValues,
    MultiHeadAttention,
    attention_weights,
    causal_attention_mask,
    source_attention_mask,
)
from transduce.model.attention_records import memory_attention_weights
from transduce.model.decoder import Decoder, DecoderLayer
from transduce.model.dropout import Dropout
from transduce.model.embeddings import NEVER, OutputProjection, TokenEmbedding
from transduce.model.encoder import Encoder, EncoderLayer
from transduce.model.feed_forward import FeedForward
from transduce.model.normalization import BatchNormalization, LayerNormalization
from transduce.model.positions import LearnedPositions, NoPositions, SinusoidalPositions, sinusoids
from transduce.model.residual import ResidualConnection
from transduce.model.state import DecoderState
from transduce.model.transformer import Transformer

__all__ = [
    "NEVER",
    "AdditiveScore",
    "BatchNormalization",
    "Decoder",
    "DecoderLayer",
    "DecoderState",
    "DotScore",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "KeysAndValues",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "NoPositions",
    "OutputProjection",
    "ResidualConnection",
    "SinusoidalPositions",
    "TokenEmbedding",
    "Transformer",
    "attention_weights",
    "causal_attention_mask",
    "memory_attention_weights",
    "sinusoids",
    "source_attention_mask",
]
