"""What is wrong with the values of a configuration, one readable line for each."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from transduce.config.keys import known_keys

LIST_RULES = {
    "missing": "longer",
    "too_long": "shorter",
    "tuple_type": "a list",
    "model_type": "a table",
    "extra_forbidden": "left out, as there is no such setting",
}
"""What a list and its items must be, by pydantic's name of the problem."""


def first_problem(error: ValidationError) -> str:
    """The first of the problems of a foreign file, as in "model.num_heads: Input should be greater than 0"."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg'].removeprefix('Value error, ')}"


def describe(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """One line for each value of `values` that breaks a rule, and for each contradiction between values.

    A value that nobody gave has no origin and no line: it is wrong only because another is.
    """
    contradictions, rules = [], dict[str, list[str]]()
    for problem in error.errors(include_url=False):
        key = _key(problem["loc"])
        if problem["type"] == "value_error":
            rule = problem["msg"].removeprefix("Value error, ")
            place = key + "".join(f", number {index + 1}" for index in problem["loc"][2:] if isinstance(index, int))
            contradictions.append(f"{place}: {rule}" if place else rule)
        elif key in origins:
            rule = LIST_RULES.get(problem["type"], problem["msg"].removeprefix("Input should be "))
            rules.setdefault(f"{origins[key]}: {_found(problem['loc'], key, values[key])}", []).append(rule)
    lines = [f"{found}: must be {' or '.join(dict.fromkeys(alternatives))}" for found, alternatives in rules.items()]
    return "\n".join([*lines, *contradictions])


def _key(location: tuple[int | str, ...]) -> str:
    """The setting or the section; what follows in `location` is an item of a list or one of several allowed types."""
    key = ".".join(map(str, location[:2]))
    return key if key in known_keys() else ".".join(map(str, location[:1]))


def _found(location: tuple[int | str, ...], key: str, value: Any) -> str:  # noqa: ANN401 - a setting may have any type
    """The setting and its value; of a table in a list, as one of `data.corpora`, what stands in the table."""
    match location[2:]:
        case [int(index), str(name), *_]:
            return f"{key}, number {index + 1}: {name} = {value[index][name]!r}"
        case _:
            return f"{key} = {value!r}"
