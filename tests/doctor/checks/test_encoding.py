import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.doctor.checks.encoding import (
    WRONG_CODE_PAGE,
    find_carriage_returns,
    find_mixed_normal_forms,
    find_quoted_lines,
    find_unwanted_characters,
)
from transduce.doctor.checks.mojibake import MOJIBAKE
from transduce.doctor.corpus.reading import read_corpora
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.line_and_pair_checks import SEARCHES
from transduce.text import Cleaner, ParallelCorpus

GOOD = [
    "Das Ä“ ist ein Buchstabe, „Spaß“ und „Fuß“ auch …",
    "Voilà\xa0» dit-il, « É\xa0» puis CAFÉ\xa0», à 20\xa0°C, NOËL…",
    "PŘÍŠTÍ STANICE, ÚŽASNÉ, ŽÍŠ",
    "NÃO, MAÇÃ, SÃO, FORÇA² e 3ª",
    "Ở đây có Ế và Ấ, Ụ ọ́ ṣ",
    "Größe: 5 m², £5, 20 €, naïve, El Niño, Ångström, ÆØÅ",
    "Привет, мир! Ελληνικά, עברית, 日本語",
    "√π und √Ω, √2, ≈ 5 €, ≈£5, ¬A ∧ ¬B → ¬(A∨B), f·g, x÷y = a±b, 5 ‰, 12 m³ Wasser, Nm³h",
    "‚Ägypten‘ und ‚Äpfel‘, ‚Ähre‘, ‚Öl‘, „Ämter“",
    "├── Datei.txt ┌─┐│ä│└─┘ ├──┤ ┬┐ ┼┤ a─b",
    "col·lecció, Eƒe ƒoƒo, ƒé ƒã, œuvre — “été” –à Œdipe —é—à dit, †‡§, Γ Ç, ÔÇA, ÉTÉ ÂGE ÊTRE",
    "an tÚdarás, hÉireann, MacÓscar, Þór og Ýmir",
]


@pytest.mark.parametrize("line", GOOD)
def test_good_text_is_no_mojibake(line: str) -> None:
    assert MOJIBAKE.search(line) is None
    assert WRONG_CODE_PAGE.search(line) is None


@pytest.mark.parametrize(("encoding", "other"), [("cp1252", "cp850"), ("cp1252", "mac_roman"), ("cp850", "cp1252")])
@pytest.mark.parametrize("text", ["zwei Büsche", "canción y niño", "le président"])
def test_letters_that_were_read_in_another_code_page_are_found(text: str, encoding: str, other: str) -> None:
    try:
        damaged = text.encode(encoding).decode(other)
    except UnicodeDecodeError:
        pytest.skip("has a byte that this encoding lacks")
    if {*damaged} & {*"‚¢¤ÈÛÒ"}:
        pytest.skip("becomes characters that good text has in the same places")
    assert WRONG_CODE_PAGE.search(damaged)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "mac_roman", "cp850", "cp437"])
@pytest.mark.parametrize(
    "text", ["schön", "Öl", "größer", "déjà vu", "žluťoučký", "привет", "“quoted”", "it’s", "€", "ł"]
)
def test_utf_8_read_in_another_encoding_is_mojibake(text: str, encoding: str) -> None:
    try:
        damaged = text.encode().decode(encoding)
    except UnicodeDecodeError:
        pytest.skip("has a byte that this encoding lacks")
    assert MOJIBAKE.search(damaged)


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_has_nothing_unwanted(text: str) -> None:
    assert MOJIBAKE.search(text) is None


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("mojibake", lambda line: f"{line} über".encode().decode("latin-1")),
        ("replacement_characters", lambda line: f"{line}\ufffd"),
        ("control_characters", lambda line: f"\x07{line}"),
        ("invisible_characters", lambda line: f"{line[:2]}\u200b{line[2:]}"),
        *(("direction_marks", lambda line, mark=mark: f"{mark}{line}") for mark in "\u200e\u200f\u202b\u2067\u061c"),
        ("unusual_spaces", lambda line: line.replace(" ", "\u202f")),
        ("wrong_code_page", lambda line: f"{line} Büsche".encode("cp1252").decode("cp850")),
        ("html_entities", lambda line: f"{line} R&amp;D"),
    ],
)
def test_a_planted_fault_is_found_with_its_lines(
    read: Callable[..., Text], vocabulary: Vocabulary, invented: Callable, name: str, damage: Callable[[str], str]
) -> None:
    pairs = invented(1000)
    rows = [*range(0, 900, 30)]
    for row in rows:
        pairs[row] = damage(pairs[row][0]), pairs[row][1]
    pairs[5] = pairs[5][0], damage(pairs[5][1])
    (finding,) = find_unwanted_characters(read(pairs), vocabulary)
    assert (finding.name, finding.num_pairs) == (name, 31)
    assert finding.rows.tolist() == sorted([*rows, 5])
    assert "30 sources and 1 target" in finding.summary
    marks = finding.mark([pairs[0]])
    assert marks[0][0]
    assert not marks[0][1]


def test_a_text_without_faults_has_no_finding(
    read: Callable[..., Text], vocabulary: Vocabulary, invented: Callable
) -> None:
    assert list(find_unwanted_characters(read(invented(500)), vocabulary)) == []
    good = [(line.replace("\xa0", " "), "AT&T; R&D & co") for line in GOOD * 20]
    assert list(find_unwanted_characters(read(good), vocabulary)) == []


