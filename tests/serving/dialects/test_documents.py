"""Documents over HTTP, in the dialects of LibreTranslate and DeepL."""

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import httpx
import pytest

from transduce.documents import FORMATS
from transduce.serving.files import ENTRY_BYTES
from transduce.serving.scheduling import Limits
from transduce.translation import Translator

LANGUAGES = {"source": "en", "target": "de"}
DEEPL = {"source_lang": "EN", "target_lang": "DE"}
SUBRIP = "1\r\n00:00:01,000 --> 00:00:02,500\r\nSun.\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n<i>Moon.</i>\r\n"
KEY = "correct-horse-battery"


def translate_file(client: httpx.Client, name: str, content: bytes, **fields: str) -> httpx.Response:
    return client.post("/translate_file", data=LANGUAGES | fields, files={"file": (name, content)})


def translate(offline: Translator, text: str) -> str:
    return offline.find_translations([text])[0].text


def save(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def test_libretranslate_gives_the_address_of_the_translation(client: httpx.Client, offline: Translator) -> None:
    answer = translate_file(client, "the sun/моё & «x».SRT", SUBRIP.encode())
    assert (answer.status_code, set(answer.json())) == (200, {"translatedFileUrl"})
    url = answer.json()["translatedFileUrl"]
    assert url.startswith(f"{client.base_url}/download_file/")
    for _ in range(2):
        found = httpx.get(url)
        expected = SUBRIP.replace("Sun.", translate(offline, "Sun.")).replace("Moon.", translate(offline, "Moon."))
        assert found.content.decode() == expected
    assert found.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''%D0%BC")
    assert found.headers["Content-Disposition"].endswith("_de.srt")
    assert found.headers["Content-Type"] == "application/octet-stream"
    assert found.headers["Cache-Control"] == "no-store"


def test_a_word_document_keeps_its_formatting(client: httpx.Client, offline: Translator) -> None:
    document = docx.Document()
    document.add_paragraph("Sun.").runs[0].bold = True
    paragraph = document.add_paragraph("River and ")
    paragraph.add_run("stone").bold = True
    table = document.add_table(1, 1)
    table.cell(0, 0).text = "Moon."
    url = translate_file(client, "x.docx", save(document)).json()["translatedFileUrl"]
    changed = docx.Document(io.BytesIO(httpx.get(url).content))
    first, second = changed.paragraphs
    assert (first.text, first.runs[0].bold) == (translate(offline, "Sun."), True)
    assert [run.bold for run in second.runs if run.text.strip()][-1] is True
    assert changed.tables[0].cell(0, 0).text == translate(offline, "Moon.")


def test_a_document_may_have_more_passages_than_a_request_texts(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, limits=Limits(max_texts=3))
    document = docx.Document()
    for _ in range(10):
        document.add_paragraph("Sun.")
    with httpx.Client(base_url=server.url) as client:
        assert translate_file(client, "x.docx", save(document)).status_code == 200


@pytest.mark.parametrize(
    ("name", "content", "fields", "status", "message"),
    [
        ("x.pdf", b"x", {}, 400, "must end in one of"),
        ("x", b"x", {}, 400, "must end in one of"),
        ("x.docx", b"x", {}, 400, "damaged"),
        ("x.srt", b"Sun.", {}, 400, "no line with times"),
        ("x.txt", b"\xff", {}, 400, "save it as UTF-8"),
        ("x.txt", b"Sun.", {"target": "zz"}, 400, "zz is not supported"),
        ("x.txt", b"Sun.", {"source": ""}, 400, "missing source parameter"),
        ("x.txt", b"Sun. " * 110_000, {}, 400, "550,000 characters"),
    ],
)
def test_libretranslate_refuses(
    client: httpx.Client, name: str, content: bytes, fields: dict[str, str], status: int, message: str
) -> None:
    answer = translate_file(client, name, content, **fields)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    assert message in answer.json()["error"]


def test_a_form_without_a_file_is_refused(client: httpx.Client) -> None:
    assert client.post("/translate_file", data=LANGUAGES).json() == {"error": "Invalid request: missing file parameter"}
    assert client.post("/v2/document", data=DEEPL).json() == {"message": "Parameter 'file' not specified"}
    files = [("file", ("x.txt", b"Sun.")), ("file", ("y.txt", b"Moon."))]
    assert client.post("/translate_file", data=LANGUAGES, files=files).status_code == 400
    assert client.post("/translate", data={"q": "Sun.", **LANGUAGES}, files=files[:1]).status_code == 400


def test_uploads_are_never_written_to_a_disk(
    client: httpx.Client, offline: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    page = f"<!--{'😀' * 300_000}--><p>Sun.</p>"  # more than a megabyte
    answer = translate_file(client, "x.html", page.encode())
    assert answer.status_code == 200
    expected = page.replace("Sun.", translate(offline, "Sun."))
    assert httpx.get(answer.json()["translatedFileUrl"]).text == expected


def test_a_page_declares_the_language_of_its_translation(client: httpx.Client, offline: Translator) -> None:
    answer = translate_file(client, "x.html", b'<html lang="en"><p>Sun.</p></html>')
    expected = f'<html lang="{LANGUAGES["target"]}"><p>{translate(offline, "Sun.")}</p></html>'
    assert httpx.get(answer.json()["translatedFileUrl"]).text == expected


def test_settings_name_the_formats(client: httpx.Client) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert settings["supportedFilesFormat"] == list(FORMATS)


def test_a_name_that_is_not_there(client: httpx.Client) -> None:
    assert client.get("/download_file/x.txt").status_code == 404
    answer = client.post("/v2/document/x.txt", json={"document_key": "x"})
    assert (answer.status_code, set(answer.json())) == (404, {"message"})


def test_deepl_gives_a_document_once_and_to_who_has_its_key(client: httpx.Client, offline: Translator) -> None:
    handle = client.post("/v2/document", data=DEEPL, files={"file": ("x.txt", b"Sun.")}).json()
    path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    assert client.get(f"/download_file/{handle['document_id']}").status_code == 404  # its name alone opens it nowhere
    status = client.post(path, json=key).json()
    assert status == {"document_id": handle["document_id"], "status": "done", "billed_characters": 4}
    assert client.post(path, json={"document_key": "x"}).status_code == 404
    assert client.post(f"{path}/result", json={}).status_code == 400
    assert client.post(f"{path}/result", json={"document_key": "x"}).status_code == 404
    found = client.post(f"{path}/result", data=key)
    assert found.content.decode() == translate(offline, "Sun.")
    assert client.post(f"{path}/result", json=key).status_code == 404


def test_deepl_refuses_another_format(client: httpx.Client) -> None:
    answer = client.post("/v2/document", data=DEEPL | {"output_format": "pdf"}, files={"file": ("x.txt", b"Sun.")})
    assert (answer.status_code, answer.json()["message"].startswith("output_format")) == (400, True)
    answer = client.post("/v2/document", data=DEEPL | {"glossary_id": "x"}, files={"file": ("x.txt", b"Sun.")})
    assert answer.status_code == 404


def test_limits_hold_for_documents(make_running: Callable[..., Any], bundle: Path) -> None:
    limits = Limits(max_queue_tokens=100, max_files_bytes=4 * ENTRY_BYTES + 2_000, max_body_bytes=3_000)
    server = make_running(bundle, limits=limits, keys=(KEY,))
    header = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=server.url) as client:
        assert translate_file(client, "x.txt", b"Sun.").status_code == 400  # no key
        assert translate_file(client, "x.txt", b"Sun.", api_key="another-key-of-mine").status_code == 403
        answer = client.post("/v2/document", data=DEEPL, files={"file": ("x.txt", b"Sun.")})
        assert answer.status_code == 403
        url = translate_file(client, "x.txt", b"Sun.", api_key=KEY).json()["translatedFileUrl"]
        assert httpx.get(url).status_code == 200  # without a key: its name is one
        client.headers = httpx.Headers(header)
        assert translate_file(client, "x.txt", b"Sun. " * 1_000).status_code == 413  # the body
        full = translate_file(client, "x.txt", b"Sun. " * 210)
        assert full.status_code == 503  # the documents
        assert 1_700 < int(full.headers["Retry-After"]) <= 1_800  # until the first one is removed
        assert translate_file(client, "x.txt", b"Sun. " * 150).status_code == 400  # more than ever fits into the queue
        handle = client.post("/v2/document", data=DEEPL, files={"file": ("x.txt", b"Sun. " * 150)}).json()
        status = client.post(f"/v2/document/{handle['document_id']}", json={"document_key": handle["document_key"]})
        assert status.json()["status"] == "error"
        assert "at most 200 per request" in status.json()["error_message"]


@pytest.mark.parametrize("keys", [(KEY, "another-key-of-mine"), ()])
def test_documents_of_one_client_leave_room_for_others(
    make_running: Callable[..., Any], bundle: Path, keys: tuple[str, ...]
) -> None:
    """A client is a key, or where none is needed an address, in both dialects."""
    server = make_running(bundle, limits=Limits(max_files_bytes=4 * ENTRY_BYTES + 100), keys=keys)
    one, other = (
        {"Authorization": f"Bearer {key}"} if keys else {"X-Forwarded-For": address}
        for key, address in (((KEY, "192.0.2.1")), ("another-key-of-mine", "192.0.2.2"))
    )

    def send(headers: dict[str, str], path: str, fields: dict[str, str]) -> int:
        files = {"file": ("x.txt", b"Sun.")}
        return httpx.post(server.url + path, data=fields, files=files, headers=headers).status_code

    for headers in (one, other):
        found = [send(headers, *asked) for asked in (("/translate_file", LANGUAGES), ("/v2/document", DEEPL)) * 2]
        assert found == [200, 200, 503, 503]


def test_names_of_documents_are_not_logged_nor_counted(client: httpx.Client) -> None:
    name = translate_file(client, "secret.txt", b"Sun.").json()["translatedFileUrl"].rpartition("/")[2]
    assert client.get(f"/download_file/{name}").status_code == 200
    metrics = client.get("/metrics").text
    assert "/download_file/{name}" in metrics
    assert name not in metrics
