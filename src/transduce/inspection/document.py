"""The request for an inspection, and the inspection document: one JSON object, shown by the page and returned by
`/v1/inspect`.

Layers, heads and positions count from 0. Row t of the decoder belongs to the position that reads token t - 1 and
predicts token t; row 0 reads the zero vector. Log-probabilities are natural. Large arrays of numbers are `PackedArray`.
"""

import re
from base64 import b64encode
from typing import Annotated, Any, Literal, TypeVar, cast

import numpy as np
from jaxtyping import Float
from pydantic import Field, ValidationError
from torch import Tensor

from transduce.config import Settings, describe_file_error
from transduce.errors import ConfigError

AttentionName = Literal["encoder", "decoder", "encoder_decoder"]
"""The three uses of attention (paper 3.2.3): within the source, within the target so far, from target to source."""


class Head(Settings):
    """A head of one attention; numbers from 0."""

    attention: AttentionName
    layer: int = Field(ge=0)
    head: int = Field(ge=0)

    @classmethod
    def parse(cls, text: str) -> "Head":
        """The head from its text form as written by `str`: "encoder_decoder.1.3" is the third head of the first layer.

        Raises:
            ConfigError: the text has another form.
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
    """The type of a stored number, little-endian."""

    shape: list[int]
    scale: float
    """The factor of a stored number; 1 for float32."""

    data: str
    """The bytes, in base64."""


class AttentionMaps(Settings):
    """The weights of all heads of one attention, in all of its layers."""

    layers: int
    heads: int
    queries: int
    keys: int
    weights: PackedArray
    """[layers, heads, queries, keys]; softmax(score(Q, K))."""

    norms: PackedArray
    """[layers, heads, queries, keys]; norm of weight * value W^O, the actual contribution (Kobayashi et al. 2020)."""


class AllAttentionMaps(Settings):
    """The weights of the encoder's and decoder's self-attention and of the cross-attention, for one sentence."""

    encoder: AttentionMaps
    decoder: AttentionMaps
    encoder_decoder: AttentionMaps


class PositionTable(Settings):
    """The positions that are added to the embeddings (paper 3.5); rotary ones turn queries and keys instead."""

    kind: Literal["sinusoidal", "learned", "relative", "rotary", "none"]
    table: PackedArray | None
    """[length, d_model], as long as the longer side; null if nothing is added."""


class Prediction(Settings):
    """A token predicted from the output of a layer."""

    piece: str
    probability: float


class LayerPredictions(Settings):
    """The predictions of every decoder layer (the logit lens, nostalgebraist 2020)."""

    predictions: list[list[list[Prediction]]]
    """[layer][position]: the three most probable tokens, if the output projection, behind the stack's final
    normalisation where it has one, is applied to the output of the layer."""

    norms: list[list[float]]
    """[layer][position]: the norm of the output of the layer."""


class HeadArithmetic(Head):
    """All numbers of one head: weights = softmax(mask(scale * queries keys^T)), attended = weights values.

    The head's contribution at a query is attended @ output.
    """

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
    """The norm of attended @ output for each query."""


class PrunedHead(Head):
    """The translation with one head pruned."""

    text: str
    log_probability: float
    """The log-probability of `text` without the head."""

    changed: bool
    """Whether `text` differs from the translation with all heads."""

    log_probability_of_target: float
    """The log-probability, without the head, of the translation with all heads."""


class Choice(Settings):
    """A token and its probability."""

    token: int
    piece: str
    probability: float
    """From 0 to 1."""


class Step(Settings):
    """The prediction of the model at a position."""

    chosen_rank: int
    """Rank of the actual token: 1 if it was the most probable, 2 if the second, and so on."""

    entropy: float
    """The entropy of the prediction, in nats: 0 if only one token was possible."""

    alternatives: list[Choice]
    """The five most probable tokens, best first."""


class Side(Settings):
    """A text and its tokens."""

    text: str
    pieces: list[str]
    """The spelling of each token, `</s>` included."""

    ids: list[int]
    words: list[int]
    """For each token the number of its word; `</s>` has its own."""

    log_probabilities: list[float] | None
    """The log-probability of each token after those before it; null for a source."""

    steps: list[Step] | None
    """For each token, the alternatives at its position; null for a source."""


class Alternative(Settings):
    """A hypothesis that the search has finished."""

    text: str
    score: float
    """`log_probability` divided by the length penalty."""

    log_probability: float
    pieces: list[str]
    log_probabilities: list[float]


class WordConfidence(Settings):
    """A word and the probability, from 0 to 1, that it is right."""

    word: str
    confidence: float


class TextConfidence(Settings):
    """The confidence of the translation, by the calibration of the bundle."""

    sentence: float
    """The expected chrF, from 0 to 100."""

    words: list[WordConfidence]
    """The words of the target, in order."""


class Continuation(Settings):
    """Another token taken at a position, and its continuation by greedy search."""

    position: int
    token: int
    piece: str
    probability: float
    text: str
    pieces: list[str]
    log_probabilities: list[float]


class ModelFacts(Settings):
    """The inspected model."""

    name: str
    source_language: str
    """Code, as in "en"; may be empty."""

    target_language: str
    """The code of the target language; may be empty."""

    parameters: int
    """Number of trainable parameters."""

    digest: str | None
    """SHA-256 of the weights, if they come from a bundle."""

    config: dict[str, Any]
    """The fields of `TransformerConfig`."""


class SearchNode(Settings):
    """A continuation that the search has considered."""

    id: int
    """The index of the node in the list."""

    parent: int | None
    """The hypothesis that it continues; null for a first token."""

    step: int
    """Tokens up to this one, itself included."""

    token: int
    piece: str
    log_probability: float
    """The log-probability of this token after those before it."""

    sum: float
    """The log-probability of all tokens so far."""

    score: float
    """`sum` divided by the length penalty of `step` tokens."""

    state: Literal["kept", "pruned", "finished"]
    """Whether it was continued, was dropped, or ended a hypothesis."""


class SearchTree(Settings):
    """The beam search (paper 6.1): the best 2 * beam continuations at each of its steps."""

    beam: int
    length_penalty: float
    nodes: list[SearchNode]
    ranking: list[int]
    """Nodes that are finished, best first."""

    greedy: list[int | None]
    """The node of each token of greedy search; null from the point where it leaves the tree."""


class CodePlace(Settings):
    """The source lines of a function."""

    file: str
    """As in "src/transduce/model/attention.py"."""

    line: int
    """From 1."""

    source: str
    """The lines themselves."""


class InspectionDocument(Settings):
    """The complete inspection result; parts that were not requested are null or empty lists."""

    format: Literal["transduce-inspection"] = "transduce-inspection"
    version: Literal[2] = 2
    model: ModelFacts
    source: Side
    target: Side
    reference: Side | None
    greedy: Side
    alternatives: list[Alternative]
    confidence: TextConfidence | None
    attention: AllAttentionMaps | None
    positions: PositionTable | None
    search: SearchTree | None
    layers: LayerPredictions | None
    arithmetic: list[HeadArithmetic]
    masked_heads: list[Head]
    """Heads masked in all computations."""

    pruned_heads: list[PrunedHead]
    """The translation without each of the requested heads, one at a time."""

    continuations: list[Continuation]
    code: dict[str, CodePlace]


MAX_TOKENS = 128
"""Tokens of a source and of a target, `</s>` included: larger matrices are too large to show and to send."""

MAX_BEAM = 16
"""Maximum number of hypotheses of a search whose tree is shown."""

MAX_CHARACTERS = 10_000
"""Maximum number of characters of a text; 128 tokens never have as many."""

Part = Literal["attention", "search", "layers", "positions", "arithmetic", "pruned_heads", "continuations"]
QUICK: tuple[Part, ...] = ("attention", "search", "layers", "positions")
"""Parts that need no separate search, and are not large."""

EVERYTHING: tuple[Part, ...] = (*QUICK, "arithmetic", "pruned_heads", "continuations")
"""All parts."""

Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list whose validation stops at the first invalid item."""


