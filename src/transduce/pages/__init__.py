"""What reports are made of: charts, tables, samples, templates and style sheets of pages that open from disk."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.pages.charts import (
        MAX_SERIES,
        Series,
        draw_bar_chart,
        draw_histogram,
        draw_line_chart,
        make_standalone,
        name_bin,
    )
    from transduce.pages.samples import choose_evenly, sample_evenly, sample_randomly
    from transduce.pages.tables import Table, format_columns, format_count, format_table
    from transduce.pages.templates import make_templates, read_style, shorten_text
else:
    # Tables and counts are for the terminal, too, where nothing is to wait for the templates.
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.pages.charts": (
                "MAX_SERIES Series draw_bar_chart draw_histogram draw_line_chart make_standalone name_bin"
            ),
            "transduce.pages.samples": "choose_evenly sample_evenly sample_randomly",
            "transduce.pages.tables": "Table format_columns format_count format_table",
            "transduce.pages.templates": "make_templates read_style shorten_text",
        },
    )

__all__ = [
    "MAX_SERIES",
    "Series",
    "Table",
    "choose_evenly",
    "draw_bar_chart",
    "draw_histogram",
    "draw_line_chart",
    "format_columns",
    "format_count",
    "format_table",
    "make_standalone",
    "make_templates",
    "name_bin",
    "read_style",
    "sample_evenly",
    "sample_randomly",
    "shorten_text",
]
