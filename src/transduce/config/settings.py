"""The base classes of all parts of the configuration."""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

MAX_INTEGER = 2**31 - 1
"""The largest integer that every part of the software can represent."""


class Settings(BaseModel):
    """Frozen and strict settings: an unknown key, a wrong type or a value out of range is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )


class Record(Settings):
    """Base of records written and read by programs only; descriptions of fields, which are slow to extract, are
    omitted.
    """

    model_config = ConfigDict(use_attribute_docstrings=False)


class Section(Settings):
    """A section of a recipe; its numbers and names are checked to be within what the software can represent."""

    @field_validator("*", mode="before")
    @classmethod
    def _check_representable(cls, value: Any) -> Any:  # noqa: ANN401 - of any field
        if isinstance(value, int) and value > MAX_INTEGER:
            raise PydanticCustomError("out_of_reach", f"Input should be at most {MAX_INTEGER}")
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str):
                _check_text(text)
        return value


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("not_utf_8", "Input should be UTF-8: rename the file or folder") from None
    if "\0" in text:
        raise PydanticCustomError("nul", "Input should be without the NUL character, which file names cannot contain")


def describe_setting_error(error: ValidationError) -> str:
    """The first of the problems with given settings, as in "beam = 0: must be greater than or equal to 1"."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return first["msg"].removeprefix("Value error, ")
    name = ".".join(map(str, first["loc"]))
    return f"{name} = {first['input']}: must be {_get_message(first).removeprefix('Input should be ')}"


def describe_file_error(error: ValidationError) -> str:
    """The first error in a file of settings, as in "model.num_heads: Input should be greater than 0"."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {_get_message(first).removeprefix('Value error, ')}"


_MESSAGES = {
    "extra_forbidden": "Input should be left out: it is not known here",
    "string_unicode": "Input should be UTF-8",
}
"""Messages in place of pydantic's, by the type of the error."""


def _get_message(problem: ErrorDetails) -> str:
    return _MESSAGES.get(problem["type"], problem["msg"])
