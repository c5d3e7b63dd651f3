"""Bodies of requests, read as a whole before anything is done with them, and no further than they may go."""

import asyncio

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.authorization import Authorization
from transduce.serving.error_answers import error_answer
from transduce.serving.metrics import Metrics
from transduce.serving.request_errors import BodiesFull, BodyTooLarge, BodyTooSlow

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
