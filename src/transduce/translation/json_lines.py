"""Lines of JSON that say what is asked of each translation."""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError, CorpusError
from transduce.translation.text_constraints import TextConstraints


def _is_one_line(text: str) -> str:
    if "".join(text.splitlines()) != text:
        raise ValueError("must be without line ends: give each line by itself")
    return text


class AskedLine(Settings):
    """A text to be translated, and what its translation must and must not contain."""

    text: Annotated[str, AfterValidator(_is_one_line)]
    """One line; may be blank."""

    require: list[str] = Field(default_factory=list)
    """Phrases that the translation contains exactly once, or as often as they are given."""

    forbid: list[str] = Field(default_factory=list)
    """Phrases that it does not contain."""

    prefix: str = ""
    """How it begins."""

    @classmethod
    def read(cls, line: str, number: int, name: str) -> "AskedLine":
        """The text and the wishes in a line, a JSON object.

        Args:
            line: of a file.
            number: of the line, from 1.
            name: what errors call the file.

        Raises:
            CorpusError: it is no JSON object with a "text", has an unknown key or a value of a wrong type, or a phrase
                that shows nothing or has a line end; names the line.
        """
        try:
            found = cls.model_validate_json(line)
            _ = found.constraints
        except ValidationError as error:
            problem = first_problem(error).removeprefix("it: ")
            raise CorpusError(
                f"{name}, line {number}: {problem}; give a JSON object with the key text, and if wanted "
                f"require, forbid (lists of phrases) and prefix"
            ) from None
        except ConfigError as error:
            raise CorpusError(f"{name}, line {number}: {error}") from None
        return found

    @property
    def constraints(self) -> TextConstraints | None:
        """What is asked of the translation; None if nothing is.

        Raises:
            ConfigError: a phrase shows nothing, or has a line end.
        """
        return TextConstraints.if_any(self.prefix, self.require, self.forbid)
