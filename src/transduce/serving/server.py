"""The server process: it listens, loads the models, limits connections, and stops on a signal."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address

import httptools
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transduce.errors import UserError
from transduce.serving.service import Service

MAX_HEAD_BYTES = 65_536
"""Maximum size in bytes of a request's headers, and of its chunk headers beyond `_CHUNK_BYTES` per byte of the body."""

HEAD_SECONDS = 30.0
"""Maximum time in seconds for a connection's first request to begin, and for the headers of each request to arrive."""

WRITE_SECONDS = 60.0
"""Maximum time in seconds in which a client reads nothing of a response; 15 kB per second suffice, as systems send in
blocks."""

_PART_BYTES = 4_096
"""Received data are parsed in parts of this many bytes, after each of which the limit is checked."""

_CHUNK_BYTES = 8
"""Bytes allowed per byte of a body sent in chunks: a chunk of one byte takes 6."""

_WATCH_SECONDS = 3.0
"""Seconds between two checks of a connection."""


class LimitedProtocol(HttpToolsProtocol):
    """HTTP protocol that closes connections with oversized headers, requests that do not arrive or responses that are
    not read, and reads requests that offer another protocol as any other.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # the unsent part only shrinks until the whole response is sent
        self._num_bytes = self._num_body_bytes = self._num_unsent = 0
        self._has_headers = False  # whether the next headers are those of a request whose own have been parsed
        now = self.loop.time()
        self._waiting_since: float | None = now  # for headers, or for the rest of a rejected body
        self._sent_at = now
        self._watching = self.loop.call_later(_WATCH_SECONDS, self._watch)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self._watching.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count bytes, and refuse long headers, whether they arrive at once or slowly."""
        for start in range(0, len(data), _PART_BYTES):
            if self.transport.is_closing():
                return
            part = data[start : start + _PART_BYTES]
            self._num_bytes += len(part)
            self._parse(part)
            allowed = MAX_HEAD_BYTES + (1 + _CHUNK_BYTES) * self._num_body_bytes
            if self._num_bytes > allowed and not self.transport.is_closing():
                self.send_400_response("The headers of this request exceed 65,536 bytes.")

    def _parse(self, part: bytes) -> None:
        """Parse data as uvicorn does, which ends a request that offers another protocol with its headers.

        Such an offer may be ignored (RFC 9110, 7.8), and the body be read. Clients that offer HTTP/2 with every request
        are those of Java, and curl with `--http2`.
        """
        if not part:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(part)
        except httptools.HttpParserUpgrade as upgrade:
            (num_parsed,) = upgrade.args
            framing = [header for header in self.headers if header[0] in {b"content-length", b"transfer-encoding"}]
            # That parser is done with the request, and with the connection if it is to be closed. Another one reads the
            # body, behind headers without the offer.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._has_headers = True
            self._parse(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % header for header in framing))
            if not self.transport.is_closing():
                self._parse(part[num_parsed:])
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """Wait for the headers of a request."""
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        """Stop waiting for headers."""
        self._waiting_since = None
        if self._has_headers:
            self._has_headers = False
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count bytes of a body."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Reset the counts for the next request."""
        if self.parser.should_upgrade():
            return  # its body is still to be read
        self._num_bytes = self._num_body_bytes = 0
        self._waiting_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body whose response was sent before it arrived."""
        super().on_response_complete()
        if self.cycle.more_body:
            self._wait()

    def _wait(self) -> None:
        if self._waiting_since is None:
            self._waiting_since = self.loop.time()

    def _watch(self) -> None:
        """Close the connection if it has waited too long for the client."""
        now, num_unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if not num_unsent or num_unsent < self._num_unsent:
            self._sent_at = now
        self._num_unsent = num_unsent
        if self._waiting_since is not None and not getattr(self.cycle, "response_complete", True):
            self._waiting_since = now  # the next request is not read until the previous one is answered
        waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - waiting_since >= HEAD_SECONDS or now - self._sent_at >= WRITE_SECONDS:
            self.transport.abort()
        else:
            self._watching = self.loop.call_later(_WATCH_SECONDS, self._watch)


_BACKLOG = 2048
_SHUTDOWN_SECONDS = 5
"""Time for the last responses to be sent."""

_KEEP_ALIVE_SECONDS = 75
"""Longer than proxies keep connections, so that the service never closes one that is about to be used."""

_SWITCH_SECONDS = 1e-4
"""Interval in seconds after which Python switches threads (default 5e-3). A computing thread releases the global lock
at each operation, and would wait this long for the event loop each time, and starve while thousands of requests are
rejected."""


class _Server(uvicorn.Server):
    """Leaves signals to `run`: uvicorn would close connections before admitted requests are done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free one.

    Raises:
        UserError: the address does not exist on this machine or is in use.
    """
    try:
        ((family, _, _, _, place), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        created = socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host!r}, port {port}: {reason}; choose --host and --port") from None
    # Only on sockets that name their protocol asyncio sets TCP_NODELAY. Without it the body of a response waits for the
    # client to acknowledge its headers: 40 ms, six times as long as a sentence takes.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, created.detach())


def is_local(listening: socket.socket) -> bool:
    """Return whether only programs on the same machine can connect."""
    return ip_address(listening.getsockname()[0]).is_loopback


def make_server(app: FastAPI, trusted_proxies: Sequence[str] = ()) -> uvicorn.Server:
    """Make the uvicorn server of an application, without uvicorn's logs and signal handlers.

    Args:
        app: from `make_app`.
        trusted_proxies: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed, or "*" for
            all; by default those in the variable FORWARDED_ALLOW_IPS, or else this machine.
    """
    return _Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",  # it would bypass limits and logs
            log_config=None,
            access_log=False,  # addresses may contain texts and keys
            lifespan="off",
            server_header=False,
            # uvicorn takes "*" for all addresses only where it stands alone.
            forwarded_allow_ips="*" if "*" in trusted_proxies else list(trusted_proxies) or None,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
    )


async def run(
    app: FastAPI,
    service: Service,
    listening: socket.socket,
    report: Callable[[str], None],
    exit_process: Callable[[int], None],
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish admitted requests; a second signal ends the server at once.

    The service of the app is started and drained here.

    Args:
        app: from `make_app`.
        service: the app's.
        listening: from `listen`.
        report: is called with each one-line message to the operator.
        exit_process: is called with the exit code, 0 when all requests are finished and 130 at the second signal, as a
            thread that loads a model or computes cannot be stopped.
        trusted_proxies: see `make_server`.

    Raises:
        TransduceError: a model cannot be loaded.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    server = make_server(app, trusted_proxies)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()

    def request_stop() -> None:
        if stop_requested.is_set():
            exit_process(130)
        stop_requested.set()

    def handle_signal(*_: object) -> None:
        loop.call_soon_threadsafe(request_stop)

    # Not by `loop.add_signal_handler`, which Windows lacks.
    before = {number: signal.signal(number, handle_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    # The server runs from the beginning, so that health checks are answered while models are loaded.
    serving = asyncio.create_task(server.serve([listening]))
    ending = asyncio.create_task(stop_requested.wait())
    starting = asyncio.create_task(service.start())
    try:
        await asyncio.wait({serving, starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _report_ready(service, listening, report)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            report("draining: finishing accepted requests")
            await service.drain()
    finally:
        ending.cancel()
        starting.cancel()
        server.should_exit = True
        await serving
        for number, handler in before.items():
            signal.signal(number, handler)
    exit_process(0)


def _report_ready(service: Service, listening: socket.socket, report: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    pairs = ", ".join("-".join(one.pair) for one in service.models)
    report(f"translating {pairs} at http://{f'[{host}]' if ':' in host else host}:{port}")
