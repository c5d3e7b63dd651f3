import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.doctor import repair_encoding
from transduce.doctor.checks.encoding import find_unwanted_characters
from transduce.doctor.checks.mojibake import MOJIBAKE
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary

GOOD = [
    "größer",
    "déjà vu",
    "o ù où",
    "žluťoučký kůň",
    "привет, мир",
    "“it’s”",
    "20 €",
    "łódź",
    "naïve",
    "καλημέρα",
    "שלום",
]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "mac_roman", "cp850", "cp437"])
@pytest.mark.parametrize("text", GOOD)
def test_mojibake_is_repaired(text: str, encoding: str) -> None:
    try:
        damaged = text.encode().decode(encoding)
    except UnicodeDecodeError:
        pytest.skip("has a byte that this encoding lacks")
    if MOJIBAKE.search(damaged) is None:
        pytest.skip("is not found, either")
    assert repair_encoding(damaged) == text


def test_mojibake_of_mojibake_is_repaired() -> None:
    text = "schöne Bäume, “déjà vu”"
    damaged = text.encode().decode("latin-1").encode().decode("latin-1")
    assert repair_encoding(damaged) == text


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        ("Äpfel in der KÃ¼che, 5 €", "Äpfel in der Küche, 5 €"),
        ("„wei√üe“ Männer", "„weiße“ Männer"),
        ("„привет “Ð¼Ð¸Ñ\x80”“", "„привет “мир”“"),
        ("KÃ¼che und voil\ufffd und Ã\ufffd", "Küche und voil\ufffd und Ã\ufffd"),
        ("日本 Ã¤", "日本 ä"),
        ("Ã¤ ends\n", "ä ends\n"),
    ],
)
def test_the_rest_of_a_line_stays(line: str, repaired: str) -> None:
    assert repair_encoding(line) == repaired


@given(st.text())
def test_no_line_fails_and_good_ones_stay(line: str) -> None:
    repaired = repair_encoding(line)
    if MOJIBAKE.search(line) is None:
        assert repaired == line
    assert re.sub(r"[^\x00-\x7f]", "", repaired) == re.sub(r"[^\x00-\x7f]", "", line)


def test_the_repair_that_is_advised_does_what_is_said(
    read: Callable[..., Text], vocabulary: Vocabulary, invented: Callable
) -> None:
    """The advice is carried out as it is printed, on every line that the finding names."""
    pairs = invented(300)
    for row in range(0, 300, 10):
        pairs[row] = f"{pairs[row][0]} Ä über {chr(0x4E00)}", f"{pairs[row][1]} €".encode().decode("mac_roman") + " ş"
    for row in range(5, 300, 10):
        pairs[row] = "“Küche” Ð".encode().decode("cp1252", "replace"), f"{pairs[row][1]} Ã¤ \ufffd ä"
    text = read(pairs)
    (mojibake,) = (finding for finding in find_unwanted_characters(text, vocabulary) if finding.name == "mojibake")
    assert mojibake.num_pairs == 60
    code = re.search(r"\(in Python, after (import \S+): (\S+\(line\)), which leaves alone", mojibake.advice)
    assert code
    for row in mojibake.rows.tolist():
        for line in pairs[row]:
            scope = {"line": line}
            exec(code[1], scope)  # noqa: S102 - the advice of the program itself
            assert MOJIBAKE.search(eval(code[2], scope)) is None  # noqa: S307
