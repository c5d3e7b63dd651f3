"""The quality of translations: scores with signatures, computed by sacreBLEU and equal to those of its command."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.evaluation.scores import (
        METRICS,
        Evaluation,
        Score,
        choose_tokenization,
        corpus_scores,
        evaluate_translator,
        format_scores,
    )
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.evaluation.scores": "METRICS Evaluation Score choose_tokenization corpus_scores "
            "evaluate_translator format_scores",
        },
    )

__all__ = [
    "METRICS",
    "Evaluation",
    "Score",
    "choose_tokenization",
    "corpus_scores",
    "evaluate_translator",
    "format_scores",
]
