"""The clients that people have, unmodified: every call of theirs that a translation server answers."""

import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import deepl
import docx
import httpx
import pytest
from argostranslate.apis import LibreTranslateAPI as ArgosTranslateAPI
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException, ServerException
from libretranslatepy import LibreTranslateAPI

from transduce.translation import Translator

KEY = "correct-horse-battery"
OTHER_KEY = "another-horse-battery"
LANGUAGES = [
    {"code": "en", "name": "English", "targets": ["de"]},
    {"code": "de", "name": "German", "targets": ["en"]},
]
ENGLISH = "The sun and the moon are shining on the river today."
GERMAN = "Die Sonne und der Mond scheinen heute auf den Fluss."


@pytest.fixture(scope="module")
def both_ways(make_running: Callable[..., Any], make_bundle: Callable[..., Path], tmp_path_factory: Any) -> Any:
    """Translates both ways, for those who have the key."""
    folder = tmp_path_factory.mktemp("both-ways")
    pairs = (("en", "de"), ("de", "en"))
    models = [make_bundle(folder / source, number, source, target) for number, (source, target) in enumerate(pairs)]
    return make_running(*models, keys=(KEY, OTHER_KEY))


@pytest.fixture(scope="module")
def expected(both_ways: Any, tmp_path_factory: Any) -> Callable[[str, str], str]:
    """What the model of a source language makes of one sentence, without a server."""
    translators = {
        source: Translator.load(path, device="cpu", precision="float32")
        for source, path in zip(("en", "de"), both_ways.service._models._paths, strict=True)
    }
    return lambda source, text: translators[source].find_translations([text])[0].text


@pytest.mark.exhaustive
@pytest.mark.parametrize("make", [LibreTranslateAPI, ArgosTranslateAPI])
def test_libretranslatepy_and_argostranslate(make: Any, both_ways: Any, expected: Any) -> None:
    api = make(both_ways.url, KEY)
    assert api.translate("Sun and moon.", "en", "de") == expected("en", "Sun and moon.")
    assert api.translate("Sonne + Mond & 1 %.", source="de", target="en") == expected("de", "Sonne + Mond & 1 %.")
    assert api.translate(GERMAN, "auto", "en") == expected("de", GERMAN)
    assert api.languages() == LANGUAGES
    assert make(both_ways.url + "/").languages() == LANGUAGES  # needs no key
    best, *_ = api.detect(GERMAN)
    assert best["language"] == "de"
    assert 90 < best["confidence"] <= 100


@pytest.mark.parametrize("make", [LibreTranslateAPI, ArgosTranslateAPI])
@pytest.mark.parametrize(
    ("key", "source", "status"),
    [(None, "en", 400), ("", "en", 400), ("some-other-key-of-mine", "en", 403), (KEY, "zz", 400)],
)
def test_their_errors(make: Any, both_ways: Any, key: str | None, source: str, status: int) -> None:
    with pytest.raises(HTTPError) as raised:
        make(both_ways.url, key).translate("Sun.", source, "de")
    assert raised.value.code == status
    assert set(httpx.Response(status, content=raised.value.read()).json()) == {"error"}
    raised.value.close()


@pytest.mark.exhaustive
def test_deep_translator(both_ways: Any, expected: Any, tmp_path: Path) -> None:
    translator = LibreTranslator(source="en", target="de", api_key=KEY, custom_url=both_ways.url + "/")
    assert translator.translate("Sun & moon + 1 %.") == expected("en", "Sun & moon + 1 %.")
    assert translator.translate_batch(["Sun.", "Moon."]) == [expected("en", "Sun."), expected("en", "Moon.")]
    path = tmp_path / "text.txt"
    path.write_text("The river.", encoding="utf-8")
    assert translator.translate_file(str(path)) == expected("en", "The river.")
    automatic = LibreTranslator(source="auto", target="en", api_key=KEY, custom_url=both_ways.url + "/")
    assert automatic.translate(GERMAN) == expected("de", GERMAN)


def test_its_errors(both_ways: Any) -> None:
    with pytest.raises(AuthorizationException):
        LibreTranslator(source="en", target="de", api_key="x", custom_url=both_ways.url + "/").translate("Sun.")
    with pytest.raises(ServerException):
        LibreTranslator(source="en", target="fr", api_key=KEY, custom_url=both_ways.url + "/").translate("Sun.")


