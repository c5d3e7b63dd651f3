"""BPE-dropout: merges skipped at random, so that training sees a word in many spellings (Provilkov et al. 2020).

SentencePiece can do this itself, but at least its version 0.2.3 draws other random numbers in every process, whatever
the seed: a run that is resumed would see other text. So merging, which is short, is done here.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import repeat

import sentencepiece

from transduce.errors import ConfigError

_WORD = re.compile("▁?[^▁]+|▁")

_MOST_WORDS = 1 << 16
"""Words whose spelling without dropout is kept in memory: some 30 MB."""

_NEVER = 1 << 62
"""A gap that no text fills."""

_Merge = tuple[float, int, int, str]
"""Best first: minus the score, the two symbols' places, and the piece that they make."""


class MergeDropout:
    """The merges of a BPE model, done anew for every word.

    Args:
        processor: a model trained with BPE whose pieces do not reach across words, SentencePiece's default.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        special = (processor.is_unknown, processor.is_control, processor.is_byte)
        ids = [index for index in range(processor.get_piece_size()) if not any(kind(index) for kind in special)]
        self._ids = {processor.id_to_piece(index): index for index in ids}
        self._scores = {processor.id_to_piece(index): processor.get_score(index) for index in ids}
        self._spell = lru_cache(_MOST_WORDS)(self._spell_undisturbed)

    def encode(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids of every text; each merge is skipped with probability `dropout`, decided by `seed`.

        Raises:
            ConfigError: The model's own segmentation is not the one that merging without dropout gives.
        """
        gaps = _gaps(dropout, seed)
        gap = next(gaps)
        sampled = []
        for text, expected in zip(texts, self._processor.encode(list(texts)), strict=True):
            unsampled: list[int] = []
            ids: list[int] = []
            for word in _WORD.findall(self._processor.normalize(text)):
                spelling, num_merges = self._spell(word)
                unsampled += spelling
                if gap < num_merges:
                    spelling, gap = self._merge(word, gap, gaps)
                else:
                    gap -= num_merges
                ids += spelling
            if unsampled != expected:
                raise ConfigError(
                    f"text.bpe_dropout = {dropout}: this tokenizer is not made of merges within words, as {text!r:.80} "
                    f"shows: use one trained with BPE and byte fallback, or set bpe_dropout to 0"
                )
            sampled.append(ids)
        return sampled

    def _spell_undisturbed(self, word: str) -> tuple[list[int], int]:
        """Ids of the word, and the number of merges that make them."""
        many = len(word)
        ids, left = self._merge(word, many, repeat(many))
        return ids, many - left

    def _merge(self, word: str, gap: int, gaps: Iterator[int]) -> tuple[list[int], int]:
        """Ids of the word if `gap` merges are done before one is skipped, and what is left of the gap after it.

        A merge that was skipped does not come up again, as in SentencePiece.
        """
        symbols = list(word)
        before = list(range(-1, len(word) - 1))
        behind = [*range(1, len(word)), -1]
        agenda: list[_Merge] = []
        for left, right in enumerate(behind):
            self._propose(agenda, symbols, left, right)
        while agenda:
            _, left, right, piece = heappop(agenda)
            # One of the two may have been merged with another neighbour in the meantime.
            if not (symbols[left] and symbols[right] and len(symbols[left] + symbols[right]) == len(piece)):
                continue
            if gap == 0:
                gap = next(gaps)
                continue
            gap -= 1
            symbols[left], symbols[right] = piece, ""
            behind[left] = behind[right]
            if behind[right] >= 0:
                before[behind[right]] = left
            self._propose(agenda, symbols, before[left], left)
            self._propose(agenda, symbols, left, behind[left])
        return [index for symbol in symbols if symbol for index in self._ids_of(symbol)], gap

    def _propose(self, agenda: list[_Merge], symbols: list[str], left: int, right: int) -> None:
        """Put the merge of two places on the agenda if it gives a piece; -1 is the place of no symbol."""
        if left >= 0 and right >= 0 and (piece := symbols[left] + symbols[right]) in self._scores:
            heappush(agenda, (-self._scores[piece], left, right, piece))

    def _ids_of(self, symbol: str) -> list[int]:
        """The piece's id, or those of a rare character's bytes."""
        if symbol in self._ids:
            return [self._ids[symbol]]
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in symbol.encode()]


def _gaps(dropout: float, seed: int) -> Iterator[int]:
    """How many merges are done before each one that is skipped: geometric, one number for each skipped merge."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    while True:
        # 1 - random() is above 0.
        yield int(min(math.log(1.0 - chance.random()) / math.log1p(-dropout), _NEVER)) if dropout else _NEVER
