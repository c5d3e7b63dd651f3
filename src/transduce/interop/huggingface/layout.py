"""Which tensors of a Marian or Pegasus model of Transformers hold which tensors of ours.

Matrices have the same layout in both, [outputs, inputs]; Transformers keeps queries, keys and values apart and has the
channels between the layers in halves. Marian is post-norm, Pegasus pre-norm; otherwise they are the same network, but
that Marian computes its table of positions itself and Pegasus has it among its weights.
"""

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from transduce.bundle.weights import empty_tensors
from transduce.config import TransformerConfig
from transduce.interop.residual_channels import in_halves, in_turn
from transduce.model import sinusoids

OUTPUT_BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

PAD_BIAS = -1e4
"""Added to the logit of `<pad>`, whose probability is then 0 in every precision, as it is with us. It is not -inf: that
would also be the loss of whoever trains on with smoothed labels, a mean over all tokens."""

_PARTS = {
    "self_attention.projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_attention_residual.normalization": ("self_attn_layer_norm",),
    "memory_attention.projection": ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    "memory_attention.output": ("encoder_attn.out_proj",),
    "memory_attention_residual.normalization": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.normalization": ("final_layer_norm",),
    "final": ("layer_norm",),
}
_QUERIES = re.compile(r".*\.q_proj\.(weight|bias)")


def query_scale(config: TransformerConfig) -> float:
    """What the queries are multiplied by, as Transformers divides all scores of attention by sqrt(d_k)."""
    return math.sqrt(config.d_k) if config.attention_score == "dot" else 1.0


def to_huggingface(config: TransformerConfig, tensors: Mapping[str, Tensor], num_positions: int) -> dict[str, Tensor]:
    """The tensors of a bundle as Transformers wants them.

    Args:
        config: the network.
        tensors: its tensors, by the names of a bundle.
        num_positions: rows of the table of positions, where one is needed and there is none in `tensors`.
    """
    found: dict[str, Tensor] = {}
    table = sinusoids(num_positions, config.d_model)
    if config.positions == "none":
        table = torch.zeros_like(table)
    bias = torch.zeros(config.vocabulary)
    for name, tensor in in_halves({"positions.table": table, "projection.bias": bias, **tensors}).items():
        match name:
            case "positions.table":
                found |= {one: tensor.clone() for one in POSITIONS if config.norm_order == "pre"}
            case "projection.bias":
                found[OUTPUT_BIAS] = torch.cat([tensor[:-1], torch.tensor([PAD_BIAS])])[None]
            case _:
                names = _their_names(config, name)
                found |= zip(names, tensor.chunk(len(names)), strict=True)
    return {
        name: tensor * query_scale(config) if _QUERIES.fullmatch(name) else tensor for name, tensor in found.items()
    }


def from_huggingface(config: TransformerConfig, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_huggingface`: the tensors of a bundle with this `config`, in float32.

    Raises:
        KeyError: one of theirs is missing.
    """
    found: dict[str, Tensor] = {}
    for name in empty_tensors(config):
        match name:
            case "positions.table":
                found[name] = tensors[POSITIONS[0]]
            case "projection.bias":
                bias = tensors[OUTPUT_BIAS][0]
                found[name] = torch.cat([bias[:-1], bias.new_zeros(1)])
            case _:
                parts = [(one, tensors[one]) for one in _their_names(config, name)]
                scaled = [part / query_scale(config) if _QUERIES.fullmatch(one) else part for one, part in parts]
                found[name] = torch.cat(scaled)
    return in_turn({name: tensor.float() for name, tensor in found.items()})


def _their_names(config: TransformerConfig, name: str) -> tuple[str, ...]:
    """The names of the tensors whose rows, one below the other, are the rows of ours."""
    match name:
        case "source_embedding.weight" if config.tied_embeddings == "three_way":
            return ("model.shared.weight",)
        case "source_embedding.weight":
            return ("model.encoder.embed_tokens.weight",)
        case "target_embedding.weight":
            return ("model.decoder.embed_tokens.weight",)
        case "projection.weight":
            return ("lm_head.weight",)
    found = re.fullmatch(r"((?:en|de)coder\.(?:layers\.\d+\.)?)(.+)\.(weight|gain|bias)", name)
    if found is None:
        raise KeyError(name)
    stack_and_layer, part, kind = found.groups()
    return tuple(f"model.{stack_and_layer}{one}.{'bias' if kind == 'bias' else 'weight'}" for one in _PARTS[part])
