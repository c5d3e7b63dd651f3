"""The network of a bundle as a Marian or Pegasus model of Transformers: JSON files, and names of tensors.

Matrices have the same layout in both programs, [outputs, inputs]. Transformers stores queries, keys and values
separately and splits the channels between the layers. Marian is post-norm, Pegasus pre-norm; otherwise they are the
same network, but Marian computes its table of positions and Pegasus has it among its weights.
"""

import math
import re
from collections.abc import Mapping

import torch
from pydantic import JsonValue
from torch import Tensor

from transduce.bundle import BundleDescription
from transduce.config import TransformerConfig
from transduce.interop.bundle_tensors import gather_tensors, parse_tensor_name
from transduce.interop.channel_order import interleave_channels, split_channels
from transduce.interop.formats import SECTION, ExportedSettings
from transduce.interop.tokenizers import list_pieces, number_pieces
from transduce.model import sinusoids
from transduce.text import Tokenizer

NUM_POSITIONS = 512
"""The smallest number of rows of an exported table of sinusoids, as in Marian's models on the Hub. Transformers
computes the table number by number whenever it loads such a model, which takes seconds already."""

JsonObject = dict[str, JsonValue]


def count_positions(description: BundleDescription) -> int:
    """Rows of the table of positions: tokens of the longest sentence that the export can read or write."""
    if description.model.positions == "learned":
        return description.model.max_positions
    return max(NUM_POSITIONS, _compute_max_target_length(description))


def make_model_settings(description: BundleDescription, end_id: int, precision: str) -> JsonObject:
    """The content of config.json."""
    config = description.model
    pre = config.norm_order == "pre"
    pad_id = config.vocabulary - 1
    return {
        "architectures": ["PegasusForConditionalGeneration" if pre else "MarianMTModel"],
        "model_type": "pegasus" if pre else "marian",
        "dtype": precision,
        "vocab_size": config.vocabulary,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "num_hidden_layers": config.num_encoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "tie_word_embeddings": config.tied_embeddings != "none",
        "share_encoder_decoder_embeddings": config.tied_embeddings == "three_way",
        "max_position_embeddings": count_positions(description),
        "static_position_embeddings": config.positions == "sinusoidal",
        # Transformers needs none of these three, converters from it do.
        "normalize_before": pre,
        "add_final_layer_norm": pre,
        "normalize_embedding": False,
        "is_encoder_decoder": True,
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
        "decoder_start_token_id": pad_id,
        "forced_eos_token_id": None,
        SECTION: ExportedSettings(model=config, search=description.search).model_dump(
            mode="json", include={"model", "search"}
        ),
    }


def make_generation_settings(description: BundleDescription, end_id: int) -> JsonObject:
    """The content of generation_config.json: the search of the bundle, as far as Transformers has such settings.

    Transformers divides a log-probability by n^length_penalty and not by ((5 + n) / 6)^length_penalty, so that the
    same exponent favours long translations a little more.
    """
    config, search = description.model, description.search
    pad_id = config.vocabulary - 1
    settings: JsonObject = {
        "bos_token_id": None,
        "eos_token_id": end_id,
        "pad_token_id": pad_id,
        "decoder_start_token_id": pad_id,
        "max_length": _compute_max_target_length(description),
        "num_beams": search.beam,
    }
    if search.beam > 1:
        settings["length_penalty"] = search.length_penalty
    if search.no_repeat_ngram:
        settings["no_repeat_ngram_size"] = search.no_repeat_ngram
    if search.repetition_penalty != 1:
        settings["repetition_penalty"] = search.repetition_penalty
    if search.min_length > 1:
        settings["min_new_tokens"] = search.min_length - 1  # Transformers does not count </s>
    return settings


def make_tokenizer_settings(description: BundleDescription, tokenizer: Tokenizer) -> dict[str, JsonObject]:
    """The files of Marian's tokenizer by name; a Pegasus model gets the same, because its ids are the bundle's."""
    shared, source_only, target_only = list_pieces(tokenizer)
    separate = bool(source_only or target_only)
    unknown, end, pad = tokenizer.pieces([tokenizer.unknown_id, tokenizer.end_id, tokenizer.pad_id])
    settings: JsonObject = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": description.languages.source or None,
        "target_lang": description.languages.target or None,
        "unk_token": unknown,
        "eos_token": end,
        "pad_token": pad,
        "model_max_length": count_positions(description),
        "separate_vocabs": separate,
        # "</s>" in a text is spelled like any word, and what is decoded is left as it is.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    ids = number_pieces(tokenizer)
    files: dict[str, JsonObject] = {
        "tokenizer_config.json": settings,
        "vocab.json": {one: ids[one] for one in (*shared, *source_only, pad)},
    }
    if separate:
        files["target_vocab.json"] = {one: ids[one] for one in (*shared, *target_only, pad)}
    return files


