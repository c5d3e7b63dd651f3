"""Middleware."""

import asyncio
import hmac
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.errors import ConfigError
from transduce.serving.errors import (
    BodiesFull,
    BodyTooLarge,
    BodyTooSlow,
    NotAuthorized,
    RateExceeded,
    error_answer,
    is_own,
)
from transduce.serving.monitoring import Metrics, failure
from transduce.text import read_lines

_SCHEMES = {"bearer", "deepl-auth-key"}


class Authorization:
    """Compares keys in a time that says nothing about them.

    Args:
        keys: those that are accepted; without any, no key is needed.

    Raises:
        ConfigError: a key has characters that a header cannot have, or is short enough to be guessed.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        for number, key in enumerate(keys, start=1):
            if not re.fullmatch(r"[!-~]{16,}", key):
                raise ConfigError(f"API key {number}: must be at least 16 letters, digits or signs of ASCII, unspaced")
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> "Authorization":
        """Keys from a file with one a line; blank lines, and those that begin with #, are skipped.

        Raises:
            ConfigError: it has no key, or one that is not as a key must be.
            CorpusError: it is no text.
        """
        lines = (line.strip() for line in read_lines(path))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"{path}: has no API key: write one in each line, or leave --api-key-file out")
        return cls(keys)

    @property
    def is_required(self) -> bool:
        """Whether a key is needed."""
        return bool(self._digests)

    def check(self, request: Request, key: str | None = None) -> None:
        """That the request may be answered.

        Args:
            request: whose header `Authorization` may have a key, as in "Bearer KEY" or "DeepL-Auth-Key KEY".
            key: what its parameters say, if anything; the header counts first.

        Raises:
            NotAuthorized: it may not.
        """
        if not self._digests:
            return
        given = _of_header(request) or key
        if not given:
            raise NotAuthorized(is_missing=True)
        if not self._knows(given):
            raise NotAuthorized(is_missing=False)

    def knows_header_of(self, request: Request) -> bool | None:
        """Whether the header of a request has a key that is known; None if it has none, and its parameters may."""
        if not self._digests:
            return True
        key = _of_header(request)
        if key:
            return self._knows(key)
        return False if is_own(request.scope["path"]) else None

    def _knows(self, key: str) -> bool:
        """All are compared, whichever it is: neither its place nor how far it is right changes the time."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _of_header(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else None


def _digest(key: str) -> bytes:
    """Of equal length for all keys."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


_NUM_CLIENTS = 10_000
"""That are remembered; those that asked longest ago are forgotten first."""


class _Bucket(NamedTuple):
    requests: float
    at: float


class RequestRate:
    """A bucket of requests for each client, which fills up steadily (the token bucket).

    Args:
        per_minute: requests of a client; so many may come at once. 0: any number.
        clock: seconds, from any moment on.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def count(self, client: str) -> None:
        """One request of a client.

        Args:
            client: its address; of IPv6, the first 64 bits count, as those behind them are the client's own choice.

        Raises:
            RateExceeded: it has asked too often.
        """
        if not self.per_minute:
            return
        client, now = _network(client), self._clock()
        requests, at = self._buckets.pop(client, _Bucket(self.per_minute, now))
        requests = min(self.per_minute, requests + (now - at) * self.per_minute / 60)
        is_too_often = requests < 1
        self._buckets[client] = _Bucket(requests if is_too_often else requests - 1, now)
        if len(self._buckets) > _NUM_CLIENTS:
            self._buckets.popitem(last=False)
        if is_too_often:
            seconds = math.ceil((1 - requests) * 60 / self.per_minute)
            raise RateExceeded(f"more than {self.per_minute} requests a minute: ask again in {seconds} s", seconds)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:  # a proxy may give names, and a socket of a file system has none
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or found.packed[:8].hex())


