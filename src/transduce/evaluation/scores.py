"""Corpus scores, computed by sacreBLEU and equal to those of its own command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transduce.errors import ConfigError, CorpusError


def _bleu() -> Metric:
    # force: without it, sacreBLEU complains on standard error about text that looks tokenised. No score depends on it.
    return BLEU(force=True)


METRICS: dict[str, tuple[str, Callable[[], Metric]]] = {
    "bleu": ("BLEU", _bleu),
    "chrf": ("chrF", CHRF),
    "ter": ("TER", TER),
}
"""What each metric is called, and what computes it."""


@dataclass(frozen=True)
class Score:
    """A figure from 0 to 100 (TER: from 0, and lower is better) and what it takes to compute it again."""

    metric: str
    value: float
    signature: str


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[str], metrics: Sequence[str] = tuple(METRICS)
) -> list[Score]:
    """Scores of `hypotheses`, one reference for each, in the order of `metrics`.

    BLEU (Papineni et al. 2002; tokenisation 13a, exponential smoothing), chrF (Popović 2015; chrF2, without words) and
    TER (Snover et al. 2006), as `sacrebleu -m bleu chrf ter` computes them.

    Raises:
        CorpusError: there is no line, or hypotheses and references differ in number.
        ConfigError: an unknown metric.
    """
    if len(hypotheses) != len(references):
        raise CorpusError(
            f"{len(hypotheses)} hypotheses and {len(references)} references: there must be one reference for each"
        )
    if not hypotheses:
        raise CorpusError("there are no hypotheses: a score needs at least one line")
    # Without white space at the ends of lines, as the command reads them.
    stripped = [line.rstrip() for line in hypotheses], [line.rstrip() for line in references]
    return [_score(metric, *stripped) for metric in metrics]


def format_scores(scores: Sequence[Score]) -> str:
    """One line for each score: metric, value, signature."""
    return "\n".join(f"{score.metric:<4} {score.value:6.2f}  {score.signature}" for score in scores)


def _score(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    if metric not in METRICS:
        raise ConfigError(f"metric = {metric!r} must be one of: {', '.join(METRICS)}")
    name, make = METRICS[metric]
    scorer = make()
    value = scorer.corpus_score(hypotheses, [references]).score
    return Score(name, float(value), str(scorer.get_signature()))
