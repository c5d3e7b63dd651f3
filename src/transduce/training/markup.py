"""Tables of HTML, and numbers as they stand in them. Every text given is escaped."""

import math
from collections.abc import Sequence
from html import escape


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], num_texts: int = 1) -> str:
    """A `<table>`; each row has as many cells as there are `heads`.

    Args:
        caption: what it shows.
        heads: of the columns.
        rows: cells from left to right; the first one names the row.
        num_texts: so many columns from the left hold text, the others numbers.
    """

    def cell(index: int, text: str) -> str:
        tag = '<th scope="row"' if index == 0 else "<td"
        return f"{tag}{_aligned(index, num_texts)}>{escape(text)}{tag[:3].replace('<', '</')}>"

    head = "".join(
        f'<th scope="col"{_aligned(index, num_texts)}>{escape(text)}</th>' for index, text in enumerate(heads)
    )
    body = "".join("<tr>" + "".join(cell(*pair) for pair in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def folded(summary: str, content: str) -> str:
    """`content` that opens on a click on `summary`."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def finite(value: object) -> float | None:
    """The figure, or None for what no chart has a place for: no number, not finite, or beyond all sense."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e30:
        return float(value)
    return None


def figure_text(value: object, form: str) -> str:
    """A figure in a format as in ",.2f"; one that is not finite as it is, one that is missing as nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    return format(value, form)


def _aligned(index: int, num_texts: int) -> str:
    return "" if index < num_texts else ' class="number"'
