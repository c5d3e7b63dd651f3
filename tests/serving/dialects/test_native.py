"""Our own dialect: everything that the engine can do, and errors that say what is wrong."""

import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.dialects.native import TranslateRequest
from transduce.serving.scheduling import Limits
from transduce.text import Tokenizer
from transduce.translation import ForcedDecoder, TranslationOptions, Translator, score_ids, score_pairs

TEXT = "Sun and moon.\n\n  River, salt and wind. 12"


def post(client: httpx.Client, path: str, **asked: Any) -> dict[str, Any]:
    answer = client.post(path, json=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_everything_about_a_translation(client: httpx.Client, offline: Translator) -> None:
    answer = post(client, "/v1/translate", text=TEXT, num_best=2)
    sources = ["Sun and moon.", "River, salt and wind."]  # what has no letters stays as it is
    expected = offline.find_translations(sources, num_best=2)
    (found,) = answer["translations"]
    assert (answer["target"], found["source"], found["source_probability"]) == ("de", "en", 1.0)
    assert [one["source"] for one in found["sentences"]] == sources
    for sentence, translation in zip(found["sentences"], expected, strict=True):
        assert [one["text"] for one in sentence["translations"]] == [one.text for one in translation.alternatives]
        scores = [one["score"] for one in sentence["translations"]]
        assert scores == pytest.approx([one.score for one in translation.alternatives], abs=1e-4)
        best = translation.alternatives[0]
        assert [one["piece"] for one in sentence["tokens"]] == list(best.pieces)
        assert [one["log_probability"] for one in sentence["tokens"]] == pytest.approx(best.token_scores, abs=1e-4)
    first = [one.alternatives[0] for one in expected]
    assert found["text"] == f"{first[0].text}\n\n  {first[1].text} 12"
    assert found["score"] == pytest.approx(sum(one.score for one in first), abs=1e-4)
    assert len(found["alternatives"]) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"beam": 3},
        {"length_penalty": 1.0},
        {"min_length": 6},
        {"max_length": 4},
        {"no_repeat_ngram": 2},
        {"repetition_penalty": 1.5},
        {"diversity": 0.5},
        {"prefix": "The"},
        {"require": ["tree"]},
        {"forbid": ["a"]},
        {"protect": ["url", "number"]},
        {"glossary": {"moon": "Mond"}},
        {"guard": True},
        {"num_samples": 3, "temperature": 0.5, "top_k": 5, "top_p": 0.9, "seed": 7, "num_best": 2},
        {"num_samples": 4, "minimum_bayes_risk": True},
        {"split_sentences": False},
        {"align": True},
        {"deadline_seconds": 20},
        {"source": "auto"},
        {"source": None, "target": None},
        {"format": "html"},
        {"format": "xml"},
    ],
)
def test_every_option_is_granted(client: httpx.Client, options: dict[str, Any]) -> None:
    (found,) = post(client, "/v1/translate", text="The sun and the moon are shining.", **options)["translations"]
    assert isinstance(found["text"], str)
    assert found["text"].startswith(options.get("prefix", ""))
    assert all(phrase in found["text"] for phrase in options.get("require", ()))
    assert not any(phrase in found["text"].split() for phrase in options.get("forbid", ()))
    assert ("Mond" in found["text"]) or "glossary" not in options
    if "num_best" in options:
        assert len(found["alternatives"]) == options["num_best"] - 1
    utilities = [one["utility"] for one in found["sentences"][0]["translations"]] if "format" not in options else []
    assert all((utility is not None) is ("minimum_bayes_risk" in options) for utility in utilities)
    if "align" in options:
        assert found["sentences"][0]["alignment"] is not None


def test_what_is_for_searching_is_not_for_samples(client: httpx.Client) -> None:
    answer = client.post("/v1/translate", json={"text": "Sun.", "num_samples": 2, "beam": 3})
    assert answer.status_code == 422
    assert "beam = 3" in answer.json()["detail"]


