"""Constraints of a translation in words, their form in token ids, and the detection of impossible ones."""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search import Constraints
from transduce.text import Tokenizer, count_whole, find_whole

_IN_FRONT = ("-", "(", '"', "„", "“", "«", "/", "'")
"""Signs after which a word follows without a space, as separate pieces."""


@dataclass(frozen=True)
class TextConstraints:
    """The words and phrases that the translation of one text must and must not contain.

    A text contains a phrase where it stands as whole words: "an" is not in "Mann", and "." is in "Hut.". The search
    compares rows of pieces, of which one text has several: its hypotheses are to be verified with `are_met_by`, of
    these constraints `as_written`. It also leaves out longer words that begin with the pieces of a forbidden one.

    Args:
        prefix: how the translation begins.
        required: phrases that it contains exactly once, or as often as they are given.
        forbidden: phrases that it does not contain.
        spellings: rows of ids of pieces that are forbidden, too; see `learn_spellings`.

    Raises:
        ConfigError: a phrase is blank, or contains a line end, which no translation does.
    """

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    spellings: frozenset[tuple[int, ...]] = frozenset()

    def __post_init__(self) -> None:
        for name, phrases in (("require", self.required), ("forbid", self.forbidden)):
            for phrase in phrases:
                if not any(unicodedata.category(character)[0] not in "CZ" for character in phrase):
                    raise ConfigError(f"{name} {phrase!r}: must not be blank; give a word or phrase, or leave it out")
        for name, phrases in (("require", self.required), ("forbid", self.forbidden), ("prefix", (self.prefix,))):
            for phrase in phrases:
                if "".join(phrase.splitlines()) != phrase:
                    raise ConfigError(
                        f"{name} {phrase!r}: must not contain line ends, as a translation is one line; remove them"
                    )

    def combine(self, other: "TextConstraints") -> "TextConstraints":
        """The constraints of both; of two prefixes, the other's."""
        return replace(
            self,
            prefix=other.prefix or self.prefix,
            required=self.required + other.required,
            forbidden=self.forbidden + other.forbidden,
            spellings=self.spellings | other.spellings,
        )

    def as_written(self, tokenizer: Tokenizer) -> "TextConstraints":
        """The constraints with phrases normalised as in translations: tokenizers write "CO₂" as "CO2", "…" as "..."."""
        return replace(
            self,
            required=tuple(spell(tokenizer, phrase) or phrase for phrase in self.required),
            forbidden=tuple(spell(tokenizer, phrase) or phrase for phrase in self.forbidden),
        )

    def find_unwritable(self, tokenizer: Tokenizer) -> Iterator[str]:
        """A message for each phrase that cannot occur because the tokenizer cannot spell it."""
        for name, phrases in (("require", self.required), ("prefix", (self.prefix,) if self.prefix.strip() else ())):
            for phrase in phrases:
                if spell(tokenizer, phrase) is None:
                    yield f"{name} {phrase!r}: has characters that this model's vocabulary cannot write; leave them out"

    def are_met_by(self, text: str) -> bool:
        """Whether the text contains the required phrases as often as required, and no forbidden one, as whole words."""
        required = [phrase.strip() for phrase in self.required]
        return all(count_whole(text, phrase) == required.count(phrase) for phrase in required) and not any(
            count_whole(text, phrase.strip()) for phrase in self.forbidden
        )

    def as_ids(self, tokenizer: Tokenizer) -> Constraints:
        """The constraints in token ids, for a search.

        Phrases are forbidden after a space, after signs and, if they begin with a sign, after words, each with its own
        spelling.
        """
        required, forbidden = (
            [tuple(ids) for ids in tokenizer.encode_targets(phrases) if ids]
            for phrases in (self.required, self.forbidden)
        )
        forbidden += [ids for phrase in self.forbidden for ids in _encode_glued(tokenizer, phrase.strip())]
        (prefix,) = tokenizer.encode_targets([self.prefix])
        every = tuple(dict.fromkeys([*forbidden, *sorted(self.spellings)]))
        return Constraints(tuple(prefix), tuple(required), every, find_continuing_ids(tokenizer))

    def learn_spellings(self, tokenizer: Tokenizer, pieces: Sequence[str]) -> "TextConstraints":
        """The constraints with further forbidden token sequences, from a translation `pieces` that violates them.

        Adds (1) the token sequences that spelled a forbidden phrase in `pieces` and (2) the spelling of each required
        phrase after a hyphen, which consists of other tokens, so that the search would not count it. In (1), if the
        phrase begins with a letter or digit and the piece before it does not end with a space, that piece is part
        of the sequence: without it, the same pieces may be the inside of a word.
        """
        text, owners = "", list[int]()
        pieces = [piece for piece in pieces if piece != "</s>"]
        for number, piece in enumerate(pieces):
            text += piece.replace("▁", " ")
            owners += [number] * len(piece)
        ids = _ids_of_pieces(tokenizer)
        behind = (_encode_behind(tokenizer, "-", phrase.strip()) for phrase in self.required)
        found = {*self.spellings, *(ids_behind for _, ids_behind in filter(None, behind))}
        for phrase in map(str.strip, self.forbidden):
            for start in find_whole(text, phrase):
                first, last = owners[start], owners[start + len(phrase) - 1]
                starts_piece = start == 0 or owners[start - 1] != first
                is_inside = starts_piece and first > 0 and phrase[0].isalnum() and text[start - 1] != " "
                found.add(tuple(ids[piece] for piece in pieces[first - is_inside : last + 1]))
        return replace(self, spellings=frozenset(found))


