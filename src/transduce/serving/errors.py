"""What is wrong with a request."""

from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from transduce.errors import Refusal, UserError
from transduce.serving.monitoring import Metrics


class QueueFull(Refusal):
    """Too much is waiting.

    Args:
        message: how much, and how much may.
        retry_after: seconds until what waits now will be done.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Draining(Refusal):
    """The service takes nothing: it ends, or has not started yet."""


class DeadlineExceeded(Refusal):
    """The request was accepted, and could not be answered in its time."""


class TooLong(UserError):  # noqa: N818 - of the request, not of the service
    """A request has more characters, texts or terms than it may have."""


class UnknownPair(UserError):  # noqa: N818 - of the request, not of the service
    """No loaded model translates from the one language to the other."""


class Unsatisfiable(UserError):  # noqa: N818 - of the request, not of the service
    """No translation was found that has what was asked for, or the text is too long to be held to it."""


class RateExceeded(Refusal):
    """A client asks too often.

    Args:
        message: how often it may.
        retry_after: seconds until it may ask again.
    """

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BodiesFull(Refusal):
    """Bodies of all requests together have more bytes than there is room for."""

    retry_after = 1


class NotAuthorized(UserError):  # noqa: N818 - of whoever asks
    """A key is needed, and none was given, or one that is not known.

    Args:
        is_missing: whether there was none.
    """

    def __init__(self, *, is_missing: bool) -> None:
        super().__init__(
            "this service needs an API key: ask whoever runs it for one"
            if is_missing
            else "this API key is not known here: ask whoever runs the service for another"
        )
        self.is_missing = is_missing


class ParameterError(UserError):
    """A parameter is missing, or not what it should be."""


class WrongMediaType(UserError):  # noqa: N818 - of whoever asks
    """A body is neither JSON nor a form."""


class BodyTooLarge(UserError):  # noqa: N818 - of whoever asks
    """A body has more bytes than it may have."""


class BodyTooSlow(UserError):  # noqa: N818 - of whoever asks
    """A body did not arrive in time."""


_STATUSES: dict[type[Exception], tuple[int, int, int]] = {
    NotAuthorized: (400, 403, 401),
    BodyTooLarge: (413, 413, 413),
    BodyTooSlow: (408, 408, 408),
    WrongMediaType: (415, 415, 415),
    TooLong: (400, 413, 413),
    UnknownPair: (400, 400, 404),
    RateExceeded: (429, 429, 429),
    DeadlineExceeded: (504, 504, 504),
    Refusal: (503, 503, 503),
    RequestValidationError: (400, 400, 422),
    UserError: (400, 400, 422),
}
"""For LibreTranslate's clients, DeepL's, and ours; the first that an error is counts."""

_REASONS: dict[type[Exception], str] = {
    BodiesFull: "bodies full",
    BodyTooLarge: "body too large",
    BodyTooSlow: "body too slow",
    DeadlineExceeded: "deadline",
    Draining: "draining",
    NotAuthorized: "not authorized",
    QueueFull: "queue full",
    RateExceeded: "rate exceeded",
    TooLong: "too long",
}
"""As they are counted."""

_RETRY_AFTER = 5
"""Seconds to wait for a service that starts or ends: another one may take its place by then."""


def error_answer(error: Exception, path: str, metrics: Metrics) -> JSONResponse:
    """What a client gets for an error, in the dialect of the path that it asked for; a refusal is counted.

    An error that is not meant for clients is called by no name: what it says may hold somebody's text.
    """
    if type(error) in _REASONS:
        metrics.refused(_REASONS[type(error)])
    status = _status(error, path)
    headers: dict[str, str] = dict(getattr(error, "headers", None) or {})
    if isinstance(error, Refusal) and status != HTTPStatus.GATEWAY_TIMEOUT:
        headers["Retry-After"] = str(getattr(error, "retry_after", _RETRY_AFTER))
    if isinstance(error, Draining):
        headers["Connection"] = "close"  # the next request finds another process, or this one once it is ready
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    message = _message(error, status)
    if is_own(path):
        details: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status, "detail": message}
        if isinstance(error, RequestValidationError):
            details["errors"] = [
                {"location": [*map(str, one["loc"])], "message": one["msg"]} for one in error.errors()[:20]
            ]
        return JSONResponse(details, status, headers, media_type="application/problem+json")
    return JSONResponse({"message" if is_deepl(path) else "error": message}, status, headers)


def is_own(path: str) -> bool:
    """Whether the path is of our own dialect: the others have no counts."""
    return path.startswith("/v1/") or path == "/metrics"


def is_deepl(path: str) -> bool:
    """Whether the path is of DeepL's dialect."""
    return path.startswith("/v2/")


def _status(error: Exception, path: str) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, NotAuthorized) and not error.is_missing and not is_own(path):
        return HTTPStatus.FORBIDDEN
    for kind, statuses in _STATUSES.items():
        if isinstance(error, kind):
            return statuses[1 if is_deepl(path) else 2 if is_own(path) else 0]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _message(error: Exception, status: int) -> str:
    match error:
        case HTTPException():
            return str(error.detail)
        case RequestValidationError():
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, Refusal):
        return "the service has failed at this request; its log says at which place"
    # Lone surrogates cannot be written.
    return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
