import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.lab.experiments.algorithms.tasks import (
    END,
    ONE,
    PLUS,
    SYMBOLS,
    TASKS,
    TIMES,
    ZERO,
    generate_examples,
)

SEEDS, LENGTHS = st.integers(0, 2**32 - 1), st.integers(1, 40)


def read_number(ids: list[int]) -> int:
    """The number whose bits these ids are, the lowest first."""
    assert set(ids) <= {ZERO, ONE}
    return sum((number == ONE) << place for place, number in enumerate(ids))


def read_operands(source: list[int], operator: int) -> tuple[int, int]:
    assert source.count(operator) == 1
    middle = source.index(operator)
    assert middle == len(source) - middle - 2  # both have equally many bits
    return read_number(source[:middle]), read_number(source[middle + 1 : -1])


@given(SEEDS, LENGTHS)
def test_sums_are_those_of_integers(seed: int, length: int) -> None:
    for source, target in zip(*map(np.ndarray.tolist, generate_examples("addition", seed, length, 5)), strict=True):
        assert len(target) == length + 2
        assert read_number(target[:-1]) == sum(read_operands(source, PLUS))


@given(SEEDS, LENGTHS)
def test_products_are_those_of_integers(seed: int, length: int) -> None:
    examples = generate_examples("multiplication", seed, length, 5)
    for source, target in zip(*map(np.ndarray.tolist, examples), strict=True):
        first, second = read_operands(source, TIMES)
        assert len(target) == 2 * length + 1
        assert read_number(target[:-1]) == first * second


@pytest.mark.parametrize("task", TASKS)
def test_sequences_end_once_and_targets_fit_on_the_tape(task: str) -> None:
    for side in (examples := generate_examples(task, 1, 7, 50)):
        assert (side[:, -1] == END).all()
        assert (side == END).sum() == 50
        assert side.max() < len(SYMBOLS) - 1
    assert examples.targets.shape[1] <= examples.sources.shape[1]


@pytest.mark.parametrize("task", TASKS)
def test_examples_depend_on_seed_and_length_alone(task: str) -> None:
    first, again = generate_examples(task, 1, 9, 20), generate_examples(task, 1, 9, 20)
    other = generate_examples(task, 2, 9, 20)
    assert all((one == two).all() for one, two in zip(first, again, strict=True))
    assert (first.sources != other.sources).any()


def test_every_bit_occurs_at_every_place() -> None:
    sources, _ = generate_examples("addition", 3, 12, 200)
    bits = sources[:, [*range(12), *range(13, 25)]]
    assert ((bits == ONE).mean(axis=0) > 0.3).all()
    assert ((bits == ZERO).mean(axis=0) > 0.3).all()


def test_what_cannot_be_generated_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of addition"):
        generate_examples("division", 1, 3, 5)
    with pytest.raises(ConfigError, match="at least 1"):
        generate_examples("addition", 1, 0, 5)
