"""What is wrong with a request before the service hears of it, or with its moment.

Refusal
├── RateExceeded      the client asks too often
└── BodiesFull        bodies of many requests arrive at once
UserError
├── NotAuthorized     a key is needed
├── ParameterError    a parameter is missing, or not what it should be
├── WrongMediaType    the body is neither JSON nor a form
├── BodyTooLarge      it has too many bytes
└── BodyTooSlow       it did not arrive in time
"""

from transduce.errors import Refusal, UserError


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
