"""Connections that never come to a request, or not to its end."""

import socket
import time
from typing import Any

import httpx
import pytest

from transduce.serving import http_protocol

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
