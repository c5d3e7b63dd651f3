from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.errors import ConfigError, TransduceError
from transduce.search import Constraints, Hypothesis, LogitsProcessor, SearchTask, beam_search, length_penalty

END = 1
SEEDS, LENGTHS = list(range(12)), [9, 1, 5, 14, 2, 7, 12, 3, 14, 14, 4, 6]


def reference(
    table: Any, seed: int, limit: int, beam: int, alpha: float, num_best: int
) -> tuple[list[tuple[float, list[int]]], list[list[list[int]]]]:
    """The search's rules with plain lists, one sentence, and no early stop by a bound.

    Every finished hypothesis, and what went on to each step.
    """
    steps = []
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        steps.append([ids for _, ids in live])
        continuations = []
        for total, ids in live:
            scores = table.log_probs((seed, table.vocabulary, *ids)).tolist()
            allowed = [END] if length == limit else range(table.vocabulary)
            continuations += [(total + scores[token], [*ids, token]) for token in allowed]
        possible = [found for found in continuations if found[0] > -torch.inf]
        best = sorted(possible, key=lambda found: -found[0])[: 2 * beam]
        ended = [(total, ids) for total, ids in best[:beam] if ids[-1] == END]
        finished += [(total / length_penalty(length, alpha), ids) for total, ids in ended]
        live = [(total, ids) for total, ids in best if ids[-1] != END][:beam]
        finished.sort(key=lambda found: -found[0])
        del finished[2 * beam :]
        if not live:
            break
        if len(finished) >= beam and finished[min(num_best, beam) - 1][0] >= live[0][0] / length_penalty(length, alpha):
            break
    return finished, steps


def pairs(hypotheses: list[Hypothesis]) -> list[tuple[float, list[int]]]:
    return [(pytest.approx(hypothesis.score, abs=1e-9), hypothesis.ids) for hypothesis in hypotheses]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize(("vocabulary", "limit"), [(3, 1), (3, 4), (4, 4), (6, 3)])
def test_a_beam_as_wide_as_the_space_finds_everything_in_order(
    prefix_table: Any, alpha: float, vocabulary: int, limit: int
) -> None:
    table = prefix_table(vocabulary)
    others = [token for token in range(vocabulary) if token != END]
    space = [[*ids, END] for length in range(limit) for ids in product(others, repeat=length)]
    seeds = list(range(5))
    for num_best in (1, 3, len(space)):
        beam = max(len(space), num_best)
        found = table.run(beam_search, seeds, [limit] * 5, beam=beam, alpha=alpha, num_best=num_best)
        for seed, hypotheses in zip(seeds, found, strict=True):
            scored = [(sum(table.forced(seed, ids, limit)) / length_penalty(len(ids), alpha), ids) for ids in space]
            assert sorted(scored, key=lambda entry: -entry[0])[:num_best] == pairs(hypotheses)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize(("vocabulary", "beam"), [(5, 1), (5, 2), (5, 4), (9, 3), (150, 4), (150, 9)])
def test_equals_the_plain_search_that_never_stops_early(
    prefix_table: Any, alpha: float, forbidden: float, vocabulary: int, beam: int
) -> None:
    table = prefix_table(vocabulary, forbidden=forbidden)
    for num_best in {1, beam}:
        found = table.run(beam_search, SEEDS, LENGTHS, beam=beam, alpha=alpha, num_best=num_best)
        for seed, limit, hypotheses in zip(SEEDS, LENGTHS, found, strict=True):
            expected = reference(table, seed, limit, beam, alpha, num_best)[0][:num_best]
            if expected:
                assert expected == pairs(hypotheses)
            else:
                assert [hypothesis.score for hypothesis in hypotheses] == [-torch.inf]


def test_all_that_was_finished_can_be_had(prefix_table: Any) -> None:
    table = prefix_table(5)
    found = table.run(beam_search, SEEDS, LENGTHS, beam=4, alpha=0.6, num_best=8)
    assert max(map(len, found)) > 4
    for seed, limit, hypotheses in zip(SEEDS, LENGTHS, found, strict=True):
        assert reference(table, seed, limit, beam=4, alpha=0.6, num_best=8)[0] == pairs(hypotheses)


