"""Attention of one sentence: head masks, the recorded inputs of every attention, and the arithmetic of a head."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transduce.config import TransformerConfig
from transduce.errors import UserError
from transduce.inspection.document import (
    AllAttentionMaps,
    AttentionMaps,
    AttentionName,
    Head,
    HeadArithmetic,
    pack_exact,
    pack_shares,
    pack_sizes,
)
from transduce.model import DecoderState, DotScore, KeysAndValues, MultiHeadAttention, Transformer, attention_weights
from transduce.model.attention import Attend, Attended, Mask, Queries, Scores


class AttentionId(NamedTuple):
    """One of the model's attentions; layers from 0."""

    attention: AttentionName
    layer: int


def list_attentions(model: Transformer) -> dict[MultiHeadAttention, AttentionId]:
    """Every attention of the model: those of the encoder, those of the decoder, and cross-attentions."""
    return {
        **{layer.self_attention: AttentionId("encoder", number) for number, layer in enumerate(model.encoder.layers)},
        **{layer.self_attention: AttentionId("decoder", number) for number, layer in enumerate(model.decoder.layers)},
        **{
            layer.cross_attention: AttentionId("encoder_decoder", number)
            for number, layer in enumerate(model.decoder.layers)
        },
    }


def count_layers(config: TransformerConfig) -> dict[AttentionName, int]:
    """The number of layers with each of the three attentions."""
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    return {"encoder": encoder, "decoder": decoder, "encoder_decoder": decoder}


def list_heads(config: TransformerConfig) -> list[Head]:
    """Every head of the model: of the encoder, of the decoder, and of cross-attention."""
    return [
        Head(attention=attention, layer=layer, head=head)
        for attention, layers in count_layers(config).items()
        for layer in range(layers)
        for head in range(config.num_heads)
    ]


