"""Documents are translated passage by passage, and their markup stays in order, with tags that follow words or not."""

import re

import pytest

from transduce.documents import read_formatted_document
from transduce.errors import ConfigError
from transduce.translation import DocumentTranslator, LineTranslator, TranslationOptions, Translator, translate_texts
from transduce.translation.documents import write_translation

PAGE = b"<html><body><h1>sun moon</h1><p>river <b>stone bird</b> tree</p><p></p><p>wind <br>salt</p></body></html>"


@pytest.mark.parametrize("can_align", [True, False], ids=["tags follow words", "between tags"])
def test_all_tags_stay_in_order(translator: Translator, *, can_align: bool) -> None:
    document = read_formatted_document(PAGE, ".html")
    found = DocumentTranslator(translator, TranslationOptions(), can_align=can_align).translate(document)
    assert re.findall(rb"<[^>]+>", found) == re.findall(rb"<[^>]+>", PAGE)
    [heading] = re.findall(rb"<h1>(.*)</h1>", found)
    assert heading.decode() == translator.find_translations(["sun moon"])[0].text


def test_plain_text_is_translated_sentence_by_sentence(translator: Translator) -> None:
    document = read_formatted_document(b"sun moon\r\n\r\nriver\r\n", ".txt")
    first, second = (one.text for one in translator.find_translations(["sun moon", "river"]))
    found = DocumentTranslator(translator, TranslationOptions()).translate(document)
    assert found == f"{first}\r\n\r\n{second}\r\n".encode()
    mixed = read_formatted_document(b"sun moon\r\n\nriver\r", ".txt")
    assert DocumentTranslator(translator, TranslationOptions()).translate(mixed) == f"{first}\r\n\n{second}\r".encode()


def test_a_sentence_whose_constraints_cannot_be_met_is_left(translator: Translator) -> None:
    text = " ".join(["sun moon river stone"] * 30)  # more pieces than the model reads at once: no constraint holds
    options = TranslationOptions(require=["lamp"])
    found = DocumentTranslator(translator, options).translate(read_formatted_document(text.encode(), ".txt"))
    assert found.decode() == text


def test_samples_of_a_document_are_ranked(translator: Translator) -> None:
    document = read_formatted_document(b"sun moon", ".txt")
    ranked = TranslationOptions(num_samples=4, minimum_bayes_risk=True)
    assert DocumentTranslator(translator, ranked).translate(document)
    with pytest.raises(ConfigError, match="num_samples = 4: a document has one translation"):
        DocumentTranslator(translator, TranslationOptions(num_samples=4))


def test_what_became_of_each_sentence_is_known(translator: Translator) -> None:
    translating = DocumentTranslator(translator, TranslationOptions(guard=True))
    translating.translate(read_formatted_document(PAGE, ".html"))
    assert {re.sub(r"<\S+>", "", line.source) for line in translating.lines} >= {"sun moon"}
    assert "".join(re.sub(r"<[^>]*>| ", "", line.source) for line in translating.lines).count("river") == 1
    report = translating.guard_report
    assert report is not None
    assert report.retried > 0  # random weights repeat themselves
    translating.translate(read_formatted_document(b"sun moon", ".txt"))
    assert translating.lines[-1].source == "sun moon"
    with_more = translating.guard_report
    assert with_more is not None
    assert with_more.retried >= report.retried
    assert DocumentTranslator(translator, TranslationOptions()).guard_report is None


def test_with_constraints_text_between_tags_is_translated(translator: Translator) -> None:
    options = TranslationOptions(forbid=["stone"])
    found = DocumentTranslator(translator, options).translate(read_formatted_document(PAGE, ".html"))
    assert re.findall(rb"<[^>]+>", found) == re.findall(rb"<[^>]+>", PAGE)
    assert b"stone" not in found
    assert b"river" in found


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("en", "de", b'<html lang="de"><p lang="de">x</p></html>'),
        ("en_US", "he", b'<html dir="rtl" lang="he"><p lang="he">x</p></html>'),
        ("en", "EN_gb", b'<html lang="EN-gb"><p lang="EN-gb">x</p></html>'),
        ("pt_BR", "pt-BR", b'<html lang="en"><p lang="EN-us">x</p></html>'),
        ("", "de", b'<html lang="en"><p lang="EN-us">x</p></html>'),
        ("en", "", b'<html lang="en"><p lang="EN-us">x</p></html>'),
        ("fr", "pb", b'<html lang="pt-BR"><p lang="EN-us">x</p></html>'),
    ],
)
def test_a_page_declares_the_language_of_its_translation(source: str, target: str, expected: bytes) -> None:
    page = read_formatted_document(b'<html lang="en"><p lang="EN-us">x</p></html>', ".html")
    assert write_translation(page, page.text, source, target) == expected


