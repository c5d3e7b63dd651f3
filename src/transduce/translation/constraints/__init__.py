"""Constraints of a translation in words, their form in token ids, and the detection of impossible ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search import Constraints
from transduce.text import LONE_SURROGATE, WITHOUT_SPACES, Tokenizer, count_phrase, find_phrase
from transduce.text.corpus import is_one_line, is_visible
from transduce.text.glossary import is_border

_IN_FRONT = ("-", "(", '"', "„", "“", "«", "/", "'")
"""Signs after which a word follows without a space, as separate pieces."""

_MAX_KEPT_LETTERS = 1000
"""Maximum number of characters of a phrase whose spelling is kept for the next text."""

_MAX_LETTERS = 64
"""Maximum number of characters of a phrase that is looked for inside of pieces, which are shorter."""


@dataclass(frozen=True)
class TextConstraints:
    """The words and phrases that the translation of one text must and must not contain.

    A text contains a phrase where it stands as whole words: "an" is not in "Mann", and "." is in "Hut.".

    The search compares token ids, and a text has several tokenisations; so it may return hypotheses that violate the
    constraints, and every text must be verified by `constraints.as_written(tokenizer).are_met_by(text)`. The search
    also excludes longer words that begin with the tokens of a forbidden word.

    In scripts without spaces between words, a phrase may stand anywhere in a text. The search finds it there only if
    one piece begins, and one ends, where the phrase does; `learn_spellings` adds the other spellings.

    Args:
        prefix: how the translation begins; a space at its end ends the word before it.
        required: phrases that it contains exactly once, or as often as they are given.
        forbidden: phrases that it does not contain.
        spellings: sequences of token ids that are forbidden, too, learned from translations that violated the
            constraints; see `learn_spellings`.

    Raises:
        ConfigError: a phrase is blank or not UTF-8, or contains a line end, which no translation does.
    """

    prefix: str = ""
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    spellings: frozenset[tuple[int, ...]] = frozenset()

    def __post_init__(self) -> None:
        for name, phrases in (("require", self.required), ("forbid", self.forbidden)):
            for phrase in phrases:
                if not is_visible(phrase):
                    raise ConfigError(f"{name} {phrase!r}: must not be blank; give a word or phrase, or leave it out")
        for name, phrases in (("require", self.required), ("forbid", self.forbidden), ("prefix", (self.prefix,))):
            for phrase in phrases:
                if LONE_SURROGATE.search(phrase):
                    raise ConfigError(f"{name} {phrase!r}: must be UTF-8; correct it, or leave it out")
                if not is_one_line(phrase):
                    raise ConfigError(
                        f"{name} {phrase!r}: must not contain line ends, as a translation is one line; remove them"
                    )

    def combine(self, other: "TextConstraints") -> "TextConstraints":
        """The constraints of both; if both have a prefix, that of `other`."""
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
        return all(count_phrase(text, phrase) == required.count(phrase) for phrase in required) and not any(
            count_phrase(text, phrase.strip()) for phrase in self.forbidden
        )

    def as_ids(self, tokenizer: Tokenizer) -> Constraints:
        """The constraints in token ids, for a search.

        Phrases are forbidden after a space, after signs and, if they begin with a sign or in a script without spaces,
        after words, each with its own spelling.
        """
        required = {phrase: _encode_required(tokenizer, phrase) for phrase in map(str.strip, self.required)}
        forbidden = [tuple(ids) for ids in tokenizer.encode_targets(self.forbidden) if ids]
        forbidden += [ids for phrase in self.forbidden for ids in _encode_without_space(tokenizer, phrase.strip())]
        (prefix,) = tokenizer.encode_targets([self.prefix])
        ends_word = self.prefix[-1:].isspace() and not WITHOUT_SPACES.match(self.prefix.rstrip()[-1:])
        phrases = [phrase for phrase in map(str.strip, self.required) if required[phrase]]
        return Constraints(
            tuple(prefix),
            tuple(required[phrase] for phrase in phrases),
            tuple(dict.fromkeys([*forbidden, *sorted(self.spellings)])),
            tuple(find_continuing_ids(tokenizer, phrase[-1]) for phrase in phrases),
            tuple(
                ids
                for phrase, ids in required.items()
                for _ in range(_count_ended(tokenizer.decode(prefix), phrase) - _count(ids, tuple(prefix)))
            ),
            _find_ids_without_space(tokenizer) if ends_word and prefix else frozenset(),
        )

    def learn_spellings(self, tokenizer: Tokenizer, pieces: Sequence[str]) -> "TextConstraints":
        """The constraints with further forbidden token sequences, from a translation `pieces` that violates them.

        Adds (1) the token sequences that spelled a forbidden phrase in `pieces`, (2) those that spelled a required one
        in other tokens than the search counts, except in the prefix, and (3) the spellings of each required phrase
        after a hyphen and, in a script without spaces, within a piece. If the phrase begins with a letter or digit of a
        script with spaces, and with a piece, the piece before it is part of the sequence: without it, the same pieces
        may be the inside of a word.
        """
        text, owners = "", list[int]()
        pieces = [piece for piece in pieces if piece != "</s>"]
        for number, piece in enumerate(pieces):
            text += piece.replace("▁", " ")
            owners += [number] * len(piece)
        ids = _map_pieces_to_ids(tokenizer)
        behind = (_encode_behind(tokenizer, "-", phrase.strip()) for phrase in self.required)
        found = {*self.spellings, *(ids_behind for _, ids_behind in filter(None, behind))}
        row = [ids.get(piece, tokenizer.unknown_id) for piece in pieces]
        (prefix,) = tokenizer.encode_targets([self.prefix])
        counted = {phrase: _encode_required(tokenizer, phrase) for phrase in map(str.strip, self.required)}
        needed = {*prefix, *chain.from_iterable(counted.values())}
        around = chain.from_iterable(_find_pieces_around(tokenizer, phrase) for phrase in counted)
        found |= {piece for piece in around if needed.isdisjoint(piece)}
        for phrase in map(str.strip, (*self.forbidden, *self.required)):
            for start in find_phrase(text, phrase):
                first, last = owners[start], owners[start + len(phrase) - 1]
                end = last + 1
                if phrase in counted and (end <= len(prefix) or _ends_with(row[:end], counted[phrase])):
                    continue
                starts_piece = start == 0 or owners[start - 1] != first
                is_of_word = phrase[0].isalnum() and not WITHOUT_SPACES.match(phrase[0])
                is_inside = starts_piece and first > 0 and is_of_word
                found.add(tuple(row[first - is_inside : end]))
        return replace(self, spellings=frozenset(found))


def spell(tokenizer: Tokenizer, phrase: str) -> str | None:
    """The phrase normalised as in translations; None if the tokenizer cannot spell all of it."""
    return _spell_once(tokenizer, phrase) if len(phrase) <= _MAX_KEPT_LETTERS else _spell(tokenizer, phrase)


def _spell(tokenizer: Tokenizer, phrase: str) -> str | None:
    (ids,) = tokenizer.encode_targets([phrase])
    return None if not ids or tokenizer.unknown_id in ids else tokenizer.decode(ids).strip() or None


_spell_once = lru_cache(maxsize=4096)(_spell)


def _ends_with(row: Sequence[int], phrase: tuple[int, ...]) -> bool:
    return tuple(row[-len(phrase) :]) == phrase


def _encode_required(tokenizer: Tokenizer, phrase: str) -> tuple[int, ...]:
    """The ids in which the search counts a required phrase: without the space before it where its script has none."""
    (ids,) = tokenizer.encode_targets([phrase])
    found = _encode_behind(tokenizer, "", phrase) if WITHOUT_SPACES.match(phrase[0]) else None
    return tuple(ids) if found is None else found[1]


def _count_ended(text: str, phrase: str) -> int:
    """The number of occurrences of `phrase` in `text` as whole words, even if letters are appended to `text`."""
    return sum(is_border(text + "a", start + len(phrase)) for start in find_phrase(text, phrase))


def _encode_without_space(tokenizer: Tokenizer, phrase: str) -> list[tuple[int, ...]]:
    """The ids of `phrase` where no space is before it.

    A phrase that begins with a letter follows a sign there (one of `_IN_FRONT`), whose id is included. In a script
    without spaces, the phrase may follow anything, and every piece that contains it is a result, too.
    """
    if not phrase[0].isalnum() or WITHOUT_SPACES.match(phrase[0]):
        found = _encode_behind(tokenizer, "", phrase)
        rows = [] if found is None else [found[1]]
        return [*rows, *_find_pieces_around(tokenizer, phrase)]
    pairs = filter(None, (_encode_behind(tokenizer, sign, phrase) for sign in _IN_FRONT))
    return [(before, *ids) for before, ids in pairs]


def _encode_behind(tokenizer: Tokenizer, sign: str, phrase: str) -> tuple[int, tuple[int, ...]] | None:
    """The last id of a word followed by `sign`, and the ids of `phrase` after that; None if one piece has both."""
    before, ids = tokenizer.encode_targets([f"a{sign}", f"a{sign}{phrase}"])
    if not before or ids[: len(before)] != before or len(ids) == len(before):
        return None
    return before[-1], tuple(ids[len(before) :])


def _find_pieces_around(tokenizer: Tokenizer, phrase: str) -> tuple[tuple[int, ...], ...]:
    """Each piece that contains `phrase`, as a row of its own; none for a script with spaces."""
    may_be_inside = WITHOUT_SPACES.match(phrase[0]) and len(phrase) <= _MAX_LETTERS
    return _look_into_pieces(tokenizer, phrase) if may_be_inside else ()


@lru_cache(maxsize=4096)
def _look_into_pieces(tokenizer: Tokenizer, phrase: str) -> tuple[tuple[int, ...], ...]:
    return tuple((index,) for piece, index in _map_pieces_to_ids(tokenizer).items() if phrase in piece)


def find_continuing_ids(tokenizer: Tokenizer, last: str) -> frozenset[int]:
    """Pieces that continue a word whose last character is `last`, or are a byte of a character that may do so.

    In scripts with spaces, these are pieces that begin with a letter or digit of such a script; in all, with an accent
    or vowel sign.
    """
    return _find_continuing_ids(tokenizer, "\u4e00" if WITHOUT_SPACES.match(last) else "a")


@lru_cache(maxsize=8)
def _find_continuing_ids(tokenizer: Tokenizer, last: str) -> frozenset[int]:
    may_be_byte = not is_border(last + "a", 1)
    return frozenset(
        index
        for piece, index in _map_pieces_to_ids(tokenizer).items()
        if (may_be_byte if piece.startswith("<0x") else not is_border(last + piece, 1))
    )


@lru_cache(maxsize=8)
def _find_ids_without_space(tokenizer: Tokenizer) -> frozenset[int]:
    """Pieces without a space before them; the end symbol is none."""
    pieces = _map_pieces_to_ids(tokenizer).items()
    return frozenset(index for piece, index in pieces if not piece.startswith("▁") and index != tokenizer.end_id)


@lru_cache(maxsize=8)
def _map_pieces_to_ids(tokenizer: Tokenizer) -> dict[str, int]:
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
    yield from _find_too_long(constraints, phrases, search, decode)
    for name, ids, text in phrases:
        for forbidden in constraints.forbidden:
            if forbidden == ids:
                yield f"{name} {text!r}: is also forbidden; leave out one of them"
            elif _count(forbidden, ids):
                yield f"{name} {text!r}: contains {decode(forbidden)!r}, which is forbidden; leave out one of them"
    for _, ids, text in required:
        if _count(ids, constraints.prefix) + constraints.given.count(ids) > constraints.required.count(ids):
            yield (
                f"prefix {decode(constraints.prefix)!r}: contains {text!r} more often than it is required; "
                f"require it as often, or shorten the prefix"
            )


def _find_too_long(
    constraints: Constraints, phrases: Sequence[_Phrase], search: SearchConfig, decode: Callable[[Sequence[int]], str]
) -> Iterator[str]:
    forbidden = [_Phrase("forbid", ids, decode(ids)) for ids in constraints.forbidden if len(ids) > search.max_pieces]
    for name, ids, text in [*phrases, *forbidden]:
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