@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize(("vocabulary", "beam"), [(5, 2), (5, 4), (150, 6)])
def test_what_goes_on_is_what_the_rules_say(prefix_table: Any, forbidden: float, vocabulary: int, beam: int) -> None:
    table = prefix_table(vocabulary, forbidden=forbidden)
    for seed, limit in zip(SEEDS, LENGTHS, strict=True):
        table.run(beam_search, [seed], [limit], beam=beam, alpha=0.6, num_best=beam)
        # without the seed and the start symbol; rows that only fill up have read the end
        seen = [[list(row[2:]) for row in rows if END not in row[2:]] for (rows,) in table.prefixes_seen]
        assert seen == reference(table, seed, limit, beam, 0.6, num_best=beam)[1][: len(seen)]


def test_scores_are_those_of_forced_decoding(prefix_table: Any) -> None:
    table = prefix_table(7, dtype=torch.bfloat16)
    found = table.run(beam_search, SEEDS, LENGTHS, beam=4, alpha=0.6, num_best=4)
    for seed, limit, hypotheses in zip(SEEDS, LENGTHS, found, strict=True):
        assert [hypothesis.score for hypothesis in hypotheses] == sorted(
            (hypothesis.score for hypothesis in hypotheses), reverse=True
        )
        for hypothesis in hypotheses:
            assert hypothesis.token_scores == table.forced(seed, hypothesis.ids, limit)
            penalty = length_penalty(len(hypothesis.ids), 0.6)
            assert hypothesis.score == pytest.approx(sum(hypothesis.token_scores) / penalty)


@pytest.mark.parametrize("vocabulary", [3, 10, 200])
@pytest.mark.parametrize("round_to", [0.0, 1.0], ids=["distinct", "ties"])
@pytest.mark.parametrize("forbidden", [0.0, 0.6])
def test_a_beam_of_one_is_greedy(prefix_table: Any, vocabulary: int, round_to: float, forbidden: float) -> None:
    table = prefix_table(vocabulary, round_to=round_to, forbidden=forbidden)
    seeds, lengths = list(range(60)), [1 + seed % 12 for seed in range(60)]
    for seed, limit, (found,) in zip(
        seeds, lengths, table.run(beam_search, seeds, lengths, beam=1, alpha=0.6), strict=True
    ):
        ids: list[int] = []
        while END not in ids:
            log_probs = table.log_probs((seed, vocabulary, *ids))
            at_limit = len(ids) + 1 == limit or (log_probs == -torch.inf).all()
            ids.append(END if at_limit else int(log_probs.argmax()))  # of equal ones the first
        assert found.ids == ids


@pytest.mark.parametrize("num_best", [1, 4])
@pytest.mark.parametrize("round_to", [0.0, 1.0], ids=["distinct", "ties"])
@pytest.mark.parametrize("vocabulary", [3, 6, 100])
def test_a_sentence_depends_on_nothing_in_its_batch_and_leaves_it_when_done(
    prefix_table: Any, vocabulary: int, round_to: float, num_best: int
) -> None:
    table = prefix_table(vocabulary, round_to=round_to)
    settings = {"beam": 4, "alpha": 0.6, "num_best": num_best}
    alone = []
    for seed, limit in zip(SEEDS, LENGTHS, strict=True):
        alone += table.run(beam_search, [seed], [limit], **settings)
    assert table.run(beam_search, SEEDS, LENGTHS, **settings) == alone
    num_sentences = [len(rows) for rows in table.prefixes_seen]
    assert num_sentences[0] == len(SEEDS)
    assert num_sentences == sorted(num_sentences, reverse=True)
    assert num_sentences[-1] <= 8, "those that are done stay until they are an eighth"
    assert table.run(beam_search, SEEDS[::-1], LENGTHS[::-1], **settings) == alone[::-1]


@dataclass
class Positions:
    """A table in which the log-probabilities depend on the position alone; the last row serves all that follow."""

    columns: list[list[float]]
    num_steps: int = 0

    def select(self, sentences: Tensor | None, parents: Tensor) -> "Positions":
        assert sentences is None
        assert len(parents) == 1
        return self

    def step(self, last_ids: Tensor, state: "Positions") -> tuple[Tensor, "Positions"]:
        column = self.columns[min(self.num_steps, len(self.columns) - 1)]
        self.num_steps += 1
        return torch.tensor(column).expand(*last_ids.shape, -1).clone(), state

    def best(self, limit: int, **settings: Any) -> list[list[int]]:
        """The ids of what beam search finds."""
        (found,) = beam_search(self.step, self, SearchTask(0, END, [limit]), **settings)
        return [hypothesis.ids for hypothesis in found]


