"""What clients of DeepL's glossaries are told beyond what the official one asks; that one is in `test_clients`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.scheduling import Limits

SKY = {"name": "Sky", "source_lang": "en", "target_lang": "de", "entries": "moon\tMond", "entries_format": "tsv"}


def make(client: httpx.Client, **changes: str) -> httpx.Response:
    return client.post("/v2/glossaries", json=SKY | changes)


def test_a_glossary_without_keys_is_everybodys(client: httpx.Client) -> None:
    answer = make(client)
    assert answer.status_code == 201
    path = f"/v2/glossaries/{answer.json()['glossary_id']}"
    assert client.get(path).json() == answer.json()
    assert answer.json() in client.get("/v2/glossaries").json()["glossaries"]
    found = client.get(f"{path}/entries")
    assert (found.text, found.headers["Content-Type"]) == ("moon\tMond", "text/tab-separated-values; charset=utf-8")
    gone = client.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    for answer in (client.get(path), client.get(f"{path}/entries"), client.delete(path)):
        assert (answer.status_code, set(answer.json())) == (404, {"message"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "Parameter 'name' not specified"),
        ({"name": " "}, "Parameter 'name' is blank"),
        ({"entries": ""}, "Parameter 'entries' not specified"),
        ({"entries": "moon"}, "entries, line 1: must be"),
        ({"entries_format": "xml"}, "must be one of tsv, csv"),
        ({"source_lang": "fr"}, "source_lang"),
        ({"target_lang": "en"}, "target_lang"),
    ],
)
def test_what_is_no_glossary_is_refused(client: httpx.Client, changes: dict[str, str], message: str) -> None:
    answer = make(client, **changes)
    assert answer.status_code == 400
    assert message in answer.json()["message"]


def test_limits_are_said(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, limits=Limits(max_glossaries=1, max_glossary_bytes=20))
    with httpx.Client(base_url=server.url) as client:
        answer = make(client, entries="moon\tMond\n" * 3)
        assert (answer.status_code, "at most 20" in answer.json()["message"]) == (413, True)
        answer = make(client, name="x" * 1_025)
        assert (answer.status_code, "1,025 bytes" in answer.json()["message"]) == (413, True)
        assert make(client).status_code == 201
        answer = make(client)
        assert (answer.status_code, "delete one first" in answer.json()["message"]) == (400, True)
        assert 'transduce_refusals_total{reason="too many glossaries"} 1.0' in client.get("/metrics").text


def test_a_glossary_is_of_two_languages(client: httpx.Client) -> None:
    asked = {"text": ["Sun."], "target_lang": "DE", "glossary_id": make(client).json()["glossary_id"]}
    answer = client.post("/v2/translate", json=asked)
    assert (answer.status_code, "source_lang" in answer.json()["message"]) == (400, True)
    assert client.post("/v2/translate", json=asked | {"source_lang": "EN"}).status_code == 200
    answer = client.post("/v2/translate", json=asked | {"source_lang": "EN", "glossary_id": "x"})
    assert (answer.status_code, set(answer.json())) == (404, {"message"})


def test_only_terms_of_the_text_count(client: httpx.Client) -> None:
    """A glossary may have more terms than a request."""
    entries = "\n".join(["moon\tMond", *(f"word{number}\tWort" for number in range(5_000))])
    answer = make(client, entries=entries)
    assert answer.json()["entry_count"] == 5_001
    asked = {"source_lang": "EN", "target_lang": "DE", "glossary_id": answer.json()["glossary_id"]}
    found = client.post("/v2/translate", json=asked | {"text": ["Sun and moon.", "Sun."]}).json()["translations"]
    plain = client.post("/v2/translate", json={"text": ["Sun."], "source_lang": "EN", "target_lang": "DE"}).json()
    assert "Mond" in found[0]["text"]
    assert found[1]["text"] == plain["translations"][0]["text"]
