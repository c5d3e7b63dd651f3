"""The process."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from transduce.errors import UserError
from transduce.serving.service import Reception

MAX_HEAD_BYTES = 65_536
"""Of a request's first line and headers, and of what divides its body into chunks beyond some bytes for each."""

HEAD_SECONDS = 30.0
"""For a connection's first request to begin, and for the headers of each to arrive."""

WRITE_SECONDS = 60.0
"""For a client to take some more of its answers: one that reads 15 kB a second does, as systems send in portions."""

_CHUNK_BYTES = 8
"""That may come for each byte of a body sent in chunks: the smallest chunk takes 6."""


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose headers have no end, whose requests do not arrive, or whose answers are not read."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there."""
        super().connection_made(transport)
        self._num_bytes = self._num_body_bytes = 0
        self._waiting: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=0)  # so that `pause_writing` tells of whatever cannot be sent
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        self._num_bytes += len(data)
        super().data_received(data)
        allowed = MAX_HEAD_BYTES + (1 + _CHUNK_BYTES) * self._num_body_bytes
        if self._num_bytes > allowed and not self.transport.is_closing():
            self.send_400_response("The headers of this request have more than 65,536 bytes.")

    def on_message_begin(self) -> None:
        """The first byte of a request is there."""
        super().on_message_begin()
        if self._waiting is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Its headers are."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of them were of a body."""
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is there as a whole."""
        self._num_bytes = self._num_body_bytes = 0
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It is answered, perhaps before it was."""
        super().on_response_complete()
        if self.cycle.more_body and self._waiting is None and not self.transport.is_closing():
            self._wait_for_head()  # the rest of its body has as long

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        self._stop_writing()

    def _wait_for_head(self) -> None:
        self._waiting = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._give_up_waiting)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up_waiting(self) -> None:
        if not getattr(self.cycle, "response_complete", True):  # there may have been none
            self._wait_for_head()  # nothing is read until the request before it is answered
        else:
            self.transport.abort()

    def _wait_for_reader(self) -> None:
        num_unsent = self.transport.get_write_buffer_size()
        self._writing = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._give_up_writing, num_unsent)

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _give_up_writing(self, num_unsent: int) -> None:
        if self.transport.get_write_buffer_size() < num_unsent:
            self._wait_for_reader()
        else:
            self.transport.abort()


_BACKLOG = 2048
_GOODBYE_SECONDS = 5
"""For answers to be sent, once all of them are there."""

_KEEP_ALIVE_SECONDS = 75
"""Longer than proxies keep connections, so that the service never closes one that is about to be used."""

_SWITCH_SECONDS = 1e-4
"""After which a thread of Python that others wait for gives way; 5e-3 is usual. A thread that computes lets go for each
operation, and would wait so long for the loop each time: it would starve while the loop turns thousands away."""


class _Server(uvicorn.Server):
    """Leaves signals to `run`: uvicorn would close connections before what was accepted is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections are taken from.

    Args:
        host: name or address of a network interface.
        port: 0 is any that is free.

    Raises:
        UserError: there is no such address here, or somebody else listens there.
    """
    try:
        ((family, _, _, _, place), *_) = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(place[:2], family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host!r}, port {port}: {reason}; choose --host and --port") from None


def is_local(listening: socket.socket) -> bool:
    """Whether only programs of the same machine can connect."""
    return ip_address(listening.getsockname()[0]).is_loopback


def make_server(app: FastAPI) -> uvicorn.Server:
    """What carries the app; it leaves logs, signals and the service to others."""
    return _Server(
        uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",  # nothing here speaks it, and it would pass by limits and logs
            log_config=None,
            access_log=False,  # addresses may have texts and keys in them
            lifespan="off",
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
        )
    )


def run(
    app: FastAPI,
    reception: Reception,
    listening: socket.socket,
    say: Callable[[str], None],
    leave: Callable[[int], None],
) -> None:
    """Serve until SIGTERM or Ctrl-C, and then until all that was accepted is done; a second signal ends at once.

    Args:
        app: from `make_app`.
        reception: the app's; its service is started and ended here.
        listening: from `listen`.
        say: is told what somebody should know who looks after the service.
        leave: is called with the exit code, 0 when all is done and 130 at the second signal, to end the process: a
            thread may be loading a model, or computing, and cannot be stopped.

    Raises:
        TransduceError: a model cannot be loaded; see `Service.start`.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    asyncio.run(_run(make_server(app), reception, listening, say, leave))


async def _run(
    server: uvicorn.Server,
    reception: Reception,
    listening: socket.socket,
    say: Callable[[str], None],
    leave: Callable[[int], None],
) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell() -> None:
        if told.is_set():
            leave(130)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell)
    # It answers from the beginning that it lives and is not ready, as whoever has started it may ask.
    serving = asyncio.create_task(server.serve([listening]))
    ending = asyncio.create_task(told.wait())
    starting = asyncio.create_task(reception.service.start())
    try:
        await asyncio.wait({serving, starting, ending}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _say_ready(reception, listening, say)
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            say("taking nothing more, and finishing what was accepted")
            await reception.close()
    finally:
        ending.cancel()
        starting.cancel()
        server.should_exit = True
        await serving
    leave(0)


def _say_ready(reception: Reception, listening: socket.socket, say: Callable[[str], None]) -> None:
    host, port = listening.getsockname()[:2]
    pairs = ", ".join(f"{one.source}-{one.target}" for one in reception.service.languages)
    say(f"translating {pairs} at http://{f'[{host}]' if ':' in host else host}:{port}")
