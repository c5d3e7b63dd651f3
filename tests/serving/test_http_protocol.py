"""Connections that never come to a request, or not to its end, and answers that are not read."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from transduce.serving import http_protocol
from transduce.serving.http_protocol import HEAD_SECONDS, WRITE_SECONDS, LimitedProtocol

REQUEST = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop that runs only when told, and by a clock that only the test moves."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def pass_time(self, seconds: float) -> None:
        """Do what is due then, and all that follows from it."""
        self.now += seconds
        for _ in range(20):
            self.call_soon(self.stop)
            self.run_forever()


@pytest.fixture
def loop() -> Iterator[SteppedLoop]:
    loop = SteppedLoop()
    yield loop
    loop.close()


@pytest.fixture
def connect(loop: SteppedLoop) -> Iterator[Callable[[bytes], socket.socket]]:
    """Connects clients to a server that answers each request with this body, before any of the request's own."""
    clients: list[socket.socket] = []

    def make(body: bytes = b"{}") -> socket.socket:
        async def answer(_: Any, receive: Any, send: Any) -> None:
            del receive
            headers = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        config = Config(answer, lifespan="off", log_config=None, access_log=False, timeout_keep_alive=3600)
        there, here = socket.socketpair()
        here.setblocking(False)
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        clients.append(here)
        protocol = LimitedProtocol(config, ServerState(), {}, loop)
        loop.run_until_complete(loop.connect_accepted_socket(lambda: protocol, there))
        return here

    yield make
    for client in clients:
        client.close()
    loop.pass_time(0)


def received(client: socket.socket) -> tuple[bytes, bool]:
    """What has come, and whether the connection has ended."""
    found = b""
    try:
        while chunk := client.recv(100_000):
            found += chunk
    except BlockingIOError:
        return found, False
    except ConnectionResetError:
        pass
    return found, True


@pytest.mark.parametrize("begun", [b"", REQUEST[:20], REQUEST + REQUEST[:20]])
def test_headers_that_do_not_arrive_end_the_connection(
    loop: SteppedLoop, connect: Callable[..., socket.socket], begun: bytes
) -> None:
    client = connect()
    client.sendall(begun)
    loop.pass_time(0.9 * HEAD_SECONDS)
    answers, ended = received(client)
    assert answers.count(b"200 OK") == begun.count(b"\r\n\r\n")
    assert not ended
    loop.pass_time(HEAD_SECONDS)
    assert received(client) == (b"", True)


def test_whoever_has_asked_may_wait_between_requests(loop: SteppedLoop, connect: Callable[..., socket.socket]) -> None:
    client = connect()
    for _ in range(2):
        client.sendall(REQUEST)
        loop.pass_time(0)
        answer, ended = received(client)
        assert b"200 OK" in answer
        assert not ended
        loop.pass_time(2 * HEAD_SECONDS)
        assert received(client) == (b"", False)


def test_the_rest_of_a_body_that_nobody_wants_does_not_hold_a_connection(
    loop: SteppedLoop, connect: Callable[..., socket.socket]
) -> None:
    client = connect()
    client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
    loop.pass_time(0)
    assert b"200 OK" in received(client)[0]
    client.sendall(b"{")
    loop.pass_time(HEAD_SECONDS)
    assert received(client) == (b"", True)


BODY = b"x" * 4_000_000


def test_whoever_reads_slowly_gets_all(loop: SteppedLoop, connect: Callable[..., socket.socket]) -> None:
    client = connect(BODY)
    client.sendall(REQUEST)
    loop.pass_time(0)
    found, ended = received(client)
    while not found.endswith(BODY):
        assert not ended
        loop.pass_time(0.9 * WRITE_SECONDS)
        more, ended = received(client)
        found += more
    assert loop.now > 5 * WRITE_SECONDS


def test_whoever_stops_reading_is_disconnected(loop: SteppedLoop, connect: Callable[..., socket.socket]) -> None:
    client = connect(BODY)
    client.sendall(REQUEST)
    loop.pass_time(0)
    found = b""
    for _ in range(3):
        more, ended = received(client)
        assert not ended
        found += more
        loop.pass_time(0.9 * WRITE_SECONDS)
    for _ in range(2):
        loop.pass_time(WRITE_SECONDS)
    more, ended = received(client)
    assert ended
    assert len(found + more) < len(BODY) / 2


def test_whoever_does_not_read_answers_is_disconnected(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_SECONDS", 0.2)
    address = httpx.URL(server.url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.settimeout(20)
        connection.connect((address.host, address.port))
        own = connection.getsockname()
        while own not in [one.client for one in server.connections.copy()]:
            time.sleep(0.01)
        # Some megabytes of answers, more than systems hold for a connection.
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
        for _ in range(1_000):
            if own not in [one.client for one in server.connections.copy()]:
                return
            time.sleep(0.01)
    pytest.fail("never")
