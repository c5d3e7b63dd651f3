"""The network as a search wants it: log-probabilities of the next token, for the hypotheses of many sentences."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.kernels.precision import Arithmetic
from transduce.model import DecoderState, Transformer
from transduce.search.step import StateT
from transduce.translation.batches import in_whole_rows
from transduce.translation.prepared import PreparedNetwork


@runtime_checkable
class Network(Protocol[StateT]):
    """A model with a state that a search can use."""

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> StateT:
        """Reads the source, of which `source_mask` marks the real tokens: the state before the first token."""
        ...

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: StateT
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], StateT]:
        """A `search.StepFunction`; before the first token, the last id is `<pad>`."""
        ...


def make_network(model: Transformer, arithmetic: Arithmetic) -> Network[Any]:
    """The network of `model` with its weights as they are now, computed as `arithmetic` says.

    What is rarely used, additive attention and batch normalisation, is computed by the model itself, in float32.
    """
    return PreparedNetwork(model, arithmetic) if is_prepared(model.config) else ModelNetwork(model)


def is_prepared(config: TransformerConfig) -> bool:
    """Whether `PreparedNetwork` knows everything that this network has."""
    return config.attention_score != "additive" and config.normalization == "layer"


def token_bytes(config: TransformerConfig, width: int) -> int:
    """What a step of the decoder needs for each token of one of `width` hypotheses, in numbers of two bytes at least.

    That is a key and a value in every layer; and where hypotheses lie side by side, for every other one whether it
    sees the token, once and for each head, and the score that it has in each head.
    """
    keys_and_values = config.num_decoder_layers * config.num_heads * (config.d_k + config.d_v)
    return 2 * (keys_and_values + (width * (1 + 2 * config.num_heads) if is_prepared(config) else 0))


def make_ensemble(networks: Sequence[Network[Any]]) -> Network[Any]:
    """One network of several; a single one is itself."""
    return networks[0] if len(networks) == 1 else Ensemble(networks)


@dataclass(frozen=True)
class _States:
    """That of each network."""

    states: tuple[Any, ...]

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_States":
        """See `search.SearchState`."""
        return _States(tuple(state.select(sentences, parents) for state in self.states))


class Ensemble:
    """Several networks with one vocabulary: each token's probability is the mean of theirs."""

    def __init__(self, networks: Sequence[Network[Any]]) -> None:
        self.networks = networks

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _States:
        """See `Network`."""
        return _States(tuple(network.start(source_ids, source_mask) for network in self.networks))

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _States
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _States]:
        """See `Network`."""
        pairs = zip(self.networks, state.states, strict=True)
        log_probs, states = zip(*(network.step(last_ids, own) for network, own in pairs), strict=True)
        mean = torch.stack([part.float() for part in log_probs]).logsumexp(dim=0) - math.log(len(states))
        return mean, _States(states)


@dataclass(frozen=True)
class _RowsState:
    """The state of the model itself, whose rows are the hypotheses of one sentence after the other."""

    state: DecoderState
    width: int

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "_RowsState":
        """See `search.SearchState`."""
        if sentences is None:
            sentences = torch.arange(len(parents), device=parents.device)
        rows = (sentences[:, None] * self.width + parents).flatten()
        return _RowsState(self.state.reorder(rows), parents.size(1))


class ModelNetwork:
    """The model as it is, a row for each hypothesis; to be used in evaluation mode."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> _RowsState:
        """See `Network`."""
        source_ids, source_mask = in_whole_rows(source_ids, source_mask, self.model.pad_id, self.model.longest)
        return _RowsState(self.model.start(self.model.encode(source_ids, source_mask), source_mask), 1)

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: _RowsState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], _RowsState]:
        """See `Network`."""
        logits, rows = self.model.decode_step(last_ids.flatten(), state.state)
        log_probs = logits.float().log_softmax(dim=-1)
        return log_probs.view(*last_ids.shape, -1), _RowsState(rows, last_ids.size(1))


@contextmanager
def evaluating(models: Sequence[Transformer]) -> Iterator[None]:
    """Within, the models are in evaluation mode; behind it, each is in the mode in which it was found."""
    training = [model for model in models if model.training]
    for model in training:
        model.eval()
    try:
        yield
    finally:
        for model in training:
            model.train()
