"""What stands around all dialects: headers for browsers, methods, health, and metrics."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nothing", "/docs", "/", "/inspect", "/docs/reference.js"])
def test_browsers_are_told_what_may_not_be(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "server" not in headers


def test_no_other_origin_unless_asked(client: httpx.Client, make_running: Callable[..., Any], bundle: Path) -> None:
    asked = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    assert "Access-Control-Allow-Origin" not in client.get("/health", headers=asked).headers
    assert "Access-Control-Allow-Origin" not in client.options("/translate", headers=asked).headers
    server = make_running(bundle, cors=("https://example.org",))
    answer = httpx.options(f"{server.url}/translate", headers=asked)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://example.org"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    own = httpx.get(f"{server.url}/health", headers={"Origin": "https://example.org"}).headers
    assert own["Access-Control-Expose-Headers"] == "Retry-After, X-Request-ID"
    other = httpx.get(f"{server.url}/health", headers={"Origin": "https://example.com"})
    assert "Access-Control-Allow-Origin" not in other.headers
    refused = httpx.post(f"{server.url}/v1/translate", json={}, headers={"Origin": "https://example.org"})
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (422, "https://example.org")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/languages", "GET, POST"), ("/v2/glossaries", "GET, POST"), ("/translate", "POST"), ("/livez", "GET, HEAD")],
)
def test_methods_that_are_not_there(client: httpx.Client, path: str, allowed: str) -> None:
    answer = client.request("DELETE", path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/", "/v2/health/live", "/v2/health/ready"])
def test_a_head_is_what_get_has_without_its_body(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Type", "Content-Length", "Content-Security-Policy"):
        assert head.headers[name] == get.headers[name]


def test_ready_is_more_than_alive(client: httpx.Client, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/livez", "/readyz", "/health", "/v2/health/live", "/v2/health/ready"):
        assert (client.get(path).status_code, client.get(path).json()) == (200, {"status": "ok"})
    monkeypatch.setattr(server.service, "_is_open", False)
    for path in ("/livez", "/health", "/v2/health/live"):
        assert client.get(path).status_code == 200
    for path in ("/readyz", "/v2/health/ready"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["Connection"]) == (503, "close")
        assert client.head(path).status_code == 503
    for path, name in (("/detect", "error"), ("/v2/translate", "message"), ("/v1/translate", "detail")):
        answer = client.post(path, json={"q": "Sun.", "text": "Sun."} if path == "/detect" else {"text": "Sun."})
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.headers["Connection"] == "close"
        assert name in answer.json()


def test_while_models_load_clients_are_told_to_come_again(
    client: httpx.Client, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.service, "_is_open", False)
    monkeypatch.setattr(server.service._models, "_loaded", {})
    for path, asked in (
        ("/translate", {"q": "Sun.", "source": "en", "target": "de"}),
        ("/v2/translate", {"text": "Sun.", "target_lang": "DE"}),
        ("/v1/translate", {"text": "Sun."}),
    ):
        assert client.post(path, json=asked).status_code == 503


def test_metrics(client: httpx.Client) -> None:
    client.post("/translate", json={"q": "Sun.", "source": "en", "target": "de"})
    answer = client.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    assert 'transduce_requests_total{pair="en-de",route="/translate",status="200"}' in answer.text
    assert "transduce_requests_in_flight 1.0" in answer.text  # this one


def test_the_page_and_its_files(client: httpx.Client) -> None:
    for path, title in (("/", "Transduce: translate"), ("/inspect", "Transduce: look inside a translation")):
        page = client.get(path)
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert f"<title>{title}</title>" in page.text
    for name in ("main.js", "translate/main.js"):
        assert client.get(f"/page/{name}").headers["Content-Type"].startswith("text/javascript")
    for name in ("index.html", "..%2f__init__.py", "nothing.js", "%2e%2e/__init__.py"):
        assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize("num_examples", [4, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_it_does_what_it_says(serve: Any, tmp_path: Path, num_examples: int) -> None:
    """Some hundred requests, right and wrong; docs/serving.md has the command for some thousand."""
    process, url = serve()
    # A log that nobody reads would fill its pipe, and hold up the server.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    config = Path(__file__).with_name("schemathesis.toml")
    options = [
        "--phases=examples,fuzzing",
        "--checks=all",
        f"--max-examples={num_examples}",
        "--seed=1",
        "--request-timeout=60",
        "--no-color",
    ]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            f"--config-file={config}",
            "run",
            f"{url}/openapi.json",
            *options,
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_languages_and_limits_are_those_of_the_service(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    asked = document["components"]["schemas"]["TranslateRequest"]["properties"]
    assert asked["source"]["anyOf"][0]["enum"] == ["auto", "en"]
    assert asked["target"]["anyOf"][0]["enum"] == ["de"]
    assert (asked["beam"]["anyOf"][0]["maximum"], asked["num_best"]["maximum"]) == (16, 8)
    assert "x-" not in client.get("/openapi.json").text.replace("x-www-form-urlencoded", "")


def test_everything_is_described(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (path, method)
            assert operation["description"], (path, method)
            for status, answer in operation["responses"].items():
                assert answer["description"], (path, method, status)
    for name, schema in document["components"]["schemas"].items():
        if name.endswith(("Request", "Response")):
            assert all(one.get("description") for one in schema["properties"].values()), name


def test_its_page_needs_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs").text
    named = ("https://docs.libretranslate.com", "http://127.0.0.1:5000/download_file")  # in text, not in links
    assert "://" not in page.replace(named[0], "").replace(named[1], "")
    for name in ("reference.css", "reference.js"):
        found = client.get(f"/docs/{name}")
        assert found.status_code == 200
        assert "://" not in found.text
    for path in client.get("/openapi.json").json()["paths"]:
        assert f" {path}</code>" in page
    assert client.get("/docs/__init__.py").status_code == 404
