"""One line about each request, without anything that somebody wrote, and an answer for errors that nobody expected."""

import json
import logging
import re
import time
import traceback
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transduce.serving.error_answers import error_answer
from transduce.serving.metrics import Metrics

LogFormat = Literal["text", "json"]

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


def failure(error: BaseException) -> dict[str, object]:
    """What may be told of an error that nobody expected: its kind and place, and not what it says."""
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return {"error": type(error).__name__, "places": places[-8:]}


class _Lines(logging.Formatter):
    """Each record as one line: time, level, what happened, facts."""

    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        message = record.getMessage().partition("\n")[0]  # asyncio writes errors, with what they say, behind it
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts = dict(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[1] is not None:
            facts |= failure(record.exc_info[1])
        if self._is_json:
            line = {"time": moment, "level": record.levelname.lower(), "message": message, **facts}
            return json.dumps(line, ensure_ascii=True)
        told = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
        return f"{moment} {record.levelname.lower()} {message} {told}".rstrip()


def start_logging(log_format: LogFormat) -> None:
    """Send the log of the service, and of the server that carries it, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(log_format))
    for name, level in (("transduce.serving", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


def log(text: str) -> None:
    """One line about the service itself."""
    _LOGGER.info(text)
