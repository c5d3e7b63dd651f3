import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from transduce.bundle import LogisticFit, RecordedConfidence
from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text import Tokenizer, open_parallel_corpus
from transduce.translation import Confidence, Translator, measure_confidence
from transduce.translation.confidence.calibration import (
    compute_area_under_curve,
    compute_calibration_error,
    find_right_words,
    fit_logistic,
    predict_probabilities,
    score_words,
)

LETTERS = st.lists(st.sampled_from("abc"), max_size=7)
UNKNOWN = ("zebra", "quartz", "jumble")


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, make_sentences: Callable[..., list[str]]) -> tuple[Path, Path]:
    """Sentences to copy; in every third one stands a word that the model has never seen."""
    lines = make_sentences(150, seed=9)
    for number in range(0, len(lines), 3):
        lines[number] += f" {UNKNOWN[number % 9 // 3]}"
    path = write(tmp_path_factory.mktemp("text") / "lines", ["", *lines, "", "long " * 200])
    return path, path


def measure(translator: Translator, source: Path, target: Path, **options: Any) -> RecordedConfidence:
    corpus = open_parallel_corpus(Path(), str(source), str(target), None, None)
    return measure_confidence(translator, corpus, {"source": source, "target": target}, **options)


@pytest.fixture(scope="module")
def measured(translator: Translator, text: tuple[Path, Path]) -> RecordedConfidence:
    return measure(translator, *text)


@pytest.mark.exhaustive
def test_probabilities_say_what_is_right(measured: RecordedConfidence) -> None:
    assert measured.num_pairs == 150
    assert measured.beam == 4
    assert 0.5 < measured.share_right < 0.95
    assert max(measured.calibration_error, measured.calibration_error_before) < 0.15
    assert measured.auc > 0.7
    assert measured.chrf_error < measured.chrf_error_of_mean


def test_what_is_measured_does_not_depend_on_chance_or_compression(
    translator: Translator, text: tuple[Path, Path], measured: RecordedConfidence, tmp_path: Path
) -> None:
    packed = tmp_path / "lines.gz"
    packed.write_bytes(gzip.compress(text[0].read_bytes()))
    again = measure(translator, packed, text[1])
    assert again.data != measured.data
    assert again.model_copy(update={"data": measured.data}) == measured


def test_words_and_sentences_get_their_probabilities(translator: Translator, measured: RecordedConfidence) -> None:
    confidence, tokenizer = Confidence(measured), translator.tokenizer
    found = {}
    for text in ("sun moon", "sun zebra quartz moon"):
        ((hypothesis,),) = translator.engine.search([[*tokenizer.encode(text), tokenizer.end_id]], translator.search)
        words = confidence.estimate_words(tokenizer.pieces(hypothesis.ids), hypothesis.token_scores)
        assert [word for word, _ in words] == translator.translate([text])[0].split()
        assert all(0 < sure < 1 for _, sure in words)
        found[text] = confidence.estimate_chrf(hypothesis.token_scores), min(sure for _, sure in words)
    assert found["sun moon"] > found["sun zebra quartz moon"]
    assert all(0 < chrf < 100 for chrf, _ in found.values())
    assert confidence.estimate_words(["</s>"], [-0.5]) == []
    assert confidence.estimate_chrf([]) == 0.0


def test_the_beam_can_be_chosen(translator: Translator, text: tuple[Path, Path]) -> None:
    assert measure(translator, *text, beam=1).beam == 1
    with pytest.raises(ConfigError, match="beam = 0: must be at least 1"):
        measure(translator, *text, beam=0)


@pytest.mark.parametrize("lines", [[""], ["sun"], ["sun", ""], ["long " * 200] * 4])
def test_too_little_text_is_refused(translator: Translator, tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path / "few", lines)
    with pytest.raises(CorpusError, match="few"):
        measure(translator, path, path)


@given(LETTERS, LETTERS)
def test_right_words_are_those_of_a_minimal_edit(words: list[str], reference: list[str]) -> None:
    right = find_right_words(words, reference)
    assert sum(right) == most_kept(tuple(words), tuple(reference))[1]
    kept = iter(reference)
    assert all(word in kept for word, is_right in zip(words, right, strict=True) if is_right)  # in their order
    assert find_right_words(words, words) == [True] * len(words)
    assert sum(find_right_words(reference, words)) == sum(right)


@cache
def most_kept(words: tuple[str, ...], reference: tuple[str, ...]) -> tuple[int, int]:
    """Fewest edits, negative, and the most words that so many edits can keep."""
    if not words or not reference:
        return -len(words) - len(reference), 0
    same = int(words[0] == reference[0])
    edits, kept = most_kept(words[1:], reference[1:])
    ways = [(edits - 1 + same, kept + same)]
    ways += [(edits - 1, kept) for edits, kept in (most_kept(words[1:], reference), most_kept(words, reference[1:]))]
    return max(ways)


