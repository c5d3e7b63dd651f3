"""Errors of requests, and the HTTP response to each of them in every dialect.

A `Refusal` says that nothing is wrong with the request: try again later. A `UserError` says that the request must be
changed.
"""

from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from transduce.errors import Refusal, UserError
from transduce.serving.monitoring import Metrics


class _RetryLater(Refusal):
    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(_RetryLater):
    """Too much is waiting; `retry_after` is in seconds."""


class Draining(Refusal):
    """The service takes no requests: it is stopping, or has not started yet."""


class DeadlineExceeded(Refusal):
    """The request was admitted, and could not be answered in its time."""


class RateExceeded(_RetryLater):
    """A client sends too many requests; `retry_after` is in seconds."""


class BodiesFull(Refusal):
    """The bodies of all requests together have more bytes than there is room for."""

    retry_after = 1


class TooLong(UserError):  # noqa: N818 - the request is wrong, not the service
    """A request has more characters, texts or terms than it may have."""


class UnknownPair(UserError):  # noqa: N818 - the request is wrong, not the service
    """No loaded model translates from the one language to the other."""


class Unsatisfiable(UserError):  # noqa: N818 - the request is wrong, not the service
    """No translation satisfies the constraints of the request, or the text is too long for them to be enforced."""


class NotAuthorized(UserError):  # noqa: N818 - the request is wrong, not the service
    """An API key is needed, and none was given (`is_missing`), or one that is not known."""

    def __init__(self, *, is_missing: bool) -> None:
        super().__init__(
            "this service needs an API key: ask whoever runs it for one"
            if is_missing
            else "this API key is not known here: ask whoever runs the service for another"
        )
        self.is_missing = is_missing


class ParameterError(UserError):
    """A parameter is missing or has a wrong value."""


class WrongMediaType(UserError):  # noqa: N818 - the request is wrong, not the service
    """A body is neither JSON nor a form."""


class BodyTooLarge(UserError):  # noqa: N818 - the request is wrong, not the service
    """A body has more bytes than it may have."""


class BodyTooSlow(UserError):  # noqa: N818 - the request is wrong, not the service
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
"""Status for LibreTranslate's clients, for DeepL's, and in the native dialect; the first matching class counts."""

_METRIC_REASONS: dict[type[Exception], str] = {
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

_RETRY_SECONDS = 5
"""Until a service that starts or stops is likely to be replaced."""

_DESCRIPTIONS = {
    408: "The body did not arrive in time.",
    429: "This client asks too often: see Retry-After.",
    503: "Too much is waiting, or the service starts or ends: see Retry-After.",
    504: "It could not be done in time.",
}


def make_error_response(error: Exception, path: str, metrics: Metrics) -> JSONResponse:
    """Make the response to an error in the dialect of the path, and count it in the metrics if it is a refusal.

    LibreTranslate's clients get `{"error"}`, DeepL's `{"message"}`, and those of the native dialect a problem document
    (RFC 9457). The text of an unexpected error is left out, as it may contain text of a user.
    """
    if type(error) in _METRIC_REASONS:
        metrics.refusals.labels(_METRIC_REASONS[type(error)]).inc()
    status = _find_status(error, path)
    headers: dict[str, str] = dict(getattr(error, "headers", None) or {})
    if isinstance(error, Refusal) and status != HTTPStatus.GATEWAY_TIMEOUT:
        headers["Retry-After"] = str(getattr(error, "retry_after", _RETRY_SECONDS))
    if isinstance(error, Draining):
        headers["Connection"] = "close"  # the next request reaches another process, or this one once it is ready
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    message = _make_message(error, status)
    if is_native(path):
        details: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status, "detail": message}
        if isinstance(error, RequestValidationError):
            details["errors"] = [
                {"location": [*map(str, one["loc"])], "message": one["msg"]} for one in error.errors()[:20]
            ]
        return JSONResponse(details, status, headers, media_type="application/problem+json")
    return JSONResponse({"message" if _is_deepl(path) else "error": message}, status, headers)


def describe_errors(descriptions: dict[int, str], content: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a dialect for OpenAPI, by status, and those of all dialects; `content` is their body."""
    texts = sorted({**_DESCRIPTIONS, **descriptions}.items())
    return {status: {"description": text, "content": content} for status, text in texts}


def is_native(path: str) -> bool:
    """Whether errors at the path are written in the native dialect."""
    return path.startswith("/v1/") or path == "/metrics"


def _is_deepl(path: str) -> bool:
    return path.startswith("/v2/")


def _find_status(error: Exception, path: str) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, NotAuthorized) and not error.is_missing and not is_native(path):
        return HTTPStatus.FORBIDDEN
    for kind, statuses in _STATUSES.items():
        if isinstance(error, kind):
            return statuses[1 if _is_deepl(path) else 2 if is_native(path) else 0]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def _make_message(error: Exception, status: int) -> str:
    match error:
        case HTTPException():
            return str(error.detail)
        case RequestValidationError():
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, Refusal):
        return "the service has failed at this request; its log says at which place"
    # Lone surrogates cannot be encoded.
    return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