def test_deepl_translates(both_ways: Any, expected: Any) -> None:
    with deepl_client(both_ways.url) as client:
        one = client.translate_text("Sun and moon.", source_lang="EN", target_lang="DE")
        assert (one.text, one.detected_source_lang) == (expected("en", "Sun and moon."), "EN")
        assert one.billed_characters == len("Sun and moon.")
        several = client.translate_text([ENGLISH, GERMAN, ""], target_lang="EN-US")
        assert [one.detected_source_lang for one in several[:2]] == ["EN", "DE"]
        assert [one.text for one in several] == [ENGLISH, expected("de", GERMAN), ""]
        harmless = client.translate_text(
            "Sun.",
            source_lang="en",
            target_lang="de",
            context="A story.",
            preserve_formatting=True,
            formality=deepl.Formality.PREFER_MORE,
            model_type=deepl.ModelType.LATENCY_OPTIMIZED,
            outline_detection=False,
            extra_body_parameters={"anything": 1},
        )
        assert harmless.text == expected("en", "Sun.")


def test_deepl_divides_as_it_is_told(both_ways: Any, expected: Any) -> None:
    text = "Sun.\nMoon."
    with deepl_client(both_ways.url) as client:

        def translated(split: deepl.SplitSentences) -> str:
            return client.translate_text(text, source_lang="EN", target_lang="DE", split_sentences=split).text

        assert translated(deepl.SplitSentences.ALL) == f"{expected('en', 'Sun.')}\n{expected('en', 'Moon.')}"
        assert translated(deepl.SplitSentences.NO_NEWLINES) == f"{expected('en', 'Sun.')} {expected('en', 'Moon.')}"
        assert translated(deepl.SplitSentences.OFF) == expected("en", text)


def test_deepl_keeps_markup(both_ways: Any, expected: Any) -> None:
    with deepl_client(both_ways.url) as client:
        html = client.translate_text(
            "<p>Sun.</p><hr><code>x</code>", target_lang="DE", source_lang="EN", tag_handling="html"
        )
        assert html.text == f"<p>{expected('en', 'Sun.')}</p><hr><code>x</code>"
        xml = client.translate_text(
            "<a><b>Sun.</b><c>Moon.</c><d>River.</d></a>",
            source_lang="EN",
            target_lang="DE",
            tag_handling="xml",
            ignore_tags=["c", "e"],
            splitting_tags="b,c",
            non_splitting_tags=["f"],
        )
        assert xml.text == f"<a><b>{expected('en', 'Sun.')}</b><c>Moon.</c><d>{expected('en', 'River.')}</d></a>"


def test_deepl_asks_what_there_is(both_ways: Any) -> None:
    with deepl_client(both_ways.url) as client:
        assert [(one.code, one.name) for one in client.get_source_languages()] == [("EN", "English"), ("DE", "German")]
        targets = client.get_target_languages()
        assert [one.code for one in targets] == ["DE", "EN-GB", "EN-US"]
        assert not any(one.supports_formality for one in targets)
        for target in targets:  # what the client lists, it can ask for
            assert client.translate_text(ENGLISH, target_lang=target).text
        usage = client.get_usage()
        assert usage.character.valid
        assert usage.character.count > 0
        assert not usage.any_limit_reached


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_lang": "FR"}, "target_lang"),
        ({"target_lang": "DE", "source_lang": "FR"}, "source_lang"),
        ({"target_lang": "DE", "source_lang": "EN", "formality": "more"}, "formality"),
        ({"target_lang": "DE", "custom_instructions": ["Be brief."]}, "custom_instructions"),
        ({"target_lang": "DE", "tag_handling": "markdown"}, "tag_handling"),
    ],
)
def test_deepl_is_told_what_is_not_offered(both_ways: Any, options: dict[str, Any], message: str) -> None:
    with deepl_client(both_ways.url) as client, pytest.raises(deepl.DeepLException, match=message) as raised:
        client.translate_text("Sun.", **options)
    assert raised.value.http_status_code == 400
    assert not raised.value.should_retry


def test_deepl_needs_the_key(both_ways: Any) -> None:
    with deepl_client(both_ways.url, "some-other-key-of-mine") as client, pytest.raises(deepl.AuthorizationException):
        client.get_usage()


def test_deepl_tries_again_while_the_server_is_not_ready(both_ways: Any, expected: Any) -> None:
    """The first answer is 503; the client comes back by itself, after a second."""
    both_ways.service._is_open = False
    opening = threading.Timer(0.3, setattr, (both_ways.service, "_is_open", True))
    opening.start()
    with deepl_client(both_ways.url) as client:
        assert client.translate_text("Sun.", source_lang="EN", target_lang="DE").text == expected("en", "Sun.")
    opening.join()


