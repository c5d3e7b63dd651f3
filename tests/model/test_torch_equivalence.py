"""The stacks compute what torch's own do, given the same weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from transduce.model import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    ResidualConnection,
    Transformer,
    causal_attention_mask,
)

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


@pytest.fixture(params=["post", "pre"])
def norm_order(request: pytest.FixtureRequest) -> str:
    order: str = request.param
    return order


@pytest.fixture(params=ACTIVATIONS)
def activation(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    assert theirs.in_proj_weight is not None
    theirs.in_proj_weight.copy_(ours.projection.weight)
    theirs.in_proj_bias.copy_(ours.projection.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_normalization(ours: Any, theirs: nn.LayerNorm) -> None:
    normalization = ours.normalization if isinstance(ours, ResidualConnection) else ours
    assert isinstance(normalization, LayerNormalization)
    theirs.weight.copy_(normalization.gain)
    theirs.bias.copy_(normalization.bias)


def copy_feed_forward(ours: FeedForward, theirs: Any) -> None:
    theirs.linear1.load_state_dict(ours.inner.state_dict())
    theirs.linear2.load_state_dict(ours.outer.state_dict())


@torch.no_grad()
def copy_encoder_layer(ours: EncoderLayer, theirs: nn.TransformerEncoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_normalization(ours.self_attention_residual, theirs.norm1)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_normalization(ours.feed_forward_residual, theirs.norm2)


@torch.no_grad()
def copy_decoder_layer(ours: DecoderLayer, theirs: nn.TransformerDecoderLayer) -> None:
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_normalization(ours.self_attention_residual, theirs.norm1)
    copy_attention(ours.cross_attention, theirs.multihead_attn)
    copy_normalization(ours.cross_attention_residual, theirs.norm2)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_normalization(ours.feed_forward_residual, theirs.norm3)


def settings_of_torch(model: Transformer) -> dict[str, Any]:
    config = model.config
    return {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.d_ff,
        "dropout": 0.0,
        "activation": ACTIVATIONS[config.activation],
        "batch_first": True,
        "norm_first": config.norm_order == "pre",
    }


def final_norm(ours: Any) -> nn.LayerNorm | None:
    if ours is None:
        return None
    final = nn.LayerNorm(ours.gain.shape)
    with torch.no_grad():
        copy_normalization(ours, final)
    return final


def test_encoder(make_model: Callable[..., Transformer], norm_order: str, activation: str) -> None:
    model = make_model(norm_order=norm_order, activation=activation)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**settings_of_torch(model)),
        num_layers=2,
        norm=final_norm(model.encoder.final),
        enable_nested_tensor=False,
    )
    for layer, their_layer in zip(model.encoder.layers, theirs.layers, strict=True):
        copy_encoder_layer(layer, their_layer)
    x = torch.randn(3, 7, 16)
    mask = torch.arange(7) < torch.tensor([7, 3, 1])[:, None]
    expected = theirs(x, src_key_padding_mask=~mask)
    torch.testing.assert_close(model.encoder(x, mask)[mask], expected[mask], atol=1e-5, rtol=1e-5)


def test_decoder(make_model: Callable[..., Transformer], norm_order: str, activation: str) -> None:
    model = make_model(norm_order=norm_order, activation=activation)
    theirs = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(**settings_of_torch(model)), num_layers=2, norm=final_norm(model.decoder.final)
    )
    for layer, their_layer in zip(model.decoder.layers, theirs.layers, strict=True):
        copy_decoder_layer(layer, their_layer)
    x, memory = torch.randn(3, 6, 16), torch.randn(3, 7, 16)
    mask = torch.arange(6) < torch.tensor([2, 6, 1])[:, None]
    source_mask = torch.arange(7) < torch.tensor([7, 3, 1])[:, None]
    expected = theirs(
        x,
        memory,
        tgt_mask=~causal_attention_mask(6, x.device)[0, 0],
        tgt_key_padding_mask=~mask,
        memory_key_padding_mask=~source_mask,
    )
    torch.testing.assert_close(model.decoder(x, mask, memory, source_mask)[mask], expected[mask], atol=1e-5, rtol=1e-5)
