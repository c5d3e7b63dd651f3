"""The HTTP response to each error of a request, in every dialect."""

from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from transduce.errors import (
    BodiesFullError,
    BodyTooLargeError,
    BodyTooSlowError,
    DeadlineExceededError,
    DrainingError,
    FilesFullError,
    NotAuthorizedError,
    QueueFullError,
    RateExceededError,
    SuggestionsFullError,
    TemporaryRefusalError,
    TooLongError,
    TooManyGlossariesError,
    UnknownFileError,
    UnknownGlossaryError,
    UnknownPairError,
    UserError,
    WrongMediaTypeError,
)
from transduce.serving.monitoring import Metrics

_STATUSES: dict[type[Exception], tuple[int, int, int]] = {
    NotAuthorizedError: (400, 403, 401),
    BodyTooLargeError: (413, 413, 413),
    BodyTooSlowError: (408, 408, 408),
    WrongMediaTypeError: (415, 415, 415),
    TooLongError: (400, 413, 413),
    UnknownPairError: (400, 400, 404),
    UnknownFileError: (404, 404, 404),
    UnknownGlossaryError: (404, 404, 404),
    RateExceededError: (429, 429, 429),
    DeadlineExceededError: (504, 504, 504),
    TemporaryRefusalError: (503, 503, 503),
    RequestValidationError: (400, 400, 422),
    UserError: (400, 400, 422),
}
"""Status for LibreTranslate's clients, for DeepL's, and in the native dialect; the first matching class applies."""

_METRIC_REASONS: dict[type[Exception], str] = {
    BodiesFullError: "bodies full",
    BodyTooLargeError: "body too large",
    BodyTooSlowError: "body too slow",
    DeadlineExceededError: "deadline",
    DrainingError: "draining",
    FilesFullError: "files full",
    NotAuthorizedError: "not authorized",
    QueueFullError: "queue full",
    RateExceededError: "rate exceeded",
    SuggestionsFullError: "suggestions full",
    TooLongError: "too long",
    TooManyGlossariesError: "too many glossaries",
}

INTERNAL_ERROR = "internal error; the log of the service shows where it occurred"
"""Message for all errors that are not raised on purpose."""

_RETRY_SECONDS = 5
"""`Retry-After` in seconds while a service starts or stops."""

_DESCRIPTIONS = {
    408: "The body did not arrive in time.",
    429: "Rate limit exceeded: see Retry-After.",
    503: "The queue is full, or the service is starting or stopping: see Retry-After.",
    504: "The deadline was exceeded.",
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
    if isinstance(error, TemporaryRefusalError) and status != HTTPStatus.GATEWAY_TIMEOUT:
        headers["Retry-After"] = str(getattr(error, "retry_after", _RETRY_SECONDS))
    if isinstance(error, DrainingError):
        headers["Connection"] = "close"  # the next request then reaches another process, or this one when it is ready
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
    """Describe for OpenAPI, by status, the errors of a dialect and those common to all dialects; `content` is their
    body.
    """
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
    if isinstance(error, NotAuthorizedError) and not error.is_missing and not is_native(path):
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
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, TemporaryRefusalError):
        return INTERNAL_ERROR
    # Lone surrogates cannot be encoded.
    return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
