"""Who may use the service: whoever has one of its keys, or anybody where it has none."""

import hmac
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request

from transduce.errors import ConfigError
from transduce.serving.error_answers import is_own
from transduce.serving.request_errors import NotAuthorized
from transduce.text import read_lines

_SCHEMES = {"bearer", "deepl-auth-key"}


class Authorization:
    """Compares keys in a time that says nothing about them.

    Args:
        keys: those that are accepted; without any, no key is needed.

    Raises:
        ConfigError: a key has characters that a header cannot have, or is short enough to be guessed.
    """

    def __init__(self, keys: Sequence[str] = ()) -> None:
        for number, key in enumerate(keys, start=1):
            if not re.fullmatch(r"[!-~]{16,}", key):
                raise ConfigError(f"API key {number}: must be at least 16 letters, digits or signs of ASCII, unspaced")
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> "Authorization":
        """Keys from a file with one a line; blank lines, and those that begin with #, are skipped.

        Raises:
            ConfigError: it has no key, or one that is not as a key must be.
            CorpusError: it is no text.
        """
        lines = (line.strip() for line in read_lines(path))
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"{path}: has no API key: write one in each line, or leave --api-key-file out")
        return cls(keys)

    @property
    def is_required(self) -> bool:
        """Whether a key is needed."""
        return bool(self._digests)

    def check(self, request: Request, key: str | None = None) -> None:
        """That the request may be answered.

        Args:
            request: whose header `Authorization` may have a key, as in "Bearer KEY" or "DeepL-Auth-Key KEY".
            key: what its parameters say, if anything; the header counts first.

        Raises:
            NotAuthorized: it may not.
        """
        if not self._digests:
            return
        given = _of_header(request) or key
        if not given:
            raise NotAuthorized(is_missing=True)
        if not self._knows(given):
            raise NotAuthorized(is_missing=False)

    def knows_header_of(self, request: Request) -> bool | None:
        """Whether the header of a request has a key that is known; None if it has none, and its parameters may."""
        if not self._digests:
            return True
        key = _of_header(request)
        if key:
            return self._knows(key)
        return False if is_own(request.scope["path"]) else None

    def _knows(self, key: str) -> bool:
        """All are compared, whichever it is: neither its place nor how far it is right changes the time."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _of_header(request: Request) -> str | None:
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    return key.strip() if scheme.lower() in _SCHEMES else None


def _digest(key: str) -> bytes:
    """Of equal length for all keys."""
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