class InspectionRequest(Settings):
    """A sentence, and the requested parts of the inspection of its translation."""

    text: Text
    """The source: one sentence."""

    source: str | None = None
    """Language code of the text; decides between loaded models."""

    target: str | None = None
    """Language code of the translation; decides between loaded models."""

    reference: Text | None = None
    """A human translation, which the model scores token by token."""

    prefix: _List[int] = Field(default_factory=list, max_length=MAX_TOKENS)
    """Ids with which the translation must begin; a final `</s>` ends it."""

    beam: int | None = Field(default=None, ge=1, le=MAX_BEAM)
    """Hypotheses kept. Default: the model's setting, which is refused if it is above the maximum."""

    arithmetic: _List[Head] = Field(default_factory=list, max_length=64)
    """Heads whose complete arithmetic is requested; with "arithmetic" in `include`, also as many others as fit."""

    masked_heads: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads masked, all at once, in all computations."""

    without_each: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads to prune one at a time, to show the effect of each; with "pruned_heads" in `include`, all heads."""

    include: _List[Part] = Field(default=list(QUICK))
    """The requested parts; "pruned_heads" shows the effect of pruning each single head."""

    @classmethod
    def parse(cls, **values: Any) -> "InspectionRequest":  # noqa: ANN401 - unvalidated values may have any type
        """The request with these values.

        Raises:
            ConfigError: a value is unknown or invalid; names it.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(describe_file_error(error)) from None


_FINEST_SHARE = 65_535


def pack_exact(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Numbers in float32, unrounded."""
    return _pack(values.float().cpu().numpy().astype("<f4"), "float32", 1.0)


def pack_shares(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Numbers from 0 to 1, with two bytes each; rounded by at most 1 / 131,070."""
    stored = np.rint(values.cpu().double().numpy() * _FINEST_SHARE).clip(0, _FINEST_SHARE).astype("<u2")
    return _pack(stored, "uint16", 1 / _FINEST_SHARE)


def pack_sizes(values: Float[Tensor, "*shape"]) -> PackedArray:
    """Non-negative numbers, with one byte each; rounded by at most 1/510 of the largest."""
    numbers = values.cpu().double().numpy()
    largest = float(numbers.max(initial=0.0))
    scale = largest / 255 if largest else 1.0
    return _pack(np.rint(numbers / scale).clip(0, 255).astype("u1"), "uint8", scale)


def _pack(stored: np.ndarray, dtype: str, scale: float) -> PackedArray:
    data = b64encode(np.ascontiguousarray(stored).tobytes()).decode("ascii")
    return PackedArray.model_validate({"dtype": dtype, "shape": list(stored.shape), "scale": scale, "data": data})