@pytest.mark.parametrize("form", ["text", "html", "xml"])
def test_what_is_too_much_is_too_much_for_no_texts(client: httpx.Client, form: str) -> None:
    answer = client.post("/v1/translate", json={"text": [], "num_samples": 17, "format": form})
    assert answer.status_code == 422
    assert "num_samples = 17" in answer.json()["detail"]


@pytest.mark.parametrize("options", [{"num_samples": 1, "seed": 3}, {"num_samples": 3, "minimum_bayes_risk": True}])
@pytest.mark.parametrize("form", ["html", "xml"])
def test_samples_are_drawn_for_what_lies_between_tags(client: httpx.Client, form: str, options: dict[str, Any]) -> None:
    """One of the texts has tags within its sentence, the other has none."""
    texts = ["<p>Sun and <b>moon</b>.</p>", "<p>River.</p>"]
    found = post(client, "/v1/translate", text=texts, format=form, **options)["translations"]
    parts = post(client, "/v1/translate", text=["Sun and ", "moon", ".", "River."], **options)["translations"]
    sun, moon, stop, river = (escape(one["text"], quote=False) for one in parts)
    assert [one["text"] for one in found] == [f"<p>{sun}<b>{moon}</b>{stop}</p>", f"<p>{river}</p>"]


def test_markup_has_one_translation(client: httpx.Client) -> None:
    given = {"text": "<p>Sun.</p>", "num_samples": 2}
    answer = client.post("/v1/translate", json={**given, "format": "html"})
    assert answer.status_code == 422
    assert "num_samples = 2: a document has one translation" in answer.json()["detail"]
    assert client.post("/v1/translate", json=given).status_code == 200


def test_the_request_has_all_options() -> None:
    about_texts = {"text", "source", "target", "format", "deadline_seconds"}
    assert set(TranslateRequest.model_fields) - about_texts == set(TranslationOptions.model_fields)
    assert TranslateRequest(text="x").make_options() == TranslationOptions()


def test_a_seed_repeats_its_samples(client: httpx.Client) -> None:
    asked = {"text": "Sun and moon.", "num_samples": 2, "num_best": 2}
    first, again, other = (post(client, "/v1/translate", seed=seed, **asked) for seed in (1, 1, 2))
    assert first == again != other


def test_several_texts_in_order(client: httpx.Client) -> None:
    texts = ["Sun.", "", "Moon and stone.", "\n"]
    found = post(client, "/v1/translate", text=texts)["translations"]
    alone = [post(client, "/v1/translate", text=text)["translations"][0]["text"] for text in texts]
    assert [one["text"] for one in found] == alone
    assert post(client, "/v1/translate", text=[])["translations"] == []


def test_scores_are_those_of_the_command(client: httpx.Client, bundle: Any) -> None:
    pairs = [("Sun and moon.", "Wind."), ("", ""), ("Sun.", "")]
    asked = [{"text": source, "translation": target} for source, target in pairs]
    found = post(client, "/v1/score", pairs=asked)["scores"]
    expected = score_pairs(ForcedDecoder.load(bundle, device="cpu"), pairs)
    for one, score in zip(found, expected, strict=True):
        assert one["score"] == pytest.approx(score.score, abs=1e-4)
        assert one["log_probability"] == pytest.approx(score.log_probability, abs=1e-4)
        assert [token["piece"] for token in one["tokens"]] == [token.piece for token in score.tokens]


def test_a_translation_scores_what_it_was_found_with(client: httpx.Client, tokenizer: Tokenizer, bundle: Any) -> None:
    """Token by token: its text may be spelled in other tokens, which have another score."""
    (found,) = post(client, "/v1/translate", text="Sun and moon.")["translations"]
    tokens = found["sentences"][0]["tokens"]
    ids_of = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
    ids = [ids_of[token["piece"]] for token in tokens]
    sources = [tokenizer.as_source(tokenizer.encode("Sun and moon."))]
    (score,) = score_ids(ForcedDecoder.load(bundle, device="cpu"), sources, [ids])
    assert score.score == pytest.approx(found["score"], abs=1e-4)
    assert score.token_scores == pytest.approx([token["log_probability"] for token in tokens], abs=1e-4)


