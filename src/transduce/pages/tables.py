"""Tables of reports, how they are written in Markdown and on a terminal, and numbers with a noun."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table of a report."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_texts: int = 1
    """Number of the first columns that hold text; the others hold numbers."""


def format_table(table: Table) -> str:
    """A table as Markdown, with its caption above."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    rule = "|---" * table.num_texts + "|---:" * (len(table.heads) - table.num_texts) + "|"
    lines = "\n".join([line(table.heads), rule, *map(line, table.rows)])
    return f"{table.caption}:\n\n{lines}" if table.caption else lines


def format_columns(table: Table) -> str:
    """A table as plain text for a terminal, with aligned columns: text on the left, numbers on the right."""
    lines = [table.heads, *table.rows]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(table.heads))]
    texts = [
        "  ".join(
            str(cell).ljust(width) if column < table.num_texts else str(cell).rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*([table.caption] if table.caption else []), *texts])


def format_count(number: int, noun: str) -> str:
    """A number with a noun whose plural ends in s, as in "1 line" and "1,000 lines"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
