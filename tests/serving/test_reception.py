"""In which language a text is taken to be, and what follows from it."""

import httpx
import pytest

ENGLISH = "A man and a woman walk through the woods with their dog."
GERMAN = "Ein Mann und eine Frau gehen mit ihrem Hund durch den Wald."
FOREIGN = "<p title='der die das und nicht sich auf mit dem den ist im auch'></p>\n" * 60
"""Attributes in German: more than the detector reads."""


@pytest.mark.parametrize("head", ["", FOREIGN, "<style>" + GERMAN * 40 + "</style>", f"<!-- {GERMAN * 40} -->"])
@pytest.mark.parametrize("markup", [("/translate", "q", "format"), ("/v2/translate", "text", "tag_handling")])
def test_the_language_of_markup_is_that_of_its_text(
    client: httpx.Client, head: str, markup: tuple[str, str, str]
) -> None:
    path, name, kind = markup
    for text, language in ((ENGLISH, "en"), (GERMAN, "de")):
        page = head + "".join(f"<p><b>{word}</b></p>" if "." in word else f"{word} " for word in text.split(" "))
        asked: dict[str, object] = {name: [page], kind: "html"}
        asked |= {"source": "auto", "target": "de"} if path == "/translate" else {"target_lang": "DE"}
        found = client.post(path, json=asked).json()
        if path == "/translate":
            source, translated = found["detectedLanguage"][0]["language"], found["translatedText"][0]
        else:
            one = found["translations"][0]
            source, translated = one["detected_source_language"].lower(), one["text"]
        assert source == language
        assert (translated == page) == (language == "de")
        assert translated.startswith(head)


@pytest.mark.parametrize("text", ["Password", "Winter", "Stop", "OK", "Hotel"])
def test_a_word_that_may_be_of_the_target_language_is_translated(client: httpx.Client, text: str) -> None:
    found = client.post("/translate", json={"q": text, "source": "auto", "target": "de"}).json()
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] <= 50
    direct = client.post("/translate", json={"q": text, "source": "en", "target": "de"}).json()
    assert found["translatedText"] == direct["translatedText"]


def test_a_sentence_of_the_target_language_is_its_own_translation(client: httpx.Client) -> None:
    found = client.post("/translate", json={"q": GERMAN, "source": "auto", "target": "de"}).json()
    assert found["detectedLanguage"]["language"] == "de"
    assert found["translatedText"] == GERMAN