@dataclass(frozen=True)
class HeadMask:
    """The heads of each attention that are kept, for each sentence of a batch.

    Calling it computes an attention, to which a masked head adds nothing, as if its rows of W^O were zero.

    Args:
        kept: 1 for heads that are kept, 0 for masked ones.
    """

    kept: dict[MultiHeadAttention, Float[Tensor, "sentences heads"]]

    @classmethod
    def from_masked_heads(cls, model: Transformer, heads: Sequence[Sequence[Head]]) -> "HeadMask":
        """The mask for a batch, with the heads to mask for each of its sentences."""
        attentions = list_attentions(model)
        shape = (len(heads), model.config.num_heads)
        kept = {place: torch.ones(shape, dtype=torch.float32, device="cpu") for place in attentions.values()}
        for row, masked in enumerate(heads):
            for head in masked:
                kept[AttentionId(head.attention, head.layer)][row, head.head] = 0
        return cls({one: kept[place].to(one.output.weight.device) for one, place in attentions.items()})

    def select(self, sentences: Int[Tensor, " kept"]) -> "HeadMask":
        """The mask of some of the sentences."""
        return HeadMask({one: values.index_select(0, sentences) for one, values in self.kept.items()})

    def __call__(
        self, attention: MultiHeadAttention, queries: Queries, keys_and_values: KeysAndValues, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        attended = attention.score.attend(queries, *keys_and_values, mask)
        attended = attended * self.kept[attention][:, :, None, None]
        outputs: Tensor = attention.output(attended.transpose(1, 2).flatten(2))
        return outputs


def run_teacher_forced(
    model: Transformer,
    source_ids: Int[Tensor, "batch source"],
    target_ids: Int[Tensor, "batch target"],
    attend: Attend,
) -> list[Float[Tensor, "batch target d_model"]]:
    """The output of each decoder layer for a given target (forced decoding); sides without padding."""
    source_mask = torch.ones_like(source_ids, dtype=torch.bool)
    target_mask = torch.ones_like(target_ids, dtype=torch.bool)
    memory = model.encode(source_ids, source_mask, attend)
    return list(model.decode_layers(target_ids, target_mask, memory, source_mask, attend))


def log_probabilities(
    model: Transformer, output: Float[Tensor, "batch target d_model"]
) -> Float[Tensor, "batch target vocabulary"]:
    """The log-probabilities that the output projection computes from the output of a decoder layer.

    The final normalisation of the stack, if it has one, comes first. From the output of the last layer, these are the
    log-probabilities of the model.
    """
    if model.decoder.final is not None:
        output = model.decoder.final(output, torch.ones(output.shape[:2], dtype=torch.bool, device=output.device))
    logits: Tensor = model.projection(output)
    return logits.float().log_softmax(dim=-1)


@dataclass(frozen=True)
class HeadMaskedState:
    """The state of a search, in which all hypotheses of a sentence have one cache.

    Args:
        head_mask: the heads that are kept.
        cache: keys and values of a sentence; those of its hypotheses are concatenated.
        visible: which of the cached positions a hypothesis attends to: its ancestors.
    """

    head_mask: HeadMask
    cache: DecoderState
    visible: Bool[Tensor, "sentences width past"]

    def select(self, sentences: Int[Tensor, " kept"] | None, parents: Int[Tensor, "kept width"]) -> "HeadMaskedState":
        if sentences is None:
            index = parents[:, :, None].expand(-1, -1, self.visible.size(2))
            return replace(self, visible=self.visible.gather(1, index))
        visible = self.visible[sentences[:, None], parents]
        return HeadMaskedState(self.head_mask.select(sentences), self.cache.reorder(sentences), visible)


class HeadMaskedNetwork:
    """The model as a `Network` for searches, with a head mask for as many sentences as the mask has.

    The model must be in evaluation mode. With all heads kept, the network computes what the model computes.
    """

    def __init__(self, model: Transformer, head_mask: HeadMask) -> None:
        self.model, self.head_mask = model, head_mask

    def start(
        self, source_ids: Int[Tensor, "sentences source"], source_mask: Bool[Tensor, "sentences source"]
    ) -> HeadMaskedState:
        memory = self.model.encode(source_ids, source_mask, self.head_mask)
        cache = self.model.start(memory, source_mask)
        return HeadMaskedState(self.head_mask, cache, source_mask.new_empty(len(source_ids), 1, 0))

    def step(
        self, last_ids: Int[Tensor, "sentences width"], state: HeadMaskedState
    ) -> tuple[Float[Tensor, "sentences width vocabulary"], HeadMaskedState]:
        model, width = self.model, last_ids.size(1)
        own = torch.eye(width, dtype=torch.bool, device=last_ids.device).expand(len(last_ids), -1, -1)
        visible = torch.cat([state.visible.expand(-1, width, -1), own], dim=2)
        x = model.target_embedding(last_ids) + model.positions(1, state.cache.length)
        hidden, cache = model.decoder.step(x, state.cache, visible[:, None], state.head_mask)
        log_probs = model.projection(hidden).float().log_softmax(dim=-1)
        return log_probs, replace(state, cache=cache, visible=visible)


@dataclass(frozen=True)
class AttentionRecord:
    """The inputs of one attention for one sentence, a batch of one; `kept` is 0 for masked heads, and 1 for others."""

    attention: MultiHeadAttention
    queries: Queries
    keys_and_values: KeysAndValues
    mask: Mask
    kept: Float[Tensor, " heads"]

    @property
    def weights(self) -> Scores:
        """softmax(score(Q, K)) (paper eq. 1), [1, heads, query, key]."""
        return attention_weights(self.attention.score, self.queries, self.keys_and_values.keys, self.mask)

    @property
    def attended(self) -> Attended:
        """Weights times values, [1, heads, query, d_v]."""
        attended: Tensor = self.weights @ self.keys_and_values.values
        return attended

    @property
    def outputs(self) -> Float[Tensor, "heads d_v d_model"]:
        """The rows of W^O that belong to each head (paper 3.2.2); zeros for a masked head."""
        weight = self.attention.output.weight
        rows = weight.T.reshape(self.attention.num_heads, self.attention.d_v, weight.size(0))
        return rows * self.kept[:, None, None]

    @property
    def added_norms(self) -> Float[Tensor, "1 heads query key"]:
        """|| weight * value W^O ||: the norm of the contribution of a key to a query in a head (Kobayashi et al. 2020,
        eq. 4).

        As the weight is not negative, this is the weight times the norm of value W^O.
        """
        lengths = (self.keys_and_values.values @ self.outputs).norm(dim=-1)
        norms: Tensor = self.weights * lengths[:, :, None]
        return norms


class Recorder:
    """Computes attention under a head mask, and records the inputs of every attention; for one sentence."""

    def __init__(self, model: Transformer, head_mask: HeadMask) -> None:
        self.head_mask = head_mask
        self.records: dict[AttentionId, AttentionRecord] = {}
        self._places = list_attentions(model)

    def __call__(
        self, attention: MultiHeadAttention, queries: Queries, keys_and_values: KeysAndValues, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        kept = self.head_mask.kept[attention][0]
        self.records[self._places[attention]] = AttentionRecord(attention, queries, keys_and_values, mask, kept)
        return self.head_mask(attention, queries, keys_and_values, mask)


def make_all_maps(records: Mapping[AttentionId, AttentionRecord]) -> AllAttentionMaps:
    """The maps of the three attentions, for one sentence."""
    layers: dict[AttentionName, list[AttentionRecord]] = {"encoder": [], "decoder": [], "encoder_decoder": []}
    for place in sorted(records):
        layers[place.attention].append(records[place])
    return AllAttentionMaps(**{name: make_attention_maps(found) for name, found in layers.items()})


def make_attention_maps(layers: Sequence[AttentionRecord]) -> AttentionMaps:
    """The maps of one attention, from the first layer to the last."""
    weights = torch.stack([record.weights[0] for record in layers])
    norms = torch.stack([record.added_norms[0] for record in layers])
    num_layers, heads, queries, keys = weights.shape
    return AttentionMaps(
        layers=num_layers,
        heads=heads,
        queries=queries,
        keys=keys,
        weights=pack_shares(weights),
        norms=pack_sizes(norms),
    )


MAX_CHARACTERS = 2_000_000
"""Maximum number of characters for the arithmetic of all heads in a document."""


def collect_head_arithmetic(
    records: Mapping[AttentionId, AttentionRecord],
    asked: Sequence[Head],
    config: TransformerConfig,
    *,
    as_many_as_fit: bool = False,
) -> list[HeadArithmetic]:
    """The arithmetic of the given heads, and of as many others as fit, from all attentions and layers.

    Raises:
        UserError: a head is given, but the model does not use dot-product attention.
    """
    found = [compute_head_arithmetic(records, head) for head in asked]
    if not as_many_as_fit or not config.has_dot_product_attention:
        return found
    size = sum(map(_count_characters, found))
    for head in rotate_heads(config):
        if head not in asked:
            one = compute_head_arithmetic(records, head)
            size += _count_characters(one)
            if found and size > MAX_CHARACTERS:
                break
            found.append(one)
    return found


def rotate_heads(config: TransformerConfig) -> Iterator[Head]:
    """All heads, ordered so that the first ones are of all attentions and layers, with different numbers."""
    max_layers = max(count_layers(config).values())
    for turn in range(config.num_heads * max_layers):
        layer, head = turn % max_layers, (turn % max_layers + turn // max_layers) % config.num_heads
        for attention, layers in count_layers(config).items():
            if layer < layers:
                yield Head(attention=attention, layer=layer, head=head)


def compute_head_arithmetic(records: Mapping[AttentionId, AttentionRecord], head: Head) -> HeadArithmetic:
    """Every number of one head, for a batch of one sentence (paper eq. 1, and W^O of 3.2.2)."""
    record = records[AttentionId(head.attention, head.layer)]
    score = record.attention.score
    if not isinstance(score, DotScore):
        raise UserError("arithmetic: the arithmetic view supports dot-product attention only; omit --head")
    queries, (keys, values) = record.queries[0, head.head], record.keys_and_values
    attended, output = record.attended[0, head.head], record.outputs[head.head]
    return HeadArithmetic(
        **dict(head),
        d_k=record.attention.d_k,
        d_v=record.attention.d_v,
        scale=score.scale,
        query=pack_exact(queries),
        keys=pack_exact(keys[0, head.head]),
        values=pack_exact(values[0, head.head]),
        output=pack_exact(output),
        weights=pack_exact(record.weights[0, head.head]),
        attended=pack_exact(attended),
        contribution_norms=[round(norm, 6) for norm in (attended @ output).norm(dim=-1).tolist()],
    )


def _count_characters(one: HeadArithmetic) -> int:
    arrays = one.query, one.keys, one.values, one.output, one.weights, one.attended
    return sum(len(array.data) for array in arrays)
