"""ONNX Runtime with an exported folder, as a proof wants it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from transduce.interop.onnx.sessions import Arrays, OnnxModel
from transduce.text import Tokenizer
from transduce.translation import batch_by_length

BATCH_TOKENS = 4096
MOST_ROWS = 64
"""Sentences of a batch: its log-probabilities should not take much memory."""


class OnnxRuntime:
    """See `Runtime`. Everything is computed by the step, token by token, as users will.

    Args:
        folder: what `transduce export --to onnx` has written.

    Raises:
        BundleError: a file is missing or damaged.
        MissingExtraError: ONNX Runtime is not installed.
    """

    def __init__(self, folder: Path) -> None:
        self._model = OnnxModel(folder)
        self._tokenizer = Tokenizer.load(folder)
        self._end_id, self._pad_id = self._model.settings.end_id, self._model.settings.pad_id

    @property
    def name(self) -> str:
        """See `Runtime`."""
        return self._model.runtime

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """See `Runtime`."""
        return [[*ids, self._end_id] for ids in self._tokenizer.encode_all(texts)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        """See `Runtime`."""
        return [self._tokenizer.decode(row) for row in ids]

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Runtime`."""
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for indices in batch_by_length(lengths, BATCH_TOKENS, MOST_ROWS):
            memory, past = self._start([sources[index] for index in indices])
            last_ids = np.full(len(indices), self._pad_id, np.int64)
            for next_ids in np.ascontiguousarray(self._filled([targets[index] for index in indices]).T):
                log_probs, past = self._model.step(last_ids, memory, past)
                last_ids = next_ids
                for index, score in zip(indices, log_probs[np.arange(len(indices)), next_ids].tolist(), strict=True):
                    found[index].append(score)
        return [scores[: len(target)] for scores, target in zip(found, targets, strict=True)]

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """See `Runtime`."""
        found: list[list[int]] = [[] for _ in sources]
        for indices in batch_by_length([len(source) for source in sources], BATCH_TOKENS, MOST_ROWS):
            memory, past = self._start([sources[index] for index in indices])
            last_ids = np.full(len(indices), self._pad_id, np.int64)
            waiting = set(indices)
            while waiting:
                log_probs, past = self._model.step(last_ids, memory, past)
                last_ids = log_probs.argmax(axis=1)
                for index, last in zip(indices, last_ids.tolist(), strict=True):
                    if index in waiting:
                        found[index].append(last)
                        if last == self._end_id or len(found[index]) == max_lengths[index]:
                            waiting.remove(index)
        return found

    def _start(self, sources: Sequence[Sequence[int]]) -> tuple[Arrays, Arrays]:
        """The memory of sources, and the past of targets that have not begun."""
        return self._model.read(self._filled(sources)), self._model.no_past(len(sources))

    def _filled(self, rows: Sequence[Sequence[int]]) -> Int64[np.ndarray, "rows length"]:
        """All rows, `<pad>` behind the short ones."""
        longest = max(map(len, rows))
        return np.array([[*row, *[self._pad_id] * (longest - len(row))] for row in rows], np.int64)