def test_stops_as_soon_as_nothing_can_become_better() -> None:
    column = [-5.0, -0.1, -4.0]
    at_once = Positions([column])
    assert at_once.best(40, beam=3, alpha=0.0) == [[END]]
    assert at_once.num_steps == 1
    second = Positions([column])
    assert second.best(40, beam=3, alpha=0.0, num_best=2) == [[END], [2, END]]
    assert second.num_steps == 2
    # a penalty of (45 / 6) lets the sum -4 still reach -0.53, and then -0.1 is out of reach: stop as early
    penalised = Positions([column])
    assert penalised.best(40, beam=3, alpha=1.0) == [[END]]
    assert penalised.num_steps == 1


def test_goes_on_while_a_longer_hypothesis_can_overtake_a_finished_one() -> None:
    # the end at once: -1.0; two tokens and the end: -1.2 in all, which the penalty 4/3 turns into -0.9
    columns = [[-9.0, -1.0, -0.6], [-9.0, -9.0, -0.3], [-9.0, -0.3, -9.0]]
    assert Positions(columns).best(3, beam=3, alpha=1.0) == [[2, 2, END]]
    assert Positions(columns).best(3, beam=3, alpha=0.0) == [[END]]


def test_a_hypothesis_that_is_ahead_is_waited_for() -> None:
    # The best of each step is nearly certain, and every other token, the end too, has the same small probability.
    certain, end = [-8.0, -8.0, -0.001], [-8.0, -0.001, -8.0]
    columns = [certain, certain, certain, certain, end]
    for beam in (1, 2, 4):
        assert Positions(columns).best(20, beam=beam, alpha=0.6) == [[2, 2, 2, 2, END]]


def test_a_large_sum_does_not_blur_small_differences() -> None:
    # beside -5000, float32 cannot tell -1.00001 from -1.0
    columns = [[-5000.0, *[-torch.inf] * 4], [-9.0, -9.0, -1.00001, -1.00001, -1.0]]
    assert Positions(columns).best(3, beam=1, alpha=0.0) == [[0, 4, END]]


def test_where_everything_is_forbidden_there_is_one_hypothesis(prefix_table: Any) -> None:
    table = prefix_table(4, forbidden=1.0)
    ((found,),) = table.run(beam_search, [0], [5], beam=4, alpha=0.6, num_best=4)
    assert (found.ids, found.score, found.token_scores) == ([END], -torch.inf, [-torch.inf])


def test_forbidden_ways_are_never_among_possible_ones(prefix_table: Any) -> None:
    table = prefix_table(5, forbidden=0.6)
    found = table.run(beam_search, list(range(100)), [4] * 100, beam=4, alpha=0.6, num_best=4)
    scores = [[hypothesis.score for hypothesis in hypotheses] for hypotheses in found]
    assert all(len(some) == 1 or -torch.inf not in some for some in scores)
    assert any(len(some) == 4 for some in scores)
    assert [-torch.inf] in scores
    assert all(score <= 0 for some in scores for score in some)  # nan is not