_HEADERS = {
    # Answers are data: where a browser shows one as a page, it may load and run nothing. Pages bring their own.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Adds headers to answers that do not have them already.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


PROBES = frozenset({"/livez", "/health", "/v2/health/live", "/readyz", "/v2/health/ready"})
"""What is asked with HEAD, too; the server leaves the body out of such an answer by itself."""

_UNCOUNTED = PROBES | {"/", "/docs", "/openapi.json", "/languages", "/frontend/settings"}
_UNCOUNTED_BELOW = ("/page/", "/docs/")


class RateLimit:
    """Refuses whoever asks too often, before a key is looked at or a body read.

    So keys cannot be tried out one after the other, whatever else is wrong with a request. What needs no key and
    computes nothing is not counted.

    Args:
        app: what answers everybody else.
        rate: knows how often clients may ask.
        metrics: are told of refusals.
    """

    def __init__(self, app: ASGIApp, rate: RequestRate, metrics: Metrics) -> None:
        self._app = app
        self._rate = rate
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and _is_counted(scope["path"]):
            client = Request(scope).client
            try:
                self._rate.count(client.host if client else "")
            except RateExceeded as error:
                await error_answer(error, scope["path"], self._metrics)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _is_counted(path: str) -> bool:
    return path not in _UNCOUNTED and not path.startswith(_UNCOUNTED_BELOW)


BODY_SECONDS = 30.0
"""For a body to arrive; whoever sends it byte by byte occupies a connection and nothing else."""

UNKNOWN_BYTES = 262_144
"""Of a body that may have the key in it, as LibreTranslate's clients send it: it is read before the key is known."""

_DISCARDED = 16
"""Times the limit that is read and thrown away, as clients read no answer before they have sent everything."""

_HELD = 32
"""Times the limit that bodies of all requests may have together."""


class _ClientLeft(Exception):  # noqa: N818 - nobody is there to be told of an error
    """The connection was closed before the body was there."""


class BodyLimit:
    """Refuses what is too large, whether it says its size or comes in chunks without end, and what is too slow.

    Nothing is read of the body of a request whose header shows that it has no key that is known: the app, which gets an
    empty one, says so.

    Args:
        app: what gets the body in one piece.
        max_bytes: of a body.
        authorization: knows the keys.
        metrics: are told of refusals.
        seconds: for a body to arrive.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        authorization: Authorization,
        metrics: Metrics,
        seconds: float = BODY_SECONDS,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._authorization = authorization
        self._metrics = metrics
        self._seconds = seconds
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        chunks: list[bytes] = []
        known = self._authorization.knows_header_of(Request(scope))
        try:
            if known is not False:
                most = self._max_bytes if known else min(self._max_bytes, UNKNOWN_BYTES)
                await self._read_in_time(scope, receive, chunks, most)
        except _ClientLeft:
            self._give_up(chunks)
            return
        except (BodyTooLarge, BodyTooSlow, BodiesFull) as error:
            self._give_up(chunks)
            answer = error_answer(error, scope["path"], self._metrics)
            answer.headers["Connection"] = "close"  # the rest of the body is no next request
            await answer(scope, receive, send)
            return
        chunks[:] = [b"".join(chunks)]
        first: list[Message] = [{"type": "http.request", "body": chunks[0], "more_body": False}]

        async def replayed() -> Message:
            if first:
                return first.pop()
            while (message := await receive())["type"] == "http.request":
                pass  # of a body that was not read
            return message

        try:
            await self._app(scope, replayed, send)
        finally:
            self._give_up(chunks)

    async def _read_in_time(self, scope: Scope, receive: Receive, chunks: list[bytes], most: int) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._read(scope, receive, chunks, most)
        except TimeoutError:
            raise BodyTooSlow(f"the body did not arrive within {self._seconds:g} s: send it again") from None

    async def _read(self, scope: Scope, receive: Receive, chunks: list[bytes], most: int) -> None:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        remedy = "divide the request" if most == self._max_bytes else "send the key as Authorization: Bearer KEY"
        too_large = BodyTooLarge(f"the body has more than {most:,} bytes: {remedy}")
        if len(declared) > 18 or not declared.isdigit() or int(declared) > _DISCARDED * self._max_bytes:
            raise too_large
        size = 0
        has_more = True
        while has_more:
            message = await receive()
            if message["type"] != "http.request":
                raise _ClientLeft
            chunk, has_more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > _DISCARDED * self._max_bytes:
                raise too_large
            if size > most:
                self._give_up(chunks)
                continue
            if self._held + len(chunk) > _HELD * self._max_bytes:
                raise BodiesFull("too many large requests arrive: ask again in a second")
            self._held += len(chunk)
            chunks.append(chunk)
        if size > most:
            raise too_large

    def _give_up(self, chunks: list[bytes]) -> None:
        self._held -= sum(map(len, chunks))
        chunks.clear()


class Disconnection:
    """Cancels the work on a request as soon as its connection is closed.

    Args:
        app: what works.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        messages: asyncio.Queue[Message] = asyncio.Queue()

        async def listen() -> None:
            while True:
                message = await receive()
                messages.put_nowait(message)
                if message["type"] == "http.disconnect":
                    return

        async def work() -> None:
            await self._app(scope, messages.get, send)

        working, listening = asyncio.create_task(work()), asyncio.create_task(listen())
        try:
            await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, listening):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
        if not working.cancelled():
            working.result()  # raises its error, if there is one


CLIENT_LEFT = 499
"""What is logged as the status where nobody was there to get an answer, as other servers do."""

_LOGGER = logging.getLogger("transduce.serving")
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestLog:
    """Writes the line, counts the request, gives it a name, and answers for what nobody else does.

    Lines and counts have the route as the service calls it, as addresses may have texts and keys in them.

    Args:
        app: what answers.
        metrics: are told.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
        started = time.monotonic()
        status = CLIENT_LEFT

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        self._metrics.in_flight(1)
        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - nothing may end the service, and no text get into its log
            # The traceback as Python writes it has what the error says, and that may be somebody's text.
            _LOGGER.error("request failed", extra={"facts": {"request_id": request_id, **failure(error)}})  # noqa: TRY400
            if status == CLIENT_LEFT:
                await error_answer(error, scope["path"], self._metrics)(scope, receive, send_with_id)
        finally:
            self._metrics.in_flight(-1)
            seconds = time.monotonic() - started
            self._tell(scope, status, seconds, request_id)

    def _tell(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", "")
        pair = scope.get("state", {}).get("pair", "")
        self._metrics.answered(route, status, pair, seconds)
        level = logging.WARNING if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO
        facts = {
            "request_id": request_id,
            "method": scope["method"] if scope["method"] in _METHODS else "",
            "route": route,
            "pair": pair,
            "status": status,
            "seconds": round(seconds, 4),
        }
        _LOGGER.log(level, "request", extra={"facts": facts})
