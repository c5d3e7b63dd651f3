"""JSON objects without repeated keys, of which Python's `json` would keep the last value and lose the others."""

from collections import Counter
from typing import Any


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice; the message names the key."""


def make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object with these keys and values, for the `object_pairs_hook` of `json`.

    Raises:
        RepeatedKeyError: a key is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in counts.items() if count > 1)
        raise RepeatedKeyError(f"has the key {repeated[:60]!r} twice: give it once, as all but one value would be lost")
    return found
