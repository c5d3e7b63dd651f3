import builtins
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from transduce.config import TextConfig
from transduce.doctor.checks import languages as module
from transduce.doctor.checks.languages import (
    LanguageShares,
    are_similar,
    find_other_scripts,
    find_wrong_languages,
    find_wrong_scripts,
    get_scripts,
    measure_languages,
    measure_scripts,
    name_language,
)
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.text.languages import SHORT_CODES, load_language_identifier, simplify_code

pytest.importorskip("py3langid")

SENTENCES = {
    "en": "The weather in the northern mountains is cold and windy, and nobody wants to leave the house number {}.",
    "de": "Das Wetter in den nördlichen Bergen ist kalt und windig, und niemand möchte das Haus Nummer {} verlassen.",
    "fr": "Le temps est froid et venteux dans les montagnes du nord, et personne ne veut quitter la maison numéro {}.",
}


def pairs(source: str, target: str, num_pairs: int = 120) -> list[tuple[str, str]]:
    return [(SENTENCES[source].format(row), SENTENCES[target].format(row)) for row in range(num_pairs)]


@pytest.fixture
def find(read: Callable[..., Text]) -> Callable[..., list[Any]]:
    def run(content: list[tuple[str, str]], declared: tuple[str, str]) -> list[Any]:
        text = read(content)
        return list(find_wrong_languages(text, measure_languages(text, enumerate(content), declared)))

    return run


@pytest.mark.parametrize("declared", [("en", "de"), ("eng", "deu"), ("en_US", "DE-at"), ("", ""), ("en", "ibb")])
def test_right_or_unknown_codes_are_no_finding(find: Callable, declared: tuple[str, str]) -> None:
    assert find(pairs("en", "de"), declared) == []


@pytest.mark.parametrize(
    ("sides", "declared", "expected"),
    [
        (("de", "en"), ("en", "de"), ["swapped_languages"]),
        (("en", "fr"), ("en", "de"), ["wrong_language"]),
        (("fr", "de"), ("en", "de"), ["wrong_language"]),
        (("en", "en"), ("", ""), ["same_language"]),
        (("en", "en"), ("en", "de"), ["wrong_language", "same_language"]),
        (("en", "en"), ("en", "en"), []),
    ],
)
def test_wrong_languages_are_named(
    find: Callable, names: Callable, sides: tuple[str, str], declared: tuple[str, str], expected: list[str]
) -> None:
    found = find(pairs(*sides), declared)
    assert names(found) == expected
    assert all(finding.severity == "serious" for finding in found)


def test_a_further_language_is_found_by_its_share(find: Callable) -> None:
    (finding,) = find([*pairs("en", "de"), *pairs("en", "fr", 12)], ("en", "de"))
    assert finding.name == "other_language"
    assert "about 9.1% of the targets are in French instead of German" in finding.summary
    assert (finding.num_pairs, finding.rows.tolist()) == (12, [*range(120, 132)])


def test_few_or_short_sentences_prove_nothing(find: Callable) -> None:
    assert find(pairs("en", "fr", 20), ("en", "de")) == []
    assert find([("a dog", "un chien")] * 200, ("de", "en")) == []


def test_shares_are_those_of_sure_sentences(read: Callable[..., Text]) -> None:
    content = [*pairs("en", "de", 90), *pairs("fr", "de", 30), ("?", "12")]
    source, target = measure_languages(read(content), enumerate(content), ("en", ""))
    assert (source.num_sure, target.num_sure) == (120, 120)
    assert dict(source.shares) == {"en": 0.75, "fr": 0.25}
    assert list(source.rows["fr"]) == [*range(90, 120)]
    assert (source.main, target.main) == ("en", "de")
    assert LanguageShares("a", "source", "", 100, {"en": 0.5, "de": 0.5}, {}).main is None
    assert LanguageShares("a", "source", "", 0, {}, {}).main is None


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    original = builtins.__import__

    def refuse(name: str, *others: Any, **more: Any) -> Any:
        if name.startswith("py3langid"):
            raise ImportError(name)
        return original(name, *others, **more)

    load_language_identifier.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    yield
    load_language_identifier.cache_clear()


@pytest.mark.usefixtures("without_package")
def test_without_the_package_nothing_is_said(find: Callable) -> None:
    assert find(pairs("en", "fr"), ("en", "de")) == []


