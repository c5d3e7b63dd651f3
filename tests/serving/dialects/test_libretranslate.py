"""What clients send that are not tested themselves, and what they are told."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from transduce.serving.app import make_app
from transduce.serving.middleware import Authorization, RequestRate
from transduce.serving.scheduling import Limits
from transduce.translation import Translator

ASKED = {"q": "Sun.\nMoon.", "source": "en", "target": "de"}


@pytest.fixture
def expected(offline: Translator) -> str:
    return "\n".join(one.text for one in offline.find_translations(["Sun.", "Moon."]))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "given",
    [
        {"json": ASKED},
        {"data": ASKED},
        {"params": ASKED},
        {"files": {name: (None, value) for name, value in ASKED.items()}},
        {"params": {"source": "en", "target": "fr"}, "data": {"q": ASKED["q"], "target": "de"}},
        {"params": {"q": "River.", "source": "en"}, "json": {"q": ASKED["q"], "target": "de"}},
        {"json": ASKED | {"format": None, "api_key": None, "alternatives": None}},  # Mastodon
        {"data": ASKED | {"api_key": "", "format": ""}},  # Weblate
        {"json": ASKED | {"source": "EN-us", "target": "DE", "anything": [1]}},
    ],
)
def test_every_way_to_ask(client: httpx.Client, expected: str, given: dict[str, Any]) -> None:
    answer = client.post("/translate", **given)
    assert (answer.status_code, answer.json()) == (200, {"translatedText": expected})


def test_forms_write_line_ends_as_two_characters(client: httpx.Client, expected: str) -> None:
    body = "q=Sun.%0D%0AMoon.&source=en&target=de"
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}
    assert client.post("/translate", content=body, headers=headers).json() == {"translatedText": expected}


def test_json_without_a_media_type(client: httpx.Client, expected: str) -> None:
    answer = client.post("/translate", content='{"q": "Sun.\\nMoon.", "source": "en", "target": "de"}')
    assert answer.json() == {"translatedText": expected}


def test_a_list_gets_lists(client: httpx.Client, offline: Translator) -> None:
    asked = {"q": ["Sun and moon.", "", " 😀"], "source": "auto", "target": "de", "alternatives": 1}
    answer = client.post("/translate", json=asked).json()
    (best, *_) = offline.find_translations(["Sun and moon."], num_best=2)
    assert answer["translatedText"] == [best.alternatives[0].text, "", " 😀"]
    assert answer["alternatives"] == [[best.alternatives[1].text], [], []]
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "en", "en"]
    assert [one["confidence"] for one in answer["detectedLanguage"]][1:] == [0, 0]


def test_one_text_with_alternatives(client: httpx.Client, offline: Translator) -> None:
    found = offline.find_translations(["Sun and moon."], num_best=2)[0].alternatives
    form = {"q": "Sun and moon.", "source": "en", "target": "de", "alternatives": "1"}
    answer = client.post("/translate", data=form).json()
    assert answer == {"translatedText": found[0].text, "alternatives": [found[1].text]}


def test_html(client: httpx.Client, offline: Translator) -> None:
    html = "<p>Sun &amp; moon.</p>\n<!-- c --><ul><li>River.<li class=notranslate>Salt.</ul>"
    sun, river = (one.text for one in offline.find_translations(["Sun & moon.", "River."]))
    answer = client.post(
        "/translate", json={"q": html, "source": "en", "target": "de", "format": "html", "alternatives": 1}
    )
    escaped = sun.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    expected = f"<p>{escaped}</p>\n<!-- c --><ul><li>{river}<li class=notranslate>Salt.</ul>"
    assert answer.json() == {"translatedText": expected, "alternatives": []}


def test_inline_tags_stay_in_their_order(client: httpx.Client) -> None:
    html = '<p><a href="x">Sun</a> and the <b>moon and <i>river</i></b>.<br>Wind <img src=1> and salt.</p>'
    answer = client.post("/translate", json={"q": html, "source": "en", "target": "de", "format": "html"})
    assert re.findall("<[^>]*>", answer.json()["translatedText"]) == re.findall("<[^>]*>", html)


def test_detection(client: httpx.Client) -> None:
    german, english = (
        client.post("/detect", data={"q": "Ein Mann und eine Frau gehen durch den Wald."}).json()[:2],
        None,
    )
    assert german[0]["language"] == "de"
    assert german[0]["confidence"] > 90
    english = client.post("/detect", json={"q": "A man and a woman are walking through the wood."}).json()
    assert english[0]["language"] == "en"
    assert client.get("/detect").status_code == 405


def test_what_there_is(client: httpx.Client) -> None:
    languages = [{"code": "en", "name": "English", "targets": ["de"]}, {"code": "de", "name": "German", "targets": []}]
    for method in ("GET", "POST"):
        assert client.request(method, "/languages", data={"api_key": ""}).json() == languages
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 500_000
    assert settings["language"] == {
        "source": {"code": "en", "name": "English"},
        "target": {"code": "de", "name": "German"},
    }
    assert not settings["keyRequired"]
    assert client.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"json": {"source": "en", "target": "de"}}, "Invalid request: missing q parameter"),
        ({"json": {"q": "", "source": "en", "target": "de"}}, "Invalid request: missing q parameter"),
        ({"json": {"q": "Sun.", "target": "de"}}, "Invalid request: missing source parameter"),
        ({"json": {"q": "Sun.", "source": "en", "target": None}}, "Invalid request: missing target parameter"),
        ({"json": ASKED | {"source": "zz"}}, "zz is not supported"),
        ({"json": ASKED | {"target": "zz"}}, "zz is not supported"),
        (
            {"json": ASKED | {"target": "en"}},
            "English (en) is not available as a target language from English (en)",
        ),
        ({"json": ASKED | {"q": 1}}, "Invalid request: q must be text"),
        ({"json": ASKED | {"q": ["Sun.", None]}}, "Invalid request: q must be text"),
        ({"json": ASKED | {"format": "pdf"}}, "Invalid request: format = 'pdf': must be one of text, html"),
        ({"json": ASKED | {"alternatives": 8}}, "Invalid request: alternatives must be a whole number from 0 to 7"),
        ({"json": ASKED | {"alternatives": True}}, "Invalid request: alternatives must be a whole number from 0 to 7"),
        ({"data": ASKED | {"alternatives": "-1"}}, "Invalid request: alternatives must be a whole number from 0 to 7"),
        ({"json": [ASKED]}, "Invalid request: the body must be a JSON object"),
        ({"content": b'{"q": "\xff"}'}, "Invalid request: the body is not JSON in UTF-8"),
        ({"content": b'{"q": "\\ud800", "source": "en", "target": "de"}'}, "unpaired surrogate"),
        ({"content": b'{"q":' + b"[" * 100_000}, "Invalid request: the body is not JSON in UTF-8"),
        ({"content": b'{"alternatives": ' + b"9" * 5_000 + b"}"}, "Invalid request: the body is not JSON in UTF-8"),
        ({"content": b'{"q": "Sun.", "q": "Moon."}'}, "Invalid request: an object in the body has the key 'q' twice"),
        ({"content": b'{"alternatives": NaN}'}, "Invalid request: the body is not JSON in UTF-8"),
        (
            {"json": ASKED | {"q": "a" * 500_001}},
            "500,001 characters: this service accepts at most 500,000 per request",
        ),
        ({"json": ASKED | {"q": ["a"] * 1_001}}, "1,001 texts: this service accepts at most 1,000 per request"),
        (
            {"content": b"q=%FF", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
            "Invalid request: the form is not UTF-8",
        ),
    ],
)
def test_errors_say_what_is_wrong(client: httpx.Client, given: dict[str, Any], message: str) -> None:
    answer = client.post("/translate", **given)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_may_have_as_many_texts_as_any_request(
    make_running: Callable[..., Any], bundle: Path, kind: str
) -> None:
    server = make_running(bundle, limits=Limits(max_texts=20))

    def translate(num_texts: int) -> httpx.Response:
        fields = [("q", "Sun.")] * num_texts + [("source", "en"), ("target", "de")]
        if kind == "multipart/form-data":
            files = [(name, (None, value)) for name, value in fields]
            return httpx.post(f"{server.url}/translate", files=files, timeout=60)
        headers = {"Content-Type": kind}
        return httpx.post(f"{server.url}/translate", content=urlencode(fields), headers=headers, timeout=60)

    assert len(translate(20).json()["translatedText"]) == 20
    answer = translate(21)
    assert (answer.status_code, answer.json()["error"][:45]) == (400, "21 texts: this service accepts at most 20 per")
    answer = translate(119)
    assert answer.status_code == 400
    assert "fields" in answer.json()["error"]


def test_other_media_types_are_refused(client: httpx.Client) -> None:
    answer = client.post("/translate", content="<q>Sun.</q>", headers={"Content-Type": "text/xml"})
    assert (answer.status_code, answer.json()) == (415, {"error": "the body must be JSON or a form, not text/xml"})


@pytest.mark.parametrize("charset", ["undefined", "punycode", "no-such"])
def test_a_form_in_an_unusual_charset_is_no_failure_of_the_server(client: httpx.Client, charset: str) -> None:
    fields = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("q", "Sun."), ("source", "en"), ("target", "de"))
    )
    headers = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
    answer = client.post("/translate", content=f"{fields}--x--\r\n", headers=headers)
    assert answer.status_code in {200, 400}
    assert "Internal" not in answer.text


def test_files_are_refused(client: httpx.Client) -> None:
    answer = client.post("/translate", data={"source": "en", "target": "de"}, files={"q": ("name.txt", b"Sun.")})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


def test_markup_has_one_deadline_however_often_the_service_is_asked(
    make_running: Callable[..., Any], bundle: Path
) -> None:
    server = make_running(bundle, limits=Limits(deadline_seconds=0.3, max_texts=1))
    page = "".join(f"<p>Sun and moon {number}.</p>" for number in range(1_000))  # the same passage is translated once
    asked = {"q": page, "source": "en", "target": "de", "format": "html"}
    answer = httpx.post(f"{server.url}/translate", json=asked, timeout=60)
    assert (answer.status_code, answer.elapsed.total_seconds() < 20) == (504, True)  # and not 0.3 s each time


SUGGESTED = {"q": "A dog.", "s": "Ein Hund.", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def suggestions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suggestions")


@pytest.fixture
def with_suggestions(make_running: Callable[..., Any], bundle: Path, suggestions: Path) -> Iterator[httpx.Client]:
    limits = Limits(max_characters=100, max_suggestion_bytes=250)
    with httpx.Client(base_url=make_running(bundle, limits=limits, suggestion_folder=suggestions).url) as client:
        yield client


def test_suggestions_are_stored_until_there_is_no_space(with_suggestions: httpx.Client, suggestions: Path) -> None:
    assert with_suggestions.get("/frontend/settings").json()["suggestions"] is True
    for given in ({"json": SUGGESTED}, {"data": SUGGESTED | {"source": "auto"}}):
        answer = with_suggestions.post("/suggest", **given)
        assert (answer.status_code, answer.json()) == (200, {"success": True})
    stored = [json.loads(line) for line in (suggestions / "en-de.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(one["source"], one["target"]) for one in stored] == [("A dog.", "Ein Hund.")] * 2
    answer = with_suggestions.post("/suggest", json=SUGGESTED)
    assert answer.status_code == 503
    assert "operator" in answer.json()["error"]
    assert 'reason="suggestions full"' in with_suggestions.get("/metrics").text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"s": ""}, "missing s parameter"),
        ({"q": None}, "missing q parameter"),
        ({"q": ["A dog."]}, "q must be text"),
        ({"target": "fr"}, "fr is not supported"),
        ({"s": "Ein\nHund."}, "q has 1 lines and s has 2"),
        ({"q": "x" * 99}, "108 characters"),
    ],
)
def test_what_cannot_be_suggested(with_suggestions: httpx.Client, change: dict[str, Any], problem: str) -> None:
    answer = with_suggestions.post("/suggest", json=SUGGESTED | change)
    assert answer.status_code == 400
    assert problem in answer.json()["error"]


def test_without_a_folder_suggestions_are_refused(client: httpx.Client) -> None:
    assert client.get("/frontend/settings").json()["suggestions"] is False
    answer = client.post("/suggest", json=SUGGESTED)
    assert answer.status_code == 403
    assert "--suggestion-folder" in answer.json()["error"]


def test_a_query_that_is_not_utf_8_is_no_failure_of_the_service(server: Any) -> None:
    # httptools refuses it, but not every server that may stand before the application.
    app = make_app(server.service, Authorization(()), RequestRate(0))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/translate",
        "query_string": b"api_key=x\xba\x88",
        "headers": [],
    }
    sent: list[dict[str, Any]] = []

    async def ask() -> None:
        bodies = iter([{"type": "http.request", "body": b""}])

        async def receive() -> dict[str, Any]:
            return next(bodies, None) or await asyncio.Event().wait()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app(scope, receive, send)

    asyncio.run_coroutine_threadsafe(ask(), server.loop).result(30)
    assert sent[0]["status"] == 400
    assert b"missing q parameter" in sent[1]["body"]
