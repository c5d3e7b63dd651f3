from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from transduce.errors import UserError
from transduce.inspection import InspectionRequest, inspect_text
from transduce.inspection.attention import (
    AttentionId,
    AttentionRecord,
    HeadMask,
    HeadMaskedNetwork,
    Recorder,
    list_heads,
    log_probabilities,
    rotate_heads,
    run_teacher_forced,
)
from transduce.inspection.document import Head
from transduce.inspection.searches import SentenceSearches
from transduce.model import Transformer
from transduce.search import Hypothesis
from transduce.translation import PyTorchEngine, Translator, score_ids
from transduce.translation.confidence.scoring import ForcedDecoder

SOURCES = torch.tensor([[5, 9, 7, 1], [8, 6, 1, 309]])
TARGETS = torch.tensor([[11, 12, 1, 309, 309], [7, 20, 21, 22, 1]])


def test_the_pass_is_the_models_own_to_the_last_bit(model: Transformer) -> None:
    head_mask = HeadMask.from_masked_heads(model, [[], []])
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
    head_mask = HeadMask.from_masked_heads(model, [[]])
    with torch.inference_mode():
        before, after = (run_teacher_forced(model, SOURCES[:1], target, head_mask) for target in (TARGETS[1:], changed))
    for old, new in zip(before, after, strict=True):
        # Row t reads token t - 1: what changes at a position is seen from the next row on.
        assert torch.equal(old[:, : position + 1], new[:, : position + 1])
        assert not torch.allclose(old[:, position + 1], new[:, position + 1], atol=1e-3)


def test_every_attention_is_recorded_once(model: Transformer) -> None:
    recorder = Recorder(model, HeadMask.from_masked_heads(model, [[]]))
    with torch.inference_mode():
        run_teacher_forced(model, SOURCES[:1], TARGETS[1:], recorder)
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


@pytest.mark.exhaustive
def test_with_nothing_off_it_searches_as_the_engine_does(
    model: Transformer, make_searches: Callable[..., SentenceSearches]
) -> None:
    searches = make_searches(model, beam=3)
    network = HeadMaskedNetwork(model, searches.make_head_mask([[]] * 3))
    with torch.inference_mode():
        found = searches.run_beam_search(network, [()] * 3, beam=3)
    expected = PyTorchEngine(model, 1).search([searches.source], searches.config)[0]
    assert_same(found, expected * 3)


