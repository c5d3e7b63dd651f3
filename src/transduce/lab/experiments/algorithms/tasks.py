"""Two binary numbers and their sum or product, as sequences of symbols.

Numbers are written with the lowest bit first (little-endian), as by Kaiser & Sutskever 2016 ("Neural GPUs Learn
Algorithms", section 3). Sources and targets end in `</s>`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from transduce.errors import ConfigError

END, ZERO, ONE, PLUS, TIMES, PAD = range(6)
"""Ids of the symbols; `PAD` is the last, as every `Transformer` needs it. No sequence of a batch is padded with it."""

SYMBOLS = ("</s>", "0", "1", "+", "*", "<pad>")

Bits = Int[np.ndarray, "number _"]
"""Bits of numbers, one number in each row; several of different lengths may come together."""


class Examples(NamedTuple):
    """Sources and their targets; row i of one belongs to row i of the other, and all rows are equally long."""

    sources: Int[np.ndarray, "number source"]
    targets: Int[np.ndarray, "number target"]


def generate_examples(task: str, seed: int, length: int, number: int) -> Examples:
    """`number` examples of a task with random numbers of `length` bits; a pure function of its arguments.

    Raises:
        ConfigError: the task is unknown, or `length` or `number` is below 1.
    """
    if task not in TASKS:
        raise ConfigError(f"task = {task!r} must be one of {', '.join(TASKS)}")
    if length < 1 or number < 1:
        raise ConfigError(f"length = {length} and number = {number} must be at least 1")
    return TASKS[task](np.random.default_rng([seed, length]), length, number)


def _generate_addition(generator: np.random.Generator, length: int, number: int) -> Examples:
    """From a + b, two numbers of `length` bits each, to their sum of `length` + 1 bits."""
    first, second = _draw_bits(generator, length, number), _draw_bits(generator, length, number)
    digits = np.pad(first + second, ((0, 0), (0, 1)))
    return _make_examples([first + ZERO, PLUS, second + ZERO], _carry(digits))


def _generate_multiplication(generator: np.random.Generator, length: int, number: int) -> Examples:
    """From a * b, two numbers of `length` bits each, to their product of 2 `length` bits."""
    first, second = _draw_bits(generator, length, number), _draw_bits(generator, length, number)
    product = np.zeros((number, 2 * length), dtype=np.int64)
    for place in range(length):
        product[:, place : place + length] += first * second[:, place, None]
    return _make_examples([first + ZERO, TIMES, second + ZERO], _carry(product))


TASKS: dict[str, Callable[[np.random.Generator, int, int], Examples]] = {
    "addition": _generate_addition,
    "multiplication": _generate_multiplication,
}
"""For each task, the function that draws examples from a generator, for a number of bits and a number of examples."""


def _draw_bits(generator: np.random.Generator, length: int, number: int) -> Bits:
    return generator.integers(0, 2, (number, length))


def _carry(digits: Bits) -> Bits:
    """The bits of numbers whose binary digits may be greater than 1; the highest digits have to be small enough."""
    digits = digits.copy()
    for place in range(digits.shape[1] - 1):
        digits[:, place + 1] += digits[:, place] // 2
        digits[:, place] %= 2
    return digits


def _make_examples(source: list[Bits | int], target_bits: Bits) -> Examples:
    """Examples of sources made of columns of ids and single symbols, and of targets made of bits."""
    number = len(target_bits)
    parts = [np.full((number, 1), part) if isinstance(part, int) else part for part in (*source, END)]
    end = np.full((number, 1), END)
    return Examples(np.concatenate(parts, axis=1), np.concatenate([target_bits + ZERO, end], axis=1))
