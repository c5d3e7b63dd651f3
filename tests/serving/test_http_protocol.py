"""Connections that never come to a request, or not to its end, and answers that are not read."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from transduce.serving import http_protocol

ANSWERS = 100
REQUEST = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"


def connect(server: Any) -> socket.socket:
    address = httpx.URL(server.url)
    return socket.create_connection((address.host, address.port or 0), timeout=5)


@pytest.mark.parametrize("begun", [b"", REQUEST[:20], REQUEST + REQUEST[:20]])
def test_headers_that_do_not_arrive_end_the_connection(
    server: Any, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    with connect(server) as connection:
        connection.sendall(begun)
        received = b""
        try:
            while chunk := connection.recv(1000):
                received += chunk
        except ConnectionResetError:
            pass
    assert received.count(b"200 OK") == begun.count(b"\r\n\r\n")


def test_whoever_has_asked_may_wait_between_requests(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)
    with connect(server) as connection:
        for _ in range(2):
            connection.sendall(REQUEST)
            received = b""
            while not received.endswith(b"}"):  # headers and body may come one after the other
                received += connection.recv(10_000)
            assert b"200 OK" in received
            time.sleep(0.2)


def ask_for_much(server: Any) -> socket.socket:
    """A connection with some megabytes of answers that wait to be read, more than systems hold for it."""
    address = httpx.URL(server.url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.settimeout(20)
    connection.connect((address.host, address.port))
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n"
    connection.sendall((ask + b"\r\n") * (ANSWERS - 1) + ask + b"Connection: close\r\n\r\n")
    return connection


def test_whoever_does_not_read_answers_is_disconnected(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_SECONDS", 0.2)
    with ask_for_much(server) as connection:
        own = connection.getsockname()
        while own not in [one.client for one in server.connections.copy()]:
            time.sleep(0.01)
        for _ in range(1_000):
            if own not in [one.client for one in server.connections.copy()]:
                return
            time.sleep(0.01)
    pytest.fail("never")


def test_whoever_reads_slowly_gets_all(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "WRITE_SECONDS", 0.8)
    received = bytearray()
    started = time.monotonic()
    with ask_for_much(server) as connection:
        while chunk := connection.recv(10_000):
            received += chunk
            time.sleep(0.002)
    assert received.count(b"200 OK") == ANSWERS
    assert time.monotonic() - started > 0.8


def test_the_rest_of_a_body_that_nobody_wants_does_not_hold_a_connection(
    make_running: Callable[..., Any], bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_running(bundle, keys=("correct-horse-battery",))
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.2)
    with connect(server) as connection:
        connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        assert b" 401 " in connection.recv(10_000)
        connection.sendall(b"{")
        with suppress(ConnectionResetError):
            while connection.recv(10_000):
                pass
