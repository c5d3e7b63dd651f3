"""Dialects."""

import json
import re
from typing import Any, Never
from urllib.parse import parse_qsl

from starlette.requests import Request

from transduce.serving.errors import ParameterError, WrongMediaType

_NUM_FIELDS = 1_000
_FLAGS = {"0": False, "1": True, "false": False, "true": True}
_LINE_END = re.compile(r"\r\n?")


class Parameters:
    """What a request asks for; null is as if absent, and so is "" but in a list of texts.

    Args:
        values: by their names: text, lists of text, or whatever JSON has.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return bool(self._values.get(name, "") != "")

    def raw(self, name: str) -> object:
        """As it was given; None if it was not."""
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        """One text; None if there is none.

        Raises:
            ParameterError: it is something else.
        """
        return _text(name, self._values[name]) if name in self else None

    def texts(self, name: str) -> list[str]:
        """A list of texts, or the only one; nothing if there is none.

        Raises:
            ParameterError: it is something else.
        """
        value = self._values.get(name, [])
        return [_text(name, one) for one in (value if isinstance(value, list) else [value])]

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of some words.

        Raises:
            ParameterError: it is none of them.
        """
        value = self.text(name)
        if value is not None and value not in choices:
            raise ParameterError(f"Invalid request: {name} = {value[:50]!r}: must be one of {', '.join(choices)}")
        return default if value is None else value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false, as JSON or a form writes them; 1 and 0 are the same.

        Raises:
            ParameterError: it is something else.
        """
        value = self._values[name] if name in self else default
        found = _FLAGS.get(value if isinstance(value, str) else json.dumps(value))
        if found is None:
            raise ParameterError(f"Invalid request: {name} must be true or false")
        return found

    def integer(self, name: str, most: int) -> int:
        """A whole number from 0 to `most`; 0 if there is none.

        Raises:
            ParameterError: it is something else.
        """
        value = self._values[name] if name in self else 0
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise ParameterError(f"Invalid request: {name} must be a whole number from 0 to {most}")
        return value


async def read_parameters(request: Request) -> Parameters:
    """All that a request says, wherever: JSON counts before a form, a form before the query.

    Line ends are as in JSON: forms send two characters for each.

    Raises:
        ParameterError: the body is not what its media type says.
        WrongMediaType: it is neither JSON nor a form.
    """
    values = _gathered(list(request.query_params.multi_items()))
    body = await request.body()
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body.strip():
        return Parameters(values)
    if media_type == "application/x-www-form-urlencoded":
        return Parameters(values | _gathered(_url_encoded(body)))
    if media_type == "multipart/form-data":
        async with request.form(max_files=0, max_fields=_NUM_FIELDS, max_part_size=len(body)) as form:
            fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
            return Parameters(values | _gathered(fields))
    if not media_type or media_type == "application/json" or media_type.endswith("+json"):
        return Parameters(values | _json(body))
    raise WrongMediaType(f"a body must be JSON or a form, and not {media_type[:50]}")


def _gathered(fields: list[tuple[str, str]]) -> dict[str, Any]:
    """The only value of a name, or the list of them."""
    lists: dict[str, list[str]] = {}
    for name, value in fields:
        lists.setdefault(name, []).append(_LINE_END.sub("\n", value))
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items()}


def _url_encoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_NUM_FIELDS)
    except ValueError:
        raise ParameterError(f"Invalid request: the form is not UTF-8, or has more than {_NUM_FIELDS} fields") from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ParameterError("Invalid request: the body is not JSON in UTF-8") from None
    if not isinstance(value, dict):
        raise ParameterError("Invalid request: the body must be a JSON object")
    return value


def _refuse(constant: str) -> Never:
    raise ValueError(constant)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"Invalid request: {name} must be text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ParameterError(f"Invalid request: {name} has half of a character (a lone surrogate)") from None
    return value
