import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.authorization import Authorization
from transduce.serving.body_limit import UNKNOWN_BYTES, BodyLimit
from transduce.serving.limits import Limits
from transduce.serving.metrics import Metrics

LIMIT = 1_000
KEY = "correct-horse-battery"
ASKED = {"q": "Sun.", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def small(make_running: Callable[..., Any], bundle: Path) -> Any:
    return make_running(bundle, limits=Limits(max_body_bytes=LIMIT))


@pytest.fixture(scope="module")
def locked(make_running: Callable[..., Any], bundle: Path) -> Any:
    return make_running(bundle, keys=(KEY,))


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


def test_bodies_of_all_requests_have_room_together() -> None:
    """No more than 32 of the largest are held; whoever comes then is told to come again."""
    statuses: list[int] = []
    gate = asyncio.Event()

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        await receive()
        await gate.wait()

    async def request(limit: BodyLimit) -> None:
        messages = [{"type": "http.request", "body": b"a" * LIMIT, "more_body": False}]

        async def receive() -> Any:
            return messages.pop()

        async def send(message: Any) -> None:
            if "status" in message:
                statuses.append(message["status"])
                assert (b"retry-after", b"1") in message["headers"]

        await limit({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, send)

    async def all_requests() -> None:
        limit = BodyLimit(app, LIMIT, Authorization(), Metrics())
        tasks = [asyncio.create_task(request(limit)) for _ in range(35)]
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*tasks)
        assert statuses == [503] * 3
        await request(limit)  # the room is given back
        assert statuses == [503] * 3

    asyncio.run(all_requests())


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
    assert (received, limit._held, messages) == ([b""], 0, [])
