"""The document, held against what the service does: https://schemathesis.readthedocs.io."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx


def test_it_does_what_it_says(serve: Any, tmp_path: Path) -> None:
    """Some hundred requests, right and wrong; docs/serving.md has the command for some thousand."""
    process, url = serve()
    # A log that nobody reads would fill its pipe, and hold up the server.
    threading.Thread(target=process.stderr.read, daemon=True).start()
    config = Path(__file__).with_name("schemathesis.toml")
    options = [
        "--phases=examples,fuzzing",
        "--checks=all",
        "--max-examples=12",
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
        if name.endswith(("Request", "Answer")):
            assert all(one.get("description") for one in schema["properties"].values()), name


def test_its_page_needs_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs").text
    assert "://" not in page.replace("https://docs.libretranslate.com", "")
    for name in ("reference.css", "reference.js"):
        found = client.get(f"/docs/{name}")
        assert found.status_code == 200
        assert "://" not in found.text
    for path in client.get("/openapi.json").json()["paths"]:
        assert f" {path}</code>" in page
    assert client.get("/docs/reference_page.py").status_code == 404
