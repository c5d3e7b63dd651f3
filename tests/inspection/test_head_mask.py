from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch

from transduce.inspection.attention import Recorder
from transduce.inspection.document import Head
from transduce.inspection.head_mask import HeadMask, HeadMaskedNetwork, list_heads, log_probabilities, run_forced
from transduce.inspection.searches import SentenceSearches
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.translation import NativeEngine, score_ids
from transduce.translation.confidence.scoring import ForcedDecoder

SOURCES = torch.tensor([[5, 9, 7, 1], [8, 6, 1, 309]])
TARGETS = torch.tensor([[11, 12, 1, 309, 309], [7, 20, 21, 22, 1]])


def test_the_pass_is_the_models_own_to_the_last_bit(model: Transformer) -> None:
    head_mask = HeadMask.without(model, [[], []])
    source_mask, target_mask = SOURCES != 309, TARGETS != 309
    with torch.inference_mode():
        memory = model.encode(SOURCES, source_mask, head_mask)
        assert torch.equal(memory, model.encode(SOURCES, source_mask))
        outputs = list(model.decode_layers(TARGETS, target_mask, memory, source_mask, head_mask))
        own = model.decode(TARGETS, target_mask, memory, source_mask).log_softmax(dim=-1)
        assert len(outputs) == model.config.num_decoder_layers
        found = log_probabilities(model, outputs[-1])
    assert torch.equal(found[target_mask], own[target_mask])


@pytest.mark.parametrize("position", [1, 3])
def test_nothing_sees_what_comes_after_it(make_model: Callable[..., Transformer], position: int) -> None:
    model = make_model()
    changed = TARGETS[1:].clone()
    changed[0, position] = 33
    head_mask = HeadMask.without(model, [[]])
    with torch.inference_mode():
        before, after = (run_forced(model, SOURCES[:1], target, head_mask) for target in (TARGETS[1:], changed))
    for old, new in zip(before, after, strict=True):
        # Row t reads token t - 1: what changes at a position is seen from the next row on.
        assert torch.equal(old[:, : position + 1], new[:, : position + 1])
        assert not torch.allclose(old[:, position + 1], new[:, position + 1], atol=1e-3)


def test_every_attention_is_recorded_once(model: Transformer) -> None:
    recorder = Recorder(model, HeadMask.without(model, [[]]))
    with torch.inference_mode():
        run_forced(model, SOURCES[:1], TARGETS[1:], recorder)
    config = model.config
    expected = {("encoder", layer) for layer in range(config.num_encoder_layers)}
    expected |= {(name, layer) for name in ("decoder", "encoder_decoder") for layer in range(config.num_decoder_layers)}
    assert set(recorder.records) == expected


def without_rows(model: Transformer, head: Head) -> Transformer:
    """The model with the rows of W^O that belong to a head set to zero."""
    changed = deepcopy(model)
    layers = changed.encoder.layers if head.attention == "encoder" else changed.decoder.layers
    layer = layers[head.layer]
    attention = layer.cross_attention if head.attention == "encoder_decoder" else layer.self_attention
    with torch.no_grad():
        attention.output.weight[:, head.head * attention.d_v : (head.head + 1) * attention.d_v] = 0
    return changed


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.ids == other.ids
        assert one.token_scores == pytest.approx(other.token_scores, abs=2e-5)


def test_with_nothing_off_it_searches_as_the_engine_does(
    model: Transformer, make_searches: Callable[..., SentenceSearches]
) -> None:
    searches = make_searches(model, beam=3)
    network = HeadMaskedNetwork(model, searches.make_head_mask([[]] * 3))
    with torch.inference_mode():
        found = searches.best(network, [()] * 3, beam=3)
    expected = NativeEngine(model, 1).search([searches.source], searches.config)[0]
    assert_same(found, expected * 3)


def test_a_head_that_is_off_is_one_without_its_rows_of_the_output(
    make_model: Callable[..., Transformer], make_searches: Callable[..., SentenceSearches]
) -> None:
    model = make_model(num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    searches, heads = make_searches(model, beam=2), list_heads(model.config)
    with torch.inference_mode():
        found = searches.without_each(heads, lambda _: None)
    engines = [NativeEngine(without_rows(model, head), 1) for head in heads]
    expected = [engine.search([searches.source], searches.config)[0][0] for engine in engines]
    assert_same(found, expected)
    assert len({tuple(hypothesis.ids) for hypothesis in found}) > 1


def test_a_given_target_without_a_head(model: Transformer, make_searches: Callable[..., SentenceSearches]) -> None:
    searches, target = make_searches(model), [40, 7, 12, 1]
    heads = list_heads(model.config)[1::6]
    assert len({head.attention for head in heads}) == 3
    head_mask = HeadMask.without(model, [[head] for head in heads])
    with torch.inference_mode():
        outputs = run_forced(model, searches.source_ids(len(heads)), torch.tensor([target] * len(heads)), head_mask)
        found = log_probabilities(model, outputs[-1])[:, range(4), target].tolist()
    for head, log_probs in zip(heads, found, strict=True):
        decoder = ForcedDecoder(without_rows(model, head), searches.tokenizer, searches.config)
        (expected,) = score_ids(decoder, [searches.source], [target])
        assert log_probs == pytest.approx(expected.token_scores, abs=1e-5)


def test_several_heads_are_off_at_once(
    make_model: Callable[..., Transformer], make_searches: Callable[..., SentenceSearches]
) -> None:
    model = make_model()
    off = Head(attention="encoder", layer=1, head=0), Head(attention="decoder", layer=0, head=3)
    searches = make_searches(model, beam=2)
    together = SentenceSearches(model, searches.tokenizer, searches.config, searches.source, (), off)
    changed = without_rows(without_rows(model, off[0]), off[1])
    with torch.inference_mode():
        traced, (greedy,) = together.traced(), together.greedy([()])
    expected: Any = NativeEngine(changed, 1).search([searches.source], searches.config, 2)[0]
    assert_same(traced.finished[:2], expected)
    assert_same([greedy], make_searches(changed).greedy([()]))
