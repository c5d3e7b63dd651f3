from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch

from transduce.inspection.document import Head
from transduce.inspection.forward_pass import log_probabilities, run_forced
from transduce.inspection.head_mask import HeadMask, HeadMaskedNetwork, list_heads
from transduce.inspection.searches import SentenceSearches
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.translation import NativeEngine, score_ids
from transduce.translation.confidence.scoring import ForcedDecoder


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
    head_mask = HeadMask.without(model.config, [[head] for head in heads])
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