def test_inspection(client: httpx.Client) -> None:
    found = post(client, "/v1/inspect", text="Sun and moon.", include=["attention"], reference="Wind.")
    assert found["format"] == "transduce-inspection"
    assert found["model"]["name"]
    assert found["attention"]["encoder"]["heads"] == 4
    assert found["reference"]["text"] == "Wind."
    assert found["search"] is None


def test_models(client: httpx.Client) -> None:
    (found,) = post_models = client.get("/v1/models").json()["models"]
    assert len(post_models) == 1
    assert (found["source"], found["target"], found["engine"], found["precision"]) == ("en", "de", "native", "float32")
    assert len(found["digest"]) == 64


@pytest.mark.parametrize(
    ("path", "asked", "status", "detail"),
    [
        ("translate", {}, 422, "body.text: Field required"),
        ("translate", {"text": 1}, 422, "body.text"),
        ("translate", {"text": "Sun.", "beem": 4}, 422, "body.beem: Extra inputs are not permitted"),
        ("translate", {"text": "Sun.", "beam": "4"}, 422, "body.beam: Input should be a valid integer"),
        ("translate", {"text": "Sun.", "beam": 0}, 422, "body.beam: Input should be greater than or equal to 1"),
        ("translate", {"text": "Sun.", "beam": 17}, 422, "beam = 17: this service allows at most 16"),
        ("translate", {"text": "Sun.", "num_best": 9}, 422, "num_best = 9: this service allows at most 8"),
        ("translate", {"text": "Sun.", "num_samples": 2, "guard": True}, 422, "use one of them"),
        ("translate", {"text": "Sun.", "require": [" "]}, 422, "body.require.0"),
        ("translate", {"text": "Sun.", "glossary": {"a": "\ud800"}}, 422, "unpaired surrogate"),
        ("translate", {"text": "Sun. \udfff"}, 422, "unpaired surrogate"),
        ("translate", {"text": "Sun.", "format": "html", "num_best": 2}, 422, "need plain text"),
        ("translate", {"text": "Sun.", "deadline_seconds": 61}, 422, "deadline_seconds = 61"),
        ("translate", {"text": "Sun.", "source": "fr"}, 404, "no model translates from 'fr'; there are en"),
        ("translate", {"text": "Sun.", "target": "fr"}, 404, "no model translates into 'fr'; there are de"),
        ("translate", {"text": "a" * 500_001}, 413, "500,001 characters"),
        ("score", {"pairs": [{"text": "Sun."}]}, 422, "body.pairs.0.translation: Field required"),
        ("score", {"pairs": [{"text": "Sun.", "translation": "x"}], "source": "auto"}, 404, "no model translates from"),
        ("score", {"pairs": [{"text": "a", "translation": "b"}] * 1_001}, 413, "1,001 texts"),
        ("inspect", {"text": " "}, 422, "text"),
        ("inspect", {"text": "Sun.", "masked_heads": [{"attention": "encoder", "layer": 5, "head": 0}]}, 422, ""),
        ("inspect", {"text": "sun " * 400}, 422, "this model reads at most 40 at once"),
    ],
)
def test_problems(client: httpx.Client, path: str, asked: dict[str, Any], status: int, detail: str) -> None:
    answer = client.post(f"/v1/{path}", content=json.dumps(asked), headers={"Content-Type": "application/json"})
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert detail in problem["detail"]


def test_a_body_that_is_no_json(client: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b"{", b"\xff", b"[" * 100_000, b'{"text": ' + b"9" * 5_000 + b"}"):
        answer = client.post("/v1/translate", content=body, headers=headers)
        assert answer.status_code in {400, 422}
        assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("body", [b"\\u", b'{"text": "\\u00e4"}'])
