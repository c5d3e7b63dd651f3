import math
from collections import Counter
from functools import partial
from typing import Any

import pytest

from transduce.errors import ConfigError
from transduce.search import Constraints, Sampling, sample_search

END = 1


def sample(table: Any, seeds: list[int], lengths: list[int], **settings: Any) -> Any:
    names = ("temperature", "top_k", "top_p")
    sampling = Sampling(**{name: settings.pop(name) for name in names if name in settings})
    return table.run(partial(sample_search, seeds=seeds, sampling=sampling), seeds, lengths, **settings)


def test_scores_are_those_of_forced_decoding(prefix_table: Any) -> None:
    table, lengths = prefix_table(7), [9, 1, 5, 14]
    found = sample(table, [0, 1, 2, 3], lengths, num_samples=5, temperature=0.7, alpha=0.6)
    for seed, limit, hypotheses in zip(range(4), lengths, found, strict=True):
        assert len(hypotheses) == 5
        for hypothesis in hypotheses:
            assert hypothesis.token_scores == pytest.approx(table.forced(seed, hypothesis.ids, limit), abs=1e-6)


def test_the_same_seed_draws_the_same_in_every_batch(prefix_table: Any) -> None:
    table, lengths = prefix_table(20), [9, 3, 5, 14]
    settings = {"num_samples": 4, "top_p": 0.9}
    together = sample(table, [0, 1, 2, 3], lengths, **settings)
    assert together == sample(table, [0, 1, 2, 3], lengths, **settings)
    assert together[::-1] == sample(table, [3, 2, 1, 0], lengths[::-1], **settings)
    assert [sample(table, [seed], [limit], **settings)[0] for seed, limit in enumerate(lengths)] == together


def test_tokens_are_as_frequent_as_they_are_probable(prefix_table: Any) -> None:
    table = prefix_table(5)
    (found,) = sample(table, [3], [4], num_samples=4000)
    counts = Counter(hypothesis.ids[0] for hypothesis in found)
    probabilities = table.log_probs((3, 5)).exp().tolist()
    for token, probability in enumerate(probabilities):
        assert counts[token] / 4000 == pytest.approx(probability, abs=4 * (probability / 4000) ** 0.5 + 1e-3)


def test_top_k_and_top_p_cut_off_the_improbable(prefix_table: Any) -> None:
    table = prefix_table(30)
    log_probs = table.log_probs((3, 30))
    best = log_probs.sort(descending=True)
    (found,) = sample(table, [3], [4], num_samples=500, top_k=3)
    assert {hypothesis.ids[0] for hypothesis in found} == set(best.indices[:3].tolist())
    needed = int((best.values.exp().cumsum(0) < 0.6).sum()) + 1
    (found,) = sample(table, [3], [4], num_samples=2000, top_p=0.6)
    assert {hypothesis.ids[0] for hypothesis in found} == set(best.indices[:needed].tolist())


def test_a_low_temperature_is_greedy(prefix_table: Any) -> None:
    table = prefix_table(9)
    (found,) = sample(table, [3], [6], num_samples=3, temperature=1e-4)
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == 1
    ids = found[0].ids
    for place, token in enumerate(ids[:5]):
        assert token == table.log_probs((3, 9, *ids[:place])).argmax()


def test_lengths_and_forbidden_tokens(prefix_table: Any) -> None:
    table = prefix_table(6, forbidden=0.4)
    found = sample(table, list(range(30)), [8] * 30, num_samples=5, min_length=4)
    for seed, hypotheses in enumerate(found):
        for hypothesis in hypotheses:
            assert hypothesis.ids[-1] == END
            assert END not in hypothesis.ids[:-1]
            scores = table.forced(seed, hypothesis.ids, 8)
            assert all(score > -math.inf for score in scores[:-1])
            # shorter only where there was no way on
            others = table.log_probs((seed, 6, *hypothesis.ids[:-1])).clone()
            others[END] = -math.inf
            assert len(hypothesis.ids) >= 4 or (others == -math.inf).all()
    assert sample(table, [], [], num_samples=3) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_samples": 0}, "num_samples = 0"),
        ({"temperature": 0.0}, "temperature = 0.0 must be above 0"),
        ({"top_k": -1}, "top_k = -1"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.1}, "top_p = 1.1"),
        ({"constraints": [Constraints()]}, "cannot be held to constraints"),
    ],
)
def test_settings_that_make_no_sense_are_refused(prefix_table: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample(prefix_table(4), [0], [3], **{"num_samples": 1, **settings})
