import re
from collections.abc import Sequence

import pytest

from transduce.config import SearchConfig
from transduce.search import Constraints
from transduce.translation.feasibility import contradictions

SEARCH = SearchConfig(max_pieces=10)
TRIGRAMS = SearchConfig(max_pieces=10, no_repeat_ngram=3)


def spell(ids: Sequence[int]) -> str:
    return " ".join("abcdefghijklmnopqrstuvwxyz"[token] for token in ids)


@pytest.mark.parametrize(
    ("asked", "search", "expected"),
    [
        (Constraints(required=((2, 3),), forbidden=((2, 3),)), SEARCH, "require 'c d': is forbidden, too"),
        (Constraints(required=((2, 3),), forbidden=((3,),)), SEARCH, "require 'c d': contains 'd', which is forbidden"),
        (Constraints(prefix=(4, 2, 3), forbidden=((2, 3),)), SEARCH, "prefix 'e c d': contains 'c d', which is forb"),
        (Constraints(prefix=(4, 5), forbidden=((4, 5),)), SEARCH, "prefix 'e f': is forbidden, too"),
        (Constraints(prefix=(2, 3, 4, 2, 3, 4)), TRIGRAMS, "prefix 'c d e c d e': has 'c d e' twice, and no_repeat_"),
        (Constraints(required=((2, 2, 2, 2),)), TRIGRAMS, "require 'c c c c': has 'c c c' twice, and no_repeat_ngram"),
        (Constraints(required=((2, 3, 4),) * 2), TRIGRAMS, "require 'c d e': has 'c d e' twice, and no_repeat_ngram"),
        (Constraints(prefix=(2, 3, 2), required=((2,),)), SEARCH, "prefix 'c d c': contains 'c' more often than"),
        (Constraints(prefix=tuple(range(11))), SEARCH, "has 11 tokens, and must have at most 10"),
        (Constraints(required=(tuple(range(11)),)), SEARCH, "require .*: has 11 tokens, and must have at most 10"),
        (
            Constraints(prefix=(2,) * 6, required=((3, 4, 5, 6, 7),)),
            SEARCH,
            "have 11 tokens together, and must have at",
        ),
        (Constraints(prefix=(2, 3, 4)), SearchConfig(max_length=3), "has 3 tokens, and max_length = 3 allows 2 and"),
        (
            Constraints(prefix=(2, 3), required=((4, 5), (6,))),
            SearchConfig(max_length=5),
            "take 5 tokens together, and max_length = 5 allows 4 and the end",
        ),
        (Constraints(required=((2, 3), (3, 4))), SearchConfig(max_length=3), "take 3 tokens together"),
        (Constraints(required=((2, 2),) * 2), SearchConfig(max_length=2), "require 'c c': has 2 tokens"),
    ],
)
def test_what_cannot_be_is_named(asked: Constraints, search: SearchConfig, expected: str) -> None:
    problem = next(contradictions(asked, search, spell))
    assert re.search(expected, problem)


@pytest.mark.parametrize(
    ("asked", "search"),
    [
        (Constraints(), TRIGRAMS),
        (Constraints(prefix=(2, 3), required=((3, 4), (2,)), forbidden=((2, 4), (4, 3))), TRIGRAMS),
        (Constraints(prefix=(2, 3, 4, 2, 3)), TRIGRAMS),
        (Constraints(required=((2, 3),) * 2), TRIGRAMS),
        (Constraints(prefix=(2, 3, 2, 3, 2, 3)), SEARCH),
        (Constraints(prefix=(2, 3, 2), required=((2,), (2,))), SEARCH),
        (Constraints(prefix=(2, 3)), SearchConfig(max_length=3)),
        (Constraints(prefix=(2, 3), required=((3, 4), (4,))), SearchConfig(max_length=4)),  # all in three tokens
        (Constraints(required=((2, 3, 2), (2, 3, 2), (3,), (3,))), SearchConfig(max_length=6)),
        (Constraints(prefix=tuple(range(10))), SEARCH),
    ],
)
def test_what_can_be_is_let_pass(asked: Constraints, search: SearchConfig) -> None:
    assert list(contradictions(asked, search, spell)) == []