def test_a_body_that_is_not_said_to_be_json(client: httpx.Client, body: bytes) -> None:
    assert client.post("/v1/translate", content=body, headers={"Content-Type": "text/plain"}).status_code == 422


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("translate", {"text": [1] * 100_000}),
        ("translate", {"text": "Sun.", "require": [1] * 100_000}),
        ("score", {"pairs": [1] * 100_000}),
        ("inspect", {"text": "Sun.", "include": ["x"] * 100_000}),
    ],
)
def test_of_a_million_mistakes_the_first_is_told(client: httpx.Client, path: str, asked: dict[str, Any]) -> None:
    answer = client.post(f"/v1/{path}", json=asked)
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) <= 2


@pytest.mark.parametrize("place", ["body", "prefix", "pairs"])
def test_an_object_has_no_more_names_than_it_can_need(client: httpx.Client, place: str) -> None:
    wide = {f"n{number}": 1 for number in range(1_001)}
    asked = {"body": wide, "prefix": {"text": "Sun.", "prefix": wide}, "pairs": {"pairs": [wide]}}[place]
    answer = client.post(f"/v1/{'score' if place == 'pairs' else 'translate'}", json=asked)
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "an object in the body has more than 1,000 names: split the request",
    )


@pytest.mark.parametrize("max_terms", [100, 1_500])
def test_a_glossary_has_as_many_terms_as_the_service_allows(
    make_running: Callable[..., Any], bundle: Path, max_terms: int
) -> None:
    server = make_running(bundle, limits=Limits(max_terms=max_terms))
    with httpx.Client(base_url=server.url) as client:
        for num_terms in (max_terms, max_terms + 1, 2_000):
            glossary = {f"moon {number}": f"Mond {number}" for number in range(num_terms)}
            answer = client.post("/v1/translate", json={"text": "Sun and moon 7.", "glossary": glossary})
            if num_terms == max_terms:
                assert "Mond 7" in answer.json()["translations"][0]["text"]
            else:
                message = f"{num_terms:,} phrases and terms: this service allows at most {max_terms:,} per request"
                assert (answer.status_code, answer.json()["detail"]) == (413, f"{message}; leave some out")


@pytest.mark.parametrize(
    ("body", "key"),
    [(b'{"text": "Sun.", "text": "Moon."}', "text"), (b'{"text": "Sun.", "glossary": {"a": "b", "a": "c"}}', "a")],
)
def test_a_key_that_is_given_twice_is_refused(client: httpx.Client, body: bytes, key: str) -> None:
    answer = client.post("/v1/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert f"an object in the body has the key '{key}' twice: give it once" in answer.json()["detail"]


def test_bytes_of_half_a_character_are_refused(client: httpx.Client) -> None:
    body = b'{"text": "sun \xed\xa0\x80 moon"}'
    response = client.post("/v1/translate", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert "unpaired surrogate" in response.json()["detail"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("translate", {"text": "sun \ud800 moon"}),
        ("translate", {"text": ["sun"], "glossary": {"\udfff": "x"}}),
        ("score", {"pairs": [{"text": "sun", "translation": "\ud800"}]}),
        ("inspect", {"text": "sun", "reference": "\ud800"}),
    ],
)
def test_half_a_character_is_refused_in_any_encoding(
    client: httpx.Client, path: str, asked: dict[str, Any], encoding: str
) -> None:
    headers = {"Content-Type": "application/json"}
    for text in (json.dumps(asked), json.dumps(asked, ensure_ascii=False)):
        body = text.encode(encoding, "surrogatepass")
        response = client.post(f"/v1/{path}", content=body, headers=headers)
        assert response.status_code == 422
        assert "unpaired surrogate" in response.json()["detail"]
    body = json.dumps({"text": "sun and möon"}, ensure_ascii=False).encode(encoding)
    assert client.post("/v1/translate", content=body, headers=headers).status_code == 200
