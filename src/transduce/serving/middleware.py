"""Middleware that every request passes before a dialect reads it: log, rate limit, body limit, API keys.

They receive HTTP requests only: the server uses neither WebSockets nor ASGI's lifespan. From the outside in:
`SecurityHeaders`, CORS, `RequestTrace` if traces are recorded, `RequestLog`, `RateLimit`, `BodyLimit`,
`CancelOnDisconnect`.
"""

import asyncio
import hmac
import logging
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.errors import (
    BodiesFullError,
    BodyTooLargeError,
    BodyTooSlowError,
    ConfigError,
    NotAuthorizedError,
    RateExceededError,
)
from transduce.serving.error_responses import is_native, make_error_response
from transduce.serving.monitoring import Metrics, describe_failure, log
from transduce.serving.service import Service
from transduce.serving.tracing import CLIENT_LEFT
from transduce.text import read_lines

LIVENESS_PROBES = ("/v2/health/live", "/health", "/livez")
"""Paths of liveness probes; HEAD is allowed."""

READINESS_PROBES = ("/v2/health/ready", "/readyz")
"""Paths of readiness probes; HEAD is allowed."""

BODY_SECONDS = 30.0
"""Maximum time for a body to arrive, so that a slow client occupies only a connection."""

UNKNOWN_BYTES = 262_144
"""Maximum size in bytes of a body that may contain the API key (as with LibreTranslate), which is read before the key
is checked."""

_MAX_DISCARDED_RATIO = 16
"""Multiple of the limit that is read and discarded, as clients read no response before they have sent the whole
body."""

_MAX_HELD_RATIO = 32
"""Limit of the memory for the bodies of requests, as a number of bodies of the maximum size. It holds twice: for
requests whose API key may be in the body, and for all others."""

_MAX_CLIENTS = 10_000
"""Maximum number of clients whose rate is tracked; the least recently active are dropped first."""

