"""How good translations are: corpus scores through sacreBLEU, each with the signature that makes it comparable."""

from transduce.evaluation.scores import METRICS, Evaluation, Score, corpus_scores, evaluate_translator, format_scores

__all__ = ["METRICS", "Evaluation", "Score", "corpus_scores", "evaluate_translator", "format_scores"]
