"""The parts of an inspection that are about the network: its attentions, heads, positions and layers, from 0."""

import re
from typing import Literal, cast

from pydantic import Field

from transduce.config import Settings
from transduce.errors import ConfigError

AttentionName = Literal["encoder", "decoder", "encoder_decoder"]
"""The three uses of attention (paper 3.2.3): within the source, within the target so far, from target to source."""


class Head(Settings):
    """A head of one attention, from 0."""

    attention: AttentionName
    """Which of the three."""

    layer: int = Field(ge=0)
    """From 0."""

    head: int = Field(ge=0)
    """From 0."""

    @classmethod
    def parse(cls, text: str) -> "Head":
        """The head that `str` writes so: "encoder_decoder.1.3" is the third head of the first layer.

        Raises:
            ConfigError: it is no such text.
        """
        found = re.fullmatch(r"(encoder|decoder|encoder_decoder)\.([1-9]\d{0,3})\.([1-9]\d{0,3})", text, flags=re.ASCII)
        if found is None:
            raise ConfigError(
                f"head = {text!r}: must be ATTENTION.LAYER.HEAD, the attention encoder, decoder or encoder_decoder, "
                f"and numbers from 1, as in encoder_decoder.1.3"
            )
        name, layer, head = found.groups()
        return cls(attention=cast("AttentionName", name), layer=int(layer) - 1, head=int(head) - 1)

    def __str__(self) -> str:
        """From 1, as people count."""
        return f"{self.attention}.{self.layer + 1}.{self.head + 1}"


class PackedArray(Settings):
    """Numbers in C order: value = stored * scale."""

    dtype: Literal["float32", "uint16", "uint8"]
    """How a number is stored, little-endian."""

    shape: list[int]
    """Length of each axis."""

    scale: float
    """What a stored number is multiplied by; 1 for float32."""

    data: str
    """The bytes, in base64."""


class Maps(Settings):
    """All heads of one attention."""

    layers: int
    heads: int
    queries: int
    keys: int
    weights: PackedArray
    """[layers, heads, queries, keys]; softmax(score(Q, K))."""

    norms: PackedArray
    """[layers, heads, queries, keys]; length of weight * value W^O, what is really added (Kobayashi et al. 2020)."""


class AllMaps(Settings):
    """The three attentions."""

    encoder: Maps
    decoder: Maps
    encoder_decoder: Maps


class PositionTable(Settings):
    """What is added to the embeddings (paper 3.5)."""

    kind: Literal["sinusoidal", "learned", "none"]
    table: PackedArray | None
    """[length, d_model], as long as the longer side; null if there are none."""


class Prediction(Settings):
    """A token that a layer would predict."""

    piece: str
    probability: float


class LayerPredictions(Settings):
    """How the prediction forms from layer to layer of the decoder (the logit lens, nostalgebraist 2020)."""

    predictions: list[list[list[Prediction]]]
    """[layer][position]: the three most probable tokens, if the output projection, behind the stack's final
    normalisation where it has one, is applied to what the layer hands on."""

    norms: list[list[float]]
    """[layer][position]: the length of the vector that the layer hands on."""


class HeadArithmetic(Settings):
    """All numbers of one head: weights = softmax(mask(scale * queries keys^T)), attended = weights values.

    What the head adds at a query is attended @ output.
    """

    attention: AttentionName
    layer: int
    head: int
    d_k: int
    d_v: int
    scale: float
    """1 / sqrt(d_k), or 1 if the scores are not divided."""

    query: PackedArray
    """[queries, d_k]."""

    keys: PackedArray
    """[keys, d_k]."""

    values: PackedArray
    """[keys, d_v]."""

    output: PackedArray
    """[d_v, d_model], the head's rows of W^O."""

    weights: PackedArray
    """[queries, keys], float32."""

    attended: PackedArray
    """[queries, d_v]."""

    contribution_norms: list[float]
    """The length of attended @ output of each query."""


class HeadOff(Settings):
    """What the translation becomes without one head."""

    attention: AttentionName
    layer: int
    head: int
    text: str
    log_probability: float
    """Of `text`, without the head."""

    changed: bool
    """Whether `text` is another one than with all heads."""

    log_probability_of_target: float
    """Of the translation with all heads, without the head."""
