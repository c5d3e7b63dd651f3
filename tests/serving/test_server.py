"""The server as a process: how it ends, and that nothing that it accepted is lost."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from uvicorn import Config
from uvicorn.server import ServerState

from transduce.errors import UserError
from transduce.serving import server as server_module
from transduce.serving.server import HEAD_SECONDS, WRITE_SECONDS, LimitedProtocol, is_local, listen, make_server

Serve = Callable[..., tuple[subprocess.Popen[bytes], str]]


def wait_until_counted(url: str, line: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        while line not in client.get("/metrics").text:
            time.sleep(0.005)


def wait_until_two_are_in_flight(url: str) -> None:
    """The one that is waited for, and this one."""
    wait_until_counted(url, "requests_in_flight 2.0")


@pytest.mark.exhaustive
def test_what_was_accepted_is_done_before_it_ends(serve: Serve) -> None:
    """Markup asks the service several times; all of it is done, while nobody else is let in."""
    process, url = serve("--log-format=json")
    answers: list[httpx.Response] = []
    # All of them differ, so that it takes seconds: what is the same is translated once.
    texts = [f"<p>Sun {number} and <b>moon</b> and river. Stone and bird.</p>" * 10 for number in range(200)]

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/translate", json={"text": texts, "format": "html"}, timeout=60))

    asking = threading.Thread(target=ask)
    asking.start()
    with httpx.Client(base_url=url, timeout=60) as client:
        client.get("/livez")
        wait_until_two_are_in_flight(url)
        process.send_signal(signal.SIGTERM)
        statuses = []
        while asking.is_alive():
            try:
                statuses.append(client.get("/readyz").status_code)
            except httpx.TransportError:
                break
            time.sleep(0.1)
        asking.join()
    assert answers[0].status_code == 200
    translations = answers[0].json()["translations"]
    assert [one["text"].count("<b>") for one in translations] == [10] * 200
    assert set(statuses) <= {200, 503}
    output, messages = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, b"")
    lines = [json.loads(line) for line in messages.decode().splitlines()]
    assert "draining: finishing accepted requests" in [line["message"] for line in lines]


@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ["native", "ctranslate2"])
def test_it_ends_at_once_while_models_load(
    engine: str,
    begin_to_serve: Callable[..., subprocess.Popen[bytes]],
    make_bundle: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """This one would load for many minutes: a file of it is very large, with nothing in it."""
    if engine != "native":
        pytest.importorskip(engine)
    bundle = make_bundle(tmp_path / "endless")
    description = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))
    description["files"]["tokenizer.model"]["bytes"] = 2**40
    (bundle / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    os.truncate(bundle / "tokenizer.model", 2**40)
    files = sorted(bundle.iterdir())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    process = begin_to_serve(bundle, f"--port={port}", f"--engine={engine}", temporary=scratch)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        while process.poll() is None:
            with suppress(httpx.TransportError):
                assert client.get("/livez").status_code == 200
                break
            time.sleep(0.05)
        assert client.get("/readyz").status_code == 503
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert sorted(bundle.iterdir()) == files
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_while_modules_are_imported(
    number: signal.Signals, begin_to_serve: Callable[..., subprocess.Popen[bytes]], bundle: Path
) -> None:
    process = begin_to_serve(bundle, "--port=0")
    maps = Path(f"/proc/{process.pid}/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what a process has loaded")
    while "libtorch" not in maps.read_text(encoding="utf-8"):
        time.sleep(0.005)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_a_second_signal_ends_it_at_once(serve: Serve) -> None:
    """Whatever it computes: here, a batch that takes minutes."""
    process, url = serve("--batch-seconds=1000", "--batch-tokens=10000000", "--max-queue-tokens=10000000")
    body = json.dumps({"text": ["Sun and moon and river. " * 400] * 40}).encode()
    headers = ["Host: a", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join(["POST /v1/translate HTTP/1.1", *headers, "", ""]).encode()
    with socket.create_connection(_address(url)) as connection:
        connection.sendall(head + body)
        wait_until_counted(url, "transduce_batch_sentences_count 1.0")
        process.send_signal(signal.SIGINT)
        assert process.stderr
        while b"draining" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        _, messages = process.communicate(timeout=30)
        assert time.monotonic() - started < 2
    assert process.returncode == 130
    assert messages.decode().splitlines()[-1] == "transduce: interrupted"


def test_requests_that_are_no_http(server: Any) -> None:
    """Each gets an answer or a closed connection, and the next one is served."""
    hostile = [
        b"\x00" * 1_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab",
        b"GET /%ff%00 HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: [\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ]
    for request in hostile:
        with socket.create_connection(_address(server.url), timeout=10) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
            assert not answer or answer.split(b" ")[1].startswith(b"4"), (request[:50], answer)
    assert httpx.get(f"{server.url}/livez").status_code == 200


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
QUERY = b'{"q": "abc", "source": "en", "target": "de"}'


@pytest.mark.parametrize("part", [1, 7, 100_000])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_the_body_of_a_request_that_offers_another_protocol_is_read(
    server: Any, part: int, *, is_chunked: bool
) -> None:
    framing, body = b"Content-Length: %d\r\n" % len(QUERY), QUERY
    if is_chunked:
        framing = b"Transfer-Encoding: chunked\r\n"
        body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (9, QUERY[:9], len(QUERY) - 9, QUERY[9:])
    head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n" + framing
    without = b"GET /livez HTTP/1.1\r\nHost: a\r\n" + OFFER + b"\r\n"
    requests = without + head + OFFER + b"\r\n" + body + without + head + b"\r\n" + body
    with socket.create_connection(_address(server.url), timeout=30) as connection, connection.makefile("rb") as reader:
        for start in range(0, len(requests), part):
            connection.sendall(requests[start : start + part])
        answers = []
        for _ in range(4):
            status = reader.readline().split()[1]
            headers = http.client.parse_headers(reader)
            answers.append((status, reader.read(int(headers["Content-Length"]))))
    assert [status for status, _ in answers] == [b"200"] * 4
    assert answers[1] == answers[3]
    assert b"translatedText" in answers[1][1]


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("connection", [b"close, Upgrade", b"Upgrade, close", b"Upgrade"])
def test_a_connection_that_ends_with_such_a_request_has_its_answer(
    server: Any, method: bytes, version: bytes, connection: bytes
) -> None:
    head = b"%b /translate HTTP/%b\r\nHost: a\r\nConnection: %b\r\nUpgrade: h2c\r\n" % (method, version, connection)
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(QUERY)
    with socket.create_connection(_address(server.url), timeout=20) as client:
        client.sendall(head + QUERY)
        assert client.recv(100).split(b" ")[1] == (b"200" if method == b"POST" else b"405")


def test_an_offer_does_not_save_a_request_that_is_wrong(server: Any) -> None:
    with socket.create_connection(_address(server.url), timeout=20) as client, client.makefile("rb") as reader:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\n" + OFFER + b"Transfer-Encoding: gzip\r\n\r\nabc")
        assert reader.read().count(b"HTTP/1.1 400") == 1


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_another_protocol_is_not_switched_to_and_nothing_advised(serve: Serve, protocol: str) -> None:
    process, url = serve()
    headers = {"Connection": "Upgrade", "Upgrade": protocol}
    with httpx.Client(base_url=url) as client:
        assert [client.get("/livez", headers=headers).status_code for _ in range(2)] == [200, 200]
    process.terminate()
    _, log = process.communicate(timeout=60)
    lines = log.decode().splitlines()
    assert all(" info " in line for line in lines), lines
    assert sum("route=/livez" in line for line in lines) == 2


def test_long_headers_are_refused_also_where_they_arrive_at_once(serve: Serve) -> None:
    process, url = serve()
    for num_bytes, status in ((60_000, b"200"), (100_000, b"400")):
        with socket.create_connection(_address(url), timeout=10) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\nA: ")
            process.send_signal(signal.SIGSTOP)  # until the system has received everything
            connection.sendall(b"b" * num_bytes + b"\r\n\r\n")
            process.send_signal(signal.SIGCONT)
            assert connection.recv(100).split(b" ")[1] == status


def test_responses_do_not_wait_for_acknowledgements() -> None:
    """Headers and body are sent as they come (TCP_NODELAY), on which asyncio decides by the socket's protocol."""
    found: list[int] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect(listening: socket.socket) -> None:
        async with await asyncio.start_server(accept, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            await reader.read()
            writer.close()
            await writer.wait_closed()

    with listen("127.0.0.1", 0) as listening:
        asyncio.run(connect(listening))
    assert found == [1]


def test_listening() -> None:
    with listen("localhost", 0) as found:
        assert is_local(found)
        with pytest.raises(UserError, match="choose --host and --port"):
            listen(*found.getsockname()[:2])
    with listen("0.0.0.0", 0) as found:  # noqa: S104 - for a moment
        assert not is_local(found)
    with pytest.raises(UserError, match=r"cannot listen at 'no\.such\.host\.invalid'"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(UserError, match="cannot listen"):
        listen("a" * 70 + ".b", 0)


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [
        ((), ["10.1.2.3", "http"]),
        (("10.0.0.0/8", "fd00::/8"), ["203.0.113.7", "https"]),
        (("10.1.2.4",), ["10.1.2.3", "http"]),
        (("*",), ["203.0.113.7", "https"]),
        (("10.1.2.4", "*"), ["203.0.113.7", "https"]),
    ],
)
def test_headers_of_a_proxy_are_believed_if_it_is_trusted(trusted: tuple[str, ...], expected: list[str]) -> None:
    app = FastAPI()

    @app.get("/client")
    def describe(request: Request) -> list[str]:
        assert request.client
        return [request.client.host, request.url.scheme]

    config = make_server(app, trusted).config
    config.load()

    async def ask() -> list[str]:
        proxy = httpx.ASGITransport(config.loaded_app, client=("10.1.2.3", 4321))
        headers = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "https"}
        async with httpx.AsyncClient(transport=proxy, base_url="http://a", headers=headers) as client:
            found: list[str] = (await client.get("/client")).json()
            return found

    assert asyncio.run(ask()) == expected


def _address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


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
    monkeypatch.setattr(server_module, "WRITE_SECONDS", 0.2)
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
