"""One process that carries the app: it listens, loads, says when it is ready, and ends when it is told to."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from transduce.errors import UserError
from transduce.serving.http_protocol import LimitedProtocol
from transduce.serving.reception import Reception

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