@pytest.mark.parametrize(
    ("words", "reference", "right"),
    [
        ("The dog, runs!", "The dog runs.", [True, True, True]),
        ("A man walks", "A woman walks", [True, False, True]),
        ("walks A man", "A man walks", [False, True, True]),
        ("a - b", "a – b", [True, False, True]),
        ("«a» b… ($5)", "a, b 5", [True, True, True]),
        ("की का", "का का", [False, True]),
        ("der Hund", "Der Hund", [False, True]),
        ("", "a", []),
        ("a", "", [False]),
    ],
)
def test_examples_of_right_words(words: str, reference: str, right: list[bool]) -> None:
    assert find_right_words(words.split(), reference.split()) == right


SCORES = st.lists(st.floats(-50, 0), min_size=1, max_size=4)
ITEMS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30)


def probability(fit: LogisticFit, token_scores: list[float]) -> float:
    (found,) = predict_probabilities(fit, [token_scores])
    return float(found)


def drawn(fit: LogisticFit, count: int, seed: int = 0) -> tuple[list[list[float]], list[bool]]:
    """Items that are right as often as `fit` says."""
    random = np.random.default_rng(seed)
    scores = [list(-random.exponential(1.5, size=random.integers(1, 5))) for _ in range(count)]
    return scores, (random.random(count) < predict_probabilities(fit, scores)).tolist()


def test_what_made_the_data_is_found_again() -> None:
    truth = LogisticFit(intercept=1.5, minimum=0.6, mean=0.3)
    scores, right = drawn(truth, 20_000)
    found = fit_logistic(scores, right)
    assert found.intercept == pytest.approx(truth.intercept, abs=0.1)
    assert np.abs(predict_probabilities(found, scores) - predict_probabilities(truth, scores)).max() < 0.03
    other_scores, other_right = drawn(truth, 20_000, seed=1)
    predicted = predict_probabilities(found, other_scores)
    assert compute_calibration_error(predicted, np.array(other_right)) < 0.02
    assert compute_calibration_error(predicted**3, np.array(other_right)) > 0.1


def test_a_share_of_what_is_right_can_be_fitted_too() -> None:
    truth = LogisticFit(intercept=0.5, minimum=0.2, mean=0.4)
    scores, _ = drawn(truth, 2000)
    found = fit_logistic(scores, predict_probabilities(truth, scores).tolist())
    assert predict_probabilities(found, scores) == pytest.approx(predict_probabilities(truth, scores), abs=0.01)


@given(st.lists(st.tuples(SCORES, st.booleans()), min_size=1, max_size=20))
def test_the_surer_the_model_the_surer_the_fit(items: list[tuple[list[float], bool]]) -> None:
    scores, right = [one for one, _ in items], [is_right for _, is_right in items]
    fit = fit_logistic(scores, right)
    assert np.isfinite([fit.intercept, fit.minimum, fit.mean]).all()
    assert predict_probabilities(fit, scores).tolist() == pytest.approx(
        [probability(fit, of_word) for of_word in scores]
    )
    for of_word in scores:
        assert 0 <= probability(fit, of_word) <= probability(fit, [score / 2 for score in of_word]) <= 1


def test_where_all_are_right_nearly_nothing_is_in_doubt() -> None:
    scores, _ = drawn(LogisticFit(intercept=0.0, minimum=1.0, mean=0.0), 500)
    assert predict_probabilities(fit_logistic(scores, [True] * 500), scores).mean() > 0.95
    assert predict_probabilities(fit_logistic(scores, [False] * 500), scores).mean() < 0.05


@given(st.floats(-9, -1e-4))
def test_weights_that_add_up_to_one_leave_a_probability_as_it_is(score: float) -> None:
    fit = LogisticFit(intercept=0.0, minimum=0.25, mean=0.75)
    assert probability(fit, [score]) == pytest.approx(np.exp(score))


def test_certainty_and_impossibility_are_finite() -> None:
    fit = LogisticFit(intercept=0.0, minimum=1.0, mean=1.0)
    assert 0 < probability(fit, [-1e9]) < probability(fit, [0.0]) < 1


def test_what_runs_against_the_model_is_ignored() -> None:
    scores = [[-0.1], [-5.0]] * 100
    fit = fit_logistic(scores, [False, True] * 100)
    assert (fit.minimum, fit.mean) == (0.0, 0.0)
    assert probability(fit, [-3.0]) == pytest.approx(0.5)


