"""What reports are made of: charts, tables, templates and style sheets of pages that open from disk."""

from transduce.pages.charts import (
    MAX_SERIES,
    Series,
    bin_name,
    draw_bar_chart,
    draw_histogram,
    draw_line_chart,
    make_standalone,
)
from transduce.pages.tables import Table, format_columns, format_table
from transduce.pages.templates import make_templates, read_style, shorten_text

__all__ = [
    "MAX_SERIES",
    "Series",
    "Table",
    "bin_name",
    "draw_bar_chart",
    "draw_histogram",
    "draw_line_chart",
    "format_columns",
    "format_table",
    "make_standalone",
    "make_templates",
    "read_style",
    "shorten_text",
]
