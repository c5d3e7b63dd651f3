"""How good translations are: corpus scores through sacreBLEU, each with the signature that makes it comparable."""

from transduce.evaluation.scores import METRICS, Score, corpus_scores, format_scores
from transduce.evaluation.test_set import Evaluation, evaluate_translator

__all__ = ["METRICS", "Evaluation", "Score", "corpus_scores", "evaluate_translator", "format_scores"]
