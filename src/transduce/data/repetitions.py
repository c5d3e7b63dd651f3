"""Pairs that the training text has more than once, found in little memory however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from transduce.data.chunks import Pair, in_chunks

_NUM_FILES = 64
_ENTRY = np.dtype([("digest", "<u8", 2), ("index", "<i8")])


class RepetitionFinder:
    """Deals the digests of pairs out to 64 files in `folder`, equal ones to the same, and compares file by file.

    Digests have 16 bytes, whatever the length of a pair: that two of 10^12 pairs share one has odds of 10^-15. Of ten
    million pairs, a file takes 4 MB.
    """

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"{number:02}.bin" for number in range(_NUM_FILES)]
        self._num_pairs = 0

    def watch(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """The pairs as they come, remembered."""
        for chunk in in_chunks(pairs):
            self._add(chunk)
            yield from chunk

    def _add(self, pairs: Sequence[Pair]) -> None:
        digests = np.frombuffer(b"".join(map(_digest, pairs)), np.uint8).reshape(-1, 16)
        entries = np.empty(len(pairs), _ENTRY)
        entries["digest"] = digests.view("<u8")
        entries["index"] = np.arange(self._num_pairs, self._num_pairs + len(pairs))
        numbers = digests[:, 0] % _NUM_FILES
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=_NUM_FILES))
        for path, part in zip(self._files, np.split(entries[order], ends[:-1]), strict=True):
            with path.open("ab") as file:
                file.write(part.tobytes())
        self._num_pairs += len(pairs)

    def repeats(self) -> Bool[np.ndarray, "pairs"]:
        """Whether each of the pairs, in their order, is the same as an earlier one."""
        repeats = np.zeros(self._num_pairs, bool)
        for path in self._files if self._num_pairs else []:
            entries = np.fromfile(path, _ENTRY)
            # Sorting is stable: of equal pairs, the earliest comes first.
            entries = entries[np.lexsort(entries["digest"].T)]
            same = (entries["digest"][1:] == entries["digest"][:-1]).all(axis=1)
            repeats[entries["index"][1:][same]] = True
        return repeats


def _digest(pair: Pair) -> bytes:
    # No kept text has a line break, so that the border between the sides is clear.
    return blake2b("\n".join(pair).encode(), digest_size=16).digest()
