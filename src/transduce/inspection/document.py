"""What an inspection says, part by part: one JSON object, which the page draws and `/v1/inspect` answers with.

Layers, heads and positions count from 0. Row t of what the decoder does belongs to the position that reads token t - 1
and predicts token t; row 0 reads the zero vector. Log-probabilities are natural ones.
"""

from typing import Any, Literal

from transduce.config import Settings
from transduce.inspection.network_parts import AllMaps, Head, HeadArithmetic, HeadOff, LayerPredictions, PositionTable
from transduce.inspection.text_parts import Alternative, Continuation, Side, TextConfidence


class ModelFacts(Settings):
    """The model that was looked into."""

    name: str
    """What people call it."""

    source_language: str
    """Code, as in "en"; may be empty."""

    target_language: str
    """Likewise."""

    parameters: int
    """Trainable numbers."""

    digest: str | None
    """SHA-256 of the weights, if they come from a bundle."""

    config: dict[str, Any]
    """The fields of `TransformerConfig`."""


class Node(Settings):
    """A continuation that the search has looked at."""

    id: int
    """Its place in the list."""

    parent: int | None
    """The hypothesis that it continues; null for a first token."""

    step: int
    """Tokens up to this one, itself included."""

    token: int
    piece: str
    log_probability: float
    """Of this token after those before it."""

    sum: float
    """Of all tokens so far."""

    score: float
    """`sum` divided by the length penalty of `step` tokens."""

    state: Literal["kept", "pruned", "finished"]
    """Whether it went on, was dropped, or ended a hypothesis."""


class SearchTree(Settings):
    """The beam search, step by step: of each sentence's step the best 2 * beam continuations (paper 6.1)."""

    beam: int
    length_penalty: float
    nodes: list[Node]
    ranking: list[int]
    """Nodes that are finished, best first."""

    greedy: list[int | None]
    """The node of each token of greedy search; null from where it has left the tree."""


class CodePlace(Settings):
    """Where the source computes something."""

    file: str
    """As in "src/transduce/model/attention.py"."""

    line: int
    """From 1."""

    source: str
    """The lines themselves."""


class InspectionDocument(Settings):
    """Everything; what was not asked for is null, or an empty list."""

    format: Literal["transduce-inspection"] = "transduce-inspection"
    """Marks the document."""

    version: Literal[1] = 1
    """Of its layout."""

    model: ModelFacts
    source: Side
    target: Side
    reference: Side | None
    greedy: Side
    alternatives: list[Alternative]
    confidence: TextConfidence | None
    attention: AllMaps | None
    positions: PositionTable | None
    search: SearchTree | None
    layers: LayerPredictions | None
    arithmetic: list[HeadArithmetic]
    switched_off: list[Head]
    """Heads that were off in all of this."""

    heads_off: list[HeadOff]
    """What a head that was on is worth: the translation without it; of the heads that were asked for."""

    continuations: list[Continuation]
    code: dict[str, CodePlace]
