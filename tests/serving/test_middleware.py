import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.errors import ConfigError, RateExceededError
from transduce.serving.middleware import UNKNOWN_BYTES, Authorization, BodyLimit, CancelOnDisconnect, RequestRate
from transduce.serving.monitoring import Metrics
from transduce.serving.scheduling import Limits

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


def test_a_bucket_fills_up_steadily() -> None:
    now = 100.0
    rate = RequestRate(60, lambda: now)
    for _ in range(60):
        rate.count("a")
    with pytest.raises(RateExceededError, match="60 requests per minute") as raised:
        rate.count("a")
    assert raised.value.retry_after == 1
    rate.count("b")
    now += 2
    rate.count("a")
    rate.count("a")
    with pytest.raises(RateExceededError):
        rate.count("a")
    now += 3600  # not more than it holds
    for _ in range(60):
        rate.count("a")
    with pytest.raises(RateExceededError):
        rate.count("a")


def test_0_is_any_number() -> None:
    rate = RequestRate(0)
    for _ in range(1_000):
        rate.count("a")


def test_clients_are_forgotten_before_they_fill_memory() -> None:
    rate = RequestRate(1, lambda: 0.0)
    for number in range(20_000):
        rate.count(str(number))
    assert len(rate._buckets) == 10_000


def test_each_dialect_says_when_to_ask_again(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, rate=1)
    assert httpx.get(f"{server.url}/v1/models").status_code == 200
    for path, name in (("/v1/models", "detail"), ("/v2/usage", "message")):
        answer = httpx.get(server.url + path)
        assert answer.status_code == 429
        assert 0 < int(answer.headers["Retry-After"]) <= 60
        assert "1 requests per minute" in answer.json()[name]
    assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_whatever_is_wrong_with_a_request_it_counts(make_running: Callable[..., Any], bundle: Path) -> None:
    """No answer says whether a key is right once there were too many requests, and each of them counts."""
    key = "correct-horse-battery"
    keys = (key, "some-other-key-of-mine", "")
    server = make_running(bundle, rate=4, keys=(key,))
    with httpx.Client(base_url=server.url) as client:

        def ask(path: str, content: str, key: str) -> int:
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            method = "GET" if path == "/metrics" else "POST"
            return client.request(method, path, content=content, headers=headers).status_code

        paths = ("/translate", "/v2/translate", "/v1/translate", "/detect")
        assert 429 not in [ask(path, "{", key) for path in paths]
        for path in (*paths, "/metrics"):
            for content in ("{", "{" * 3_000_000, '{"api_key": "x"}'):
                assert [ask(path, content, given) for given in keys] == [429] * 3
        for path in ("/livez", "/readyz", "/health", "/languages", "/frontend/settings", "/", "/page/main.js", "/docs"):
            assert client.get(path).status_code == 200


def test_the_counts_are_counted(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, rate=3, keys=("correct-horse-battery",))
    statuses = [
        httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer wrong-key-number-{number}"}).status_code
        for number in range(5)
    ]
    assert statuses == [401, 401, 401, 429, 429]


def test_a_network_of_ipv6_is_one_client() -> None:
    """Whoever has one address of it has all 2^64."""
    rate = RequestRate(1, lambda: 0.0)
    for first, same, other in (
        ("2001:db8::1", "2001:db8:0:0:ffff::2", "2001:db8:0:1::1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe81::1"),
        ("", "", "unknown"),
    ):
        rate.count(first)
        with pytest.raises(RateExceededError):
            rate.count(same)
        rate.count(other)


LIMIT = 1_000
KEY = KEYS[0]


@pytest.fixture(scope="module")
def small(make_running: Callable[..., Any], bundle: Path) -> Any:
    return make_running(bundle, limits=Limits(max_body_bytes=LIMIT))