@pytest.mark.parametrize("character", ["\x00", "\n", "\x0b", "\r", "\x1b", "\x7f", "\x85"])
def test_what_training_leaves_out_as_control_characters_is_found(vocabulary: Vocabulary, character: str) -> None:
    pairs = [("a tab\tmay be", "there")] * 9
    pairs[3], pairs[7] = (f"one{character}two", "b"), ("a", f"one{character}")
    cleaner = Cleaner(TextConfig())
    kept = [cleaner.keeps(*pair, 2, 2, is_repeated=False) for pair in pairs]
    corpus = ParallelCorpus("made", (Path("made.jsonl"),), lambda: iter(pairs), lambda: "")
    text = read_corpora("training", [("made", corpus)], vocabulary, SEARCHES)
    (finding,) = find_unwanted_characters(text, vocabulary)
    assert finding.name == "control_characters"
    assert finding.rows.tolist() == [row for row, is_kept in enumerate(kept) if not is_kept] == [3, 7]


def test_accents_in_two_forms_are_found(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    composed = [("a b", f"déjà vu {number}") for number in range(200)]
    decomposed = [(source, unicodedata.normalize("NFD", target)) for source, target in composed[:100]]
    assert list(find_mixed_normal_forms([read(composed), read(composed, "test")], vocabulary)) == []
    assert list(find_mixed_normal_forms([read(decomposed), read(decomposed, "test")], vocabulary)) == []
    found = list(find_mixed_normal_forms([read([*composed, *decomposed[:10]]), read(decomposed, "test")], vocabulary))
    assert [(one.text.name, one.num_pairs) for one in found] == [("training", 10), ("test", 100)]
    assert found[0].rows.tolist() == [*range(200, 210)]
    assert "NFD" in found[0].summary
    assert len(found[0].mark([decomposed[0]])[0][1]) == 2


def test_a_file_whose_lines_end_in_carriage_returns_is_named(
    read: Callable[..., Text], invented: Callable, names: Callable
) -> None:
    lines = [target for _, target in invented(50)]
    (finding,) = find_carriage_returns(read([("a source", "\r".join(lines) + "\r")]))
    assert (finding.severity, finding.num_pairs) == ("serious", 1)
    assert "the lines of the target end in a carriage return (CR) alone" in finding.summary
    assert "read as 1 line" in finding.summary
    assert r"tr '\r' '\n'" in finding.advice
    both = read([("\r".join(lines), "\r".join(lines))])
    assert names(find_carriage_returns(both)) == ["carriage_returns"] * 2


def test_carriage_returns_in_some_lines_are_no_line_ends(read: Callable[..., Text], invented: Callable) -> None:
    pairs = [*invented(50), *[("one\rtwo\rthree", "a\rb\rc")] * 10]
    assert list(find_carriage_returns(read(pairs))) == []
    assert list(find_carriage_returns(read([("one\r", "two\r\r")] * 10))) == []


def test_direction_marks_belong_to_text_that_is_written_from_right_to_left(
    read: Callable[..., Text], vocabulary: Vocabulary, invented: Callable
) -> None:
    hebrew, persian = "\u200fשלום לך\u200e (2).\u200f", "\u202bمی\u200cخواهم\u202c"
    pairs = [(source, hebrew if row % 2 else persian) for row, (source, _) in enumerate(invented(400))]
    # A line of a name alone, and a quotation in a line of another script.
    pairs[7], pairs[9] = (pairs[7][0], "\u200eMicrosoft Word\u200e"), (f"He said \u200f{hebrew}\u200e!", pairs[9][1])
    assert list(find_unwanted_characters(read(pairs), vocabulary)) == []
    pairs[11] = f"{pairs[11][0]}\u200e", pairs[11][1]
    (finding,) = find_unwanted_characters(read(pairs), vocabulary)
    assert (finding.name, finding.severity, finding.rows.tolist()) == ("direction_marks", "minor", [11])


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        ("wei?e M\ufffdnner", True),
        ("Zwei wei?e Hunde.", True),
        ("Ein Hund auf der Stra?e.", True),
        ("Sch?ne T?r", True),
        ("Why?Because.", False),
        ("Is it so? Yes, it is?", False),
        ("Look at https://a.org/page?id=3 or a.org/page?id", False),
        ("(a.org?page)", False),
        ("好吗?好", False),
        ("what??", False),
    ],
)
def test_letters_that_became_question_marks_are_found(read: Callable[..., Text], line: str, is_lost: bool) -> None:
    assert (read([("one", line)] * 3).target.found["replacement_characters"].tolist() == [0, 1, 2]) == is_lost


def test_quotation_marks_around_every_line_are_found(read: Callable[..., Text]) -> None:
    quoted = [(f'"one ""{row}"""', f'"eins {row}"') for row in range(95)]
    (finding,) = find_quoted_lines(read([*quoted, *[("two", "zwei")] * 5]))
    assert (finding.name, finding.severity, finding.rows.tolist()) == ("quoted_lines", "serious", [*range(95)])
    assert "save the table as CSV" in finding.advice
    for pairs in (quoted[:19], [*quoted, *[("two", "zwei")] * 20], [(source, "eins") for source, _ in quoted]):
        assert list(find_quoted_lines(read(pairs))) == []
