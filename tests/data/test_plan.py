import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data import plan_batches

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80).map(np.array)
seeds = st.integers(0, 2**40)


def realistic_lengths(num_pairs: int) -> np.ndarray:
    """Log-normal, both sides correlated, as in translated news."""
    random = np.random.default_rng(7)
    common = random.lognormal(np.log(25), 0.55, num_pairs)[:, None]
    noise = np.exp(random.normal(0, (0.1, 0.13), (num_pairs, 2)))
    return np.clip(np.round(common * noise), 1, 256).astype(np.int64) + 1


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_every_pair_once_within_the_budget(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    plan = plan_batches(lengths, batch_tokens, seed, epoch)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or (len(batch) * lengths[batch].max(axis=0) <= batch_tokens).all()


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_pure_in_its_arguments(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    first, second = (plan_batches(lengths.copy(), batch_tokens, seed, epoch) for _ in range(2))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_the_order_is_that_of_a_stable_sort(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> None:
    """Runs that were begun must go on: the batches, whatever their order, are cut from one sequence."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    order = random.permutation(len(lengths))
    longest, difference = lengths[order].max(axis=1), lengths[order, 0] - lengths[order, 1]
    expected = order[np.lexsort((np.where(longest % 2, difference, -difference), longest))].tolist()
    plan = plan_batches(lengths, batch_tokens, seed, epoch)
    place = {index: number for number, index in enumerate(expected)}
    plan.sort(key=lambda batch: place[int(batch[0])])
    assert np.concatenate(plan).tolist() == expected


@given(lengths, st.integers(1, 200), seeds, seeds)
def test_the_type_of_the_lengths_makes_no_difference(
    lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> None:
    plans = [plan_batches(lengths.astype(dtype), batch_tokens, seed, epoch) for dtype in (np.int16, np.int64)]
    assert [batch.tolist() for batch in plans[0]] == [batch.tolist() for batch in plans[1]]


@given(lengths, st.integers(1, 200), seeds, st.data())
def test_pairs_come_as_often_as_asked(lengths: np.ndarray, batch_tokens: int, seed: int, data: st.DataObject) -> None:
    pairs = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=99)), np.int32)
    before = pairs.copy()
    plan = plan_batches(lengths, batch_tokens, seed, 0, pairs)
    assert sorted(np.concatenate(plan).tolist()) == sorted(pairs.tolist())
    assert (pairs == before).all()
    for batch in plan:
        assert len(batch) == 1 or (len(batch) * lengths[batch].max(axis=0) <= batch_tokens).all()


def test_seed_and_epoch_both_change_the_order_and_the_company() -> None:
    lengths = realistic_lengths(2000)
    plans = [plan_batches(lengths, 500, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert len({tuple(plan[0].tolist()) for plan in plans}) == 3
    companies = [{frozenset(batch.tolist()) for batch in plan} for plan in plans]
    assert len(companies[0] & (companies[1] | companies[2])) < 0.2 * len(companies[0])


def test_order_of_batches_does_not_follow_length() -> None:
    lengths = realistic_lengths(5000)
    widths = [lengths[batch].max() for batch in plan_batches(lengths, 1000, 1, 0)]
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.3


@pytest.mark.parametrize(("num_pairs", "batch_tokens"), [(100_000, 4096), (200_000, 25_000)])
def test_little_padding_on_realistic_lengths(num_pairs: int, batch_tokens: int) -> None:
    lengths = realistic_lengths(num_pairs)
    plan = plan_batches(lengths, batch_tokens, 1, 0)
    positions = sum(len(batch) * lengths[batch].max(axis=0).sum() for batch in plan)
    assert 1 - lengths.sum() / positions < 0.05
