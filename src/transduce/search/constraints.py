"""Constraints of hypotheses, followed token by token by an automaton for each phrase, and processors of logits.

Required phrases after Hokamp & Liu 2017 and Post & Vilar 2018; repeated n-grams after Paulus et al. 2018; the penalty
of repetitions after Keskar et al. 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from transduce.search.hypothesis import LinkedToken, backtrack
from transduce.search.task import Constraints, Phrase


def find_repeating_tokens(ids: Sequence[int], n: int) -> set[int]:
    """Tokens that would repeat an n-gram of `ids` if they came next; none if n is 0."""
    if not n or len(ids) < n - 1:
        return set()
    start = ids[len(ids) - n + 1 :]
    return {ids[place + n - 1] for place in range(len(ids) - n + 1) if ids[place : place + n - 1] == start}


@dataclass(frozen=True)
class LogitsProcessor:
    """Changes of the log-probabilities by which hypotheses are compared; the scores of hypotheses stay true.

    Args:
        no_repeat_ngram: forbid repeating any n-gram of this length in a hypothesis; 0: off.
        repetition_penalty: factor for the log-probability of a token that already occurs in the hypothesis; 1: off.
        diversity: penalty in nats; of the continuations of one hypothesis, the one ranked k (from 0) loses
            k · diversity (Li et al. 2016); 0: off.
    """

    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    diversity: float = 0.0

    @property
    def only_forbids(self) -> bool:
        """Whether no log-probability changes but those of repeated n-grams, to -inf."""
        return self == LogitsProcessor(self.no_repeat_ngram)

    def find_repeating_tokens(self, last: LinkedToken | None) -> set[int]:
        """Tokens that would repeat an n-gram of the hypothesis that ends with `last`."""
        n = self.no_repeat_ngram
        return find_repeating_tokens(backtrack(last)[0], n) if n else set()

    def find_penalized_tokens(self, last: LinkedToken | None) -> set[int]:
        """Tokens whose repetition is penalised."""
        return set(backtrack(last)[0]) if self.repetition_penalty != 1.0 else set()


class ConstraintProgress(NamedTuple):
    """How far a hypothesis has satisfied the constraints of its sentence: the state of the automaton.

    Its length, the matched prefix length of each phrase, and the number of complete matches of each required phrase.
    """

    length: int
    matched: tuple[int, ...]
    times: tuple[int, ...]


@lru_cache(maxsize=4096)
def _fallbacks(phrase: Phrase) -> tuple[int, ...]:
    """For each number of tokens matched, the next smaller one that still matches (Knuth, Morris & Pratt 1977)."""
    found = [0, 0]
    for token in phrase[1:]:
        shorter = found[-1]
        while shorter and phrase[shorter] != token:
            shorter = found[shorter]
        found.append(shorter + (phrase[shorter] == token))
    return tuple(found)


def _count_matched(phrase: Phrase, matched: int, token: int) -> int:
    """Tokens of `phrase` that a hypothesis ends with once `token` is appended to one that ended with `matched`."""
    if matched == len(phrase):
        matched = _fallbacks(phrase)[matched]
    while matched and phrase[matched] != token:
        matched = _fallbacks(phrase)[matched]
    return matched + (phrase[matched] == token)


class Automaton:
    """Tracks the constraints of one sentence along each of its hypotheses."""

    def __init__(self, constraints: Constraints, logits_processor: LogitsProcessor, end_id: int) -> None:
        self.prefix = constraints.prefix
        self.logits_processor, self.end_id = logits_processor, end_id
        self.required = tuple(dict.fromkeys(constraints.required))
        self.needed = tuple(constraints.required.count(phrase) for phrase in self.required)
        self._given = tuple(constraints.given.count(phrase) for phrase in self.required)
        self._after_prefix = constraints.after_prefix
        self._continuing = dict(zip(constraints.required, constraints.continuing, strict=False))
        self.phrases = (*self.required, *constraints.forbidden)
        self._tokens = {token for phrase in self.phrases for token in phrase}
        self._nothing_matched = (0,) * len(self.phrases)

    def start(self) -> ConstraintProgress:
        """The progress of a hypothesis without tokens."""
        return ConstraintProgress(0, self._nothing_matched, self._given)

    def advance(self, progress: ConstraintProgress, token: int) -> ConstraintProgress:
        """The progress of the hypothesis after `token` is appended."""
        if token not in self._tokens:
            return ConstraintProgress(progress.length + 1, self._nothing_matched, progress.times)
        pairs = zip(self.phrases, progress.matched, strict=True)
        matched = tuple(_count_matched(phrase, so_far, token) for phrase, so_far in pairs)
        whole = zip(self.required, matched, progress.times, strict=False)
        times = tuple(count + (so_far == len(phrase)) for phrase, so_far, count in whole)
        return ConstraintProgress(progress.length + 1, matched, times)

    def find_forced_token(self, progress: ConstraintProgress) -> int | None:
        """The one token that may come next, if there is just one."""
        return self.prefix[progress.length] if progress.length < len(self.prefix) else None

    def find_continuing(self, progress: ConstraintProgress) -> list[frozenset[int]]:
        """Tokens that would continue the last word of the prefix or of a required phrase, for each that ends here."""
        pairs = zip(self.required, progress.matched, strict=False)
        of_prefix = [self._after_prefix] if self._after_prefix and progress.length == len(self.prefix) else []
        return of_prefix + [
            self._continuing[phrase]
            for phrase, matched in pairs
            if matched == len(phrase) and self._continuing.get(phrase)
        ]

    def find_forbidden(self, progress: ConstraintProgress, last: LinkedToken | None) -> set[int]:
        """Tokens that must not come next, except for those of `find_continuing`.

        Tokens that continue the prefix or a required phrase may also repeat an n-gram.
        """
        found = {
            phrase[-1]
            for place, phrase in enumerate(self.phrases)
            if (place >= len(self.required) or progress.times[place] >= self.needed[place])
            and _count_matched(phrase, progress.matched[place], phrase[-1]) == len(phrase)
        }
        if not self.may_end(progress):
            found.add(self.end_id)
        repeating = self.logits_processor.find_repeating_tokens(last)
        if repeating:
            repeating -= {*self.find_advancing_tokens(progress), self.find_forced_token(progress)}
        return found | repeating

    def find_advancing_tokens(self, progress: ConstraintProgress) -> list[int]:
        """Tokens that extend the match of a required phrase that is still to be generated."""
        if progress.length < len(self.prefix):
            return []
        phrases = zip(self.required, progress.matched, progress.times, self.needed, strict=False)
        return [phrase[matched % len(phrase)] for phrase, matched, count, needed in phrases if count < needed]

    def may_end(self, progress: ConstraintProgress) -> bool:
        """Whether the prefix and all required phrases have been generated."""
        return progress.times == self.needed and progress.length >= len(self.prefix)

    def count_met(self, progress: ConstraintProgress) -> int:
        """Number of required tokens generated so far, including those of the phrase being generated."""
        whole = sum(len(phrase) * count for phrase, count in zip(self.required, progress.times, strict=True))
        if not any(progress.matched):
            return whole
        under_way = [
            progress.matched[place] % len(phrase)
            for place, phrase in enumerate(self.required)
            if progress.times[place] < self.needed[place]
        ]
        return whole + max(under_way, default=0)
