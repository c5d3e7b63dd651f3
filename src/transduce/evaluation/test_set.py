"""A model's scores on a test set."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import CorpusError
from transduce.evaluation.scores import Score, check_tokenization, corpus_scores
from transduce.text import open_parallel_corpus
from transduce.translation import Translator


@dataclass(frozen=True)
class Evaluation:
    """BLEU, chrF and TER of the translations of a test set."""

    scores: tuple[Score, ...]
    num_lines: int
    beam: int
    """Hypotheses kept for each sentence."""
    seconds: float
    """Of translation, without loading and scoring."""

    def as_json(self) -> dict[str, Any]:
        """Everything, with the scores by their lower-case names."""
        scores = {
            score.metric.lower(): {
                "value": score.value,
                "signature": score.signature,
                **({} if score.low is None else {"low": score.low, "high": score.high}),
            }
            for score in self.scores
        }
        return {"lines": self.num_lines, "beam": self.beam, "seconds": round(self.seconds, 3), "scores": scores}


def evaluate_translator(
    translator: Translator,
    source: Path,
    reference: Path,
    *,
    beam: int | None = None,
    tokenization: str = "13a",
    confidence: bool = False,
) -> Evaluation:
    """Translate `source` and score the translations against `reference`.

    `tokenization` is that of BLEU; with `confidence`, every score has an interval: see `corpus_scores`.

    Raises:
        ConfigError: the tokenisation is unknown.
        CorpusError: a file is missing or empty, is not UTF-8, or the two differ in number of lines; or there is no
            text in the reference.
    """
    check_tokenization(tokenization)
    corpus = open_parallel_corpus(Path(), str(source), str(reference), None, None)
    corpus.check()
    sources, references = zip(*corpus, strict=True)
    if not any(map(str.strip, references)):
        raise CorpusError(f"{reference}: nothing but blank lines, and no score says anything about those")
    started = time.perf_counter()
    translations = translator.translate(sources, beam=beam)
    seconds = time.perf_counter() - started
    scores = tuple(corpus_scores(translations, references, tokenization=tokenization, confidence=confidence))
    return Evaluation(scores, len(sources), translator.search.beam if beam is None else beam, seconds)