def test_codes_and_names() -> None:
    assert [simplify_code(code) for code in ("en-GB", "de_AT", "HAU", "xyz")] == ["en", "de", "ha", "xyz"]


def test_all_other_codes_of_a_language_are_known() -> None:
    codes = "rus_Cyrl ukr ita_Latn swh_Latn arb_Arab pes_Arab zho_Hans cmn ger fre zsm azj_Latn npi_Deva"
    found = [simplify_code(code) for code in codes.split()]
    assert found == ["ru", "uk", "it", "sw", "ar", "fa", "zh", "zh", "de", "fr", "ms", "az", "ne"]
    assert {*SHORT_CODES.values()} <= {*load_language_identifier().labels}
    assert not {*SHORT_CODES} & {*load_language_identifier().labels}
    assert are_similar("nb", "no")
    assert are_similar("en", "en")
    assert not are_similar("en", "de")
    assert (name_language("ha"), name_language("xyz")) == ("Hausa", "xyz")


def test_lines_in_another_script_are_found(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    content = invented(1000)
    for row in range(0, 100, 5):
        content[row] = content[row][0], "это предложение на другом языке"
    content[1] = content[1][0], f"{content[1][1]} слово"
    text = read(content)
    (finding,) = find_other_scripts(text, text, vocabulary, TextConfig())
    assert finding.rows.tolist() == [*range(0, 100, 5)]
    assert "another script than Latin" in finding.summary
    shares: Mapping[str, Mapping[str, float]] = {one.side: one.shares for one in measure_scripts(text, vocabulary)}
    assert dict(shares["source"]) == {"Latin": 1.0}
    assert list(shares["target"]) == ["Latin", "Cyrillic"]
    assert sum(shares["target"].values()) == pytest.approx(1)
    assert shares["target"]["Cyrillic"] < module.RARE_SCRIPT


CHINESE, ARABIC, RUSSIAN = "吃天大我火。", "سيارة كبير كتاب", "дом и сад"


@pytest.fixture
def find_scripts(read: Callable[..., Text], vocabulary: Vocabulary) -> Callable[..., list[str]]:
    def run(target: str, declared: tuple[str, str], num_pairs: int = 100) -> list[str]:
        content = [(f"my house {row}", f"{target} {row}") for row in range(num_pairs)]
        text = read(content)
        scripts = measure_scripts(text, vocabulary)
        measured = measure_languages(text, enumerate(content), declared)
        return [finding.summary for finding in find_wrong_scripts(text, scripts, declared, measured)]

    return run


@pytest.mark.parametrize(
    ("target", "code"),
    [(CHINESE, "de"), (ARABIC, "de_DE"), (RUSSIAN, "pl"), ("my house", "ru"), ("my house", "zh"), (ARABIC, "he")],
)
def test_a_script_proves_a_wrong_language(find_scripts: Callable[..., list[str]], target: str, code: str) -> None:
    (summary,) = find_scripts(target, ("en", code))
    assert "of the words of the targets are in the script" in summary
    assert name_language(simplify_code(code)) in summary


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (CHINESE, "zh"), (CHINESE, "ja"), ("東京へ行きました", "ja"), (ARABIC, "ur"), ("ku ev", "ku"), (RUSSIAN, "sr"),
        ("my house", "sr"), ("my house", "hi-Latn"), (CHINESE, "xx"), (CHINESE, ""), ("12 + 3", "ru"),
        (f"a good house {CHINESE}", "de"),
    ],
)  # fmt: skip
def test_other_scripts_prove_nothing(find_scripts: Callable[..., list[str]], target: str, code: str) -> None:
    assert find_scripts(target, ("en", code)) == []


def test_few_words_prove_nothing(find_scripts: Callable[..., list[str]]) -> None:
    assert find_scripts(CHINESE, ("en", "de"), 5) == []


def test_what_was_judged_by_sentences_is_not_said_twice(read: Callable[..., Text], vocabulary: Vocabulary) -> None:
    content = [(SENTENCES["en"].format(row), f"{row} {CHINESE_SENTENCE}") for row in range(100)]
    text, declared = read(content), ("en", "de")
    measured = measure_languages(text, enumerate(content), declared)
    assert [finding.name for finding in find_wrong_languages(text, measured)] == ["wrong_language"]
    assert list(find_wrong_scripts(text, measure_scripts(text, vocabulary), declared, measured)) == []


