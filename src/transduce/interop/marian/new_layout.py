"""The same weights by the names of Marian's type `transformer-new`, which Marian 1.12 computes exactly as we do.

The older `transformer` has sinusoids of other frequencies, adds 1e-6 to variances where we add 1e-5, and, translating
with pre-norm, does not normalise the tokens before the last one. The newer type can have a table of positions among its
weights; but then Marian does not multiply embeddings by sqrt(d_model), so that here they are multiplied already, and
apart from the output matrix.
"""

import math
import re
from collections.abc import Mapping

from torch import Tensor

from transduce.config import TransformerConfig
from transduce.interop.marian.layout import OUTPUT, POSITIONS

NEW_POSITIONS = "positionEmbedding->embeddings"
"""What the names of the two tables of positions end with."""

_LAYERS = {
    "encoder": ("TransformerEncoderLayer", "selfAttentionBlock"),
    "decoder": ("TransformerDecoderLayerWithCrossAttention", "autoRegressiveBlock"),
}
_ARRAY = re.compile(r"(encoder|decoder)_(?:l(\d+)_(\w+?)_|top_)(\w+)")
_MATRIX = re.compile(r".*_W.")


def to_new_arrays(config: TransformerConfig, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`arrays` of the type `transformer` for the type `transformer-new`."""
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if name == POSITIONS:
            found |= {f"{_root(stack)}->{NEW_POSITIONS}": array for stack in _LAYERS}
        elif name.endswith("Wemb"):
            found[name] = array * math.sqrt(config.d_model)
        elif name.startswith("decoder_ff_logit"):
            found[name] = array
        else:
            is_matrix = _MATRIX.fullmatch(name) is not None
            found[_new_name(config, name)] = array if is_matrix else array[0]
    shared = {"three_way": "Wemb", "two_way": "decoder_Wemb"}.get(config.tied_embeddings)
    return found if shared is None else {**found, OUTPUT: arrays[shared]}


def _root(stack: str) -> str:
    return f"TransformerBatch{stack.title()}->{stack}"


def _new_name(config: TransformerConfig, name: str) -> str:
    found = _ARRAY.fullmatch(name)
    if found is None:
        raise KeyError(name)
    stack, layer, part, array = found.groups()
    kind = "weight" if _MATRIX.fullmatch(name) or "_ln_scale" in name else "bias"
    if layer is None:
        return f"{_root(stack)}->postprocessor->norm->{kind}"
    kind_of_layer, self_attention_block = _LAYERS[stack]
    block = {"self": self_attention_block, "context": "crossAttentionBlock", "ffn": "filterBlock"}[part]
    if "_ln_" in array:
        inside = f"{'pre' if config.norm_order == 'pre' else 'post'}processor->norm"
    elif part == "ffn":
        inside = _filter_part(config, array)
    else:
        attention = "crossAttention" if part == "context" else "selfAttention"
        inside = f"{attention}->{array[-1]}Proj"
    return f"{_root(stack)}->layers->at({int(layer) - 1})->as<marian::nn::{kind_of_layer}>()->{block}->{inside}->{kind}"


def _filter_part(config: TransformerConfig, array: str) -> str:
    """A linear layer of the feed-forward network; Marian has relu in one layer with what is in front of it."""
    has_relu = config.activation == "relu"
    if array[-1] == "1":
        return f"layers->at(0)->as<marian::nn::{'LinearReluDropout' if has_relu else 'Linear'}>()"
    return f"layers->at({1 if has_relu else 3})->as<marian::nn::Linear>()"