def test_a_head_that_is_off_is_one_without_its_rows_of_the_output(
    make_model: Callable[..., Transformer], make_searches: Callable[..., SentenceSearches]
) -> None:
    model = make_model(num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    searches, heads = make_searches(model, beam=2), list_heads(model.config)
    with torch.inference_mode():
        found = searches.search_without_each_head(heads, lambda _: None)
    engines = [PyTorchEngine(without_rows(model, head), 1) for head in heads]
    expected = [engine.search([searches.source], searches.config)[0][0] for engine in engines]
    assert_same(found, expected)
    assert len({tuple(hypothesis.ids) for hypothesis in found}) > 1


def test_a_given_target_without_a_head(model: Transformer, make_searches: Callable[..., SentenceSearches]) -> None:
    searches, target = make_searches(model), [40, 7, 12, 1]
    heads = list_heads(model.config)[1::6]
    assert len({head.attention for head in heads}) == 3
    head_mask = HeadMask.from_masked_heads(model, [[head] for head in heads])
    with torch.inference_mode():
        outputs = run_teacher_forced(
            model, searches.make_source_ids(len(heads)), torch.tensor([target] * len(heads)), head_mask
        )
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
        traced, (greedy,) = together.run_traced_beam_search(), together.run_greedy_search([()])
    expected: Any = PyTorchEngine(changed, 1).search([searches.source], searches.config, 2)[0]
    assert_same(traced.finished[:2], expected)
    assert_same([greedy], make_searches(changed).run_greedy_search([()]))


SOURCE, TARGET = [5, 9, 7, 30, 1], [11, 12, 40, 1]
MODULES = {
    "encoder": "encoder.layers.{}.self_attention",
    "decoder": "decoder.layers.{}.self_attention",
    "encoder_decoder": "decoder.layers.{}.cross_attention",
}


def recorded(model: Transformer, off: list[Head]) -> dict[AttentionId, AttentionRecord]:
    recorder = Recorder(model, HeadMask.from_masked_heads(model, [off]))
    run_teacher_forced(model, torch.tensor([SOURCE]), torch.tensor([TARGET]), recorder)
    return recorder.records


def test_what_the_heads_add_is_what_fused_attention_gives(model: Transformer, watch: Callable[..., Any]) -> None:
    seen = watch(model, SOURCE, TARGET)
    for place, record in recorded(model, []).items():
        added = (record.attended[0] @ record.outputs).sum(dim=0) + record.attention.output.bias
        (own,) = seen[MODULES[place.attention].format(place.layer) + ".output"].outputs
        torch.testing.assert_close(added, own[0], rtol=1e-5, atol=2e-6)


def test_queries_keys_and_values_are_the_models(model: Transformer, watch: Callable[..., Any]) -> None:
    seen = watch(model, SOURCE, TARGET)
    for place, record in recorded(model, []).items():
        # Queries first, then keys and values; the encoder-decoder attention computes the two apart.
        projected = seen[MODULES[place.attention].format(place.layer) + ".projection"].outputs
        by_width = {part.size(-1): part for part in projected}
        heads, d_k, d_v = record.attention.num_heads, record.attention.d_k, record.attention.d_v
        if place.attention == "encoder_decoder":
            assert len(projected) == 2
            queries, rest = by_width[heads * d_k], by_width[heads * (d_k + d_v)]
            keys, values = rest.split([heads * d_k, heads * d_v], dim=-1)
        else:
            (whole,) = projected
            queries, keys, values = whole.split([heads * d_k, heads * d_k, heads * d_v], dim=-1)
        parts = (torch.unflatten(part, 2, (heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        queries, keys, values = parts
        if (rotary := record.attention.rotary_positions) is not None:
            queries, keys = rotary(queries), rotary(keys)
        for own, found in zip((queries, keys, values), (record.queries, *record.keys_and_values), strict=True):
            assert torch.equal(own, found)


def test_weights_are_shares_of_what_may_be_seen(model: Transformer) -> None:
    for place, record in recorded(model, []).items():
        weights = record.weights[0]
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:2]))
        if place.attention == "decoder":
            assert not weights.triu(diagonal=1).any()
            assert (weights[:, 0, 0] == 1).all()


def test_norms_are_the_lengths_of_what_is_added(model: Transformer) -> None:
    for record in recorded(model, []).values():
        values, weights, rows = record.keys_and_values.values[0], record.weights[0], record.attention.output.weight
        d_v = record.attention.d_v
        for head in range(record.attention.num_heads):
            of_head = rows[:, head * d_v : (head + 1) * d_v]
            added = (weights[head, :, :, None] * values[head]) @ of_head.T
            torch.testing.assert_close(record.added_norms[0, head], added.norm(dim=-1), rtol=1e-5, atol=1e-6)


def test_a_head_that_is_off_adds_nothing(make_model: Callable[..., Transformer]) -> None:
    off = Head(attention="encoder_decoder", layer=0, head=2)
    norms = recorded(make_model(), [off])[AttentionId("encoder_decoder", 0)].added_norms[0]
    assert not norms[2].any()
    assert (norms[[0, 1, 3]] > 0).all()


SENTENCE = "moon bird salt"
OUTPUTS = {
    "encoder": "encoder.layers.{}.self_attention.output",
    "decoder": "decoder.layers.{}.self_attention.output",
    "encoder_decoder": "decoder.layers.{}.cross_attention.output",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["paper", "pre", "two_way", "learned", "dot", "widths"])
def test_done_again_it_gives_what_the_model_computed(
    kind: str,
    make_model: Callable[..., Transformer],
    make_translator: Callable[..., Translator],
    watch: Callable[..., Any],
    unpacked: Callable[..., np.ndarray],
) -> None:
    model = make_model(kind)
    heads = list_heads(model.config)
    document = inspect_text(make_translator(model), InspectionRequest(text=SENTENCE, arithmetic=heads, include=[]))
    seen = watch(model, document["source"]["ids"], document["target"]["ids"])
    assert len(document["arithmetic"]) == len(heads)
    for one in document["arithmetic"]:
        arrays = {name: unpacked(one[name]) for name in ("query", "keys", "values", "output", "weights", "attended")}
        scores = one["scale"] * arrays["query"] @ arrays["keys"].T
        if one["attention"] == "decoder":
            scores[np.triu_indices(len(scores), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        assert weights == pytest.approx(arrays["weights"], abs=1e-6)
        attended = weights @ arrays["values"]
        assert attended == pytest.approx(arrays["attended"], abs=1e-5)
        added = attended @ arrays["output"]
        assert np.linalg.norm(added, axis=1) == pytest.approx(np.array(one["contribution_norms"]), abs=1e-5)
        # What went into W^O in the model's own pass, and the rows that belong to the head.
        d_v, number = one["d_v"], one["head"]
        own = seen[OUTPUTS[one["attention"]].format(one["layer"])].inputs[0][0]
        assert attended == pytest.approx(own[:, number * d_v : (number + 1) * d_v].numpy(), abs=1e-5)
        assert one["scale"] == (1.0 if kind == "dot" else one["d_k"] ** -0.5)


def test_the_heads_of_a_layer_add_up(
    make_model: Callable[..., Transformer],
    make_translator: Callable[..., Translator],
    watch: Callable[..., Any],
    unpacked: Callable[..., np.ndarray],
) -> None:
    model = make_model()
    heads = [Head(attention="encoder_decoder", layer=1, head=head) for head in range(4)]
    document = inspect_text(make_translator(model), InspectionRequest(text=SENTENCE, arithmetic=heads, include=[]))
    module = model.decoder.layers[1].cross_attention.output
    total = sum(unpacked(one["attended"]) @ unpacked(one["output"]) for one in document["arithmetic"])
    seen = watch(model, document["source"]["ids"], document["target"]["ids"])
    own = seen[OUTPUTS["encoder_decoder"].format(1)].outputs[0][0]
    assert total + module.bias.detach().numpy() == pytest.approx(own.numpy(), abs=1e-5)


def test_additive_scores_are_no_products(
    make_model: Callable[..., Transformer], make_translator: Callable[..., Translator]
) -> None:
    translator = make_translator(make_model("additive"))
    head = Head(attention="decoder", layer=0, head=0)
    with pytest.raises(UserError, match="dot-product attention only"):
        inspect_text(translator, InspectionRequest(text=SENTENCE, arithmetic=[head]))
    assert inspect_text(translator, InspectionRequest(text=SENTENCE, include=["arithmetic"]))["arithmetic"] == []


def test_as_many_heads_as_fit(
    make_model: Callable[..., Transformer],
    make_translator: Callable[..., Translator],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    translator = make_translator(make_model())
    wanted = Head(attention="decoder", layer=1, head=3)
    request = InspectionRequest(text=SENTENCE, arithmetic=[wanted], include=["arithmetic"])
    everything = inspect_text(translator, request)["arithmetic"]
    assert len(everything) == len(list_heads(translator.engine.model.config))
    sizes = [sum(len(one[name]["data"]) for name in one if isinstance(one[name], dict)) for one in everything]
    monkeypatch.setattr("transduce.inspection.attention.MAX_CHARACTERS", sum(sizes[:5]))
    assert inspect_text(translator, request)["arithmetic"] == everything[:5]
    assert (everything[0]["attention"], everything[0]["layer"], everything[0]["head"]) == ("decoder", 1, 3)
    monkeypatch.setattr("transduce.inspection.attention.MAX_CHARACTERS", 1)
    alone = InspectionRequest(text=SENTENCE, include=["arithmetic"])
    assert len(inspect_text(translator, alone)["arithmetic"]) == 1


@pytest.mark.parametrize("settings", [{}, {"num_encoder_layers": 3}, {"num_heads": 2, "num_decoder_layers": 5}])
def test_all_heads_have_their_turn(make_model: Callable[..., Transformer], settings: dict[str, int]) -> None:
    config = make_model(**settings).config
    heads = list(rotate_heads(config))
    assert len(heads) == len(set(heads))
    assert set(heads) == set(list_heads(config))
    assert {head.attention for head in heads[:3]} == {"encoder", "decoder", "encoder_decoder"}