@given(ITEMS)
def test_the_area_is_the_share_of_pairs_in_order(items: list[tuple[float, bool]]) -> None:
    predicted, right = np.array([one for one, _ in items]), np.array([is_right for _, is_right in items])
    pairs = [(one, other) for one in predicted[right] for other in predicted[~right]]
    expected = float(np.mean([(one > other) + (one == other) / 2 for one, other in pairs])) if pairs else 0.5
    assert compute_area_under_curve(predicted, right) == pytest.approx(expected)


@given(ITEMS)
def test_the_calibration_error_is_what_its_definition_says(items: list[tuple[float, bool]]) -> None:
    predicted, right = np.array([one for one, _ in items]), np.array([is_right for _, is_right in items])
    expected = 0.0
    for low in range(10):
        inside = (predicted * 10 >= low) & ((predicted * 10 < low + 1) | (low == 9))
        if inside.any():
            expected += inside.mean() * abs(predicted[inside].mean() - right[inside].mean())
    found = compute_calibration_error(predicted, right)
    assert found == pytest.approx(expected)
    assert 0 <= found <= 1


def test_perfect_probabilities_have_no_error() -> None:
    right = np.array([True, False, True, True])
    assert compute_calibration_error(right.astype(float), right) == 0
    assert compute_area_under_curve(right.astype(float), right) == 1
    assert compute_calibration_error(1 - right.astype(float), right) == 1


@given(st.data())
def test_words_are_those_of_the_decoded_text(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=30))
    scores = [-float(number) for number in range(len(ids))]
    found = score_words(tokenizer.pieces(ids), scores)
    assert [word for word, _ in found] == tokenizer.decode(ids).split()
    assert all(of_word and of_word == sorted(of_word, reverse=True) for _, of_word in found)
    # No piece counts for two words, but one that spells "<unk>" alone has spaces around it.
    used = [score for _, of_word in found for score in of_word]
    assert len(used) == len(set(used))


@given(st.text())
@example("0\x85\x08")  # the tokenizer leaves out what follows the space
def test_no_piece_of_a_text_is_lost(tokenizer: Tokenizer, text: str) -> None:
    ids = [*tokenizer.encode(text), tokenizer.end_id]
    decoded = tokenizer.decode(ids)
    assume(not decoded[-1:].isspace())
    found = score_words(tokenizer.pieces(ids), [1.0] * len(ids))
    assert [word for word, _ in found] == decoded.split()
    assert sum(len(scores) for _, scores in found) == (len(ids) - 1 if found else 0)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁a", "b", "▁c", "</s>"], [("ab", [0, 1]), ("c", [2])]),
        (["▁", "a", "▁", "▁", "b"], [("a", [0, 1]), ("b", [2, 3, 4])]),
        (["▁", "<0xC3>", "<0xBC>", "b", "<0x20>", "c"], [("üb", [0, 1, 2, 3]), ("c", [4, 5])]),
        (["a", "<0xC3>", "b"], [("a\ufffdb", [0, 1, 2])]),
        (["<0xC3>", "</s>", "<0xBC>"], [("ü", [0, 2])]),
        (["a▁b", "c▁", "d"], [("a", [0]), ("bc", [0, 1]), ("d", [2])]),
        (["a", "<unk>", "b"], [("a", [0]), ("⁇", [1]), ("b", [2])]),
        (["<pad>", "▁", "</s>"], []),
        (["<s>", "▁a", "<blank>", "b", "</s>"], [("ab", [1, 3])]),
        ([], []),
    ],
)
def test_which_pieces_make_a_word(pieces: list[str], words: list[tuple[str, list[float]]]) -> None:
    assert score_words(pieces, list(map(float, range(len(pieces))))) == words


def test_scores_of_another_hypothesis_are_refused() -> None:
    with pytest.raises(UserError, match="2 pieces but 1 scores"):
        score_words(["▁a", "b"], [0.0])


def test_a_translation_has_the_words_it_shows(translator: Translator, make_sentences: Callable[..., list[str]]) -> None:
    tokenizer = translator.tokenizer
    texts = make_sentences(20, seed=5)
    sources = [[*ids, tokenizer.end_id] for ids in tokenizer.encode_all(texts)]
    with torch.inference_mode():
        found = translator.engine.search(sources, translator.search)
    for (hypothesis,), text in zip(found, translator.translate(texts), strict=True):
        words = score_words(tokenizer.pieces(hypothesis.ids), hypothesis.token_scores)
        assert [word for word, _ in words] == text.split()
        total = sum(score for _, scores in words for score in scores) + hypothesis.token_scores[-1]
        assert total == pytest.approx(sum(hypothesis.token_scores))