CHINESE_SENTENCE = "北方山区的天气很冷，风也很大。"


def test_chinese_sentences_are_long_enough(read: Callable[..., Text]) -> None:
    content = [("one", CHINESE_SENTENCE)] * 60
    assert measure_languages(read(content), enumerate(content), ("", ""))[1].main == "zh"


def test_scripts_are_known_of_languages_that_have_one() -> None:
    assert get_scripts("de-AT") == {"Latin"}
    assert get_scripts("jpn") == get_scripts("ja") == {"Chinese characters", "Hiragana", "Katakana"}
    assert get_scripts("xyz") == get_scripts("sr") == get_scripts("zh-Latn") == get_scripts("") == frozenset()
    assert set(module._SCRIPTS) <= {*load_language_identifier().labels, "nb", "pb", "zt"}


DE, FR = ">>de<<", ">>fr<<"


@pytest.mark.parametrize("declared", [("en", "de"), ("en", "")])
def test_each_tag_has_its_own_language(read: Callable[..., Text], declared: tuple[str, str]) -> None:
    """One model for several target languages: none of them is wrong, but English among the French ones is."""
    german, french = pairs("en", "de", 200), pairs("en", "fr", 150)
    text = read(german, tags=(DE, FR), other=french)
    content = [*german, *french]
    measured = measure_languages(text, enumerate(content), declared)
    assert measured[1].has_several_languages
    assert not measured[0].has_several_languages
    assert list(find_wrong_languages(text, measured)) == []
    wrong = measure_languages(text, enumerate(content), ("fr", ""))
    assert [(one.name, one.severity) for one in find_wrong_languages(text, wrong)] == [("wrong_language", "serious")]
    mixed = [*german, *pairs("en", "fr", 120), *pairs("en", "de", 30)]
    measured = measure_languages(text, enumerate(mixed), ("en", ""))
    (finding,) = find_wrong_languages(text, measured)
    assert (finding.name, finding.num_pairs, finding.rows.tolist()) == ("other_language", 30, [*range(320, 350)])
    assert f"about 20.0% of the targets with the tag {FR} are in German instead of French" in finding.summary


def test_tags_may_be_written_in_the_sources(read: Callable[..., Text]) -> None:
    tagged = [
        (f"{DE if row < 100 else FR} {source}", target)
        for row, (source, target) in enumerate([*pairs("en", "de", 100), *pairs("en", "fr", 100)])
    ]
    text = read(tagged)
    assert list(find_wrong_languages(text, measure_languages(text, enumerate(tagged), ("en", "de")))) == []


def test_tags_of_corpora_in_one_language_change_nothing(read: Callable[..., Text]) -> None:
    first, second = pairs("en", "de", 100), [*pairs("en", "de", 60), *pairs("en", "fr", 40)]
    text = read(first, tags=(">>news<<", ">>web<<"), other=second)
    measured = measure_languages(text, enumerate([*first, *second]), ("en", "de"))
    (finding,) = find_wrong_languages(text, measured)
    assert (finding.name, finding.num_pairs) == ("other_language", 40)
    assert measured[1].is_judged


def test_a_script_that_a_tag_has_is_no_other_script(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    few = [(source, RUSSIAN) for source, _ in invented(30, seed=2)]
    text = read(invented(2000), tags=(DE, ">>ru<<"), other=few)
    assert list(find_other_scripts(text, text, vocabulary, TextConfig())) == []
    text = read(invented(2000), tags=(DE, DE), other=few)
    assert [finding.num_pairs for finding in find_other_scripts(text, text, vocabulary, TextConfig())] == [30]


@pytest.mark.parametrize("drop_copies", [True, False])
def test_copies_that_training_leaves_out_are_not_in_another_script(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary, drop_copies: bool
) -> None:
    russian = [(source, RUSSIAN) for source, _ in invented(2000)]
    text = read([*russian, *((source, source) for source, _ in invented(20, seed=2))])
    found = list(find_other_scripts(text, text, vocabulary, TextConfig(drop_copies=drop_copies)))
    assert [finding.num_pairs for finding in found] == ([] if drop_copies else [20])
