import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from transduce.errors import ConfigError, NotANumberError
from transduce.search import Constraints, Sampling, SearchTask, sample_search

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


class Nothing:
    """The state of a table that knows no past."""

    def select(self, sentences: Tensor | None, parents: Tensor) -> "Nothing":
        return self


def first_tokens(table: Tensor, num_samples: int, sampling: Sampling, seed: int = 0) -> Tensor:
    """What is drawn at first from the log-probabilities `table`."""

    def step(last_ids: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        return table.expand(*last_ids.shape, -1).clone(), state

    settings = {"num_samples": num_samples, "seeds": [seed], "sampling": sampling}
    (found,) = sample_search(step, Nothing(), SearchTask(len(table), END, [2]), **settings)
    return torch.tensor([hypothesis.ids[0] for hypothesis in found])


def expected(table: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities of tokens, by the definition."""
    order = table.argsort(descending=True)
    kept = (table / sampling.temperature).double()
    kept[order[sampling.top_k or len(table) :]] = -torch.inf
    probabilities = kept.softmax(0)
    before = probabilities[order].cumsum(0) - probabilities[order]
    probabilities[order[before >= sampling.top_p]] = 0
    return probabilities / probabilities.sum()


@pytest.mark.exhaustive
@pytest.mark.parametrize("vocabulary", [5, 64, 200])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(top_k=9),
        Sampling(top_p=0.7),
        Sampling(top_p=0.97),
        Sampling(temperature=1.5, top_k=50, top_p=0.8),
    ],
    ids=str,
)
def test_tokens_are_as_frequent_as_they_are_probable(vocabulary: int, sampling: Sampling) -> None:
    table = (1.5 * torch.randn(vocabulary, generator=torch.Generator().manual_seed(3))).log_softmax(0)
    probabilities, num_samples = expected(table, sampling), 4000
    counts = torch.bincount(first_tokens(table, num_samples, sampling), minlength=vocabulary)
    assert not counts[probabilities == 0].any()
    often = probabilities * num_samples >= 5
    observed, wanted = (
        torch.cat([part[often], part[~often].sum()[None]]) for part in (counts, probabilities * num_samples)
    )
    # Pearson's statistic: its mean is the degrees of freedom, its variance twice that
    statistic = ((observed - wanted) ** 2 / wanted.clamp(min=1)).sum()
    freedom = len(wanted) - 1
    assert statistic < freedom + 4 * (2 * freedom) ** 0.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=2000), Sampling(top_p=0.9)], ids=str)
def test_rounding_hardly_ever_changes_what_is_drawn(sampling: Sampling) -> None:
    generator = torch.Generator().manual_seed(4)
    table = torch.randn(8_000, generator=generator).log_softmax(0)
    rounded = table + 1e-4 * torch.randn(8_000, generator=generator)  # a hundred times as much as there really is
    one, other = (first_tokens(given, 1000, sampling) for given in (table, rounded))
    # Two candidates out of many are that close. Along their sum, each of 8,000 borders would move.
    assert (one != other).sum() <= 3


def test_a_probability_that_is_not_a_number_is_an_error() -> None:
    table = torch.zeros(5).log_softmax(0)
    table[3] = torch.nan
    with pytest.raises(NotANumberError, match="use another checkpoint"):
        first_tokens(table, 2, Sampling())


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


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_p=1e-46),
        Sampling(top_p=5e-324),
        Sampling(temperature=1e-46),
        Sampling(temperature=5e-324, top_k=4, top_p=0.5),
    ],
    ids=str,
)
def test_what_float32_rounds_to_zero_is_greedy(sampling: Sampling) -> None:
    table = torch.randn(200, generator=torch.Generator().manual_seed(3)).log_softmax(0)
    table[-1] = -torch.inf
    assert set(first_tokens(table, 20, sampling).tolist()) == {int(table.argmax())}


def test_the_highest_temperature_draws_nothing_that_is_forbidden() -> None:
    table = torch.randn(20, generator=torch.Generator().manual_seed(3)).log_softmax(0)
    table[::2] = -torch.inf
    assert set(first_tokens(table, 300, Sampling(temperature=1e39)).tolist()) == set(range(1, 20, 2))


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
        ({"temperature": math.inf}, "temperature = inf must be above 0 and finite"),
        ({"temperature": math.nan}, "temperature = nan must be above 0 and finite"),
        ({"top_k": -1}, "top_k = -1"),
        ({"top_p": 0.0}, "top_p = 0.0"),
        ({"top_p": 1.1}, "top_p = 1.1"),
        ({"constraints": [Constraints()]}, "does not support constraints"),
    ],
)
def test_settings_that_make_no_sense_are_refused(prefix_table: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample(prefix_table(4), [0], [3], **{"num_samples": 1, **settings})
