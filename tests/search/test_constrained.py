from itertools import product
from typing import Any

import pytest
import torch

from transduce.search import Constraints, Habits, beam_search, length_penalty

END = 1
SEEDS, LENGTHS = list(range(8)), [9, 12, 5, 14, 7, 12, 3, 6]


def count(phrase: tuple[int, ...], ids: list[int]) -> int:
    return sum(tuple(ids[place : place + len(phrase)]) == phrase for place in range(len(ids)))


def is_allowed(ids: list[int], asked: Constraints) -> bool:
    order = [
        phrase
        for place in range(len(ids))
        for phrase in dict.fromkeys(asked.required)
        if tuple(ids[place : place + len(phrase)]) == phrase
    ]
    return (
        tuple(ids[: len(asked.prefix)]) == asked.prefix
        and all(count(phrase, ids) == asked.required.count(phrase) for phrase in asked.required)
        and all(not count(phrase, ids) for phrase in asked.forbidden)
        and (not asked.in_order or order == list(asked.required))
    )


ASKED = [
    Constraints(),
    Constraints(prefix=(2, 3)),
    Constraints(required=((2,),)),
    Constraints(required=((2, 3), (0,))),
    Constraints(required=((0,), (3,)), in_order=True),
    Constraints(required=((2,), (2,))),
    Constraints(forbidden=((2,), (3, 0))),
    Constraints(prefix=(3,), required=((0, 2),), forbidden=((3, 3),)),
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_beam_as_wide_as_the_space_finds_the_best_that_is_allowed(
    prefix_table: Any, asked: Constraints, alpha: float
) -> None:
    table, limit = prefix_table(4), 5
    space = [[*ids, END] for length in range(limit) for ids in product((0, 2, 3), repeat=length)]
    allowed = [ids for ids in space if is_allowed(ids[:-1], asked)]
    seeds = list(range(4))
    found = table.run(
        beam_search, seeds, [limit] * 4, beam=130, alpha=alpha, num_best=3, constraints=[asked] * 4, habits=Habits()
    )
    for seed, hypotheses in zip(seeds, found, strict=True):
        scored = sorted(
            ((sum(table.forced(seed, ids, limit)) / length_penalty(len(ids), alpha), ids) for ids in allowed),
            key=lambda entry: -entry[0],
        )
        assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids in scored[:3]]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx([score for score, _ in scored[:3]])


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_without_constraints_nothing_changes(prefix_table: Any, beam: int) -> None:
    table = prefix_table(50)
    settings = {"beam": beam, "alpha": 0.6, "num_best": beam}
    plain = table.run(beam_search, SEEDS, LENGTHS, **settings)
    assert table.run(beam_search, SEEDS, LENGTHS, habits=Habits(), **settings) == plain
    assert table.run(beam_search, SEEDS, LENGTHS, constraints=[Constraints()] * len(SEEDS), **settings) == plain


@pytest.mark.parametrize("beam", [4, 8])
@pytest.mark.parametrize("in_order", [True, False])
def test_long_phrases_that_the_model_would_never_say_are_there_once(
    prefix_table: Any, beam: int, *, in_order: bool
) -> None:
    table = prefix_table(40, spread=4.0)
    generator = torch.Generator().manual_seed(5)
    asked = []
    for number in range(12):
        sizes = (3, 1 + number % 4, 2)
        phrases = [tuple(torch.randint(2, 40, (size,), generator=generator).tolist()) for size in sizes]
        asked.append(Constraints(required=tuple(phrases[: 1 + number % 3]), in_order=in_order))
    found = table.run(beam_search, list(range(12)), [30] * 12, beam=beam, alpha=0.6, constraints=asked, num_best=2)
    for wanted, hypotheses in zip(asked, found, strict=True):
        assert hypotheses[0].score > -torch.inf
        for hypothesis in hypotheses:
            assert is_allowed(hypothesis.ids[:-1], wanted)
    alone = [
        table.run(beam_search, [seed], [30], beam=beam, alpha=0.6, constraints=[wanted], num_best=2)[0]
        for seed, wanted in enumerate(asked)
    ]
    assert found == alone


def test_what_cannot_be_fulfilled_is_minus_infinity(prefix_table: Any) -> None:
    asked = [Constraints(required=((2, 3, 2, 3),)), Constraints(required=((2,),), forbidden=((2,),))]
    asked.append(Constraints(prefix=(3, 4, 2)))
    for (hypothesis,) in prefix_table(5).run(beam_search, [0, 1, 2], [4, 6, 2], beam=4, alpha=0.6, constraints=asked):
        assert hypothesis.score == -torch.inf


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_ngram_comes_twice(prefix_table: Any, n: int) -> None:
    table, limit = prefix_table(12 if n < 3 else 5, spread=0.5), 9 if n < 3 else 40
    repeats = 0
    for habits in (Habits(), Habits(no_repeat_ngram=n)):
        found = table.run(beam_search, SEEDS, [limit] * 8, beam=3, alpha=0.6, habits=habits, min_length=limit - 2)
        for (hypothesis,) in found:
            ngrams = [tuple(hypothesis.ids[place : place + n]) for place in range(len(hypothesis.ids) - n + 1)]
            repeats += len(ngrams) - len(set(ngrams))
            if habits.no_repeat_ngram:
                assert len(ngrams) == len(set(ngrams))
    assert repeats, "there was something to prevent"


def test_repetitions_are_penalised_and_scores_stay_true(prefix_table: Any) -> None:
    table = prefix_table(6, spread=1.0)
    repeated = []
    for penalty in (1.0, 3.0):
        habits = Habits(repetition_penalty=penalty)
        settings = {"beam": 3, "alpha": 0.6, "num_best": 3, "min_length": 9}
        found = table.run(beam_search, SEEDS, [10] * 8, habits=habits, **settings)
        repeated.append(sum(len(one.ids) - len(set(one.ids)) for hypotheses in found for one in hypotheses[:1]))
        for seed, hypotheses in zip(SEEDS, found, strict=True):
            for hypothesis in hypotheses:
                assert hypothesis.token_scores == pytest.approx(table.forced(seed, hypothesis.ids, 10))
    assert repeated[1] < repeated[0]


def test_siblings_that_lose_make_alternatives_more_diverse(prefix_table: Any) -> None:
    table = prefix_table(30, spread=1.0)
    firsts = []
    for diversity in (0.0, 3.0):
        found = table.run(
            beam_search, SEEDS, [10] * 8, beam=4, alpha=0.6, habits=Habits(diversity=diversity), num_best=4
        )
        firsts.append(sum(len({one.ids[-3:-1][0] for one in hypotheses if len(one.ids) > 2}) for hypotheses in found))
        for seed, hypotheses in zip(SEEDS, found, strict=True):
            for hypothesis in hypotheses:
                assert hypothesis.token_scores == pytest.approx(table.forced(seed, hypothesis.ids, 10))
    assert firsts[1] > 0