def test_other_documents_declare_no_language() -> None:
    for content, ending in (
        (b"<p lang='en'>", ".txt"),
        (b"1\n00:00:01,000 --> 00:00:02,000\n<i lang=en>x</i>\n", ".srt"),
    ):
        document = read_formatted_document(content, ending)
        assert write_translation(document, document.text, "en", "ar") == content


NUMBERS = "<td>2020</td><td>€&nbsp;1,250.00</td><p>12 <b>%</b></p>"


@pytest.mark.parametrize("can_align", [True, False], ids=["tags follow words", "between tags"])
def test_text_without_letters_stays_as_it_is(translator: Translator, *, can_align: bool) -> None:
    translating = DocumentTranslator(translator, TranslationOptions(), can_align=can_align)
    page = f"<p>sun moon<sup>1</sup></p>{NUMBERS}".encode()
    found = translating.translate(read_formatted_document(page, ".html")).decode()
    assert found.endswith(f"<sup>1</sup></p>{NUMBERS}")
    assert translating.translate(read_formatted_document(b"12345\n12 %\n", ".txt")) == b"12345\n12 %\n"
    cue = b"1\n00:00:01,000 --> 00:00:02,000\n<i>2020</i>\n"
    assert translating.translate(read_formatted_document(cue, ".srt")) == cue


def test_every_sentence_has_the_language_tag_of_the_one_before(tagged_translator: Translator) -> None:
    sentences = [">>de<< sun moon.", ">>de<< river stone.", ">>fr<< bird.", ">>fr<< tree."]
    text = ">>de<< sun moon. river stone.\n\n>>fr<< bird.\ntree.\n"
    one, two, three, four = tagged_translator.translate(sentences)
    ((found, lines),) = translate_texts(LineTranslator(tagged_translator, TranslationOptions()), [text])
    assert found == f"{one} {two}\n\n{three}\n{four}\n"
    assert [line.source for line in lines] == sentences
    assert two != tagged_translator.translate(["river stone."])[0]


def test_a_sentence_that_is_left_has_no_language_tag(tagged_translator: Translator) -> None:
    long = " ".join(["sun moon river stone"] * 30)
    options = TranslationOptions(require=["lamp"])
    ((found, _),) = translate_texts(LineTranslator(tagged_translator, options), [f">>de<< {long}"])
    assert found == long


@pytest.mark.parametrize("can_align", [True, False])
def test_a_passage_has_its_own_language_tag_or_that_of_the_first(
    tagged_translator: Translator, *, can_align: bool
) -> None:
    page = (
        b"<p>&gt;&gt;de&lt;&lt; sun moon</p><p>river <b>stone</b> bird</p>"
        b"<p>&gt;&gt;fr&lt;&lt; tree <i>road</i> salt</p><p>lamp</p>"
    )
    translating = DocumentTranslator(tagged_translator, TranslationOptions(), can_align=can_align)
    found = translating.translate(read_formatted_document(page, ".html")).decode()
    words = {word: line.source.split()[0] for line in translating.lines for word in re.findall(r"\w{3,}", line.source)}
    assert words == dict.fromkeys(["sun", "moon", "river", "stone", "bird", "lamp"], ">>de<<") | dict.fromkeys(
        ["tree", "road", "salt"], ">>fr<<"
    )
    sun, lamp = tagged_translator.translate([">>de<< sun moon", ">>de<< lamp"])
    assert sun in found
    assert found.endswith(f"<p>{lamp}</p>")
