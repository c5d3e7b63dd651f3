"""A look at a parallel corpus before the first update: what is wrong with it, where, and what to do."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.doctor.checks.mojibake import repair_encoding
    from transduce.doctor.examination import Examination, TextFigures, examine_corpus
    from transduce.doctor.findings import Finding, PairReference
    from transduce.doctor.report import format_summary, is_report, list_lines, make_json, render_page
    from transduce.doctor.screening import Screening, screen_text
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.doctor.checks.mojibake": "repair_encoding",
            "transduce.doctor.examination": "Examination TextFigures examine_corpus",
            "transduce.doctor.findings": "Finding PairReference",
            "transduce.doctor.report": "format_summary is_report list_lines make_json render_page",
            "transduce.doctor.screening": "Screening screen_text",
        },
    )

__all__ = [
    "Examination",
    "Finding",
    "PairReference",
    "Screening",
    "TextFigures",
    "examine_corpus",
    "format_summary",
    "is_report",
    "list_lines",
    "make_json",
    "render_page",
    "repair_encoding",
    "screen_text",
]
