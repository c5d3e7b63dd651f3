import re
from collections.abc import Sequence

import pytest

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search import Constraints
from transduce.text import Tokenizer
from transduce.translation import TextConstraints
from transduce.translation.constraints import _spell_once, find_contradictions
from transduce.translation.constraints import spell as spell_phrase


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"required": ("",)}, "require '': must not be blank"),
        ({"required": ("sun", " ")}, "require ' ': must not be blank"),
        ({"forbidden": ("",)}, "forbid '': must not be blank"),
        ({"forbidden": ("\u200b",)}, r"forbid '\\u200b': must not be blank"),
        ({"required": ("sun\udce9",)}, r"require 'sun\\udce9': must be UTF-8"),
        ({"prefix": "sun\udce9"}, r"prefix 'sun\\udce9': must be UTF-8"),
        ({"required": ("sun\nmoon",)}, r"require 'sun\\nmoon': must not contain line ends"),
        ({"forbidden": ("sun\u2028",)}, r"forbid 'sun\\u2028': must not contain line ends"),
        ({"prefix": "sun\r"}, r"prefix 'sun\\r': must not contain line ends"),
    ],
)
def test_what_no_translation_can_have_is_refused(asked: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextConstraints(**asked)


@pytest.mark.parametrize(
    ("forbidden", "text", "met"),
    [
        (".", "Hut.", False),
        (".", "Hut", True),
        ("T-Shirt", "T-T-Shirt", False),
        ("T-Shirt", "(T-Shirt)", False),
        ("T-Shirt", "T-Shirts", True),
        ("an", "Mann kann anders", True),
        ("an", "Mann, an", False),
        (" ein Hut ", "Da ist ein Hut.", False),
    ],
)
def test_a_forbidden_phrase_stands_as_whole_words(forbidden: str, text: str, met: bool) -> None:
    assert TextConstraints(forbidden=(forbidden,)).are_met_by(text) is met


def test_forbidden_phrases_are_spelled_behind_signs_and_words(tokenizer: Tokenizer) -> None:
    def is_ruled_out(text: str, forbidden: str) -> bool:
        (ids,) = tokenizer.encode_targets([text])
        phrases = TextConstraints(forbidden=(forbidden,)).as_ids(tokenizer).forbidden
        rows = [tuple(ids[start:end]) for start in range(len(ids)) for end in range(start + 1, len(ids) + 1)]
        return not {*phrases}.isdisjoint(rows)

    for text in ("moon sun", "moon-sun", "(sun)"):
        assert is_ruled_out(text, "sun")
    for text in ("moon.", "moon .", "."):
        assert is_ruled_out(text, ".")
    assert not is_ruled_out("moon river", "sun")


def test_spellings_are_learned_from_translations(tokenizer: Tokenizer) -> None:
    ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
    asked = TextConstraints(forbidden=("un",))
    assert asked.learn_spellings(tokenizer, ["▁s", "u", "n", "</s>"]) == asked  # within a word
    learned = asked.learn_spellings(tokenizer, ["▁", "u", "n", "</s>"])
    assert learned.spellings == {(ids["▁"], ids["u"], ids["n"])} or learned.spellings == {(ids["u"], ids["n"])}
    assert learned.spellings <= set(learned.as_ids(tokenizer).forbidden)
    assert learned.learn_spellings(tokenizer, ["▁", "u", "n"]) == learned
    assert TextConstraints(forbidden=("s",)).learn_spellings(tokenizer, ["▁u", "</s>"]).spellings == frozenset()


def test_only_short_phrases_are_kept(tokenizer: Tokenizer) -> None:
    before = _spell_once.cache_info().currsize
    assert spell_phrase(tokenizer, "sun moon") == "sun moon"
    assert spell_phrase(tokenizer, "sun " * 1000) == "sun " * 999 + "sun"
    assert _spell_once.cache_info().currsize == before + 1


def test_constraints_of_two_kinds_together() -> None:
    one = TextConstraints("a", ("b",), forbidden=("c",))
    assert one.combine(TextConstraints(required=("d",))) == TextConstraints("a", ("b", "d"), forbidden=("c",))
    assert one.combine(TextConstraints("x", forbidden=("y",))) == TextConstraints("x", ("b",), forbidden=("c", "y"))


SEARCH = SearchConfig(max_pieces=10)
TRIGRAMS = SearchConfig(max_pieces=10, no_repeat_ngram=3)


def spell(ids: Sequence[int]) -> str:
    return " ".join("abcdefghijklmnopqrstuvwxyz"[token] for token in ids)


@pytest.mark.parametrize(
    ("asked", "search", "expected"),
    [
        (Constraints(required=((2, 3),), forbidden=((2, 3),)), SEARCH, "require 'c d': is also forbidden"),
        (Constraints(required=((2, 3),), forbidden=((3,),)), SEARCH, "require 'c d': contains 'd', which is forbidden"),
        (Constraints(prefix=(4, 2, 3), forbidden=((2, 3),)), SEARCH, "prefix 'e c d': contains 'c d', which is forb"),
        (Constraints(prefix=(4, 5), forbidden=((4, 5),)), SEARCH, "prefix 'e f': is also forbidden"),
        (Constraints(prefix=(2, 3, 2), required=((2,),)), SEARCH, "prefix 'c d c': contains 'c' more often than"),
        (Constraints(prefix=tuple(range(11))), SEARCH, "has 11 tokens, but may have at most 10"),
        (Constraints(required=(tuple(range(11)),)), SEARCH, "require .*: has 11 tokens, but may have at most 10"),
        (
            Constraints(prefix=(2,) * 6, required=((3, 4, 5, 6, 7),)),
            SEARCH,
            "have 11 tokens together, but may have at",
        ),
        (Constraints(prefix=(2, 3, 4)), SearchConfig(max_length=3), "has 3 tokens, but max_length = 3 allows 2 and"),
        (
            Constraints(prefix=(2, 3), required=((4, 5), (6,))),
            SearchConfig(max_length=5),
            "take 5 tokens together, but max_length = 5 allows 4 and the end",
        ),
        (Constraints(required=((2, 3), (3, 4))), SearchConfig(max_length=3), "take 3 tokens together"),
        (Constraints(required=((2, 2),) * 2), SearchConfig(max_length=2), "require 'c c': has 2 tokens"),
        (Constraints(forbidden=(tuple(range(11)),)), SEARCH, "forbid .*: has 11 tokens, but may have at most 10"),
        (Constraints(prefix=(2, 3), required=((3,),), given=((3,),)), SEARCH, "prefix 'c d': contains 'd' more often"),
    ],
)
def test_what_cannot_be_is_named(asked: Constraints, search: SearchConfig, expected: str) -> None:
    problem = next(find_contradictions(asked, search, spell))
    assert re.search(expected, problem)


@pytest.mark.parametrize(
    ("asked", "search"),
    [
        (Constraints(), TRIGRAMS),
        (Constraints(prefix=(2, 3), required=((3, 4), (2,)), forbidden=((2, 4), (4, 3))), TRIGRAMS),
        (Constraints(prefix=(2, 3, 4, 2, 3)), TRIGRAMS),
        (Constraints(prefix=(2, 3, 4, 2, 3, 4)), TRIGRAMS),
        (Constraints(required=((2, 2, 2, 2),)), TRIGRAMS),
        (Constraints(required=((2, 3, 4),) * 2), TRIGRAMS),
        (Constraints(prefix=(2, 3, 2, 3, 2, 3)), SEARCH),
        (Constraints(prefix=(2, 3, 2), required=((2,), (2,))), SEARCH),
        (Constraints(prefix=(2, 3)), SearchConfig(max_length=3)),
        (Constraints(prefix=(2, 3), required=((3, 4), (4,))), SearchConfig(max_length=4)),  # all in three tokens
        (Constraints(required=((2, 3, 2), (2, 3, 2), (3,), (3,))), SearchConfig(max_length=6)),
        (Constraints(prefix=tuple(range(10))), SEARCH),
    ],
)
def test_what_can_be_is_let_pass(asked: Constraints, search: SearchConfig) -> None:
    assert list(find_contradictions(asked, search, spell)) == []
