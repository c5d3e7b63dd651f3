from typing import Any

import pytest
import torch

from transduce.errors import ConfigError
from transduce.search import greedy_search, length_penalty

SEEDS, LENGTHS = list(range(12)), [9, 1, 5, 30, 2, 7, 12, 3, 30, 30, 4, 6]


def test_takes_the_most_probable_token_everywhere(prefix_table: Any) -> None:
    table = prefix_table(6)
    for seed, limit, found in zip(SEEDS, LENGTHS, table.run(greedy_search, SEEDS, LENGTHS, alpha=0.6), strict=True):
        assert found.token_scores == table.forced(seed, found.ids, limit)
        assert found.score == pytest.approx(sum(found.token_scores) / length_penalty(len(found.ids), 0.6))
        for place, token in enumerate(found.ids[: limit - 1]):
            assert token == table.log_probs((seed, 6, *found.ids[:place])).argmax()


def test_the_longest_possible_hypothesis_ends_at_its_true_score(prefix_table: Any) -> None:
    table = prefix_table(50)
    lengths = [len(found.ids) for found in table.run(greedy_search, SEEDS, [4] * 12)]
    assert max(lengths) == 4


@pytest.mark.parametrize("round_to", [0.0, 1.0], ids=["distinct", "ties"])
def test_a_sentence_does_not_depend_on_its_batch(prefix_table: Any, round_to: float) -> None:
    table = prefix_table(6, round_to=round_to)
    together = table.run(greedy_search, SEEDS, LENGTHS)
    alone = [table.run(greedy_search, [seed], [limit])[0] for seed, limit in zip(SEEDS, LENGTHS, strict=True)]
    assert together == alone
    assert table.run(greedy_search, SEEDS[::-1], LENGTHS[::-1]) == together[::-1]


def test_a_sentence_that_has_ended_leaves(prefix_table: Any) -> None:
    table = prefix_table(6)
    lengths = [len(found.ids) for found in table.run(greedy_search, SEEDS, LENGTHS)]
    assert table.rows_seen == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert len(set(table.rows_seen)) > 3


def test_forbidden_tokens_are_not_chosen(prefix_table: Any) -> None:
    table = prefix_table(8, forbidden=0.5)
    found = table.run(greedy_search, SEEDS, [3] * 12)
    possible = [hypothesis for hypothesis in found if hypothesis.score > -torch.inf]
    assert len(possible) > 3
    assert all(score > -torch.inf for hypothesis in possible for score in hypothesis.token_scores)


def test_where_everything_is_forbidden_the_hypothesis_ends_there(prefix_table: Any) -> None:
    table = prefix_table(4, forbidden=1.0)
    (found,) = table.run(greedy_search, [0], [5])
    assert (found.ids, found.score, found.token_scores) == ([1], -torch.inf, [-torch.inf])


def test_an_empty_batch_has_no_hypotheses(prefix_table: Any) -> None:
    table = prefix_table(4)
    assert table.run(greedy_search, [], []) == []
    assert table.rows_seen == []


def test_a_length_below_one_is_refused(prefix_table: Any) -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        prefix_table(4).run(greedy_search, [0], [0])
