import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transduce.bundle import LogisticFit, RecordedConfidence
from transduce.config import SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.inspection import (
    EVERYTHING,
    Head,
    InspectedModel,
    InspectionDocument,
    InspectionRequest,
    inspect_text,
)
from transduce.inspection.attention import list_heads
from transduce.inspection.searches import SentenceSearches
from transduce.inspection.text_inspection import locate_code, make_source_side, make_target_side, number_words
from transduce.model import Transformer
from transduce.text import Tokenizer
from transduce.translation import Confidence, PyTorchEngine, Translator, score_ids, score_pairs
from transduce.translation.confidence.scoring import ForcedDecoder
from transduce.translation.engines.networks import ModelNetwork
from transduce.translation.engines.pytorch_engine import NetworkEngine


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        (["▁mo", "on", "▁sun", "</s>"], [0, 0, 1, 2]),
        (["▁", "mo", "on", "▁", "▁sun", "</s>"], [0, 0, 0, 1, 1, 2]),
        (["<0xC3>", "<0xA4>", "▁a", "</s>"], [0, 0, 1, 2]),
        (["▁a", "▁", "</s>"], [0, 0, 1]),
        (["<unk>", "▁a", "</s>"], [0, 1, 2]),
        (["</s>"], [0]),
        (["▁a", "▁b"], [0, 1]),
    ],
)
def test_pieces_belong_to_words(pieces: list[str], numbers: list[int]) -> None:
    assert number_words(pieces) == numbers


def test_a_source_has_no_probabilities(tokenizer: Tokenizer) -> None:
    ids = tokenizer.as_source(tokenizer.encode("moon river"))
    side = make_source_side("moon river", ids, tokenizer)
    assert side.ids == ids
    assert side.pieces == tokenizer.pieces(ids)
    assert side.log_probabilities is None
    assert side.steps is None


def test_a_target_is_judged_token_by_token(tokenizer: Tokenizer, make_sharp: Callable[[int], torch.Tensor]) -> None:
    ids = [33, 12, 1]
    log_probs = make_sharp(3)
    side = make_target_side("x", ids, log_probs, tokenizer)
    assert side.log_probabilities == pytest.approx([log_probs[row, token].item() for row, token in enumerate(ids)])
    assert side.steps is not None
    for step, token, row in zip(side.steps, ids, log_probs, strict=True):
        in_order = row.argsort(descending=True).tolist()
        assert step.chosen_rank == in_order.index(token) + 1
        assert step.entropy == pytest.approx(-sum(p.exp().item() * p.item() for p in row[:-1]), abs=1e-4)
        assert [choice.token for choice in step.alternatives] == in_order[:5]
        assert [choice.piece for choice in step.alternatives] == tokenizer.pieces(in_order[:5])
        expected = [row[choice.token].exp().item() for choice in step.alternatives]
        assert [choice.probability for choice in step.alternatives] == pytest.approx(expected, abs=1e-6)


@pytest.fixture
def make_sharp(tokenizer: Tokenizer) -> Callable[[int], torch.Tensor]:
    """Log-probabilities of some positions; `<pad>`, the last, has none."""

    def make(positions: int) -> torch.Tensor:
        logits = torch.randn(positions, tokenizer.vocabulary, generator=torch.Generator().manual_seed(3)) * 3
        logits[:, -1] = -torch.inf
        return logits.log_softmax(dim=-1)

    return make


PROJECT = Path(__file__).parents[2]


def test_every_place_is_there(model: Transformer) -> None:
    for topic, place in locate_code(model.config).items():
        lines = (PROJECT / place.file).read_text(encoding="utf-8").split("\n")
        source = place.source.split("\n")
        there = lines[place.line - 1 : place.line - 1 + len(source)]
        assert [line.strip() for line in there] == [line.strip() for line in source], topic
        assert any(line.startswith("def ") for line in source)


