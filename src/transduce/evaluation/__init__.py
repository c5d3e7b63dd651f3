"""The quality of translations: scores with signatures, computed by sacreBLEU and equal to those of its command; the
comparison of systems, and the behaviour of models on unusual input.
"""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.evaluation.analysis import count_words, mark_shared
    from transduce.evaluation.comparison import Comparison, analyse, compare_systems
    from transduce.evaluation.comparison_page import COMPARISON_PAGE, render_comparison
    from transduce.evaluation.scorecard import (
        BehaviourExample,
        BehaviourResult,
        Scorecard,
        measure_scorecard,
        tabulate_behaviours,
    )
    from transduce.evaluation.scorecard.behaviour import Sentence
    from transduce.evaluation.scorecard.page import SCORECARD_PAGE, PageHeading, render_scorecard_page
    from transduce.evaluation.scorecard.sentences import read_sentences, read_validation_sentences
    from transduce.evaluation.scores import (
        METRICS,
        Score,
        check_tokenization,
        format_scores,
        score_corpus,
    )
    from transduce.evaluation.significance import Difference, measure_differences
    from transduce.evaluation.test_sets import (
        SystemOutput,
        TestSet,
        read_paired_test_sets,
        read_system_output,
        read_test_sets,
        translate_test_set,
    )
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.evaluation.analysis": "count_words mark_shared",
            "transduce.evaluation.comparison": "Comparison analyse compare_systems",
            "transduce.evaluation.comparison_page": "COMPARISON_PAGE render_comparison",
            "transduce.evaluation.scores": "METRICS Score check_tokenization score_corpus format_scores",
            "transduce.evaluation.significance": "Difference measure_differences",
            "transduce.evaluation.test_sets": "SystemOutput TestSet read_paired_test_sets read_system_output "
            "read_test_sets translate_test_set",
            "transduce.evaluation.scorecard": "BehaviourExample BehaviourResult Scorecard measure_scorecard "
            "tabulate_behaviours",
            "transduce.evaluation.scorecard.behaviour": "Sentence",
            "transduce.evaluation.scorecard.page": "SCORECARD_PAGE PageHeading render_scorecard_page",
            "transduce.evaluation.scorecard.sentences": "read_sentences read_validation_sentences",
        },
    )

__all__ = [
    "COMPARISON_PAGE",
    "METRICS",
    "SCORECARD_PAGE",
    "BehaviourExample",
    "BehaviourResult",
    "Comparison",
    "Difference",
    "PageHeading",
    "Score",
    "Scorecard",
    "Sentence",
    "SystemOutput",
    "TestSet",
    "analyse",
    "check_tokenization",
    "compare_systems",
    "count_words",
    "format_scores",
    "mark_shared",
    "measure_differences",
    "measure_scorecard",
    "read_paired_test_sets",
    "read_sentences",
    "read_system_output",
    "read_test_sets",
    "read_validation_sentences",
    "render_comparison",
    "render_scorecard_page",
    "score_corpus",
    "tabulate_behaviours",
    "translate_test_set",
]
