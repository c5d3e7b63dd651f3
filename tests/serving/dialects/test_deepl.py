"""What DeepL's clients send beyond what the official one does; that one is in `test_clients`."""

from typing import Any

import httpx
import pytest

from transduce.translation import Translator


@pytest.mark.exhaustive
def test_a_form_repeats_its_texts(client: httpx.Client, offline: Translator) -> None:
    form = {"text": ["Sun.", "Moon."], "target_lang": "DE", "source_lang": "EN"}
    answer = client.post("/v2/translate", data=form)
    sun, moon = offline.find_translations(["Sun.", "Moon."])
    assert answer.json() == {
        "translations": [
            {"detected_source_language": "EN", "text": one.text, "billed_characters": len(text)}
            for text, one in (("Sun.", sun), ("Moon.", moon))
        ]
    }


def test_what_is_in_the_target_language_is_its_own_translation(client: httpx.Client) -> None:
    text = "Die Sonne und der Mond scheinen heute auf den Fluss."
    (found,) = client.post("/v2/translate", json={"text": [text], "target_lang": "DE"}).json()["translations"]
    assert (found["text"], found["detected_source_language"]) == (text, "DE")


def test_line_ends_may_count_as_spaces(client: httpx.Client) -> None:
    def translate(text: str) -> str:
        asked = {"text": [text], "source_lang": "EN", "target_lang": "DE", "split_sentences": "nonewlines"}
        found: str = client.post("/v2/translate", json=asked).json()["translations"][0]["text"]
        return found

    assert translate("Sun \r\n\n and moon.") == translate("Sun and moon.")
    assert translate("Sun" + " " * 60_000 + "\n") == translate("Sun ")  # not after a minute


def test_languages_by_query(client: httpx.Client) -> None:
    assert client.get("/v2/languages").json() == [{"language": "EN", "name": "English"}]
    target = {"language": "DE", "name": "German", "supports_formality": False}
    assert client.get("/v2/languages", params={"type": "target"}).json() == [target]
    assert client.get("/v2/languages", params={"type": "other"}).status_code == 400


def test_usage_counts_characters(client: httpx.Client) -> None:
    before = client.get("/v2/usage").json()["character_count"]
    client.post("/v2/translate", json={"text": ["Sun.", "Moon."], "target_lang": "DE"})
    assert client.get("/v2/usage").json()["character_count"] == before + len("Sun.Moon.")


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        ({"target_lang": "DE"}, 400, "Parameter 'text' not specified"),
        ({"text": [], "target_lang": "DE"}, 400, "Parameter 'text' not specified"),
        ({"text": ["Sun."]}, 400, "Parameter 'target_lang' not specified"),
        ({"text": [1], "target_lang": "DE"}, 400, "text must be text"),
        ({"text": ["Sun."], "target_lang": "DE", "split_sentences": "2"}, 400, "must be one of 0, 1, nonewlines"),
        ({"text": ["Sun."], "target_lang": "DE", "style_id": "x"}, 400, "style_id is not supported"),
        ({"text": ["Sun."], "target_lang": "DE", "translation_memory_threshold": 75}, 400, "is not supported"),
        ({"text": ["Sun."], "target_lang": "DE", "formality": "more"}, 400, "must be one of default"),
        ({"text": ["Sun."], "target_lang": "DE", "outline_detection": 2}, 400, "must be true or false"),
        ({"text": ["Sun."], "target_lang": "DE", "outline_detection": "no"}, 400, "must be true or false"),
        ({"text": ["a"] * 1_001, "target_lang": "DE"}, 413, "1,001 texts"),
    ],
)
def test_errors_are_messages(client: httpx.Client, asked: dict[str, Any], status: int, message: str) -> None:
    answer = client.post("/v2/translate", json=asked)
    assert answer.status_code == status
    assert set(answer.json()) == {"message"}
    assert message in answer.json()["message"]


@pytest.mark.exhaustive
def test_outline_detection_may_be_off(client: httpx.Client) -> None:
    """Then no element divides sentences, as if all of them were said not to, unless it is said to."""

    def translated(**asked: Any) -> str:
        text = "<d><p>Sun and moon</p><p>river and stone</p></d>"
        answer = client.post("/v2/translate", json={"text": [text], "target_lang": "DE", "tag_handling": "xml"} | asked)
        found: str = answer.json()["translations"][0]["text"]
        return found

    usual = translated(outline_detection=True)
    assert translated(outline_detection=False) == translated(non_splitting_tags=["d", "p"]) != usual
    assert translated(outline_detection=0, splitting_tags=["d", "p"]) == usual


def test_what_makes_no_difference(client: httpx.Client) -> None:
    asked = {"text": ["Sun and moon."], "target_lang": "DE"}
    ignored = {
        "context": "Weather.",
        "enable_beta_languages": True,
        "model_type": "quality_optimized",
        "preserve_formatting": True,
        "show_billed_characters": True,
        "tag_handling_version": "v2",
    }
    plain, given = (client.post("/v2/translate", json=asked | more) for more in ({}, ignored))
    assert (given.status_code, given.json()) == (200, plain.json())
    said = client.get("/openapi.json").json()["paths"]["/v2/translate"]["post"]["requestBody"]["content"]
    for content in said.values():
        for name in ignored:
            assert content["schema"]["properties"][name]["description"].startswith("Has no effect")


def test_what_is_not_there_is_a_message(client: httpx.Client) -> None:
    answer = client.get("/v2/documents/1")
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})
