from collections.abc import Callable

import pytest
import torch

from transduce.inspection.attention import Recorder
from transduce.inspection.forward_pass import decode, encode, log_probabilities, run_forced
from transduce.inspection.head_mask import HeadMask
from transduce.model import Transformer

SOURCES = torch.tensor([[5, 9, 7, 1], [8, 6, 1, 309]])
TARGETS = torch.tensor([[11, 12, 1, 309, 309], [7, 20, 21, 22, 1]])


def test_the_pass_is_the_models_own_to_the_last_bit(model: Transformer) -> None:
    head_mask = HeadMask.without(model.config, [[], []])
    source_mask, target_mask = SOURCES != 309, TARGETS != 309
    with torch.inference_mode():
        memory = encode(model, SOURCES, source_mask, head_mask)
        assert torch.equal(memory, model.encode(SOURCES, source_mask))
        outputs = decode(model, TARGETS, target_mask, memory, source_mask, head_mask)
        own = model.decode(TARGETS, target_mask, memory, source_mask).log_softmax(dim=-1)
        assert len(outputs) == model.config.num_decoder_layers
        found = log_probabilities(model, outputs[-1])
    assert torch.equal(found[target_mask], own[target_mask])


@pytest.mark.parametrize("position", [1, 3])
def test_nothing_sees_what_comes_after_it(make_model: Callable[..., Transformer], position: int) -> None:
    model = make_model()
    changed = TARGETS[1:].clone()
    changed[0, position] = 33
    head_mask = HeadMask.without(model.config, [[]])
    with torch.inference_mode():
        before, after = (run_forced(model, SOURCES[:1], target, head_mask) for target in (TARGETS[1:], changed))
    for old, new in zip(before, after, strict=True):
        # Row t reads token t - 1: what changes at a position is seen from the next row on.
        assert torch.equal(old[:, : position + 1], new[:, : position + 1])
        assert not torch.allclose(old[:, position + 1], new[:, position + 1], atol=1e-3)


def test_every_attention_is_recorded_once(model: Transformer) -> None:
    recorder = Recorder(HeadMask.without(model.config, [[]]))
    with torch.inference_mode():
        run_forced(model, SOURCES[:1], TARGETS[1:], recorder)
    config = model.config
    expected = {("encoder", layer) for layer in range(config.num_encoder_layers)}
    expected |= {(name, layer) for name in ("decoder", "encoder_decoder") for layer in range(config.num_decoder_layers)}
    assert set(recorder.records) == expected