_UNCOUNTED = {
    *LIVENESS_PROBES,
    *READINESS_PROBES,
    "/",
    "/inspect",
    "/docs",
    "/openapi.json",
    "/languages",
    "/frontend/settings",
}
_UNCOUNTED_PREFIXES = ("/page/", "/docs/")
_SCHEMES = {"bearer", "deepl-auth-key"}
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SECURITY_HEADERS = {
    # Responses are data: a browser that shows one as a page must not load or run anything. Pages set their own policy.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Middleware that adds security headers for browsers to responses that do not have them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RequestLog:
    """Middleware that logs and counts each request, assigns it an id, and handles unexpected errors.

    Log and metrics contain the route instead of the path, as paths may contain texts and API keys.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request_id = Headers(scope=scope).get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid4().hex
        started = time.monotonic()
        status = CLIENT_LEFT

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        self._metrics.requests_in_flight.inc()
        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:  # noqa: BLE001 - no request may end the service, and no text may reach the log
            # Python's own traceback contains the text of the error, which may contain text of a user.
            log("request failed", logging.ERROR, request_id=request_id, **describe_failure(error))
            if status == CLIENT_LEFT:
                await make_error_response(error, scope["path"], self._metrics)(scope, receive, send_with_id)
        finally:
            self._metrics.requests_in_flight.dec()
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", "")
            pair = scope.get("state", {}).get("pair", "")
            self._metrics.count_request(route, status, pair, seconds)
            log(
                "request",
                logging.WARNING if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO,
                request_id=request_id,
                method=scope["method"] if scope["method"] in _METHODS else "",
                route=route,
                pair=pair,
                status=status,
                seconds=round(seconds, 4),
            )


class RequestRate:
    """Token bucket of `per_minute` requests for each client, all of which may arrive at once; 0: no limit."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # remaining requests, and the time of that count

    def count(self, client: str) -> None:
        """Count a request of a client.

        Of an IPv6 address only the first 64 bits are used, as a client may choose the others.

        Raises:
            RateExceededError: the client sends too many requests.
        """
        if not self.per_minute:
            return
        client, now = _find_network(client), self._clock()
        requests, at = self._buckets.pop(client, (self.per_minute, now))
        requests = min(self.per_minute, requests + (now - at) * self.per_minute / 60)
        is_exceeded = requests < 1
        self._buckets[client] = requests if is_exceeded else requests - 1, now
        if len(self._buckets) > _MAX_CLIENTS:
            self._buckets.popitem(last=False)
        if is_exceeded:
            seconds = math.ceil((1 - requests) * 60 / self.per_minute)
            raise RateExceededError(f"more than {self.per_minute} requests per minute: retry in {seconds} s", seconds)


class RateLimit:
    """Middleware that refuses clients with too many requests before a key is compared or a body read.

    This also limits the guessing of keys. Probes, pages and what pages load are not counted; `/download_file` is,
    although it needs no key, so that names of documents cannot be guessed.
    """

    def __init__(self, app: ASGIApp, rate: RequestRate, metrics: Metrics) -> None:
        self._app, self._rate, self._metrics = app, rate, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = scope.get("path", "")
        if path not in _UNCOUNTED and not path.startswith(_UNCOUNTED_PREFIXES):
            client = Request(scope).client
            try:
                self._rate.count(client.host if client else "")
            except RateExceededError as error:
                await make_error_response(error, path, self._metrics)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Authorization:
    """API keys, compared in constant time; without any, no key is required.

    Raises:
        ConfigError: a key has characters that a header cannot contain, or is too short.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        for number, key in enumerate(keys, start=1):
            if not re.fullmatch(r"[!-~]{16,}", key):
                raise ConfigError(f"API key {number}: must be at least 16 printable ASCII characters without spaces")
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> "Authorization":
        """Read keys from a file with one key per line; blank lines and lines that begin with # are skipped.

        Raises:
            ConfigError: the file has no key, or an invalid one.
            CorpusError: the file is not text.
        """
        lines = (line.strip() for line in read_lines(path))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"{path}: contains no API key: write one per line, or leave --api-key-file out")
        return cls(keys)

    @property
    def is_required(self) -> bool:
        """Whether a key is required."""
        return bool(self._digests)

    def check(self, request: Request, key: str | None = None) -> str:
        """Check the key of a request: the one in its header, as in "Bearer KEY", or else `key`, from its parameters.

        Returns:
            A name for the owner of the key: its digest, or "" if no key is required.

        Raises:
            NotAuthorizedError: the key is missing or unknown.
        """
        if not self._digests:
            return ""
        given = _read_header_key(request) or key
        if not given:
            raise NotAuthorizedError(is_missing=True)
        if not self._is_known(given):
            raise NotAuthorizedError(is_missing=False)
        return _digest(given).hex()

    def check_header(self, request: Request) -> bool | None:
        """Return whether the header of a request has a known key; None if it has none and the body may contain one."""
        if not self._digests:
            return True
        key = _read_header_key(request)
        if key:
            return self._is_known(key)
        return False if is_native(request.scope["path"]) else None

    def _is_known(self, key: str) -> bool:
        # All keys are compared, so that the time depends neither on the matching key nor on how much of it matches.
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


class _BodyQuota:
    """Limit in bytes on bodies in memory. One client may use half of it, so that the rest is left to others."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: Counter[str] = Counter()  # of each client
        self.num_held = 0

    def reserve(self, client: str, num_bytes: int) -> None:
        """Count a part of a client's body.

        Raises:
            BodiesFullError: it would exceed the limit; nothing is counted.
        """
        if self._held[client] + num_bytes > self._max_bytes // 2 or self.num_held + num_bytes > self._max_bytes:
            raise BodiesFullError("too many large requests at once: retry in a second")
        self._held[client] += num_bytes
        self.num_held += num_bytes

    def release(self, client: str, num_bytes: int) -> None:
        """Count bytes of a client no longer."""
        self.num_held -= num_bytes
        self._held[client] -= num_bytes
        if not self._held[client]:
            del self._held[client]


class _Body:
    """The body of a request, read so far, which counts in a quota until it is dropped."""

    def __init__(self, quota: _BodyQuota, client: str) -> None:
        self._quota, self._client = quota, client
        self.chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        """Add a part; see `_BodyQuota.reserve`."""
        self._quota.reserve(self._client, len(chunk))
        self.chunks.append(chunk)

    def drop(self) -> None:
        """Drop all parts."""
        self._quota.release(self._client, sum(map(len, self.chunks)))
        self.chunks.clear()


class BodyLimit:
    """Middleware that reads bodies into one message, and refuses those that are too large or too slow.

    The body of a request without a known key is not read, unless the body itself may contain the key. Such bodies have
    a quota of their own, so that clients without a key use none of that of clients with one.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        authorization: Authorization,
        metrics: Metrics,
        seconds: float = BODY_SECONDS,
    ) -> None:
        self._app, self._max_bytes, self._seconds = app, max_bytes, seconds
        self._authorization, self._metrics = authorization, metrics
        self._quota = _BodyQuota(_MAX_HELD_RATIO * max_bytes)
        self._unknown_bytes = min(max_bytes, UNKNOWN_BYTES)
        self._unknown_quota = _BodyQuota(_MAX_HELD_RATIO * self._unknown_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request = Request(scope)
        is_known = self._authorization.check_header(request)
        owner = self._authorization.check(request) if is_known else ""
        body = _Body(self._quota if is_known else self._unknown_quota, _name_client(request, owner))
        try:
            if is_known is not False:
                async with asyncio.timeout(self._seconds):
                    await self._read(scope, receive, body, self._max_bytes if is_known else self._unknown_bytes)
        except ClientDisconnect:
            body.drop()
            return
        except (BodyTooLargeError, TimeoutError, BodiesFullError) as error:
            body.drop()
            refusal: Exception = error
            if isinstance(error, TimeoutError):
                refusal = BodyTooSlowError(
                    f"the body did not arrive within {self._seconds:g} s: send less at once, or use a faster line"
                )
            response = make_error_response(refusal, scope["path"], self._metrics)
            response.headers["Connection"] = "close"  # the rest of the body must not be read as the next request
            await response(scope, receive, send)
            return
        body.chunks[:] = [b"".join(body.chunks)]
        messages: list[Message] = [{"type": "http.request", "body": body.chunks[0], "more_body": False}]

        async def receive_body() -> Message:
            if messages:
                return messages.pop()
            while (message := await receive())["type"] == "http.request":
                pass  # a part of the body was not read
            return message

        try:
            await self._app(scope, receive_body, send)
        finally:
            body.drop()

    async def _read(self, scope: Scope, receive: Receive, body: _Body, max_bytes: int) -> None:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        remedy = "divide the request" if max_bytes == self._max_bytes else "send the key as Authorization: Bearer KEY"
        too_large = BodyTooLargeError(f"the body has more than {max_bytes:,} bytes: {remedy}")
        if len(declared) > 18 or not declared.isdigit() or int(declared) > _MAX_DISCARDED_RATIO * self._max_bytes:
            raise too_large
        size = 0
        async for chunk in Request(scope, receive).stream():
            size += len(chunk)
            if size > _MAX_DISCARDED_RATIO * self._max_bytes:
                raise too_large
            if size > max_bytes:
                body.drop()
            else:
                body.add(chunk)
        if size > max_bytes:
            raise too_large


class CancelOnDisconnect:
    """Middleware that cancels the work on a request as soon as its connection is closed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        messages: asyncio.Queue[Message] = asyncio.Queue()

        async def listen() -> None:
            while True:
                message = await receive()
                messages.put_nowait(message)
                if message["type"] == "http.disconnect":
                    return

        working, listening = asyncio.ensure_future(self._app(scope, messages.get, send)), asyncio.create_task(listen())
        try:
            await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, listening):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
        if not working.cancelled():
            working.result()  # re-raises an error of the app