@pytest.mark.parametrize(
    ("kind", "topic", "words"),
    [
        ("paper", "positions", "def sinusoids("),
        ("learned", "positions", "max_positions"),
        ("rotary", "positions", "odd * sines"),
        ("none", "positions", "self.zero"),
        ("paper", "scaled_dot_product", "self.scale"),
        ("additive", "scaled_dot_product", "torch.tanh"),
        ("paper", "softmax", ".softmax(dim=-1)"),
        ("paper", "length_penalty", "(5 + length) / 6"),
    ],
)
def test_a_place_computes_what_its_topic_says(
    make_model: Callable[..., Transformer], kind: str, topic: str, words: str
) -> None:
    assert words in locate_code(make_model(kind).config)[topic].source


SENTENCE = "moon bird salt"
MakeModel = Callable[..., Transformer]
MakeTranslator = Callable[..., Translator]


@pytest.mark.exhaustive
def test_relative_positions_are_refused_by_name(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    translator = make_translator(make_model("none", positions="relative"))
    with pytest.raises(ConfigError, match=r'^model\.positions = "relative": .* inspect a model with other positions$'):
        inspect_text(translator, InspectionRequest(text=SENTENCE))


def test_all_kinds_of_models_are_looked_into(
    model: Transformer, make_translator: MakeTranslator, unpacked: Callable[..., np.ndarray]
) -> None:
    translator = make_translator(model)
    request = InspectionRequest(text=SENTENCE, reference="salt moon", include=list(EVERYTHING), beam=3)
    with torch.enable_grad():
        document = inspect_text(translator, request)
    assert InspectionDocument.model_validate(document).model_dump(mode="json") == document
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    best = translator.with_search({"beam": 3}).find_translations([SENTENCE], num_best=1)[0].alternatives[0]
    assert document["target"]["text"] == best.text
    assert document["target"]["pieces"] == list(best.pieces)
    assert document["greedy"]["text"] == translator.translate([SENTENCE], beam=1)[0]
    decoder = ForcedDecoder(model, translator.tokenizer, translator.search)
    for name, text in (("target", None), ("greedy", None), ("reference", "salt moon")):
        side = document[name]
        assert len({len(side[part]) for part in ("pieces", "ids", "words", "log_probabilities", "steps")}) == 1
        (scored,) = score_ids(decoder, [document["source"]["ids"]], [side["ids"]])
        assert side["log_probabilities"] == pytest.approx(scored.token_scores, abs=1e-5)
        if text is not None:
            (pair,) = score_pairs(decoder, [(SENTENCE, text)])
            assert (side["text"], side["pieces"]) == (text, [token.piece for token in pair.tokens])
    assert document["alternatives"][0]["log_probabilities"] == pytest.approx(
        document["target"]["log_probabilities"], abs=2e-5
    )
    queries, keys, config = len(document["target"]["ids"]), len(document["source"]["ids"]), model.config
    shapes = {
        "encoder": (config.num_encoder_layers, keys, keys),
        "decoder": (config.num_decoder_layers, queries, queries),
        "encoder_decoder": (config.num_decoder_layers, queries, keys),
    }
    for name, (layers, num_queries, num_keys) in shapes.items():
        maps = document["attention"][name]
        weights, norms = unpacked(maps["weights"]), unpacked(maps["norms"])
        assert weights.shape == norms.shape == (layers, 4, num_queries, num_keys)
        assert (maps["layers"], maps["heads"], maps["queries"], maps["keys"]) == weights.shape
        assert weights.sum(axis=-1) == pytest.approx(np.ones((layers, 4, num_queries)), abs=1e-3)
        assert norms.max() > 0
    length = max(queries, keys)
    if config.positions in {"none", "rotary"}:
        assert document["positions"] == {"kind": config.positions, "table": None}
    else:
        assert unpacked(document["positions"]["table"]) == pytest.approx(model.positions(length).numpy())
    assert len(document["pruned_heads"]) == len(list_heads(config))
    assert document["model"]["parameters"] == model.num_parameters
    assert document["model"]["config"] == config.model_dump(mode="json")


def test_what_is_not_asked_for_is_not_there(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    document = inspect_text(make_translator(make_model()), InspectionRequest(text=SENTENCE, include=[]))
    assert [name for name, value in document.items() if value is None] == [
        "reference", "confidence", "attention", "positions", "search", "layers",
    ]  # fmt: skip
    assert [name for name, value in document.items() if value == []] == [
        "arithmetic", "masked_heads", "pruned_heads", "continuations",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_layers_and_their_lens(model: Transformer, make_translator: MakeTranslator, watch: Callable[..., Any]) -> None:
    document = inspect_text(make_translator(model), InspectionRequest(text=SENTENCE, include=["layers"]))
    predictions, norms = document["layers"]["predictions"], document["layers"]["norms"]
    seen = watch(model, document["source"]["ids"], document["target"]["ids"])
    for position, step in enumerate(document["target"]["steps"]):
        expected = [{"piece": one["piece"], "probability": one["probability"]} for one in step["alternatives"][:3]]
        assert predictions[-1][position] == expected
    for layer, (of_layer, lengths) in enumerate(zip(predictions, norms, strict=True)):
        output, _ = seen[f"decoder.layers.{layer}"].outputs[0]
        assert lengths == pytest.approx(output[0].norm(dim=-1).tolist(), abs=1e-3)
        final = model.decoder.final
        logits = model.projection(output if final is None else final(output, torch.ones(output.shape[:2]).bool()))
        best = logits[0].softmax(dim=-1).max(dim=-1).values
        assert [row[0]["probability"] for row in of_layer] == pytest.approx(best.tolist(), abs=2e-6)


def test_a_translation_goes_on_from_a_prefix(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    translator = make_translator(make_model(), beam=2)
    document = inspect_text(translator, InspectionRequest(text=SENTENCE, prefix=[44, 12], include=["continuations"]))
    assert document["target"]["ids"][:2] == document["greedy"]["ids"][:2] == [44, 12]
    assert all(one["position"] >= 2 for one in document["continuations"])
    ended = inspect_text(translator, InspectionRequest(text=SENTENCE, prefix=[44, 1], include=list(EVERYTHING)))
    assert ended["target"]["ids"] == ended["greedy"]["ids"] == [44, 1]
    assert ended["continuations"] == []
    assert {one["text"] for one in ended["pruned_heads"]} == {ended["target"]["text"]}


@pytest.mark.exhaustive
def test_continuations_begin_with_the_target_and_another_token(
    make_model: MakeModel, make_translator: MakeTranslator
) -> None:
    translator = make_translator(make_model(), beam=3)
    document = inspect_text(translator, InspectionRequest(text=SENTENCE, include=["continuations"]))
    target = document["target"]
    assert len(document["continuations"]) == 4 * len(target["ids"])
    decoder = ForcedDecoder(translator.engine.model, translator.tokenizer, translator.search)
    for one in document["continuations"][:: 2 * len(target["ids"]) - 1]:
        begin = [*target["ids"][: one["position"]], one["token"]]
        assert one["token"] != target["ids"][one["position"]]
        assert one["pieces"][: len(begin)] == translator.tokenizer.pieces(begin)
        again = inspect_text(translator, InspectionRequest(text=SENTENCE, prefix=begin, beam=1, include=[]))["target"]
        assert (one["text"], one["pieces"]) == (again["text"], again["pieces"])
        (scored,) = score_ids(decoder, [document["source"]["ids"]], [again["ids"]])
        assert one["log_probabilities"] == pytest.approx(scored.token_scores, abs=2e-5)
        assert one["probability"] == pytest.approx(np.exp(scored.token_scores[one["position"]]), abs=1e-5)


def test_nothing_continues_a_translation_that_is_as_long_as_it_may_be(
    make_model: MakeModel, make_translator: MakeTranslator
) -> None:
    translator = make_translator(make_model(), beam=1, max_length=4, min_length=4)
    document = inspect_text(translator, InspectionRequest(text=SENTENCE, include=["continuations"]))
    assert len(document["target"]["ids"]) == 4
    assert {one["position"] for one in document["continuations"]} == {0, 1, 2}


def test_continuations_that_the_logits_processor_forbids_are_left_out(
    make_model: MakeModel, make_translator: MakeTranslator
) -> None:
    translator = make_translator(make_model(), beam=1, no_repeat_ngram=1)
    document = inspect_text(translator, InspectionRequest(text=SENTENCE, include=["continuations"]))
    assert document["continuations"]
    for one in document["continuations"]:
        assert len(set(one["pieces"])) == len(one["pieces"])


@pytest.mark.exhaustive
def test_the_translation_with_a_head_pruned_is_that_with_the_head_masked(
    make_model: MakeModel, make_translator: MakeTranslator, unpacked: Callable[..., np.ndarray]
) -> None:
    translator = make_translator(make_model(num_encoder_layers=1, num_decoder_layers=1), beam=2)
    messages: list[str] = []
    document = inspect_text(
        translator, InspectionRequest(text=SENTENCE, include=["pruned_heads"]), report=messages.append
    )
    assert messages[-1] == "12 of 12 heads pruned, one at a time"
    assert any(one["changed"] for one in document["pruned_heads"])
    assert len(document["pruned_heads"]) == 12
    for one in document["pruned_heads"][::4]:
        head = Head(attention=one["attention"], layer=one["layer"], head=one["head"])
        masked = inspect_text(translator, InspectionRequest(text=SENTENCE, masked_heads=[head], include=["attention"]))
        assert masked["masked_heads"] == [head.model_dump()]
        assert one["text"] == masked["target"]["text"]
        assert one["changed"] == (one["text"] != document["target"]["text"])
        assert one["log_probability"] == pytest.approx(sum(masked["target"]["log_probabilities"]), abs=1e-4)
        forced = InspectionRequest(text=SENTENCE, masked_heads=[head], prefix=document["target"]["ids"], include=[])
        total = sum(inspect_text(translator, forced)["target"]["log_probabilities"])
        assert one["log_probability_of_target"] == pytest.approx(total, abs=1e-4)
        norms = unpacked(masked["attention"][one["attention"]]["norms"])
        assert not norms[one["layer"], one["head"]].any()


@pytest.mark.exhaustive
def test_single_heads_are_tried_with_the_tokens_of_the_translation(
    make_model: MakeModel, make_translator: MakeTranslator
) -> None:
    """Not with those that its text would be cut into, which are others here."""
    translator = make_translator(make_model(num_encoder_layers=1, num_decoder_layers=1), beam=2)
    asked = {"text": SENTENCE, "prefix": [44, 12]}
    document = inspect_text(translator, InspectionRequest(**asked, include=["pruned_heads"]))
    target = document["target"]
    assert translator.tokenizer.as_target(translator.tokenizer.encode(target["text"])) != target["ids"]
    last, first = (Head(attention="decoder", layer=0, head=3), Head(attention="encoder", layer=0, head=1))
    request = InspectionRequest(**asked, without_each=[last, first, last], include=[])
    messages: list[str] = []
    single = inspect_text(translator, request, report=messages.append)["pruned_heads"]
    assert messages[-1] == "2 of 2 heads pruned, one at a time"
    for one, head in zip(single, (last, first), strict=True):
        (same,) = (known for known in document["pruned_heads"] if known.items() >= head.model_dump().items())
        assert (one["text"], one["changed"]) == (same["text"], same["changed"])
        assert one["log_probability"] == pytest.approx(same["log_probability"], abs=1e-4)
        assert one["log_probability_of_target"] == pytest.approx(same["log_probability_of_target"], abs=1e-4)
        assert one.items() >= head.model_dump().items()
    masked = inspect_text(translator, request.model_copy(update={"masked_heads": [first]}))
    assert [one["attention"] for one in masked["pruned_heads"]] == ["decoder"]


@pytest.mark.exhaustive
def test_more_threads_find_the_same(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    translator = make_translator(make_model(num_encoder_layers=1, num_decoder_layers=1), beam=2)
    request = InspectionRequest(text="moon", include=["pruned_heads", "continuations"])
    alone = inspect_text(translator, request)
    torch.set_num_threads(2)
    try:
        together = inspect_text(translator, request)
    finally:
        torch.set_num_threads(1)
    for name in ("pruned_heads", "continuations"):
        assert [one["text"] for one in together[name]] == [one["text"] for one in alone[name]]


def test_confidence_is_that_of_the_calibration(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    fit = LogisticFit(intercept=0.3, minimum=0.2, mean=0.4)
    names = {"share_right", "calibration_error_before", "calibration_error", "auc", "chrf_error", "chrf_error_of_mean"}
    figures: dict[str, Any] = dict.fromkeys(names, 0.5)
    recorded = RecordedConfidence(words=fit, sentences=fit, data={}, beam=1, num_pairs=2, num_words=1, **figures)
    confidence = Confidence(recorded)
    translator = make_translator(make_model())
    document = inspect_text(translator, InspectionRequest(text=SENTENCE), InspectedModel("toy", "abc", confidence))
    target = document["target"]
    words = confidence.estimate_words(target["pieces"], target["log_probabilities"])
    found = [(one["word"], one["confidence"]) for one in document["confidence"]["words"]]
    assert [word for word, _ in found] == target["text"].split() == [word for word, _ in words]
    assert [certain for _, certain in found] == pytest.approx([certain for _, certain in words], abs=1e-4)
    assert document["confidence"]["sentence"] == pytest.approx(
        confidence.estimate_chrf(target["log_probabilities"]), abs=0.01
    )
    assert (document["model"]["name"], document["model"]["digest"]) == ("toy", "abc")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"text": "  "}, "text: is blank"),
        ({"text": "moon " * 60}, "this model reads at most 40 at once"),
        ({"prefix": [310]}, "prefix: .310. must be ids of this model's tokens, from 0 to 308"),
        ({"prefix": [-1]}, "prefix: .-1. must be ids"),
        ({"prefix": [1, 33]}, "prefix: .1, 33. has tokens after 1"),
        (
            {"masked_heads": [Head(attention="encoder", layer=2, head=0)]},
            r"head encoder.3.1 \(from 1\): this model has 2",
        ),
        ({"arithmetic": [Head(attention="decoder", layer=0, head=4)]}, "head decoder.1.5"),
        ({"without_each": [Head(attention="decoder", layer=0, head=5)]}, "head decoder.1.6"),
        ({"reference": "zzzz " * 100}, "reference: has .* tokens, </s> included, but at most 128 can be inspected"),
    ],
)
def test_what_cannot_be_looked_into_is_said(
    make_model: MakeModel, make_translator: MakeTranslator, tokenizer: Tokenizer, values: dict[str, Any], words: str
) -> None:
    assert tokenizer.vocabulary == 310
    with pytest.raises(UserError, match=words):
        inspect_text(make_translator(make_model()), InspectionRequest(**{"text": SENTENCE, **values}))


def test_long_sides_are_refused(
    make_model: MakeModel, make_translator: MakeTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = make_translator(make_model(), max_pieces=200, min_length=8)
    with pytest.raises(UserError, match=r"text: has 131 tokens, </s> included, but at most 128 can be inspected"):
        inspect_text(translator, InspectionRequest(text="moon " * 130))
    learned = make_translator(make_model("learned"), max_pieces=200)
    with pytest.raises(UserError, match=r"reference: has \d+ tokens, </s> included, but at most 60 "):
        inspect_text(learned, InspectionRequest(text=SENTENCE, reference="moon " * 70))
    monkeypatch.setattr("transduce.inspection.searches.MAX_TOKENS", 6)
    with pytest.raises(UserError, match=r"translation: has \d tokens, </s> included, but at most 6 can be inspected"):
        inspect_text(translator, InspectionRequest(text=SENTENCE, beam=1))


def test_a_model_with_a_wide_beam_is_looked_into_with_another(
    make_model: MakeModel, make_translator: MakeTranslator
) -> None:
    translator = make_translator(make_model(), beam=17)
    with pytest.raises(UserError, match=r"beam: this model's own is 17, but .*: give a beam from 1 to 16"):
        inspect_text(translator, InspectionRequest(text=SENTENCE))
    assert inspect_text(translator, InspectionRequest(text=SENTENCE, beam=2))["search"]["beam"] == 2


def test_only_one_native_model_is_looked_into(make_model: MakeModel, tokenizer: Tokenizer) -> None:
    model = make_model()
    foreign = NetworkEngine(ModelNetwork(model), tokenizer.end_id, tokenizer.vocabulary)
    ensemble = PyTorchEngine(model, tokenizer.end_id, ensemble=[make_model(seed=1)])
    for engine, words in (
        (foreign, "NetworkEngine does not support inspection"),
        (ensemble, "an ensemble of 2 models"),
    ):
        with pytest.raises(ConfigError, match=words):
            inspect_text(Translator(engine, tokenizer, SearchConfig()), InspectionRequest(text=SENTENCE))


def test_the_mode_of_the_model_is_put_back(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    model = deepcopy(make_model()).train()
    first, second = (inspect_text(make_translator(model), InspectionRequest(text=SENTENCE)) for _ in range(2))
    assert model.training
    assert first == second


def test_the_engines_precision_does_not_matter(
    make_model: MakeModel, make_translator: MakeTranslator, tokenizer: Tokenizer
) -> None:
    model = make_model()
    exact = make_translator(model)
    rough = Translator(PyTorchEngine(model, tokenizer.end_id, "bfloat16"), tokenizer, exact.search, "en", "xx")
    request = InspectionRequest(text=SENTENCE, beam=2)
    assert inspect_text(rough, request) == inspect_text(exact, request)


def test_searches_are_those_of_the_request(
    make_searches: Callable[..., SentenceSearches], make_model: MakeModel
) -> None:
    searches = make_searches(make_model())
    assert searches.decode([searches.tokenizer.end_id]) == ""
    assert searches.make_task([(), (44,), (44, 1)]).max_lengths == [
        len(searches.source) + 4, len(searches.source) + 5, 2,
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_whatever_a_checkpoint_raises_ends_it_there(make_model: MakeModel, make_translator: MakeTranslator) -> None:
    """Every search and every pass is divided by checkpoints, so that nobody waits long for the end."""
    translator = make_translator(make_model())
    request = InspectionRequest(text=SENTENCE, include=list(EVERYTHING))
    passed = 0

    def check_cancelled() -> None:
        nonlocal passed
        passed += 1
        if passed == last:
            raise TimeoutError

    last = -1
    counts = []
    for include in ([], ["pruned_heads"], ["continuations"], list(EVERYTHING)):
        passed = 0
        inspect_text(translator, InspectionRequest(text=SENTENCE, include=include), check_cancelled=check_cancelled)
        counts.append(passed)
    assert counts[0] < min(counts[1:3]) <= max(counts[1:3]) < counts[3]
    num_checkpoints = counts[3]
    for last in (1, num_checkpoints // 2, num_checkpoints):
        passed = 0
        with pytest.raises(TimeoutError):
            inspect_text(translator, request, check_cancelled=check_cancelled)
        assert passed == last
