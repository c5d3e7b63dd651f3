"""What a hypothesis must and must not contain, followed token by token by an automaton for each phrase.

Required phrases after Hokamp & Liu 2017 and Post & Vilar 2018; repeated n-grams after Paulus et al. 2018; the penalty
of repetitions after Keskar et al. 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from transduce.search.interface import Constraints, Phrase, Token, read_back


@dataclass(frozen=True)
class Habits:
    """What is asked of every hypothesis.

    Args:
        no_repeat_ngram: tokens of the shortest sequence that none contains twice; 0: anything may repeat.
        repetition_penalty: what the log-probability of a token that is there already is multiplied by before it is
            compared with others; scores stay true. 1: none.
        diversity: what a continuation loses for each better one of the same hypothesis (Li et al. 2016), in nats,
            before it is compared with others; scores stay true. 0: none.
    """

    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    diversity: float = 0.0


class Progress(NamedTuple):
    """How far a hypothesis has come: its length, and for each phrase the tokens matched and how often it was whole."""

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


def _matched(phrase: Phrase, matched: int, token: int) -> int:
    """How much of `phrase` the hypothesis ends with when `token` is appended to one that ended with `matched`."""
    if matched == len(phrase):
        matched = _fallbacks(phrase)[matched]
    while matched and phrase[matched] != token:
        matched = _fallbacks(phrase)[matched]
    return matched + (phrase[matched] == token)


class Automaton:
    """Follows the constraints of one sentence."""

    def __init__(self, constraints: Constraints, habits: Habits, end_id: int) -> None:
        self.prefix, self.in_order, self.habits, self.end_id = constraints.prefix, constraints.in_order, habits, end_id
        self.continuing = constraints.continuing
        self.required = tuple(dict.fromkeys(constraints.required))
        self.needed = tuple(constraints.required.count(phrase) for phrase in self.required)
        self.order = constraints.required
        self.phrases = (*self.required, *constraints.forbidden)
        self._tokens = {token for phrase in self.phrases for token in phrase}
        self._nothing_matched = (0,) * len(self.phrases)

    def start(self) -> Progress:
        """That of a hypothesis without tokens."""
        return Progress(0, self._nothing_matched, (0,) * len(self.required))

    def advance(self, progress: Progress, token: int) -> Progress:
        """That of the hypothesis with `token` behind it."""
        if token not in self._tokens:
            return Progress(progress.length + 1, self._nothing_matched, progress.times)
        pairs = zip(self.phrases, progress.matched, strict=True)
        matched = tuple(_matched(phrase, so_far, token) for phrase, so_far in pairs)
        whole = zip(self.required, matched, progress.times, strict=False)
        times = tuple(count + (so_far == len(phrase)) for phrase, so_far, count in whole)
        return Progress(progress.length + 1, matched, times)

    def only(self, progress: Progress) -> int | None:
        """The one token that may come next, if there is just one."""
        return self.prefix[progress.length] if progress.length < len(self.prefix) else None

    def ends_phrase(self, progress: Progress) -> bool:
        """Whether a required phrase ends here, so that none of `continuing` may come next."""
        pairs = zip(self.required, progress.matched, strict=False)
        return any(matched == len(phrase) for phrase, matched in pairs)

    def forbidden(self, progress: Progress, last: Token | None) -> set[int]:
        """Tokens that must not come next, besides `continuing` behind a phrase."""
        found = {
            phrase[-1]
            for place, phrase in enumerate(self.phrases)
            if not self._may_be_whole(progress, place)
            and _matched(phrase, progress.matched[place], phrase[-1]) == len(phrase)
        }
        if not self.may_end(progress):
            found.add(self.end_id)
        if self.habits.no_repeat_ngram:
            found |= _completions(read_back(last)[0], self.habits.no_repeat_ngram)
        return found

    def wanted(self, progress: Progress) -> list[int]:
        """Tokens that bring a required phrase further."""
        if progress.length < len(self.prefix):
            return []
        missing = [place for place, count in enumerate(progress.times) if count < self.needed[place]]
        if self.in_order and missing:
            missing = [self.required.index(self._next_in_order(progress))]
        wanted = []
        for place in missing:
            phrase, matched = self.required[place], progress.matched[place]
            wanted.append(phrase[0 if matched == len(phrase) else matched])
        return wanted

    def may_end(self, progress: Progress) -> bool:
        """Whether everything required is there."""
        return progress.times == self.needed and progress.length >= len(self.prefix)

    def met(self, progress: Progress) -> int:
        """Tokens of required phrases that are there, and of the one under way."""
        whole = sum(len(phrase) * count for phrase, count in zip(self.required, progress.times, strict=True))
        if not any(progress.matched):
            return whole
        under_way = [
            progress.matched[place] % len(phrase)
            for place, phrase in enumerate(self.required)
            if progress.times[place] < self.needed[place]
        ]
        return whole + max(under_way, default=0)

    def penalty(self, last: Token | None) -> set[int]:
        """Tokens whose repetition is penalised."""
        return set(read_back(last)[0]) if self.habits.repetition_penalty != 1.0 else set()

    def _may_be_whole(self, progress: Progress, place: int) -> bool:
        """Whether the phrase in that place may be whole once more."""
        if place >= len(self.required) or progress.times[place] >= self.needed[place]:
            return False
        return not self.in_order or self.required[place] == self._next_in_order(progress)

    def _next_in_order(self, progress: Progress) -> Phrase:
        return self.order[sum(progress.times)]


def _completions(ids: Sequence[int], n: int) -> set[int]:
    """What would repeat an n-gram if it came next."""
    start = tuple(ids[len(ids) - n + 1 :]) if n > 1 else ()
    if len(start) < n - 1:
        return set()
    return {ids[place + n - 1] for place in range(len(ids) - n + 1) if tuple(ids[place : place + n - 1]) == start}