@lru_cache(maxsize=4096)
def spell(tokenizer: Tokenizer, phrase: str) -> str | None:
    """The phrase normalised as in translations; None if the tokenizer cannot spell all of it."""
    (ids,) = tokenizer.encode_targets([phrase])
    return None if not ids or tokenizer.unknown_id in ids else tokenizer.decode(ids).strip() or None


def _encode_glued(tokenizer: Tokenizer, phrase: str) -> list[tuple[int, ...]]:
    """The ids of `phrase` without a leading space: with the sign that it follows, unless it begins with one."""
    if not phrase[0].isalnum():
        found = _encode_behind(tokenizer, "", phrase)
        return [] if found is None else [found[1]]
    pairs = filter(None, (_encode_behind(tokenizer, sign, phrase) for sign in _IN_FRONT))
    return [(before, *ids) for before, ids in pairs]


def _encode_behind(tokenizer: Tokenizer, sign: str, phrase: str) -> tuple[int, tuple[int, ...]] | None:
    """The last id of a word followed by `sign`, and the ids of `phrase` after that; None if one piece has both."""
    before, ids = tokenizer.encode_targets([f"a{sign}", f"a{sign}{phrase}"])
    if not before or ids[: len(before)] != before or len(ids) == len(before):
        return None
    return before[-1], tuple(ids[len(before) :])


@lru_cache(maxsize=8)
def find_continuing_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """Pieces that continue a word: they begin with a letter or digit, or are a byte of a character."""
    pieces = tokenizer.pieces(range(tokenizer.vocabulary))
    return frozenset(index for index, piece in enumerate(pieces) if piece[0].isalnum() or piece.startswith("<0x"))


@lru_cache(maxsize=8)
def _ids_of_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    return {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}


Ids = tuple[int, ...]


class _Phrase(NamedTuple):
    """A required phrase: the name of its option, as in "prefix", ids, and text."""

    name: str
    ids: Ids
    text: str


