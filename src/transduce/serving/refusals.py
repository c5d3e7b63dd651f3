"""Why a request is not answered with what it asked for.

    Refusal               ask again, later: nothing is wrong with the request
    ├── QueueFull         too much is waiting; says when to ask again
    ├── Draining          the service is about to end, or not there yet
    └── DeadlineExceeded  the request was accepted, and its time is over
    UserError             change the request
    ├── TooLong           more characters, texts or terms than a request may have
    ├── UnknownPair       no model translates between these languages
    └── Unsatisfiable     no translation has what was asked for

Everything else that is wrong with a request is a `ConfigError` or another `UserError`.
"""

from transduce.errors import Refusal, UserError


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
