"""Errors of requests, which need none of the packages of the extra `serve`: `error_responses` makes responses of them.

A `Refusal` says that nothing is wrong with the request: try again later. A `UserError` says that the request must be
changed.
"""

from transduce.errors import Refusal, UserError


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