def find_contradictions(
    constraints: Constraints, search: SearchConfig, decode: Callable[[Sequence[int]], str]
) -> Iterator[str]:
    """A message for each reason why no translation can keep the constraints, as far as token ids show."""
    required = [_Phrase("require", ids, decode(ids)) for ids in dict.fromkeys(constraints.required)]
    phrases = [
        *([_Phrase("prefix", constraints.prefix, decode(constraints.prefix))] if constraints.prefix else []),
        *required,
    ]
    yield from _find_too_long(constraints, phrases, search)
    for name, ids, text in phrases:
        for forbidden in constraints.forbidden:
            if forbidden == ids:
                yield f"{name} {text!r}: is also forbidden; leave out one of them"
            elif _count(forbidden, ids):
                yield f"{name} {text!r}: contains {decode(forbidden)!r}, which is forbidden; leave out one of them"
        times = constraints.required.count(ids) if name == "require" else 1
        repeated = _find_repeated(ids * times if times > 1 else ids, search.no_repeat_ngram, len(ids))
        if repeated is not None:
            rule = f"no_repeat_ngram = {search.no_repeat_ngram} forbids repeating this many tokens"
            yield f"{name} {text!r}: has {decode(repeated)!r} twice, and {rule}; shorten it, or allow repetitions"
    for _, ids, text in required:
        if _count(ids, constraints.prefix) > constraints.required.count(ids):
            yield (
                f"prefix {decode(constraints.prefix)!r}: contains {text!r} more often than it is required; "
                f"require it as often, or shorten the prefix"
            )


def _find_too_long(constraints: Constraints, phrases: Sequence[_Phrase], search: SearchConfig) -> Iterator[str]:
    for name, ids, text in phrases:
        shown = text if len(text) <= 50 else text[:50] + "…"
        if len(ids) > search.max_pieces:
            yield (
                f"{name} {shown!r}: has {len(ids)} tokens, but may have at most {search.max_pieces}, as many as the "
                "model reads at once; shorten it"
            )
        elif 0 < search.max_length <= len(ids):
            yield (
                f"{name} {shown!r}: has {len(ids)} tokens, but max_length = {search.max_length} allows "
                f"{search.max_length - 1} and the end; shorten it, or raise max_length"
            )
    if constraints.num_tokens > search.max_pieces:
        yield (
            f"prefix and require: have {constraints.num_tokens} tokens together, but may have at most "
            f"{search.max_pieces}, as many as the model reads at once; shorten them"
        )
    elif 0 < search.max_length <= (min_tokens := _count_min_tokens(constraints)):
        yield (
            f"prefix and require: take {min_tokens} tokens together, but max_length = {search.max_length} allows "
            f"{search.max_length - 1} and the end; shorten them, or raise max_length"
        )


def _count_min_tokens(constraints: Constraints) -> int:
    """Minimum number of tokens that the constraints require, assuming maximal overlap between phrases."""
    phrases = [constraints.prefix, *constraints.required]
    shared = (
        max(_count_shared(other, ids) for number, other in enumerate(phrases) if number != place)
        for place, ids in enumerate(phrases)
        if place  # the prefix is first
    )
    return sum(map(len, phrases)) - sum(shared)


def _count_shared(before: Ids, ids: Ids) -> int:
    """Number of tokens of `ids` that may overlap with `before`: all if `ids` is part of it, else its first ones."""
    if len(ids) < len(before) and _count(ids, before):
        return len(ids)
    max_shared = min(len(ids), len(before)) - (ids == before)
    return next((length for length in range(max_shared, 0, -1) if before[-length:] == ids[:length]), 0)


def _count(phrase: Ids, ids: Ids) -> int:
    return sum(ids[place : place + len(phrase)] == phrase for place in range(len(ids) - len(phrase) + 1))


def _find_repeated(ids: Ids, n: int, once: int) -> Ids | None:
    """The first n-gram that occurs twice in `ids`, or None; those across copies of `once` ids do not count."""
    seen = set[Ids]()
    for place in range(len(ids) - n + 1 if n else 0):
        ngram = ids[place : place + n]
        if place % once + n > once:
            continue
        if ngram in seen:
            return ngram
        seen.add(ngram)
    return None
