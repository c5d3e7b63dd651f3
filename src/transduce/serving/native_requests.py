"""What may be asked of `/v1/translate` and `/v1/score`."""

from typing import Annotated, Literal, TypeVar

from pydantic import Field

from transduce.config import Settings
from transduce.translation import TranslationOptions

_T = TypeVar("_T")
_List = Annotated[list[_T], Field(fail_fast=True)]
"""A list of which the first wrong item is an error, and not each of a million."""


class _Texts(Settings):
    """Texts, and their languages; all but the texts may be left out."""

    text: str | _List[str] = Field(examples=["A man is riding a bike. It is late."])
    """A text, or a list of them: sentences, documents, anything."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null or "auto": each text's is detected, unless only one can be translated."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; null: the only one that there is for the source."""

    format: Literal["text", "html", "xml"] = "text"
    """Of markup, the text is translated, and tags are kept where the words are that they mark."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request: what is not done by then is given up; null: as long as this service allows."""


class TranslateRequest(TranslationOptions, _Texts):
    """Texts, their languages, and how they are to be translated; all but the texts may be left out."""

    # A service allows less than the command line: each token of every hypothesis takes a step of the search.
    min_length: int | None = Field(
        default=None, ge=1, le=50, description=TranslationOptions.model_fields["min_length"].description
    )
    max_length: int | None = Field(
        default=None, ge=2, le=10_000, description=TranslationOptions.model_fields["max_length"].description
    )

    def options(self) -> TranslationOptions:
        """How the texts are to be translated, without the texts."""
        return TranslationOptions.model_construct(
            **{name: getattr(self, name) for name in TranslationOptions.model_fields}
        )


class Pair(Settings):
    """A text, and what may be its translation."""

    text: str = Field(examples=["A man is riding a bike."])
    """The source."""

    translation: str = Field(examples=["Ein Mann fährt Fahrrad."])
    """The target."""


class ScoreRequest(Settings):
    """Pairs to be scored."""

    pairs: _List[Pair]
    """Each is scored by itself."""

    source: str | None = Field(default=None, examples=["en"])
    """Language code of the texts; null: the only one that there is."""

    target: str | None = Field(default=None, examples=["de"])
    """Language code of the translations; likewise."""

    deadline_seconds: float | None = Field(default=None, ge=1)
    """For the whole request; null: as long as this service allows."""