def test_deepl_keeps_glossaries(both_ways: Any, tmp_path: Path) -> None:
    terms = {"moon": "Mond", "river bank": "Ufer", "Straße & Co.": "<Str.>"}
    with deepl_client(both_ways.url) as client:
        assert [(one.source_lang, one.target_lang) for one in client.get_glossary_languages()] == [
            ("en", "de"),
            ("de", "en"),
        ]
        assert client.list_glossaries() == []
        made = client.create_glossary("Sky", "EN", "DE", terms)
        assert (made.name, made.ready, made.source_lang, made.target_lang, made.entry_count) == (
            *("Sky", True, "EN", "DE"),
            3,
        )
        assert abs((datetime.now(UTC) - made.creation_time).total_seconds()) < 60
        assert client.get_glossary_entries(made) == terms
        assert client.get_glossary(made.glossary_id).name == "Sky"
        csv = client.create_glossary_from_csv("From CSV", "EN", "DE", 'moon,"Mond, der",en,de\r\nsun,Sonne\r\n')
        assert client.get_glossary_entries(csv.glossary_id) == {"moon": "Mond, der", "sun": "Sonne"}
        assert [one.glossary_id for one in client.list_glossaries()] == [made.glossary_id, csv.glossary_id]
        assert "Mond" in client.translate_text_with_glossary("Sun and moon.", made).text
        assert "Mond, der" in client.translate_text_with_glossary("Sun and moon.", csv).text
        assert (
            "Mond"
            in client.translate_text(
                "Sun <b>and moon</b>.", glossary=made, source_lang="EN", target_lang="DE", tag_handling="html"
            ).text
        )
        (tmp_path / "sun.txt").write_text("Sun and moon.", encoding="utf-8")
        client.translate_document_from_filepath(
            tmp_path / "sun.txt", tmp_path / "sonne.txt", source_lang="EN", target_lang="DE", glossary=made
        )
        assert "Mond" in (tmp_path / "sonne.txt").read_text(encoding="utf-8")
        back = client.create_glossary("Back", "DE", "EN", {"Mond": "satellite"})
        assert "satellite" in client.translate_text_with_glossary("Der Mond.", back, target_lang="EN-US").text
        with deepl_client(both_ways.url, OTHER_KEY) as other:  # has none of them
            assert other.list_glossaries() == []
            with pytest.raises(deepl.GlossaryNotFoundException):
                other.get_glossary_entries(made)
            with pytest.raises(deepl.GlossaryNotFoundException):
                other.delete_glossary(made)
            with pytest.raises(deepl.DeepLException, match="there is no such glossary"):
                other.translate_text_with_glossary("Moon.", made)
        for one in (made, csv, back):
            client.delete_glossary(one)
        assert client.list_glossaries() == []
        with pytest.raises(deepl.DeepLException, match="there is no such glossary"):
            client.translate_text_with_glossary("Moon.", made)


class deepl_client:  # noqa: N801 - used as a function
    """The client, closed in the end."""

    def __init__(self, url: str, key: str = KEY) -> None:
        self._client = deepl.DeepLClient(key, server_url=url)

    def __enter__(self) -> deepl.DeepLClient:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.close()


def test_deepl_translates_documents(both_ways: Any, expected: Any, tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("Sun and moon.").runs[0].italic = True
    document.save(str(tmp_path / "sun.docx"))
    with deepl_client(both_ways.url) as client:
        status = client.translate_document_from_filepath(
            tmp_path / "sun.docx", tmp_path / "sonne.docx", source_lang="EN", target_lang="DE"
        )
        assert status.done
        assert status.billed_characters
        (changed,) = docx.Document(str(tmp_path / "sonne.docx")).paragraphs
        assert (changed.text, changed.runs[0].italic) == (expected("en", "Sun and moon."), True)
        with io.BytesIO() as output:
            client.translate_document(GERMAN.encode(), output, target_lang="EN-US", filename="x.txt")
            assert output.getvalue().decode() == expected("de", GERMAN)


def test_deepl_is_told_what_is_wrong_with_a_document(both_ways: Any) -> None:
    with deepl_client(both_ways.url) as client:
        with pytest.raises(deepl.DeepLException, match="must end in one of"):
            client.translate_document(b"x", io.BytesIO(), target_lang="DE", filename="x.pdf")
        with pytest.raises(deepl.DocumentTranslationException, match="damaged, or no Word document"):
            client.translate_document(b"x", io.BytesIO(), target_lang="DE", filename="x.docx")
