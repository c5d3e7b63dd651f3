import gzip
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.bundle import RecordedConfidence
from transduce.errors import ConfigError, CorpusError
from transduce.translation import Confidence, Translator, measure_confidence
from transduce.translation.confidence import right_words

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


@pytest.fixture(scope="module")
def measured(translator: Translator, text: tuple[Path, Path]) -> RecordedConfidence:
    return measure_confidence(translator, *text)


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
    again = measure_confidence(translator, packed, text[1])
    assert again.data != measured.data
    assert again.model_copy(update={"data": measured.data}) == measured


def test_words_and_sentences_get_their_probabilities(translator: Translator, measured: RecordedConfidence) -> None:
    confidence, tokenizer = Confidence(measured), translator.tokenizer
    found = {}
    for text in ("sun moon", "sun zebra quartz moon"):
        ((hypothesis,),) = translator.engine.search([[*tokenizer.encode(text), tokenizer.end_id]], translator.search)
        words = confidence.words(tokenizer.pieces(hypothesis.ids), hypothesis.token_scores)
        assert [word for word, _ in words] == translator.translate([text])[0].split()
        assert all(0 < sure < 1 for _, sure in words)
        found[text] = confidence.sentence(hypothesis.token_scores), min(sure for _, sure in words)
    assert found["sun moon"] > found["sun zebra quartz moon"]
    assert all(0 < chrf < 100 for chrf, _ in found.values())
    assert confidence.words(["</s>"], [-0.5]) == []
    assert confidence.sentence([]) == 0.0


def test_the_beam_can_be_chosen(translator: Translator, text: tuple[Path, Path]) -> None:
    assert measure_confidence(translator, *text, beam=1).beam == 1
    with pytest.raises(ConfigError, match="beam = 0: must be at least 1"):
        measure_confidence(translator, *text, beam=0)


@pytest.mark.parametrize("lines", [[""], ["sun"], ["sun", ""], ["long " * 200] * 4])
def test_too_little_text_is_refused(translator: Translator, tmp_path: Path, lines: list[str]) -> None:
    path = write(tmp_path / "few", lines)
    with pytest.raises(CorpusError, match="few"):
        measure_confidence(translator, path, path)


@given(LETTERS, LETTERS)
def test_right_words_are_those_of_a_minimal_edit(words: list[str], reference: list[str]) -> None:
    right = right_words(words, reference)
    assert sum(right) == most_kept(tuple(words), tuple(reference))[1]
    kept = iter(reference)
    assert all(word in kept for word, is_right in zip(words, right, strict=True) if is_right)  # in their order
    assert right_words(words, words) == [True] * len(words)
    assert sum(right_words(reference, words)) == sum(right)


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
    assert right_words(words.split(), reference.split()) == right
