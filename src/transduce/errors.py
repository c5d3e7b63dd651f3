"""Every error that Transduce raises on purpose.

A message names the value that was found, the rule it breaks and what to do about it.

    TransduceError               exit code 1: something failed
    ├── UserError                exit code 2: usage error; the message says what to fix
    │   ├── ConfigError          a setting: unknown key, wrong type, forbidden combination
    │   ├── CorpusError          an input text: encoding, number of lines, missing column
    │   ├── DocumentError        a document to be translated: damaged, or of an unknown format
    │   ├── BundleError          a model folder that is damaged, truncated or of another format
    │   ├── OutputError          an output path that holds other files, or cannot be written
    │   ├── RunError             a run folder that cannot be used in the requested way
    │   ├── BusyError            a folder that another process is writing to
    │   ├── TooLongError, UnknownPairError, UnsatisfiableError, NotAuthorizedError, ParameterError,
    │   │   WrongMediaTypeError, BodyTooLargeError, UnknownFileError,
    │   │   UnknownGlossaryError, TooManyGlossariesError,
    │   │   BodyTooSlowError     an invalid request to the server
    │   └── MissingExtraError    an optional package that is not installed
    ├── ParityError              another program does not compute the same as a model
    ├── WriteError               a file or folder that could not be written, as on a full disk
    ├── TrainingError            training that cannot continue
    │   └── DivergedError        a loss, a gradient or weights that are not finite
    ├── NotANumberError          a probability of a model that is NaN
    ├── OtherRankEndedError      another rank of the run has ended and reports the cause
    ├── TemporaryRefusalError    the server refuses a valid request for now
    │   └── QueueFullError, RateExceededError, BodiesFullError, FilesFullError, SuggestionsFullError, DrainingError,
    │       DeadlineExceededError, FileNotReadyError
    └── TrainingInterruptedError exit code 130: Ctrl-C or SIGTERM, after the state was saved
"""


class TransduceError(Exception):
    """Base class of all errors that Transduce raises on purpose."""

    exit_code = 1


class UserError(TransduceError, ValueError):
    """An input from the user breaks a rule; the message says which, and what to do."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown, has the wrong type or contradicts another."""


class CorpusError(UserError):
    """A text file breaks a rule; the message names the file and, where there is one, the line."""


class DocumentError(UserError):
    """A document cannot be translated: it is damaged, too large when unpacked, or of an unknown format."""


class BundleError(UserError):
    """A model folder is damaged, truncated or of another format; the message names the file, what was expected and what
    was found.
    """


class OutputError(UserError):
    """An output path holds files that are not replaced without `--force`, or cannot be written; nothing was changed."""


class RunError(UserError):
    """A run folder cannot be used in the requested way."""


class BusyError(UserError):
    """Another process is writing to a folder; the message names the process and the folder."""


class MissingExtraError(UserError):
    """An optional package is needed and not installed; the message names the pip command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'transduce[{extra}]'"
        )


class ParityError(TransduceError):
    """Another program does not compute the same as a model; the message names the worst sentence with both scores."""


class WriteError(TransduceError):
    """A file or folder could not be written, as on a full disk; previous contents are unchanged."""


class TrainingError(TransduceError):
    """Training cannot continue: non-finite values, out of memory or disk space, or a lost rank."""


class DivergedError(TrainingError):
    """Training has diverged: a loss, a gradient or weights are not finite."""


class NotANumberError(TransduceError):
    """A probability of a model is NaN."""

    def __init__(self) -> None:
        super().__init__(
            "the model's probabilities are NaN: its weights are damaged, or training diverged; use another checkpoint"
        )


class OtherRankEndedError(TransduceError):
    """Another rank of the same training run has ended first and reports the cause; this rank reports nothing."""


class TemporaryRefusalError(TransduceError):
    """A server refuses a valid request because of its present load or state; the client may retry later."""


class TrainingInterruptedError(TransduceError):
    """Training was asked to stop (Ctrl-C or SIGTERM); its state is on disk."""

    exit_code = 130


class _RetryLaterError(TemporaryRefusalError):
    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFullError(_RetryLaterError):
    """The queue is full; `retry_after` is in seconds."""


class DrainingError(TemporaryRefusalError):
    """The service takes no requests: it is stopping, or has not started yet."""


class DeadlineExceededError(TemporaryRefusalError):
    """The request was accepted, but not answered before its deadline."""


class RateExceededError(_RetryLaterError):
    """A client sends too many requests; `retry_after` is in seconds."""


class BodiesFullError(TemporaryRefusalError):
    """The bodies of all current requests together exceed the memory limit."""

    retry_after = 1


class FilesFullError(_RetryLaterError):
    """The documents that are translated or wait to be downloaded, of a client or of all, exceed the memory limit;
    `retry_after` is in seconds.
    """


class SuggestionsFullError(TemporaryRefusalError):
    """The suggested translations that a server keeps take all the space that they may."""

    retry_after = 3_600


class FileNotReadyError(TemporaryRefusalError):
    """A document is still being translated."""

    retry_after = 1


class TooLongError(UserError):
    """A request has more characters, texts or terms than allowed."""


class UnknownPairError(UserError):
    """No loaded model translates between the two languages."""


class UnknownFileError(UserError):
    """No document is stored under the name or with the key; it may have been removed."""


class UnknownGlossaryError(UserError):
    """No glossary of the client is stored under the id."""


class TooManyGlossariesError(UserError):
    """A client has as many glossaries as the server keeps for it."""


class UnsatisfiableError(UserError):
    """No translation satisfies the constraints of the request, or the text is too long for them to be enforced."""


class NotAuthorizedError(UserError):
    """An API key is required, and none (`is_missing`) or an unknown one was given."""

    def __init__(self, *, is_missing: bool) -> None:
        super().__init__(
            "this service requires an API key: request one from its operator"
            if is_missing
            else "unknown API key: request a valid one from the operator of the service"
        )
        self.is_missing = is_missing


class ParameterError(UserError):
    """A parameter is missing or has a wrong value."""


class WrongMediaTypeError(UserError):
    """A request body is neither JSON nor a form."""


class BodyTooLargeError(UserError):
    """A request body exceeds the size limit."""


class BodyTooSlowError(UserError):
    """A request body did not arrive in time."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` means that memory is full; torch's errors are recognised by their text, as torch may not be
    loaded.
    """
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _REFUSED_MEMORY)
    )


_REFUSED_MEMORY = (
    "out of memory",  # CUDA
    "_ALLOC_FAILED",  # cuBLAS, cuDNN
    "can't allocate memory",  # torch, on a CPU
    "not enough memory",  # torch, on Windows
    "bad_alloc",  # C++
    # oneDNN, which gives no further details
    "could not create a memory",
    "could not create a primitive",
    "could not execute a primitive",
)