def get_service(request: Request) -> Service:
    """Return the service of the application that received the request."""
    service: Service = request.app.state.service
    return service


@contextmanager
def admit_request(request: Request, key: str | None = None) -> Iterator[Service]:
    """Admit a request while the service is open, and return the service.

    Raises:
        DrainingError: the service is starting or stopping.
        NotAuthorizedError: neither the header nor `key` is a known API key.
    """
    service = get_service(request)
    with service.admit():
        request.state.owner = request.app.state.authorization.check(request, key)
        yield service


def get_owner(request: Request) -> str:
    """Return the owner of the API key of an admitted request; see `Authorization.check`."""
    owner: str = request.state.owner
    return owner


def get_client(request: Request) -> str:
    """Return who sent an admitted request: the owner of its API key, or if none is required, its network."""
    return _name_client(request, get_owner(request))


def set_logged_pair(request: Request, pair: str) -> None:
    """Set the languages of a request for its log line and the metrics, as in "en-de"."""
    request.state.pair = pair


def _read_header_key(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else None


def _name_client(request: Request, owner: str) -> str:
    """Name a client that may have a share of something: the owner of its API key, or else its network."""
    return owner or _find_network(request.client.host if request.client else "")


def _digest(key: str) -> bytes:
    """Digests of all keys have the same length."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()


def _find_network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:  # a proxy may give a name instead of an address, and a Unix socket gives none
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or found.packed[:8].hex())
