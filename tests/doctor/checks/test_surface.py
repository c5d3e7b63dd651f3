from collections.abc import Callable

import pytest

from transduce.config import TextConfig
from transduce.doctor.checks.languages import find_other_scripts
from transduce.doctor.checks.surface import ENDINGS, PAIR_SEARCHES, classify_ending, find_surface_differences
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary


@pytest.fixture
def find(read: Callable[..., Text], vocabulary: Vocabulary) -> Callable[..., dict[str, list[int]]]:
    def run(pairs: list[tuple[str, str]]) -> dict[str, list[int]]:
        text = read(pairs)
        found = find_surface_differences(text, text, vocabulary, TextConfig())
        return {finding.name: finding.rows.tolist() for finding in found}

    return run


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("copies", lambda pair: pair[0], lambda pair: pair[0].upper()),
        ("different_numbers", lambda pair: f"12 {pair[0]}", lambda pair: f"13 {pair[1]}"),
        ("different_endings", lambda pair: pair[0], lambda pair: pair[1].rstrip(".")),
        ("different_brackets", lambda pair: f"({pair[0]})", lambda pair: pair[1]),
        ("markup", lambda pair: f"<b>a</b> {pair[0]}", lambda pair: pair[1]),
        ("different_addresses", lambda pair: f"https://a.org {pair[0]}", lambda pair: f"https://b.org {pair[1]}"),
    ],
)
def test_a_planted_difference_is_found(
    find: Callable, invented: Callable, name: str, source: Callable, target: Callable
) -> None:
    pairs = invented(1000)
    rows = list(range(0, 900, 15))
    for row in rows:
        pairs[row] = source(pairs[row]), target(pairs[row])
    assert find(pairs) == {name: rows}


def test_blank_lines_are_not_compared(find: Callable, invented: Callable) -> None:
    assert find([(f"({source}) www.a.org 12?", " ") for source, _ in invented(50)]) == {}


def test_what_only_looks_different_is_left_alone(find: Callable, invented: Callable) -> None:
    pairs = [
        (
            f"({source.rstrip('.')}) has 1,234.5 of 2 at 3:20 [see http://a.org/x.] 第?",
            f"（{target.rstrip('.')}） hat 2 von 1.234,5 um 3.20 【siehe http://a.org/x】 第？",
        )
        for source, target in invented(300)
    ]
    assert find(pairs) == {}
    assert find(invented(300)) == {}


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("a.", "."), ("a", "nothing"), ("a!", "!"), ("a?”", "?"), ("„a.“ ", "."), ("(a.)", "."), ("何？", "?"),
        ("何。", "."),        ("هل؟", "?"), ("a…", "…"), ("", "nothing"), ("a:", ":"), ("है।", "."),
        ("Πού είναι;", "?"), ("a;", ":"), ("ወዴት ነው፧", "?"),
        ("a.\u200e", "."), ("\u202ba?\u202c", "?"), ("„a!“\u2069\ufeff", "!"),
    ],
)  # fmt: skip
def test_ends_of_lines_are_classified(line: str, ending: str) -> None:
    assert ENDINGS[classify_ending(line)] == ending


@pytest.mark.parametrize(
    ("name", "source", "target", "is_different"),
    [
        ("brackets", "a (b) [c]", "[c] a (b)", False),
        ("brackets", "a (b", "a b", True),
        ("addresses", "see www.a.org.", "voir www.a.org", False),
        ("addresses", "see www.a.org", "voir", True),
        ("markup", "<b>a</b>", "<b>a</b>", True),
    ],
)
def test_pairs_are_compared(name: str, source: str, target: str, is_different: bool) -> None:
    search = PAIR_SEARCHES[name]
    assert search.pattern.search(source)
    assert search.is_different(source, target) == is_different


def test_comparisons_are_no_tags() -> None:
    assert PAIR_SEARCHES["markup"].pattern.search("2 < 3 and 4 > 1, <3") is None


def test_a_text_that_is_its_own_translation_is_serious(
    read: Callable[..., Text], vocabulary: Vocabulary, invented: Callable
) -> None:
    """As where one file is given as both sides; other scripts are no matter then."""
    text, other = read([(source, source) for source, _ in invented(200)]), read(invented(200), "other")
    config = TextConfig()
    (finding,) = find_surface_differences(text, text, vocabulary, config)
    assert (finding.name, finding.severity, finding.num_pairs) == ("copies", "serious", 200)
    assert list(find_other_scripts(other, text, vocabulary, config)) == []


@pytest.mark.parametrize(
    ("drop_copies", "name", "change", "severity"),
    [
        (True, "training", str, "minor"),
        (True, "training", str.upper, "serious"),
        (False, "training", str, "serious"),
        (True, "test", str, "serious"),
    ],
)
def test_copies_are_serious_unless_training_leaves_them_out(
    read: Callable[..., Text],
    vocabulary: Vocabulary,
    invented: Callable,
    drop_copies: bool,
    name: str,
    change: Callable[[str], str],
    severity: str,
) -> None:
    pairs = invented(1000)
    pairs[:100] = [(source, change(source)) for source, _ in pairs[:100]]
    text, training = read(pairs, name), read(invented(1000), "other")
    config = TextConfig(drop_copies=drop_copies)
    (finding,) = find_surface_differences(text, text if name == "training" else training, vocabulary, config)
    assert (finding.name, finding.severity, finding.num_pairs) == ("copies", severity, 100)
    assert ("training" in finding.advice) == (name == "training")
