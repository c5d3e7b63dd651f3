"""The page of a scorecard: a bar for each behaviour, and under it what it is and examples. Opens from disk."""

from dataclasses import dataclass
from pathlib import Path

from transduce.evaluation.scorecard import Scorecard
from transduce.pages import make_templates, read_style, shorten_text
from transduce.storage import OwnFileKind

_TEMPLATES = make_templates(Path(__file__).parent)
_MARK = '<meta name="generator" content="transduce scorecard">'

SCORECARD_PAGE = OwnFileKind("page of transduce scorecard", (_MARK,))


@dataclass(frozen=True)
class PageHeading:
    """What the page of a scorecard is about.

    Args:
        model: the name of the model.
        text: the name of the text.
        source_language: its code; "" if it is unknown.
        target_language: the same for translations.
    """

    model: str
    text: str
    source_language: str = ""
    target_language: str = ""


def render_scorecard_page(scorecard: Scorecard, heading: PageHeading) -> str:
    """The page, without scripts or external resources."""
    return _TEMPLATES.get_template("page.html.j2").render(
        scorecard=scorecard, heading=heading, style=read_style("page.css"), mark=_MARK
    )


_TEMPLATES.filters["shorten"] = shorten_text
