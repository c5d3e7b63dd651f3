"""What is asked of a translation that no translation can have."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from transduce.config import SearchConfig
from transduce.search import Constraints

Ids = tuple[int, ...]


class _Phrase(NamedTuple):
    """One that is asked for: by name, as in "prefix", in ids, and in words."""

    name: str
    ids: Ids
    text: str


def contradictions(asked: Constraints, search: SearchConfig, spell: Callable[[Sequence[int]], str]) -> Iterator[str]:
    """Why no translation, or none that can be searched for, has what is asked, as far as the ids tell.

    Args:
        asked: what a translation must and must not contain.
        search: how it is looked for.
        spell: the text of some ids.
    """
    required = [_Phrase("require", ids, spell(ids)) for ids in dict.fromkeys(asked.required)]
    wanted = [*([_Phrase("prefix", asked.prefix, spell(asked.prefix))] if asked.prefix else []), *required]
    yield from _too_long(asked, wanted, search)
    for name, ids, text in wanted:
        for forbidden in asked.forbidden:
            if forbidden == ids:
                yield f"{name} {text!r}: is forbidden, too; leave out one of them"
            elif _count(forbidden, ids):
                yield f"{name} {text!r}: contains {spell(forbidden)!r}, which is forbidden; leave out one of them"
        times = asked.required.count(ids) if name == "require" else 1
        repeated = _repeated(ids * times if times > 1 else ids, search.no_repeat_ngram, len(ids))
        if repeated is not None:
            rule = f"no_repeat_ngram = {search.no_repeat_ngram} allows that of no so many tokens in a row"
            yield f"{name} {text!r}: has {spell(repeated)!r} twice, and {rule}; shorten it, or allow repetitions"
    for _, ids, text in required:
        if _count(ids, asked.prefix) > asked.required.count(ids):
            yield (
                f"prefix {spell(asked.prefix)!r}: contains {text!r} more often than it is required; "
                f"require it as often, or shorten the prefix"
            )


def _too_long(asked: Constraints, wanted: Sequence[_Phrase], search: SearchConfig) -> Iterator[str]:
    for name, ids, text in wanted:
        shown = text if len(text) <= 50 else text[:50] + "…"
        if len(ids) > search.max_pieces:
            yield (
                f"{name} {shown!r}: has {len(ids)} tokens, and must have at most {search.max_pieces}, "
                f"as many as the model reads at a time; shorten it"
            )
        elif 0 < search.max_length <= len(ids):
            yield (
                f"{name} {shown!r}: has {len(ids)} tokens, and max_length = {search.max_length} allows "
                f"{search.max_length - 1} and the end; shorten it, or allow more"
            )
    if asked.num_tokens > search.max_pieces:
        yield (
            f"prefix and require: have {asked.num_tokens} tokens together, and must have at most {search.max_pieces}, "
            f"as many as the model reads at a time; ask for less"
        )
    elif 0 < search.max_length <= (least := _fewest_tokens(asked)):
        yield (
            f"prefix and require: take {least} tokens together, and max_length = {search.max_length} allows "
            f"{search.max_length - 1} and the end; ask for less, or allow more"
        )


def _fewest_tokens(asked: Constraints) -> int:
    """Tokens that a translation has at least because of them: each phrase may begin within another, or be all there."""
    phrases = [asked.prefix, *asked.required]
    shared = (
        max(_shared(other, ids) for number, other in enumerate(phrases) if number != place)
        for place, ids in enumerate(phrases)
        if place  # the prefix is first
    )
    return sum(map(len, phrases)) - sum(shared)


def _shared(before: Ids, ids: Ids) -> int:
    """How many tokens of `ids` may be tokens of `before`, too: all of a part of it, or its first ones."""
    if len(ids) < len(before) and _count(ids, before):
        return len(ids)
    most = min(len(ids), len(before)) - (ids == before)
    return next((length for length in range(most, 0, -1) if before[-length:] == ids[:length]), 0)


def _count(phrase: Ids, ids: Ids) -> int:
    """How often `phrase` is in `ids`."""
    return sum(ids[place : place + len(phrase)] == phrase for place in range(len(ids) - len(phrase) + 1))


def _repeated(ids: Ids, n: int, once: int) -> Ids | None:
    """The first n-gram that comes twice in `ids`, or None; those across copies of `once` ids do not count."""
    seen = set[Ids]()
    for place in range(len(ids) - n + 1 if n else 0):
        ngram = ids[place : place + n]
        if place % once + n > once:
            continue
        if ngram in seen:
            return ngram
        seen.add(ngram)
    return None
