from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.errors import ConfigError
from transduce.serving.authorization import Authorization

KEYS = ("correct-horse-battery", "another-key-of-16-or-more")
ASKED = {"q": "Sun.", "source": "en", "target": "de"}
OPEN = (
    "/livez",
    "/readyz",
    "/health",
    "/v2/health/live",
    "/v2/health/ready",
    "/languages",
    "/frontend/settings",
    "/",
    "/docs",
    "/openapi.json",
)


@pytest.fixture(scope="module")
def locked(make_running: Callable[..., Any], bundle: Path) -> Any:
    return make_running(bundle, keys=KEYS)


@pytest.mark.parametrize("path", OPEN)
def test_what_needs_no_key(locked: Any, path: str) -> None:
    assert httpx.get(locked.url + path).status_code == 200


@pytest.mark.parametrize("key", KEYS)
def test_every_way_to_give_one(locked: Any, key: str) -> None:
    for given in (
        {"json": ASKED | {"api_key": key}},
        {"data": ASKED | {"api_key": key}},
        {"params": ASKED | {"api_key": key}},
        {"json": ASKED, "headers": {"Authorization": f"Bearer {key}"}},
        {"json": ASKED, "headers": {"Authorization": f"bearer  {key}"}},
        {"json": ASKED, "headers": {"Authorization": f"DeepL-Auth-Key {key}"}},
    ):
        assert httpx.post(f"{locked.url}/translate", **given).status_code == 200
    asked = {"text": "Sun.", "target_lang": "DE", "auth_key": key}
    assert httpx.post(f"{locked.url}/v2/translate", data=asked).status_code == 200
    assert httpx.get(f"{locked.url}/v2/usage", params={"auth_key": key}).status_code == 200
    assert httpx.get(f"{locked.url}/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "without", "wrong"),
    [
        ("POST", "/translate", 400, 403),
        ("POST", "/detect", 400, 403),
        ("POST", "/v2/translate", 403, 403),
        ("GET", "/v2/languages", 403, 403),
        ("GET", "/v2/usage", 403, 403),
        ("GET", "/v1/models", 401, 401),
        ("GET", "/metrics", 401, 401),
    ],
)
def test_without_a_key_nothing_is_done(locked: Any, method: str, path: str, without: int, wrong: int) -> None:
    assert httpx.request(method, locked.url + path).status_code == without
    for header in ("Bearer some-other-key-of-mine", "DeepL-Auth-Key " + KEYS[0][:-1], f"Bearer {KEYS[0]}x"):
        answer = httpx.request(method, locked.url + path, headers={"Authorization": header})
        assert answer.status_code == wrong
    if wrong == 401:
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["translate", "score", "inspect"])
def test_our_dialect_needs_one_in_the_header(locked: Any, path: str) -> None:
    asked = {"translate": {"text": "Sun."}, "score": {"pairs": []}, "inspect": {"text": "Sun.", "include": []}}[path]
    assert httpx.post(f"{locked.url}/v1/{path}", json=asked).status_code == 401
    given = {"Authorization": f"Bearer {KEYS[1]}"}
    assert httpx.post(f"{locked.url}/v1/{path}", json=asked, headers=given).status_code == 200


def test_the_document_says_what_needs_one(locked: Any, server: Any) -> None:
    document = httpx.get(f"{locked.url}/openapi.json").json()
    paths = document["paths"]
    header = [{"bearer": []}, {"deepl_header": []}]
    for place, ways in {
        ("/v1/translate", "post"): header,
        ("/v1/models", "get"): header,
        ("/metrics", "get"): header,
        ("/translate", "post"): [*header, {"api_key": []}, {}],  # or in the body
        ("/detect", "post"): [*header, {"api_key": []}, {}],
        ("/v2/translate", "post"): [*header, {"auth_key": []}, {}],
        ("/v2/usage", "get"): [*header, {"auth_key": []}],
    }.items():
        assert paths[place[0]][place[1]]["security"] == ways
    schemes = document["components"]["securitySchemes"]
    assert set(schemes) == {"bearer", "deepl_header", "api_key", "auth_key"}
    for path in OPEN:
        assert not any("security" in operation for operation in paths.get(path, {}).values())
    for path, name in (("/translate", "api_key"), ("/v2/translate", "auth_key")):
        for content in paths[path]["post"]["requestBody"]["content"].values():
            assert name in content["schema"]["properties"]
    assert "security" not in httpx.get(f"{server.url}/openapi.json").json()["paths"]["/v1/translate"]["post"]


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# of the office\n{KEYS[0]}\n\n  {KEYS[1]}  \n", encoding="utf-8")
    assert Authorization.read(path).is_required
    assert not Authorization().is_required


@pytest.mark.parametrize("content", ["", "# nothing\n", "short\n", "with space in the key\n", "ключ-ключ-ключ-ключ\n"])
def test_what_is_no_file_of_keys(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match="key"):
        Authorization.read(path)


def test_a_body_is_not_looked_at_without_a_key(locked: Any) -> None:
    assert httpx.post(f"{locked.url}/v1/translate", json={"beem": 4}).status_code == 401
