"""The scorecard of a model, kept in its bundle as scorecard.json and as a section of its model card."""

import re
from contextlib import ExitStack
from typing import Final, Literal

from pydantic import Field

from transduce.bundle.bundle import MODEL_CARD, SCORECARD, Bundle
from transduce.bundle.manifest import FolderDescription
from transduce.bundle.measurements import MeasurementFile
from transduce.config import Settings
from transduce.pages import Table, format_table
from transduce.storage import replace_file


class RecordedBehaviour(Settings):
    """How a model behaves in one respect."""

    name: str
    """Name of the behaviour, as in "all caps"."""

    description: str
    """The inputs, and when a translation of one is right."""

    score: float = Field(ge=0, le=100)
    """Mean score of the translations; 100 is the best."""

    num_cases: int = Field(ge=1)
    """Number of inputs."""

    num_problems: int = Field(ge=0)
    """Number of inputs whose translations are wrong."""

    lost_chrf: float | None = Field(default=None, ge=-100, le=100)
    """How much lower the chrF against human translations is for changed input than for the unchanged sentences."""

    option: str | None = None
    """The flags of `transduce translate` with which the score is higher."""

    score_with_option: float | None = Field(default=None, ge=0, le=100)
    """The score with them."""


class RecordedScorecard(FolderDescription):
    """All that scorecard.json can say. It has no sentences: they may be private, and the model is not."""

    format: Literal["transduce scorecard"] = "transduce scorecard"
    """Marks the file."""

    format_version: Literal[1] = 1
    """Version of the file's layout."""

    text: str
    """The text that inputs were made of: "the validation text", or the name of a file."""

    data: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of its files, by "source" and "reference"; none of the validation text, whose digest the bundle has."""

    num_sentences: int = Field(ge=1)
    """Number of sentences of the text that inputs were made of."""

    seed: int
    """Seed of random changes."""

    behaviours: list[RecordedBehaviour]
    """What was measured."""

    skipped: dict[str, str] = Field(default_factory=dict)
    """The reason why a behaviour was not measured, by its name."""


_FILE: Final = MeasurementFile(SCORECARD, RecordedScorecard, "scorecard", "transduce scorecard")

_HEADING = "## Behaviour"
_SECTION = re.compile(rf"^{_HEADING}[ \r]*$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_NEXT_SECTION = re.compile(r"^## Intended use[ \r]*$", re.MULTILINE)
_ENCODING = {"encoding": "utf-8", "errors": "surrogateescape"}
"""A card that somebody has written may have any bytes."""


def read_scorecard(bundle: Bundle) -> RecordedScorecard | None:
    """Read the scorecard of `bundle`; None if it has none.

    Raises:
        BundleError: scorecard.json is damaged, or was measured with another model.
    """
    return _FILE.read(bundle)


def check_scorecard(bundle: Bundle, *, force: bool = False) -> None:
    """Check that `save_scorecard` can write to `bundle`; nothing is changed.

    Raises:
        OutputError: the bundle's scorecard.json is something else, or it cannot be written.
        WriteError: its disk is full.
    """
    _FILE.check(bundle, force=force)


def save_scorecard(bundle: Bundle, scorecard: RecordedScorecard, *, force: bool = False) -> None:
    """Write a scorecard into `bundle`, and show it in its model card, of which the rest stays as it is.

    An earlier scorecard is replaced; another file of its name only with `force`. A bundle without a model card gets
    none.

    Raises:
        BundleError: the folder has another model by now than when `bundle` was opened.
        BusyError: another process is writing to the bundle.
        OutputError: the bundle's scorecard.json is something else, or it cannot be written.
        WriteError: writing failed, as on a full disk; the bundle is as it was before.
    """
    complete = scorecard.model_copy(update={"files": bundle.description.files})
    with _FILE.lock(bundle, force=force), ExitStack() as stack:
        card = bundle.folder / MODEL_CARD
        if card.is_file():
            # Written first, and put in its place last: if either file cannot be written, neither is changed.
            shown = show_in_card(card.read_bytes().decode(**_ENCODING), complete)
            stack.enter_context(replace_file(card)).write_bytes(shown.encode(**_ENCODING))
        _FILE.write(bundle, complete, force=force)


def show_in_card(card: str, scorecard: RecordedScorecard) -> str:
    """A model card with a section about the scorecard: in the place of an earlier one, or before the intended use."""
    found = _SECTION.search(card)
    if found:
        before, after = card[: found.start()], card[found.end() :]
    else:
        following = _NEXT_SECTION.search(card)
        place = following.start() if following else len(card)
        before, after = card[:place], card[place:]
    if before and not before.endswith("\n\n"):
        before = before.rstrip("\n") + "\n\n"
    return f"{before}{_HEADING}\n\n{_format_section(scorecard)}\n" + (f"\n{after}" if after else "")


def _format_section(scorecard: RecordedScorecard) -> str:
    introduction = (
        "How it translates unusual input, from 0 to 100, where higher is better: measured by `transduce scorecard` "
        f"with inputs made of {scorecard.num_sentences:,} sentences of {scorecard.text}."
    )
    rows = [
        [
            one.name,
            one.description,
            f"{one.score:.1f}",
            f"{one.num_cases:,}",
            "" if one.score_with_option is None else f"{one.score_with_option:.1f} with `{one.option}`",
        ]
        for one in scorecard.behaviours
    ]
    heads = ["behaviour", "what is right", "score", "cases", "with an option"]
    parts = [introduction, format_table(Table("", heads, rows, num_texts=2))]
    if scorecard.skipped:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in scorecard.skipped.items())
        parts.append(f"Not measured: {reasons}.")
    return "\n\n".join(parts)
