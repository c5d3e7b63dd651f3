"""What may be asked of an inspection."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError
from transduce.inspection.network_parts import Head

MOST_TOKENS = 128
"""Tokens of a source and of a target, `</s>` included: matrices of more are too large to be drawn, and to be sent."""

MOST_BEAM = 16
"""Hypotheses of a search whose tree is drawn."""

MOST_CHARACTERS = 10_000
"""Of a text; 128 tokens never have as many."""

Part = Literal["attention", "search", "layers", "positions", "arithmetic", "heads_off", "continuations"]
QUICK: tuple[Part, ...] = ("attention", "search", "layers", "positions")
"""Parts that take no search of their own, and are not large."""

EVERYTHING: tuple[Part, ...] = (*QUICK, "arithmetic", "heads_off", "continuations")
"""All parts."""

Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]
_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""Of which the first wrong item is an error, and not each of a million."""


class InspectionRequest(Settings):
    """A sentence, and what is to be seen of its translation."""

    text: Text
    """The source: one sentence."""

    source: str | None = None
    """Language code of the text; decides between loaded models."""

    target: str | None = None
    """Language code of the translation; likewise."""

    reference: Text | None = None
    """A translation by people, which the model then judges token by token."""

    prefix: _List[int] = Field(default_factory=list, max_length=MOST_TOKENS)
    """Ids with which the translation is made to begin; `</s>` at their end ends it."""

    beam: int | None = Field(default=None, ge=1, le=MOST_BEAM)
    """Hypotheses kept; the model's own number unless given."""

    arithmetic: _List[Head] = Field(default_factory=list, max_length=64)
    """Heads whose every number is wanted; with "arithmetic" in `include`, as many others besides as fit."""

    heads_off: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads that are switched off, all at once, in everything that is computed."""

    without_each: _List[Head] = Field(default_factory=list, max_length=4096)
    """Heads without each of which it is tried what happens, one at a time; with "heads_off" in `include`, all heads."""

    include: _List[Part] = Field(default=list(QUICK))
    """The parts that are wanted; "heads_off" tries what happens without each single head."""

    @classmethod
    def checked(cls, **values: Any) -> "InspectionRequest":  # noqa: ANN401 - a value may be anything before it is checked
        """The request with these values.

        Raises:
            ConfigError: one is unknown, or breaks a rule; says which.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(first_problem(error)) from None
