"""Scores of a corpus or of a model on a test set, computed by sacreBLEU and equal to those of its command."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transduce.errors import ConfigError, CorpusError
from transduce.text import choose_tokenization

TOKENIZATIONS = ("13a", "none", "intl", "char", "zh")
"""The tokenisations of sacreBLEU that need no download and no further package; "none" is for tokenised text."""

# The tokenisations that divide text without spaces between words.
_DIVIDE_CLAUSES = ("char", "zh")


def _make_ter(tokenization: str) -> TER:
    """The scorer of TER, to which a clause of Chinese is one word unless sacreBLEU's "normalized" divides it."""
    is_divided = tokenization in _DIVIDE_CLAUSES
    return TER(normalized=is_divided, asian_support=is_divided)


METRICS: dict[str, tuple[str, Callable[[str], Metric]]] = {
    # force: without it, sacreBLEU warns on standard error about text that looks tokenised. It does not affect scores.
    "bleu": ("BLEU", lambda tokenization: BLEU(force=True, tokenize=tokenization)),
    "chrf": ("chrF", lambda _: CHRF()),
    "ter": ("TER", _make_ter),
}
"""Name of each metric, and function that makes its scorer with one of `TOKENIZATIONS`, which chrF does not use."""

CountLines = Callable[[str, str, tuple[str, ...], tuple[tuple[str, ...], ...]], list[list[int | float]]]
"""The type of `count_lines`."""

NUM_RESAMPLES = 1000
"""Test sets drawn with replacement for a confidence interval, sacreBLEU's default."""

RESAMPLED_LINES = 3_000_000
"""Maximum number of lines in all resamples, which are in memory at once: about 80 bytes per line."""


@dataclass(frozen=True)
class Score:
    """The score of a corpus by one metric, from 0 to 100 (TER: from 0, and lower is better)."""

    metric: str
    value: float
    signature: str
    """Signature of sacreBLEU, with number and seed of the resamples if there is an interval."""
    low: float | None = None
    """Lower end of the 95 % confidence interval, if it was computed."""
    high: float | None = None
    """Upper end of the interval."""

    @property
    def interval(self) -> str:
        """The interval as in " (95% 33.12 to 36.01)"; "" if none was computed."""
        return "" if self.low is None else f" (95% {self.low:.2f} to {self.high:.2f})"

    def overlaps(self, other: "Score") -> bool:
        """Whether the intervals of both scores overlap; False if one of them has none."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high


def count_lines(
    metric: str, tokenization: str, hypotheses: tuple[str, ...], references: tuple[tuple[str, ...], ...]
) -> list[list[int | float]]:
    """Count in each line what sacreBLEU computes a metric from: matching n-grams, or for TER the edits.

    TER takes half a minute to count a thousand sentences of thirty words that are mostly wrong.
    """
    _, scorer = make_scorer(metric, tokenization)
    # There is no public way to them.
    return cast("list[list[int | float]]", scorer._extract_corpus_statistics(hypotheses, references))  # noqa: SLF001


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    more_references: Sequence[Sequence[str]] = (),
    confidence: bool = False,
    tokenization: str | None = None,
    count: CountLines = count_lines,
) -> list[Score]:
    """Scores of `hypotheses` in the order of `metrics`.

    There is one reference for each hypothesis, and another one in each of `more_references`.

    BLEU (Papineni et al. 2002; words by `tokenization`, or else by `choose_tokenization`; exponential smoothing), chrF
    (Popović 2015; chrF2, without words) and TER (Snover et al. 2006), as `sacrebleu -m bleu chrf ter` gives them with
    the same tokenisation; with "zh" and "char", and its options `--ter-normalized --ter-asian-support`, by which a
    Chinese character is a word of TER. With `confidence`, each has the interval of `sacrebleu --confidence`: bootstrap
    resampling of the lines (Koehn 2004), from a fixed seed. The larger the test set, the fewer the resamples beyond
    3,000 lines. `count` is `count_lines`, or a cache of it where the same lines are scored again.

    Raises:
        CorpusError: there are no lines, or hypotheses and references differ in number.
        ConfigError: an unknown metric or tokenisation; with `confidence`, see `read_seed`.
    """
    if confidence:
        read_seed()  # which sacreBLEU will read
    if tokenization is None:
        tokenization = choose_tokenization(references)
    check_tokenization(tokenization)
    for one in (references, *more_references):
        if len(hypotheses) != len(one):
            raise CorpusError(
                f"{len(hypotheses)} hypotheses and {len(one)} references: there must be one reference for each"
            )
    if not hypotheses:
        raise CorpusError("no hypotheses: a score needs at least one line")
    stripped = strip_lines(hypotheses), [strip_lines(one) for one in (references, *more_references)]
    num_resamples = choose_num_resamples(len(hypotheses)) if confidence else 1
    return [_score(metric, tokenization, *stripped, num_resamples, count) for metric in metrics]


def strip_lines(lines: Sequence[str]) -> list[str]:
    """The lines without white space at their ends, as sacreBLEU's command reads them."""
    return [line.rstrip() for line in lines]


