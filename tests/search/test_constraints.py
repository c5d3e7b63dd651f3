import pytest
from hypothesis import given, strategies

from transduce.errors import ConfigError
from transduce.search import Constraints, LogitsProcessor
from transduce.search.constraints import Automaton, ConstraintProgress
from transduce.search.hypothesis import LinkedToken

END = 1
PHRASES = strategies.lists(strategies.lists(strategies.integers(2, 4), min_size=1, max_size=4).map(tuple), max_size=3)


def occurrences(phrase: tuple[int, ...], ids: list[int]) -> int:
    return sum(tuple(ids[place : place + len(phrase)]) == phrase for place in range(len(ids)))


def walk(automaton: Automaton, ids: list[int]) -> ConstraintProgress:
    progress = automaton.start()
    for token in ids:
        progress = automaton.advance(progress, token)
    return progress


def chain(ids: list[int]) -> LinkedToken | None:
    last = None
    for token in ids:
        last = LinkedToken(token, -1.0, last)
    return last


@given(PHRASES, strategies.lists(strategies.integers(2, 4), max_size=20))
def test_every_occurrence_is_counted(phrases: list[tuple[int, ...]], ids: list[int]) -> None:
    automaton = Automaton(Constraints(required=tuple(phrases)), LogitsProcessor(), END)
    progress = walk(automaton, ids)
    assert progress.length == len(ids)
    assert progress.times == tuple(occurrences(phrase, ids) for phrase in automaton.required)
    assert automaton.may_end(progress) == (progress.times == tuple(map(phrases.count, automaton.required)))


@given(PHRASES, PHRASES, strategies.lists(strategies.integers(2, 4), max_size=12))
def test_what_is_forbidden_is_what_would_be_once_too_often(
    required: list[tuple[int, ...]], forbidden: list[tuple[int, ...]], ids: list[int]
) -> None:
    automaton = Automaton(Constraints(required=tuple(required), forbidden=tuple(forbidden)), LogitsProcessor(), END)
    progress = walk(automaton, ids)
    refused = automaton.find_forbidden(progress, chain(ids)) - {END}
    for token in (2, 3, 4):
        after = [*ids, token]
        completed = [phrase for phrase in (*required, *forbidden) if tuple(after[-len(phrase) :]) == phrase]
        too_often = any(
            phrase in forbidden or occurrences(phrase, after) > required.count(phrase) for phrase in completed
        )
        assert (token in refused) == too_often


@given(PHRASES.filter(bool), strategies.lists(strategies.integers(2, 4), max_size=12))
def test_what_is_wanted_brings_a_phrase_further(required: list[tuple[int, ...]], ids: list[int]) -> None:
    automaton = Automaton(Constraints(required=tuple(required)), LogitsProcessor(), END)
    progress = walk(automaton, ids)
    advancing = automaton.find_advancing_tokens(progress)
    assert bool(advancing) == any(
        count < needed for count, needed in zip(progress.times, automaton.needed, strict=True)
    )
    for token in advancing:
        after = automaton.advance(progress, token)
        assert max(after.matched[: len(automaton.required)]) > 0


def test_how_far_a_hypothesis_has_come() -> None:
    automaton = Automaton(Constraints(required=((5, 6, 7), (8,))), LogitsProcessor(), END)
    hypotheses = ([], [5], [5, 6], [5, 6, 7], [5, 6, 7, 8], [5, 9], [8])
    assert [automaton.count_met(walk(automaton, ids)) for ids in hypotheses] == [
        0,
        1,
        2,
        3,
        4,
        0,
        1,
    ]


def test_a_prefix_leaves_one_way() -> None:
    automaton = Automaton(Constraints(prefix=(5, 6), required=((7,),)), LogitsProcessor(), END)
    hypotheses = ([], [5], [5, 6], [5, 6, 7])
    assert [automaton.find_forced_token(walk(automaton, ids)) for ids in hypotheses] == [
        5,
        6,
        None,
        None,
    ]
    assert automaton.find_advancing_tokens(automaton.start()) == []
    assert automaton.find_advancing_tokens(walk(automaton, [5, 6])) == [7]


@pytest.mark.parametrize(
    ("ids", "n", "refused"),
    [
        ([5, 6, 5], 2, {6}),
        ([5, 6, 5, 7, 5], 2, {6, 7}),
        ([5, 6, 7, 5, 6], 3, {7}),
        ([5, 6], 3, set()),
        ([], 2, set()),
        ([5, 6], 1, {5, 6}),
        ([5, 5], 2, {5}),
    ],
)
def test_no_ngram_comes_twice(ids: list[int], n: int, refused: set[int]) -> None:
    automaton = Automaton(Constraints(), LogitsProcessor(no_repeat_ngram=n), END)
    assert automaton.find_forbidden(walk(automaton, ids), chain(ids)) == refused


def test_an_empty_phrase_is_refused() -> None:
    for empty in (Constraints, lambda **given: Constraints(forbidden=given["required"])):
        with pytest.raises(ConfigError, match="has no tokens"):
            empty(required=((5,), ()))