def test_an_empty_batch_has_no_hypotheses(prefix_table: Any) -> None:
    assert prefix_table(4).run(beam_search, [], [], beam=4, alpha=0.6) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam = 0 must be at least 1"),
        ({"num_best": 0}, "num_best = 0 must be at least 1"),
        ({"alpha": -0.1}, "alpha = -0.1 must not be negative"),
    ],
)
def test_settings_that_make_no_sense_are_refused(prefix_table: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prefix_table(4).run(beam_search, [0], [3], **{"beam": 4, "alpha": 0.6, **settings})


@pytest.mark.parametrize("min_length", [1, 3, 6])
def test_no_hypothesis_is_shorter_than_the_minimum_but_for_its_own_limit(prefix_table: Any, min_length: int) -> None:
    table = prefix_table(6)
    settings = {"beam": 3, "alpha": 0.6, "num_best": 3}
    found = table.run(beam_search, SEEDS, LENGTHS, min_length=min_length, **settings)
    for seed, limit, hypotheses in zip(SEEDS, LENGTHS, found, strict=True):
        assert all(len(hypothesis.ids) >= min(min_length, limit) for hypothesis in hypotheses)
        for hypothesis in hypotheses:
            assert hypothesis.token_scores == table.forced(seed, hypothesis.ids, limit)
    if min_length == 1:
        assert found == table.run(beam_search, SEEDS, LENGTHS, **settings)


def test_a_limit_without_room_for_the_end_is_refused(prefix_table: Any) -> None:
    with pytest.raises(ConfigError, match=r"max_lengths\[1\] = 0 must be at least 1"):
        prefix_table(4).run(beam_search, [0, 1], [3, 0], beam=4, alpha=0.6)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_log_probabilities_that_are_no_numbers_end_the_search(beam: int, sign: float, dtype: torch.dtype) -> None:
    class Nothing:
        def select(self, sentences: Tensor | None, parents: Tensor) -> "Nothing":
            return self

    def step(last_ids: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        log_probs = torch.full((*last_ids.shape, 7), -2.0)
        log_probs[0, -1] = torch.tensor(torch.nan).copysign(torch.tensor(sign))  # in one hypothesis of several
        return log_probs.to(dtype), state

    with pytest.raises(TransduceError, match="NaN"):
        beam_search(step, Nothing(), SearchTask(6, 1, [3, 4]), alpha=0.6, beam=beam)


SEEDS, LENGTHS = list(range(8)), [9, 12, 5, 14, 7, 12, 3, 6]


def count(phrase: tuple[int, ...], ids: list[int]) -> int:
    return sum(tuple(ids[place : place + len(phrase)]) == phrase for place in range(len(ids)))


def is_allowed(ids: list[int], asked: Constraints) -> bool:
    return (
        tuple(ids[: len(asked.prefix)]) == asked.prefix
        and all(count(phrase, ids) == asked.required.count(phrase) for phrase in asked.required)
        and all(not count(phrase, ids) for phrase in asked.forbidden)
    )


ASKED = [
    Constraints(),
    Constraints(prefix=(2, 3)),
    Constraints(required=((2,),)),
    Constraints(required=((2, 3), (0,))),
    Constraints(required=((0,), (3,))),
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
        beam_search,
        seeds,
        [limit] * 4,
        beam=130,
        alpha=alpha,
        num_best=3,
        constraints=[asked] * 4,
        logits_processor=LogitsProcessor(),
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
    assert table.run(beam_search, SEEDS, LENGTHS, logits_processor=LogitsProcessor(), **settings) == plain
    assert table.run(beam_search, SEEDS, LENGTHS, constraints=[Constraints()] * len(SEEDS), **settings) == plain


@pytest.mark.exhaustive
@pytest.mark.parametrize("beam", [4, 8])
def test_long_phrases_that_the_model_would_never_say_are_there_once(prefix_table: Any, beam: int) -> None:
    table = prefix_table(40, spread=4.0)
    generator = torch.Generator().manual_seed(5)
    asked = []
    for number in range(12):
        sizes = (3, 1 + number % 4, 2)
        phrases = [tuple(torch.randint(2, 40, (size,), generator=generator).tolist()) for size in sizes]
        asked.append(Constraints(required=tuple(phrases[: 1 + number % 3])))
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
    for logits_processor in (LogitsProcessor(), LogitsProcessor(no_repeat_ngram=n)):
        found = table.run(
            beam_search, SEEDS, [limit] * 8, beam=3, alpha=0.6, logits_processor=logits_processor, min_length=limit - 2
        )
        for (hypothesis,) in found:
            ngrams = [tuple(hypothesis.ids[place : place + n]) for place in range(len(hypothesis.ids) - n + 1)]
            repeats += len(ngrams) - len(set(ngrams))
            if logits_processor.no_repeat_ngram:
                assert len(ngrams) == len(set(ngrams))
    assert repeats, "there was something to prevent"


def test_repetitions_are_penalised_and_scores_stay_true(prefix_table: Any) -> None:
    table = prefix_table(6, spread=1.0)
    repeated = []
    for penalty in (1.0, 3.0):
        logits_processor = LogitsProcessor(repetition_penalty=penalty)
        settings = {"beam": 3, "alpha": 0.6, "num_best": 3, "min_length": 9}
        found = table.run(beam_search, SEEDS, [10] * 8, logits_processor=logits_processor, **settings)
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
            beam_search,
            SEEDS,
            [10] * 8,
            beam=4,
            alpha=0.6,
            logits_processor=LogitsProcessor(diversity=diversity),
            num_best=4,
        )
        firsts.append(sum(len({one.ids[-3:-1][0] for one in hypotheses if len(one.ids) > 2}) for hypotheses in found))
        for seed, hypotheses in zip(SEEDS, found, strict=True):
            for hypothesis in hypotheses:
                assert hypothesis.token_scores == pytest.approx(table.forced(seed, hypothesis.ids, 10))
    assert firsts[1] > 0