def _compute_max_target_length(description: BundleDescription) -> int:
    """Tokens of the longest translation and the start symbol, which Transformers counts."""
    config, search = description.model, description.search
    longest = search.compute_max_target_length(search.max_pieces + 1) + 1
    return min(longest, config.max_positions) if config.positions == "learned" else longest


OUTPUT_BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

PAD_BIAS = -1e4
"""The bias of the logit of `<pad>`, whose probability is then 0 in every precision, as in Transduce. It is not -inf:
further training with label smoothing, a mean over all tokens, would have an infinite loss."""

_PARTS = {
    "self_attention.projection": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_attention_residual.normalization": ("self_attn_layer_norm",),
    "cross_attention.projection": ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_attention_residual.normalization": ("encoder_attn_layer_norm",),
    "feed_forward.inner": ("fc1",),
    "feed_forward.outer": ("fc2",),
    "feed_forward_residual.normalization": ("final_layer_norm",),
    "final": ("layer_norm",),
}
_OUTSIDE_LAYERS = {
    "source_embedding.weight": "model.encoder.embed_tokens.weight",
    "target_embedding.weight": "model.decoder.embed_tokens.weight",
    "projection.weight": "lm_head.weight",
    "projection.bias": OUTPUT_BIAS,
    "positions.table": POSITIONS[0],
}
_QUERIES = re.compile(r".*\.q_proj\.(weight|bias)")


def compute_query_scale(config: TransformerConfig) -> float:
    """The factor of the queries that compensates for the division of all attention scores by sqrt(d_k) in
    Transformers.
    """
    return math.sqrt(config.d_k) if config.attention_score == "dot" else 1.0


def to_huggingface(config: TransformerConfig, tensors: Mapping[str, Tensor], num_positions: int) -> dict[str, Tensor]:
    """The tensors of a bundle in the layout of Transformers.

    `num_positions` are the rows of the table of positions, if one is needed and `tensors` has none.
    """
    found: dict[str, Tensor] = {}
    table = sinusoids(num_positions, config.d_model)
    if config.positions == "none":
        table = torch.zeros_like(table)
    bias = torch.zeros(config.vocabulary)
    for name, tensor in split_channels({"positions.table": table, "projection.bias": bias, **tensors}).items():
        match name:
            case "positions.table":
                found |= {one: tensor.clone() for one in POSITIONS if config.norm_order == "pre"}
            case "projection.bias":
                found[OUTPUT_BIAS] = torch.cat([tensor[:-1], torch.tensor([PAD_BIAS])])[None]
            case _:
                names = _transformers_names(config, name)
                found |= zip(names, tensor.chunk(len(names)), strict=True)
    return {
        name: tensor * compute_query_scale(config) if _QUERIES.fullmatch(name) else tensor
        for name, tensor in found.items()
    }


def from_huggingface(
    config: TransformerConfig, tensors: Mapping[str, Tensor], matrices: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """The inverse of `to_huggingface`: the tensors of a bundle with this `config`, in float32.

    `matrices` are those with a row for each token, unless the rows of `tensors` are the bundle's.
    """

    def read_part(name: str) -> Tensor:
        tensor = tensors[name].float()
        if name == OUTPUT_BIAS:
            return torch.cat([tensor[0, :-1], torch.zeros(1)])
        return tensor / compute_query_scale(config) if _QUERIES.fullmatch(name) else tensor

    found = gather_tensors(config, matrices or {}, lambda name: list(map(read_part, _transformers_names(config, name))))
    return interleave_channels(found)


def _transformers_names(config: TransformerConfig, name: str) -> tuple[str, ...]:
    """The names of the tensors whose rows, stacked, are the rows of the bundle's tensor."""
    if name == "source_embedding.weight" and config.tied_embeddings == "three_way":
        return ("model.shared.weight",)
    if name in _OUTSIDE_LAYERS:
        return (_OUTSIDE_LAYERS[name],)
    stack, layer, part, kind = parse_tensor_name(name)
    place = f"model.{stack}" if layer is None else f"model.{stack}.layers.{layer}"
    return tuple(f"{place}.{one}.{'bias' if kind == 'bias' else 'weight'}" for one in _PARTS[part])
