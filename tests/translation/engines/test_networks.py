"""The prepared network and the model itself, as a search sees them, against the model's whole-sentence decoding."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.kernels import device as device_module
from transduce.kernels.device import ComputePrecision
from transduce.kernels.linear import has_packed_bfloat16
from transduce.model import Transformer
from transduce.translation.engines.networks import InferenceModel, ModelNetwork, Network, has_inference_model

LENGTHS = (7, 3, 7, 1)
VARIANTS = [
    {},
    {"norm_order": "pre", "num_encoder_layers": 2, "num_decoder_layers": 2},
    {"attention_score": "dot", "d_k": 5, "d_v": 7},
    {"activation": "gelu", "positions": "learned", "max_positions": 40},
    {"positions": "none", "tied_embeddings": "none"},
    {"tied_embeddings": "two_way", "d_k": 16, "activation": "swish"},
    {"output_bias": True, "tied_embeddings": "none"},
    {"attention_score": "additive"},
    {"normalization": "batch"},
    {"normalization": "rms", "norm_order": "pre"},
    {"feed_forward": "gated", "activation": "swish"},
    {"positions": "rotary"},
    {"positions": "relative", "max_relative_distance": 3},
    {"normalization": "rms", "norm_order": "pre", "feed_forward": "gated", "positions": "rotary"},
]


UNSUPPORTED = {"additive", "batch", "rms", "gated", "relative", "rotary"}
"""What only the model itself computes."""


def start(model: Transformer) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    source_ids = torch.randint(2, model.pad_id, (len(LENGTHS), max(LENGTHS)), generator=random)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return source_ids.masked_fill(~mask, model.pad_id), mask


@torch.inference_mode()
def walk(model: Transformer, network: Network[Any], num_steps: int, *, tolerance: float) -> None:
    """Take random hypotheses on, some sentences leaving, and compare each step with decoding them all anew."""
    random = torch.Generator().manual_seed(2)
    source_ids, source_mask = start(model)
    state = network.start(source_ids, source_mask)
    sentences = torch.arange(len(LENGTHS))
    targets = torch.full((len(LENGTHS), 1, 1), model.pad_id)
    for number in range(num_steps):
        found, state = network.step(targets[:, :, -1], state)
        width, length = targets.shape[1:]
        # The model shifts right by itself: the last place asks for what comes next.
        asked = torch.cat([targets[:, :, 1:], targets[:, :, :1]], dim=2).flatten(0, 1)
        rows = sentences.repeat_interleave(width)
        real = torch.ones_like(asked).bool()
        logits = model(source_ids[rows], source_mask[rows], asked, real)[:, length - 1]
        expected = logits.log_softmax(-1).unflatten(0, (len(sentences), width))
        assert torch.isneginf(found[:, :, -1]).all()
        assert torch.allclose(found[:, :, :-1].float(), expected[:, :, :-1], atol=tolerance, rtol=0)

        new_width = (3, 3, 5, 1, 4)[number % 5]
        parents = torch.randint(0, width, (len(sentences), new_width), generator=random)
        if number in (2, 5):  # one leaves
            kept = torch.arange(len(sentences))[1:]
            sentences, targets, parents = sentences[kept], targets[kept], parents[kept]
            state = state.select(kept, parents)
        else:
            state = state.select(None, parents)
        ids = torch.randint(2, model.pad_id, (len(sentences), new_width, 1), generator=random)
        targets = torch.cat([targets.gather(1, parents[:, :, None].expand(-1, -1, length)), ids], dim=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_equals_the_model_whatever_goes_on_and_leaves(
    make_model: Callable[..., Transformer], settings: dict[str, object]
) -> None:
    model = make_model(seed=3, **settings)
    assert has_inference_model(model.config) == (not UNSUPPORTED & set(settings.values()))
    if has_inference_model(model.config):
        walk(model, InferenceModel(model, ComputePrecision(torch.float32)), 24, tolerance=1e-5)
    walk(model, ModelNetwork(model), 8 if has_inference_model(model.config) else 24, tolerance=1e-5)


def test_bfloat16_is_close(make_model: Callable[..., Transformer]) -> None:
    model = make_model(seed=3, num_decoder_layers=2)
    walk(model, InferenceModel(model, ComputePrecision(torch.bfloat16)), 24, tolerance=0.15)


def test_large_products_alone_in_bfloat16_are_closer(
    make_model: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(seed=3, num_decoder_layers=2)
    for least in (0, 5000):  # all products, and the projection alone
        monkeypatch.setattr(device_module, "MIN_WEIGHTS_OF_BFLOAT16", least)
        network = InferenceModel(model, ComputePrecision(torch.float32, is_mixed=True))
        walk(model, network, 24, tolerance=0.1)
        # Where no large product in bfloat16 can be had, all are in float32.
        with pytest.raises(AssertionError) if has_packed_bfloat16() else nullcontext():
            walk(model, network, 4, tolerance=1e-5)


def test_many_rows_are_computed_as_few_are(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    source_ids, mask = (part[:1].expand(150, -1) for part in start(model))
    for dtype in (torch.float32, torch.bfloat16):
        network = InferenceModel(model, ComputePrecision(dtype))
        with torch.inference_mode():
            state = network.start(source_ids, mask)
            found, _ = network.step(torch.full((150, 1), model.pad_id), state)
        assert found.shape == (150, 1, model.config.vocabulary)
        assert torch.allclose(found.float(), found[:1].float(), atol=1e-5 if dtype == torch.float32 else 0.05)
