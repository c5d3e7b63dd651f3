import gzip
import re
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import CorpusError, UserError
from transduce.text import Glossary, count_phrase

Write = Callable[[str, bytes | str], Path]


def found(terms: dict[str, str], text: str, language: str = "") -> list[tuple[str, str]]:
    return [(text[start:end], target) for start, end, target in Glossary(terms, language).find_terms(text)]


def test_a_file_has_a_term_a_line(write: Write) -> None:
    content = "\ufeffcar\tAuto\r\n\n \t \n  New York \t New York\n# no\tcomment\ncar\tAuto\n"
    expected = {"car": "Auto", "New York": "New York", "# no": "comment"}
    assert Glossary.read(write("a.tsv", content)).targets == expected
    assert Glossary.read(write("a.tsv.gz", gzip.compress(content.encode()))).targets == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("car\tAuto\ncar Auto\n", "line 2: must be a source term, one tab and a target term, not 'car Auto'"),
        ("car\tAuto\tnoun\n", r"a\.tsv, line 1: must be"),
        ("\ncar\t \n", r"a\.tsv, line 2: must be"),
        ("\tAuto\n", r"a\.tsv, line 1: must be"),
        ("car\tAuto\n\ncar\tWagen\n", "line 3: 'car' has the translation 'Wagen' here, but 'Auto' in line 1"),
        ("\n \n", r"a\.tsv: contains no terms"),
        (b"caf\xe9\tx\n", r"a\.tsv, line 1, byte 4 of the line: the byte 0xe9 is not UTF-8"),
    ],
)
def test_what_is_no_glossary(write: Write, content: bytes | str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        Glossary.read(write("a.tsv", content))


@pytest.mark.parametrize("terms", [{"": "a"}, {"a": ""}, {" ": "a"}, {"a": "\t"}, {"a": "\xad"}, {"\u200b": "a"}])
def test_blank_terms_are_refused(terms: dict[str, str]) -> None:
    with pytest.raises(UserError, match="must not be blank"):
        Glossary(terms)


@pytest.mark.parametrize(("target", "problem"), [("\u200b", "must not be blank"), ("a\u2028b", "must not contain")])
def test_a_term_that_no_translation_has_is_named_by_its_line(tmp_path: Path, target: str, problem: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(f"bike\tRad\n\ncar\t{target}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=f"terms.tsv, line 3: 'car' and its translation .* {problem}"):
        Glossary.read(path)
    with pytest.raises(UserError, match=problem):
        Glossary({"car": target})


def test_terms_are_whole_words() -> None:
    terms = {"car": "Auto", ".NET": "Punktnetz", "C++": "C++", "été": "Sommer"}
    assert found(terms, "A car, carpet, car's scar, e-car car_ 3car") == [("car", "Auto")] * 3
    assert found(terms, "Use .NET and C++, no C+++ in l'été, etete\u0301") == [
        *[(".NET", "Punktnetz"), ("C++", "C++"), ("C++", "C++"), ("été", "Sommer")],
    ]


def test_accents_are_part_of_the_word() -> None:
    assert found({"ete": "x"}, "ete\u0301 ete") == [("ete", "x")]
    assert Glossary({"ete": "x"}).find_terms("ete\u0301 ete")[0].start == 5
    assert found({"हिन": "x"}, "हिन्दी") == []


def test_a_term_that_stands_there_twice_is_found_twice() -> None:
    assert Glossary({"car": "Auto"}).find_terms("car car") == [(0, 3, "Auto"), (4, 7, "Auto")]


def test_the_longest_counts() -> None:
    terms = {"New York": "NY", "York": "Y", "New York City": "NYC", "City Hall": "Rathaus"}
    assert found(terms, "New York City Hall in York, New York") == [
        *[("New York City", "NYC"), ("York", "Y"), ("New York", "NY")],
    ]


def test_as_it_is_written_first_then_in_any_case() -> None:
    terms = {"us": "uns", "US": "USA", "Straße": "street", "May": "Mai"}
    assert found(terms, "us US Us uS") == [("us", "uns"), ("US", "USA"), ("Us", "uns"), ("uS", "uns")]
    assert found(terms, "STRAßE straße MAY") == [("STRAßE", "street"), ("straße", "street"), ("MAY", "Mai")]


@pytest.mark.parametrize(
    ("term", "text"), [("Straße", "DIE STRASSE"), ("Strasse", "die Straße"), ("Messmaß", "MESSMASS")]
)
def test_a_term_is_found_in_capitals_that_are_longer(term: str, text: str) -> None:
    glossary = Glossary({term: "street"})
    assert [one.target for one in glossary.find_terms(text)] == ["street"]
    assert glossary.select_terms([text]) == glossary.targets


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("language", ["tr", "az-AZ"])
def test_an_i_changes_its_case_as_in_the_language(language: str, form: Literal["NFC", "NFD"]) -> None:
    def write(text: str) -> str:
        return unicodedata.normalize(form, text)

    terms = {"ışık": "light", "istanbul": "Istanbul", "iş": "work", "IRMAK": "river", "ŞİİR": "poem"}
    text = write("Işık açık, IŞIK. İstanbul İSTANBUL: İş, İŞ; ırmak Irmak şiir Şiir!")
    words = [("Işık", "light"), ("IŞIK", "light"), ("İstanbul", "Istanbul"), ("İSTANBUL", "Istanbul")]
    words += [
        ("İş", "work"),
        ("İŞ", "work"),
        ("ırmak", "river"),
        ("Irmak", "river"),
        ("şiir", "poem"),
        ("Şiir", "poem"),
    ]
    assert found(terms, text, language) == [(write(word), target) for word, target in words]
    assert Glossary(terms, language).select_terms([text]) == terms
    assert found({"kız": "girl", "ilik": "marrow"}, write("KİZ kiz ILIK ılık"), language) == []
    assert found({"ILIK": "warm"}, "ilik ILIK", language) == [("ILIK", "warm")]


@pytest.mark.parametrize("spaces", [" ", "\xa0", "  ", "\u202f", " \xa0\t", "\u3000"])
def test_a_term_is_found_whatever_spaces_are_between_its_words(spaces: str) -> None:
    text = f"A red{spaces}bike, infrared{spaces}bike, Red{spaces}Bikes."
    assert Glossary({"red bike": "Rotrad"}).find_terms(text) == [(2, 9 + len(spaces), "Rotrad")]
    assert Glossary({f"red{spaces}bike": "Rotrad"}).find_terms("a red bike") == [(2, 10, "Rotrad")]
    assert Glossary({"red bike": "x", "car": "y"}).select_terms([text]) == {"red bike": "x"}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("term", ["café", "cafe\u0301", "Việt", "한국", "Ångström", "q\u0323\u0307"])
def test_a_term_is_found_in_either_normal_form(term: str, form: Literal["NFC", "NFD"]) -> None:
    glossary = Glossary({term: "x"})
    written = unicodedata.normalize(form, term)
    text = f"ä {written}, {written.upper()}."
    assert [text[start:end] for start, end, _ in glossary.find_terms(text)] == [written, written.upper()]
    assert glossary.select_terms([text]) == {term: "x"}
    assert glossary.find_terms(f"{written}\u0301 {written}s") == []


def test_a_term_spelled_as_in_the_text_is_used_in_either_normal_form() -> None:
    terms = {"ÉTÉ": "Abkürzung", "été": "Sommer", "red  bike": "Rad"}
    assert found(terms, "e\u0301te\u0301 E\u0301TE\u0301") == [
        *[("e\u0301te\u0301", "Sommer"), ("E\u0301TE\u0301", "Abkürzung")],
    ]
    assert found(terms | {"red bike": "Rotrad"}, "red  bike, red bike, red\xa0bike") == [
        *[("red  bike", "Rad"), ("red bike", "Rotrad"), ("red\xa0bike", "Rad")],
    ]


def test_without_spaces_between_words_a_term_stands_anywhere() -> None:
    assert found({"東京": "Tokyo", "กา": "crow"}, "私は東京に住む。กากา ก่า") == [
        *[("東京", "Tokyo"), ("กา", "crow"), ("กา", "crow")],
    ]
    assert found({"GPU": "GPU"}, "使用GPU计算") == [("GPU", "GPU")]


def test_a_large_glossary_is_fast() -> None:
    glossary = Glossary({f"word{number} {number}": str(number) for number in range(100_000)})
    text = "see word7 7 and word99999 99999 and word7 8 " * 50
    assert [target for _, _, target in glossary.find_terms(text)] == ["7", "99999"] * 50


def fold(text: str) -> str:
    return unicodedata.normalize("NFC", re.sub(r"\s+", " ", text)).casefold()


WORDS = st.sampled_from(["a", "A", "b", "ab", "a b", "+", "é", "e\u0301", "日", "日本", "1", " ", "  ", "-", "_"])


@given(st.dictionaries(WORDS.filter(str.strip), st.just("x")), st.lists(WORDS).map("".join))
def test_what_is_found_is_a_term_and_nothing_overlaps(terms: dict[str, str], text: str) -> None:
    end = 0
    folded = {fold(term) for term in terms}
    for match in Glossary(terms).find_terms(text):
        assert end <= match.start < match.end
        assert fold(text[match.start : match.end]) in folded
        end = match.end
    assert all(Glossary({term: "x"}).find_terms(term) == [(0, len(term), "x")] for term in terms)


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("Auto Autobahn Auto", "Auto", 2),
        ("a a a", "a a", 1),
        ("a aa a", "a", 2),
        ("C++ C++++", "C++", 2),
        ("使用GPU计算", "GPU", 1),
        ("", "a", 0),
    ],
)
def test_whole_words_are_counted(text: str, phrase: str, expected: int) -> None:
    assert count_phrase(text, phrase) == expected


@given(
    st.dictionaries(st.text("abA b", min_size=1).filter(str.strip), st.just("x"), min_size=1, max_size=5),
    st.lists(st.text("abA b.", max_size=12), max_size=3),
)
def test_selected_terms_are_all_that_are_found(terms: dict[str, str], sentences: list[str]) -> None:
    """In the text, and in the sentences that it is divided into."""
    selected = Glossary(terms).select_terms([" ".join(sentences)])
    assert selected.items() <= terms.items()
    for sentence in sentences:
        assert found(selected, sentence) == found(terms, sentence)


def test_selecting_ends_when_nobody_waits() -> None:
    calls: list[None] = []

    def check() -> None:
        calls.append(None)
        if len(calls) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        Glossary({"sun": "Sonne"}).select_terms(["moon " * 10_000], check)


def test_selecting_keeps_only_terms() -> None:
    """Candidates of a thousand lengths at every word of a book would fill the memory."""
    glossary = Glossary({"a" + "b" * length: "x" for length in range(1, 400)})
    text = " ".join("a" + f"{number:05}" for number in range(5_000))
    tracemalloc.start()
    try:
        assert glossary.select_terms([text]) == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
