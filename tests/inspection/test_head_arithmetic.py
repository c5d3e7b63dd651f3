from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transduce.errors import UserError
from transduce.inspection import Head, InspectionRequest, inspect_text
from transduce.inspection.head_arithmetic import in_turn
from transduce.inspection.head_switches import all_heads
from transduce.model import Transformer
from transduce.translation import Translator

SENTENCE = "moon bird salt"
MODULES = {
    "encoder": "encoder.layers.{}.self_attention.output",
    "decoder": "decoder.layers.{}.self_attention.output",
    "encoder_decoder": "decoder.layers.{}.memory_attention.output",
}


@pytest.mark.parametrize("kind", ["paper", "pre", "two_way", "learned", "dot", "widths"])
def test_done_again_it_gives_what_the_model_computed(
    kind: str,
    make_model: Callable[..., Transformer],
    make_translator: Callable[..., Translator],
    watch: Callable[..., Any],
    unpacked: Callable[..., np.ndarray],
) -> None:
    model = make_model(kind)
    heads = all_heads(model.config)
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
        own = seen[MODULES[one["attention"]].format(one["layer"])].inputs[0][0]
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
    module = model.decoder.layers[1].memory_attention.output
    total = sum(unpacked(one["attended"]) @ unpacked(one["output"]) for one in document["arithmetic"])
    seen = watch(model, document["source"]["ids"], document["target"]["ids"])
    own = seen[MODULES["encoder_decoder"].format(1)].outputs[0][0]
    assert total + module.bias.detach().numpy() == pytest.approx(own.numpy(), abs=1e-5)


def test_additive_scores_are_no_products(
    make_model: Callable[..., Transformer], make_translator: Callable[..., Translator]
) -> None:
    translator = make_translator(make_model("additive"))
    head = Head(attention="decoder", layer=0, head=0)
    with pytest.raises(UserError, match='attention_score is "additive"'):
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
    assert len(everything) == len(all_heads(translator.engine.model.config))
    sizes = [sum(len(one[name]["data"]) for name in one if isinstance(one[name], dict)) for one in everything]
    monkeypatch.setattr("transduce.inspection.head_arithmetic.MOST_CHARACTERS", sum(sizes[:5]))
    assert inspect_text(translator, request)["arithmetic"] == everything[:5]
    assert (everything[0]["attention"], everything[0]["layer"], everything[0]["head"]) == ("decoder", 1, 3)
    monkeypatch.setattr("transduce.inspection.head_arithmetic.MOST_CHARACTERS", 1)
    alone = InspectionRequest(text=SENTENCE, include=["arithmetic"])
    assert len(inspect_text(translator, alone)["arithmetic"]) == 1


@pytest.mark.parametrize("settings", [{}, {"num_encoder_layers": 3}, {"num_heads": 2, "num_decoder_layers": 5}])
def test_all_heads_have_their_turn(make_model: Callable[..., Transformer], settings: dict[str, int]) -> None:
    config = make_model(**settings).config
    heads = list(in_turn(config))
    assert len(heads) == len(set(heads))
    assert set(heads) == set(all_heads(config))
    assert {head.attention for head in heads[:3]} == {"encoder", "decoder", "encoder_decoder"}
