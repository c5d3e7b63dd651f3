"""Scores of a corpus or of a model on a test set, computed by sacreBLEU and equal to those of its command."""

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transduce.errors import ConfigError, CorpusError
from transduce.text import WITHOUT_SPACES, open_parallel_corpus
from transduce.translation import Translator

TOKENIZATIONS = ("13a", "none", "intl", "char", "zh")
"""The tokenisations of sacreBLEU that need no download and no further package; "none" is for tokenised text."""

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_LETTER = re.compile(r"[^\W\d_]")

METRICS: dict[str, tuple[str, Callable[[str], Metric]]] = {
    # force: without it, sacreBLEU warns on standard error about text that looks tokenised. It does not affect scores.
    "bleu": ("BLEU", lambda tokenization: BLEU(force=True, tokenize=tokenization)),
    "chrf": ("chrF", lambda _: CHRF()),
    "ter": ("TER", lambda _: TER()),
}
"""Name of each metric, and function that makes its scorer with one of `TOKENIZATIONS`, which only BLEU uses."""

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


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = tuple(METRICS),
    *,
    confidence: bool = False,
    tokenization: str | None = None,
) -> list[Score]:
    """Scores of `hypotheses`, one reference for each, in the order of `metrics`.

    BLEU (Papineni et al. 2002; words by `tokenization`, or else by `choose_tokenization`; exponential smoothing), chrF
    (Popović 2015; chrF2, without words) and TER (Snover et al. 2006), as `sacrebleu -m bleu chrf ter` gives them with
    the same tokenisation. With `confidence`, each has the interval of `sacrebleu --confidence`: bootstrap resampling of
    the lines (Koehn 2004), from a fixed seed. The larger the test set, the fewer the resamples beyond 3,000 lines.

    Raises:
        CorpusError: there are no lines, or hypotheses and references differ in number.
        ConfigError: an unknown metric or tokenisation.
    """
    if tokenization is None:
        tokenization = choose_tokenization(references)
    check_tokenization(tokenization)
    if len(hypotheses) != len(references):
        raise CorpusError(
            f"{len(hypotheses)} hypotheses and {len(references)} references: there must be one reference for each"
        )
    if not hypotheses:
        raise CorpusError("no hypotheses: a score needs at least one line")
    # Without white space at the ends of lines, as the command reads them.
    stripped = [line.rstrip() for line in hypotheses], [line.rstrip() for line in references]
    num_resamples = min(NUM_RESAMPLES, max(100, RESAMPLED_LINES // len(hypotheses))) if confidence else 1
    return [_score(metric, tokenization, *stripped, num_resamples) for metric in metrics]


def choose_tokenization(references: Sequence[str]) -> str:
    """Choose sacreBLEU's tokenisation for BLEU by the script of the references.

    That is sacreBLEU's default, "13a", for scripts with spaces between words. In one without, a whole clause would be
    one word: "zh" for Chinese, and "char" for Japanese, Thai, Lao, Tibetan, Burmese and Khmer, whose words sacreBLEU
    finds by further packages or not at all. What more than half of the letters belong to decides.
    """
    text = "\n".join(references)
    without_spaces, han, letters = (len(pattern.findall(text)) for pattern in (WITHOUT_SPACES, _HAN, _LETTER))
    if 2 * without_spaces <= letters:
        return "13a"
    # At most half of a Japanese text is Han characters; a Chinese one has punctuation, and may quote a Japanese name.
    return "zh" if 3 * han > 2 * without_spaces else "char"


def check_tokenization(tokenization: str) -> None:
    """Raise `ConfigError` unless the tokenisation is one of `TOKENIZATIONS`."""
    if tokenization not in TOKENIZATIONS:
        raise ConfigError(f"tokenization = {tokenization!r} must be one of: {', '.join(TOKENIZATIONS)}")


def format_scores(scores: Sequence[Score]) -> str:
    """One line for each score: metric, value, interval if there is one, signature."""
    return "\n".join(f"{score.metric:<4} {score.value:6.2f}{score.interval}  {score.signature}" for score in scores)


def _score(
    metric: str, tokenization: str, hypotheses: Sequence[str], references: Sequence[str], num_resamples: int
) -> Score:
    if metric not in METRICS:
        raise ConfigError(f"metric = {metric!r} must be one of: {', '.join(METRICS)}")
    name, make = METRICS[metric]
    scorer = make(tokenization)
    _count_in_plain_floats(scorer)
    found = scorer.corpus_score(hypotheses, [references], n_bootstrap=num_resamples)
    signature = str(scorer.get_signature())
    # Rounding, and half of an interval, may go beyond 100; of errors there can be more than words.
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


@dataclass(frozen=True)
class Evaluation:
    """BLEU, chrF and TER of the translations of a test set."""

    scores: tuple[Score, ...]
    num_lines: int
    beam: int
    """Hypotheses kept for each sentence."""
    seconds: float
    """Time that the translation took, in seconds; loading the model and computing the scores are not included."""

    def as_json(self) -> dict[str, Any]:
        """The evaluation as a JSON object, with the scores by their lower-case names."""
        given = [{name: value for name, value in vars(score).items() if value is not None} for score in self.scores]
        scores = {figures.pop("metric").lower(): figures for figures in given}
        return {"lines": self.num_lines, "beam": self.beam, "seconds": round(self.seconds, 3), "scores": scores}


def evaluate_translator(
    translator: Translator,
    source: Path,
    reference: Path,
    *,
    beam: int | None = None,
    tokenization: str | None = None,
    confidence: bool = False,
) -> Evaluation:
    """Translate `source` and score the translations against `reference`.

    `tokenization` is that of BLEU; with `confidence`, every score has an interval: see `corpus_scores`.

    Raises:
        ConfigError: the tokenisation is unknown.
        CorpusError: a file is missing or empty, is not UTF-8, or the two differ in number of lines; or there is no
            text in the reference.
    """
    if tokenization is not None:
        check_tokenization(tokenization)
    corpus = open_parallel_corpus(Path(), str(source), str(reference), None, None)
    corpus.check()
    sources, references = zip(*corpus, strict=True)
    if not any(map(str.strip, references)):
        raise CorpusError(f"{reference}: the reference is blank; there is nothing to score")
    started = time.perf_counter()
    translations = translator.translate(sources, beam=beam)
    seconds = time.perf_counter() - started
    scores = tuple(corpus_scores(translations, references, tokenization=tokenization, confidence=confidence))
    return Evaluation(scores, len(sources), translator.search.beam if beam is None else beam, seconds)
