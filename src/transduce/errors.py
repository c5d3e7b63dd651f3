"""Every error that Transduce raises on purpose.

A message names the value that was found, the rule it breaks and what to do about it.

    TransduceError               exit code 1: something failed
    ├── UserError                exit code 2: something to be corrected by whoever gave the command
    │   ├── ConfigError          a setting: unknown key, wrong type, forbidden combination
    │   ├── CorpusError          text that was given: encoding, number of lines, missing column
    │   ├── BundleError          a model folder that is damaged, truncated or foreign
    │   ├── OutputError          a place to write to that holds something else, or cannot be written
    │   ├── RunError             a run folder that cannot be used as asked
    │   ├── BusyError            a folder that another process is writing to
    │   ├── TooLong, UnknownPair, Unsatisfiable, NotAuthorized, ParameterError, WrongMediaType, BodyTooLarge,
    │   │   BodyTooSlow           a request to the server, which says what is wrong with it
    │   └── MissingExtraError    an optional package that is not installed
    ├── ParityError              another program does not compute the same as a model
    ├── WriteError               a file or folder that could not be written, as on a full disk
    ├── TrainingError            training that cannot go on
    ├── NotANumberError          a probability of a model that is NaN
    ├── EndedElsewhere           another rank of the run has ended, and says why
    ├── Refusal                  the server refuses a request for now: nothing is wrong with it
    │   └── QueueFull, RateExceeded, BodiesFull, Draining, DeadlineExceeded
    └── Interrupted              exit code 130: Ctrl-C or SIGTERM, after the state was saved
"""


class TransduceError(Exception):
    """The root: catching it catches everything that Transduce raises on purpose."""

    exit_code = 1


class UserError(TransduceError, ValueError):
    """Something given by the user breaks a rule; the message says which and what to do."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown, has the wrong type or contradicts another."""


class CorpusError(UserError):
    """A text file breaks a rule; the message names the file and, where there is one, the line."""


class BundleError(UserError):
    """A model folder is damaged, truncated or foreign; the message says file, expectation, finding."""


class OutputError(UserError):
    """A place to write to holds something that is not replaced unasked, or cannot be written; nothing was changed."""


class RunError(UserError):
    """A run folder cannot be used as asked."""


class BusyError(UserError):
    """Another process is writing to a folder; the message names both."""


class MissingExtraError(UserError):
    """An optional package is needed and not installed; the message names the pip command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'transduce[{extra}]'"
        )


class ParityError(TransduceError):
    """Another program does not compute the same as a model; the message names the worst sentence with both scores."""


class WriteError(TransduceError):
    """A file or folder could not be written, as on a full disk; what was there before is still there."""


class TrainingError(TransduceError):
    """Training cannot go on: what it computes is no number, memory or disk do not hold it, or another rank was lost."""


class NotANumberError(TransduceError):
    """A probability of a model is NaN."""

    def __init__(self) -> None:
        super().__init__("the model's probabilities are not numbers (NaN): its weights are damaged, or diverged")


class EndedElsewhere(TransduceError):  # noqa: N818 - the error is another rank's
    """Another rank of the same training run has ended first and says why; this rank says nothing."""


class Refusal(TransduceError):  # noqa: N818 - nothing is wrong but the moment
    """A server refuses a request that it would accept at another time; nothing needs to be corrected."""


class Interrupted(TransduceError):  # noqa: N818 - a request that was granted is no error
    """Training was asked to stop (Ctrl-C or SIGTERM); its state is on disk."""

    exit_code = 130


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


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory is full; torch's are known by their text, as torch may not be loaded."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _REFUSED_MEMORY)
    )


_REFUSED_MEMORY = (
    "out of memory",  # CUDA
    "_ALLOC_FAILED",  # cuBLAS, cuDNN
    "can't allocate memory",  # torch, on a CPU
    "not enough memory",  # torch, on Windows
    "bad_alloc",  # C++
    # oneDNN, which says no more than that.
    "could not create a memory",
    "could not create a primitive",
    "could not execute a primitive",
)
