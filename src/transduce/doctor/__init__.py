"""A look at a parallel corpus before the first update: what is wrong with it, where, and what to do.

A check finds one kind of mistake. An examination (`transduce doctor`) runs all checks; a screening (`transduce train`)
runs those that need no tokenizer, and finds the pairs that `data.filters` leave out.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.doctor.checks.mojibake import repair_encoding
    from transduce.doctor.examination import Examination, TextFigures, examine_corpus
    from transduce.doctor.findings import Finding, PairReference
    from transduce.doctor.report import REPORT_FILE, format_summary, list_lines, make_json, render_page
    from transduce.doctor.screening import Screening, screen_text
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.doctor.checks.mojibake": "repair_encoding",
            "transduce.doctor.examination": "Examination TextFigures examine_corpus",
            "transduce.doctor.findings": "Finding PairReference",
            "transduce.doctor.report": "REPORT_FILE format_summary list_lines make_json render_page",
            "transduce.doctor.screening": "Screening screen_text",
        },
    )

__all__ = [
    "REPORT_FILE",
    "Examination",
    "Finding",
    "PairReference",
    "Screening",
    "TextFigures",
    "examine_corpus",
    "format_summary",
    "list_lines",
    "make_json",
    "render_page",
    "repair_encoding",
    "screen_text",
]
