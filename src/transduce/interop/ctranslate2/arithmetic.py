"""What CTranslate2 computes of integers of 8 bits on this processor, measured.

Where a processor lacks an instruction for dot products of 8-bit integers, as x86 without VNNI, some libraries under
CTranslate2 move inputs to 0 to 255 and add up their products with weights from -127 to 127 in pairs, in 16 bits. What
goes beyond 32,767 is cut off: 2 * 255 * 127 is twice as much. Which library it is depends on processor, system and
environment.
"""

import math
import tempfile
from functools import cache
from typing import Any

import numpy as np

from transduce.interop.formats import import_optional

_WIDTH = 4
_TOKENS = ("<unk>", "<s>", "</s>", "a")
_SCORED = "a"


def measure_product() -> float:
    """A sum of products in int8 that is 1 in exact arithmetic: of the largest inputs and the largest weights.

    It is read from the score of a token in a network whose decoder returns ones, and whose output has weights for this
    token alone.
    """
    ctranslate2: Any = import_optional("ctranslate2", "measuring how CTranslate2 computes in int8")
    spec = _make_specification(ctranslate2.specs)
    spec.register_source_vocabulary(list(_TOKENS))
    spec.register_target_vocabulary(list(_TOKENS))
    spec.validate()
    spec.optimize(quantization="int8")
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="int8", intra_threads=1)
        (result,) = translator.score_batch([[_SCORED]], [[_SCORED]])
    odds = math.exp(result.log_probs[0]) / -math.expm1(result.log_probs[0])
    return math.log(odds * (len(_TOKENS) - 1))  # the other tokens have 0


@cache
def is_exact_in_8_bits() -> bool:
    """Whether sums of 8-bit products are exact in CTranslate2 on this processor."""
    return abs(measure_product() - 1) < 1e-3


def _make_specification(specs: Any) -> Any:  # noqa: ANN401 - of an optional package without types
    """A network of one layer in each stack, all zeros but for what `measure_product` says."""
    spec = specs.TransformerSpec(specs.TransformerEncoderSpec(1, 1), specs.TransformerDecoderSpec(1, 1))
    encoder, decoder = spec.encoder, spec.decoder
    for stack, embeddings in ((encoder, encoder.embeddings[0]), (decoder, decoder.embeddings)):
        embeddings.weight = _zeros(len(_TOKENS), _WIDTH)
        # Equal arrays are stored once, and these stay float32.
        stack.position_encodings.encodings = _zeros(len(_TOKENS), _WIDTH) + 1
        (layer,) = stack.layer
        attended = [layer.self_attention.linear[0], *(layer.attention.linear[:2] if stack is decoder else [])]
        for linear, num_matrices in zip(attended, (3, 1, 2), strict=False):  # queries, keys and values
            _set_linear(linear, num_matrices * _WIDTH)
        attentions = [layer.self_attention, *([layer.attention] if stack is decoder else [])]
        for linear in (layer.ffn.linear_0, layer.ffn.linear_1, *(attention.linear[-1] for attention in attentions)):
            _set_linear(linear, _WIDTH)
        for norm in (layer.ffn.layer_norm, stack.layer_norm, *(attention.layer_norm for attention in attentions)):
            norm.gamma, norm.beta = _zeros(_WIDTH), _zeros(_WIDTH) + 1
    _set_linear(decoder.projection, len(_TOKENS))
    decoder.projection.weight[_TOKENS.index(_SCORED)] = 1 / _WIDTH
    return spec


def _zeros(*shape: int) -> Any:  # noqa: ANN401 - an attribute of a specification
    return np.zeros(shape, np.float32)


def _set_linear(linear: Any, num_outputs: int) -> None:  # noqa: ANN401
    linear.weight, linear.bias = _zeros(num_outputs, _WIDTH), _zeros(num_outputs)
