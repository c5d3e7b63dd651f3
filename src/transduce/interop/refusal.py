"""What cannot go from one program to another, said all at once."""

from collections.abc import Iterable
from pathlib import Path

from transduce.errors import BundleError
from transduce.text import Tokenizer


def refuse_import(place: Path, problems: Iterable[str]) -> None:
    """Raise what there is to say about the model at `place`, if there is anything.

    Raises:
        BundleError: there is.
    """
    lines = "\n".join(f"  {problem}" for problem in problems)
    if lines:
        raise BundleError(f"{place}: this model cannot be imported:\n{lines}")


def source_obstacles(tokenizer: Tokenizer, program: str) -> list[str]:
    """Why `program`, which puts `</s>` behind every source, cannot have a model that learned from sources without."""
    return [] if tokenizer.ends_sources else [f"sources do not end with </s>: {program} always puts it there"]
