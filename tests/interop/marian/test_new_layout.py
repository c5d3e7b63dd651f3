from collections.abc import Callable
from typing import Any

import pytest
import torch

from transduce.bundle import model_tensors
from transduce.interop.marian.layout import to_arrays
from transduce.interop.marian.new_layout import to_new_arrays
from transduce.model import Transformer

_DECODER = (
    "TransformerBatchDecoder->decoder->layers->at(0)->as<marian::nn::TransformerDecoderLayerWithCrossAttention>()->"
)
_ENCODER = "TransformerBatchEncoder->encoder->layers->at(0)->as<marian::nn::TransformerEncoderLayer>()->"

Arrays = dict[str, torch.Tensor]


@pytest.fixture
def arrays(random_model: Callable[..., Transformer]) -> Callable[..., tuple[Arrays, Arrays]]:
    """Those of the older and of the newer type."""

    def make(**settings: Any) -> tuple[Arrays, Arrays]:
        model = random_model(num_encoder_layers=1, **settings)
        with torch.no_grad():
            old = to_arrays(model.config, model_tensors(model), model.positions(20))
            return old, to_new_arrays(model.config, old)

    return make


def names_of_marian(before: str) -> set[str]:
    """As in the models that Marian 1.12.42 trained with `--type transformer-new --transformer-train-position-...`."""
    found = {"decoder_ff_logit_out_b", "decoder_ff_logit_out_Wt", "encoder_Wemb", "decoder_Wemb"}
    found |= {f"TransformerBatch{one.title()}->{one}->positionEmbedding->embeddings" for one in ("encoder", "decoder")}
    blocks = {
        _ENCODER + "selfAttentionBlock->": "selfAttention",
        _DECODER + "autoRegressiveBlock->": "selfAttention",
        _DECODER + "crossAttentionBlock->": "crossAttention",
    }
    for block, attention in blocks.items():
        found |= {f"{block}{attention}->{one}Proj->{kind}" for one in "qkvo" for kind in ("weight", "bias")}
    for layer in (_ENCODER, _DECODER):
        blocks[layer + "filterBlock->"] = ""
        for inside in ("at(0)->as<marian::nn::LinearReluDropout>()", "at(1)->as<marian::nn::Linear>()"):
            found |= {f"{layer}filterBlock->layers->{inside}->{kind}" for kind in ("weight", "bias")}
    return found | {f"{block}{before}processor->norm->{kind}" for block in blocks for kind in ("weight", "bias")}


def test_the_names_are_those_of_a_model_that_marian_trained(arrays: Callable[..., Any]) -> None:
    _, found = arrays(tied_embeddings="none")
    assert found.keys() == names_of_marian("post")


def test_pre_norm_has_two_more_normalisations(arrays: Callable[..., Any]) -> None:
    _, found = arrays(tied_embeddings="none", norm_order="pre")
    stacks = ("Encoder->encoder", "Decoder->decoder")
    top = {f"TransformerBatch{stack}->postprocessor->norm->{kind}" for stack in stacks for kind in ("weight", "bias")}
    assert found.keys() == names_of_marian("pre") | top


def test_other_activations_are_layers_of_their_own(arrays: Callable[..., Any]) -> None:
    _, found = arrays(activation="swish")
    assert {f"{_ENCODER}filterBlock->layers->at({place})->as<marian::nn::Linear>()->bias" for place in (0, 3)} <= set(
        found
    )


@pytest.mark.parametrize(("tied", "names"), [("three_way", {"Wemb"}), ("two_way", {"encoder_Wemb", "decoder_Wemb"})])
def test_embeddings_are_multiplied_and_the_output_is_not(
    arrays: Callable[..., Any], tied: str, names: set[str]
) -> None:
    old, new = arrays(tied_embeddings=tied)
    assert {name for name in new if name.endswith("Wemb")} == names
    assert all(torch.equal(new[name], old[name] * 4) for name in names)  # 16 channels
    assert torch.equal(new["decoder_ff_logit_out_Wt"], old[max(names, key=lambda name: name[0] != "e")])


@pytest.mark.parametrize("d_ff", [24, 1])
def test_vectors_have_one_axis_and_matrices_two(arrays: Callable[..., Any], d_ff: int) -> None:
    old, new = arrays(d_ff=d_ff)
    assert torch.equal(
        new[_DECODER + "crossAttentionBlock->crossAttention->kProj->weight"], old["decoder_l1_context_Wk"]
    )
    assert torch.equal(new[_DECODER + "autoRegressiveBlock->selfAttention->oProj->bias"], old["decoder_l1_self_bo"][0])
    assert torch.equal(
        new[_ENCODER + "filterBlock->postprocessor->norm->weight"], old["encoder_l1_ffn_ffn_ln_scale"][0]
    )
    outer = new[_ENCODER + "filterBlock->layers->at(1)->as<marian::nn::Linear>()->weight"]
    assert outer.shape == (d_ff, 16)
    assert new["decoder_ff_logit_out_b"].ndim == 2
