import pytest

from transduce.serving.detection import Detector

GERMAN = "Ein Mann und eine Frau gehen durch den Wald."


def test_the_best_is_first(detector: Detector) -> None:
    ranked = detector.rank(GERMAN, ["en", "fr", "de"])
    assert ranked[0].language == "de"
    assert sum(one.probability for one in ranked) == pytest.approx(1, abs=1e-5)
    assert [one.probability for one in ranked] == sorted((one.probability for one in ranked), reverse=True)


def test_codes_come_back_as_they_are_written(detector: Detector) -> None:
    assert detector.rank(GERMAN, ["en-GB", "de-AT"])[0].language == "de-AT"


def test_languages_that_it_does_not_know_are_last(detector: Detector) -> None:
    ranked = detector.rank(GERMAN, ["csb", "de"])
    assert [(one.language, one.probability) for one in ranked] == [("de", pytest.approx(1)), ("csb", 0)]
    assert detector.rank(GERMAN, ["csb"]) == [("csb", 0)]


@pytest.mark.parametrize("text", ["", " ", "12", "😀", "\ud800"])
def test_without_letters_nothing_is_known(detector: Detector, text: str) -> None:
    assert detector.rank(text, ["en", "de"]) == [("en", 0), ("de", 0)]


def test_an_answer_does_not_depend_on_those_before(detector: Detector) -> None:
    first = detector.rank(GERMAN, ["en", "de"])
    detector.rank(GERMAN, ["fr", "es"])
    assert detector.rank(GERMAN, ["en", "de"]) == first