def chunks(size: int) -> Iterator[bytes]:
    """A body that does not say how large it is."""
    yield b'{"text": "'
    for _ in range(size // 100):
        yield b"a" * 100
    yield b'"}'


@pytest.mark.parametrize("path", ["/translate", "/v2/translate", "/v1/translate", "/health", "/nothing"])
@pytest.mark.parametrize("size", [LIMIT + 100, 10 * LIMIT, 100 * LIMIT])
def test_what_is_too_large_is_refused(small: Any, path: str, size: int) -> None:
    name = {"/v2": "message", "/v1": "detail"}.get(path[:3], "error")
    with httpx.Client(base_url=small.url) as client:
        answer = client.post(path, content=b"a" * size)
        assert (answer.status_code, answer.headers["Connection"]) == (413, "close")
        assert answer.json()[name] == "the body has more than 1,000 bytes: divide the request"
        if size <= 10 * LIMIT:
            assert client.post(path, content=chunks(size)).status_code == 413


def test_what_is_as_large_as_it_may_be_is_read(small: Any) -> None:
    frame = b'{"text": ""}'
    body = frame[:-2] + b"a" * (LIMIT - len(frame)) + frame[-2:]
    answer = httpx.post(f"{small.url}/v1/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    answer = httpx.post(f"{small.url}/v1/translate", content=chunks(800), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 30, "0x10"])
def test_a_length_that_is_no_number(small: Any, length: str) -> None:
    address = small.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=10) as connection:
        connection.sendall(f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode())
        assert connection.recv(100).split(b" ")[1] in {b"400", b"413"}


def test_what_comes_too_slowly_is_given_up() -> None:
    sent: list[Any] = []

    async def app(*_: Any) -> None:
        pytest.fail("reached")

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"a", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/translate", "headers": []}
    asyncio.run(BodyLimit(app, LIMIT, Authorization(), Metrics(), seconds=0.05)(scope, receive, send))
    assert sent[0]["status"] == 408
    assert "within 0.05 s: send less at once, or use a faster line" in json.loads(sent[1]["body"])["detail"]


@pytest.mark.parametrize(("num_clients", "num_refused"), [(1, 19), (2, 3), (35, 3)])
def test_bodies_of_all_requests_have_room_together(num_clients: int, num_refused: int) -> None:
    """No more than 32 of the largest are held, 16 of one client; whoever comes then is told to come again."""
    statuses: list[int] = []
    gate = asyncio.Event()

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        await gate.wait()

    async def request(limit: BodyLimit, number: int) -> None:
        messages = [{"type": "http.request", "body": b"a" * LIMIT, "more_body": False}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            if "status" in message:
                statuses.append(message["status"])
                assert (b"retry-after", b"1") in message["headers"]

        client = (f"192.0.2.{number % num_clients}", 1)
        await limit({"type": "http", "method": "POST", "path": "/", "headers": [], "client": client}, receive, send)

    async def all_requests() -> None:
        limit = BodyLimit(app, LIMIT, Authorization(), Metrics())
        tasks = [asyncio.create_task(request(limit, number)) for number in range(35)]
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*tasks)
        assert statuses == [503] * num_refused
        await request(limit, 0)  # the room is given back
        assert statuses == [503] * num_refused

    asyncio.run(all_requests())


def test_slow_bodies_without_a_key_leave_room_for_other_clients(make_running: Callable[..., Any], bundle: Path) -> None:
    server = make_running(bundle, limits=Limits(max_body_bytes=LIMIT), keys=KEYS)
    address = httpx.URL(server.url)
    head = f"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: {LIMIT}\r\n\r\n".encode()
    asked = ASKED | {"q": "Sun. " * 50}
    with ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(socket.create_connection((address.host, address.port or 0)))
            connection.sendall(head + b"a" * (LIMIT - 10))
        refused = server.service.metrics.refusals.labels("bodies full")._value
        _wait_until(lambda: refused.get() == 24)  # 16 wait for the rest of their bodies
        for key in KEYS:
            given = {"Authorization": f"Bearer {key}"}
            assert httpx.post(f"{server.url}/translate", json=asked, headers=given).status_code == 200
        asked |= {"api_key": KEY}
        assert httpx.post(f"{server.url}/translate", json=asked).status_code == 503  # the same address
        other = {"X-Forwarded-For": "192.0.2.1"}
        assert httpx.post(f"{server.url}/translate", json=asked, headers=other).status_code == 200


@pytest.mark.parametrize(
    ("path", "header", "status"),
    [
        ("/v1/translate", "", b"401"),
        ("/v1/translate?api_key=" + KEY, "", b"401"),
        ("/v1/inspect", "Authorization: Bearer another-key-of-16", b"401"),
        ("/translate", "Authorization: Bearer another-key-of-16", b"403"),
        ("/translate?api_key=" + KEY, "Authorization: Bearer another-key-of-16", b"403"),
        ("/v2/translate", "Authorization: DeepL-Auth-Key another-key-of-16", b"403"),
    ],
)
def test_a_body_whose_head_has_no_known_key_is_not_waited_for(
    locked: Any, path: str, header: str, status: bytes
) -> None:
    address = httpx.URL(locked.url)
    head = [f"POST {path} HTTP/1.1", "Host: a", "Content-Length: 3000000", *([header] if header else []), "", ""]
    with socket.create_connection((address.host, address.port or 0), timeout=10) as connection:
        connection.sendall("\r\n".join(head).encode())
        assert connection.recv(1000).split(b" ")[1] == status


def test_a_body_that_is_not_read_is_no_next_request(locked: Any) -> None:
    with httpx.Client(base_url=locked.url) as client:
        for _ in range(2):
            assert client.post("/v1/translate", content=b"a" * 3_000_000).status_code == 401
            assert client.post("/v1/translate", content=chunks(300_000)).status_code == 401
            assert client.get("/livez").status_code == 200


def test_a_key_in_the_body_is_read_if_it_is_short(locked: Any) -> None:
    """Only who is known may have more read."""
    short, long = "Sun. " * 10, " " * UNKNOWN_BYTES
    statuses = [
        httpx.post(f"{locked.url}/translate", timeout=60, **given).status_code
        for given in (
            {"json": ASKED | {"q": short, "api_key": KEY}},
            {"json": ASKED | {"q": long, "api_key": KEY}},
            {"json": ASKED | {"q": long}, "headers": {"Authorization": f"Bearer {KEY}"}},
            {"json": ASKED | {"q": long}, "params": {"api_key": KEY}},
        )
    ]
    assert statuses == [200, 413, 200, 413]
    answer = httpx.post(f"{locked.url}/v2/translate", json={"text": long, "target_lang": "DE"})
    assert answer.json()["message"].endswith("more than 262,144 bytes: send the key as Authorization: Bearer KEY")


def test_bodies_that_are_not_read_take_no_room() -> None:
    received: list[bytes] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        received.append((await receive())["body"])
        assert (await receive())["type"] == "http.disconnect"

    async def receive() -> Any:
        return messages.pop()

    messages: list[dict[str, Any]] = [{"type": "http.disconnect"}]
    messages += [{"type": "http.request", "body": b"a" * LIMIT, "more_body": True}] * 100
    limit = BodyLimit(app, LIMIT, Authorization([KEY]), Metrics())
    scope = {"type": "http", "method": "POST", "path": "/v1/translate", "query_string": b"", "headers": []}
    asyncio.run(limit(scope, receive, receive))
    assert (received, limit._quota.num_held + limit._unknown_quota.num_held, messages) == ([b""], 0, [])


def test_work_is_cancelled_when_the_client_leaves() -> None:
    events: list[str] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        await asyncio.sleep(0.01)
        return messages.pop()

    async def send(_: Any) -> None:
        events.append("sent")

    asyncio.run(CancelOnDisconnect(app)({"type": "http"}, receive, send))
    assert events == ["cancelled"]


def test_errors_of_the_work_are_not_lost() -> None:
    async def app(*_: Any) -> None:
        raise ZeroDivisionError

    async def receive() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(CancelOnDisconnect(app)({"type": "http"}, receive, receive))


def test_whoever_leaves_costs_nothing_more(make_running: Callable[..., Any], bundle: Path) -> None:
    """A book whose reader is gone is not translated to its end, and the next one is served."""
    server = make_running(bundle)
    book = json.dumps({"text": ["Sun and moon and river. " * 40] * 400}).encode()
    address = server.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        headers = ["Host: a", "Content-Type: application/json", f"Content-Length: {len(book)}"]
        head = "\r\n".join(["POST /v1/translate HTTP/1.1", *headers, "", ""])
        connection.sendall(head.encode() + book)
        _wait_until(lambda: server.service._num_requests == 1)
    _wait_until(lambda: server.service._num_requests == 0)
    assert httpx.post(f"{server.url}/v1/translate", json={"text": "Sun."}).status_code == 200
    metrics = httpx.get(f"{server.url}/metrics").text
    assert 'status="499"' in metrics
    assert "transduce_queue_sentences 0.0" in metrics


def _wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_so():
            return
        time.sleep(0.01)
    pytest.fail("never")