def choose_num_resamples(num_lines: int) -> int:
    """The number of resamples of a test set: sacreBLEU's default, and fewer for more than 3,000 lines."""
    return min(NUM_RESAMPLES, max(100, RESAMPLED_LINES // num_lines))


def read_seed() -> int | None:
    """The seed of all random numbers, from `SACREBLEU_SEED`; None if that is "none": random numbers then always differ.

    Raises:
        ConfigError: it is neither a number from 0 on nor "none".
    """
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() == "none":
        return None
    if not (seed.isascii() and seed.isdigit()):
        raise ConfigError(f"SACREBLEU_SEED = {seed!r} must be a whole number from 0 on, or none: change or unset it")
    return int(seed)


def check_tokenization(tokenization: str) -> None:
    """Raise `ConfigError` unless the tokenisation is one of `TOKENIZATIONS`."""
    if tokenization not in TOKENIZATIONS:
        raise ConfigError(f"tokenization = {tokenization!r} must be one of: {', '.join(TOKENIZATIONS)}")


def format_scores(scores: Sequence[Score]) -> str:
    """One line for each score: metric, value, interval if there is one, signature."""
    width = max((len(score.metric) for score in scores), default=0)
    return "\n".join(
        f"{score.metric:<{width}} {score.value:6.2f}{score.interval}  {score.signature}" for score in scores
    )


def make_scorer(metric: str, tokenization: str) -> tuple[str, Metric]:
    """The name of a metric of `METRICS`, and sacreBLEU's scorer for it with one of `TOKENIZATIONS`.

    Raises:
        ConfigError: an unknown metric.
    """
    if metric not in METRICS:
        raise ConfigError(f"metric = {metric!r} must be one of: {', '.join(METRICS)}")
    name, make = METRICS[metric]
    return name, make(tokenization)


def _score(
    metric: str,
    tokenization: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    num_resamples: int,
    count: CountLines,
) -> Score:
    name, scorer = make_scorer(metric, tokenization)
    _count_in_plain_floats(scorer)
    counts = count(metric, tokenization, tuple(hypotheses), tuple(map(tuple, references)))
    scorer._extract_corpus_statistics = lambda *_: counts  # type: ignore[method-assign]  # noqa: SLF001
    scorer.num_refs = len(references)  # for the signature; else set where lines are counted
    found = scorer.corpus_score(hypotheses, references, n_bootstrap=num_resamples)
    signature = str(scorer.get_signature())
    # Rounding, and half of an interval, may go beyond 100. TER may be above 100: there can be more errors than words.
    max_value = math.inf if metric == "ter" else 100.0
    value = min(max_value, float(found.score))
    if num_resamples == 1:
        return Score(name, value, signature)
    report = json.loads(found.format(width=6, signature=signature, is_json=True))
    # sacreBLEU gives mean and half width of the interval, but nothing if the mean is zero.
    mean, half = report.get("confidence_mean", 0.0), report.get("confidence_var", 0.0)
    return Score(name, value, signature, min(max_value, max(0.0, mean - half)), min(max_value, mean + half))


def _count_in_plain_floats(scorer: Metric) -> None:
    """Let the scorer compute every score as one of Python's floats.

    The scores of resampled lines are numpy's, but Python's 0.0 where nothing is right, and sacreBLEU 2.6 fails to
    average both types, which occurs for poorly trained models.
    """
    compute = scorer._compute_score_from_stats  # noqa: SLF001 - there is no public way
    scorer._compute_score_from_stats = lambda stats: compute([float(count) for count in stats])  # type: ignore[method-assign]  # noqa: SLF001
