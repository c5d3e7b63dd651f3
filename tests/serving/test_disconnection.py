import asyncio
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving.disconnection import Disconnection


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

    asyncio.run(Disconnection(app)({"type": "http"}, receive, send))
    assert events == ["cancelled"]


def test_errors_of_the_work_are_not_lost() -> None:
    async def app(*_: Any) -> None:
        raise ZeroDivisionError

    async def receive() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Disconnection(app)({"type": "http"}, receive, receive))


def test_whoever_leaves_costs_nothing_more(make_running: Callable[..., Any], bundle: Path) -> None:
    """A book whose reader is gone is not translated to its end, and the next one is served."""
    server = make_running(bundle)
    book = json.dumps({"text": ["Sun and moon and river. " * 40] * 400}).encode()
    address = server.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        headers = ["Host: a", "Content-Type: application/json", f"Content-Length: {len(book)}"]
        head = "\r\n".join(["POST /v1/translate HTTP/1.1", *headers, "", ""])
        connection.sendall(head.encode() + book)
        _wait_until(lambda: server.reception._num_requests == 1)
    _wait_until(lambda: server.reception._num_requests == 0)
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
