"""The quality of translations: scores with signatures, computed by sacreBLEU and equal to those of its command; and the
comparison of systems.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.evaluation.analysis import mark_shared
    from transduce.evaluation.comparison import Comparison, analyse, compare_systems
    from transduce.evaluation.comparison_page import render_comparison
    from transduce.evaluation.scores import (
        METRICS,
        Score,
        check_tokenization,
        choose_tokenization,
        corpus_scores,
        format_scores,
    )
    from transduce.evaluation.significance import Difference, measure_differences
    from transduce.evaluation.test_sets import (
        SystemOutput,
        TestSet,
        read_system_output,
        read_test_sets,
        translate_test_set,
    )
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.evaluation.analysis": "mark_shared",
            "transduce.evaluation.comparison": "Comparison analyse compare_systems",
            "transduce.evaluation.comparison_page": "render_comparison",
            "transduce.evaluation.scores": "METRICS Score check_tokenization choose_tokenization corpus_scores "
            "format_scores",
            "transduce.evaluation.significance": "Difference measure_differences",
            "transduce.evaluation.test_sets": "SystemOutput TestSet read_system_output read_test_sets "
            "translate_test_set",
        },
    )

__all__ = [
    "METRICS",
    "Comparison",
    "Difference",
    "Score",
    "SystemOutput",
    "TestSet",
    "analyse",
    "check_tokenization",
    "choose_tokenization",
    "compare_systems",
    "corpus_scores",
    "format_scores",
    "mark_shared",
    "measure_differences",
    "read_system_output",
    "read_test_sets",
    "render_comparison",
    "translate_test_set",
]
