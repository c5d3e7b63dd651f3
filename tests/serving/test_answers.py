import pytest

from transduce.serving.answers import ScoredText, TranslatedSentence, TranslatedText
from transduce.text import split_document

DOCUMENT = split_document("One two.  Three!\n", "en")


def sentence(source: str, *translations: tuple[str, float | None]) -> TranslatedSentence:
    return TranslatedSentence(source, tuple(ScoredText(*one) for one in translations))


def test_the_kth_alternative_is_made_of_the_kth_of_each_sentence() -> None:
    sentences = (
        sentence("One two.", ("Eins zwei.", -1.0), ("Ein zwei.", -2.0), ("Eine.", -3.0)),
        sentence("Three!", ("Drei!", -0.5), ("Dritte!", -0.75)),
    )
    found = TranslatedText.of(DOCUMENT, sentences)
    assert (found.text, found.score) == ("Eins zwei.  Drei!\n", -1.5)
    assert found.alternatives == (ScoredText("Ein zwei.  Dritte!\n", -2.75),)
    assert found.sentences == sentences


def test_a_score_that_one_sentence_does_not_have_the_text_does_not_have() -> None:
    found = TranslatedText.of(DOCUMENT, (sentence("One two.", ("Eins.", None)), sentence("Three!", ("Drei!", -1.0))))
    assert found.score is None


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_what_has_no_sentence_is_its_own_translation(text: str) -> None:
    assert TranslatedText.of(split_document(text, "en"), ()) == TranslatedText(text, 0.0, (), ())
