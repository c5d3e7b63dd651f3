"""A comparison is what sacreBLEU's paired tests say, in figures and in words; see also tests/cli/test_evaluate.py."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.evaluation import (
    SystemOutput,
    TestSet,
    analyse,
    compare_systems,
    measure_differences,
    read_system_output,
    read_test_sets,
    render_comparison,
)

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def make_lines(seed: int, count: int = 60) -> list[str]:
    draw = random.Random(seed)  # noqa: S311 - nothing here is secret
    return [" ".join(draw.choices(WORDS, k=8)) for _ in range(count)]


REFERENCES = make_lines(1)
TEST_SET = TestSet("numbers", [f"{index}" for index in range(60)], [REFERENCES])


def spoil(share: float, seed: int = 2) -> list[str]:
    """The references, of whose words a share is wrong."""
    draw = random.Random(seed)  # noqa: S311 - nothing here is secret
    return [" ".join("zero" if draw.random() < share else word for word in line.split()) for line in REFERENCES]


GOOD, POOR = SystemOutput("good", spoil(0.1)), SystemOutput("poor", spoil(0.4))


def test_a_clear_difference_is_significant_both_ways() -> None:
    for baseline, other, verdict, sign in ((GOOD, POOR, "worse", -1), (POOR, GOOD, "better", 1)):
        ((*differences,),) = measure_differences(TEST_SET, [baseline, other])
        assert [one.metric for one in differences] == ["BLEU", "chrF", "TER"]
        assert {one.verdict for one in differences} == {verdict}
        assert all(sign * one.gain > 0 for one in differences)
        assert all(0 < max(one.p_bootstrap, one.p_randomization) < 0.05 for one in differences)


def test_the_same_translations_do_not_differ() -> None:
    ((*differences,),) = measure_differences(TEST_SET, [GOOD, replace(GOOD, system="copy")])
    for one in differences:
        assert (one.p_bootstrap, one.p_randomization, one.gain, one.verdict) == (1.0, 1.0, 0.0, "not decided")


def test_chance_is_not_decided() -> None:
    ((*differences,),) = measure_differences(
        TEST_SET, [SystemOutput("one", spoil(0.3, 5)), SystemOutput("other", spoil(0.3, 6))]
    )
    assert {one.verdict for one in differences} == {"not decided"}


def test_figures_are_the_same_every_time_and_in_every_company() -> None:
    alone = measure_differences(TEST_SET, [GOOD, POOR])
    together = measure_differences(TEST_SET, [GOOD, SystemOutput("other", spoil(0.2)), POOR])
    assert alone[0] == together[1]


def test_a_verdict_names_metrics_that_disagree() -> None:
    comparison = compare_systems(TEST_SET, [GOOD, POOR])
    assert comparison.verdicts == ["poor against good: worse"]
    system = comparison.systems[1]
    undecided = replace(system.differences[2], p_bootstrap=0.2)
    mixed = replace(system, differences=[*system.differences[:2], undecided])
    assert mixed.verdict == "not decided (TER); worse (BLEU, chrF)"


def test_the_page_shows_what_was_found() -> None:
    comparison = compare_systems(TEST_SET, [GOOD, SystemOutput("<poor>", POOR.hypotheses)])
    page = render_comparison([(comparison, analyse(comparison, REFERENCES))], is_training_counted=True)
    assert "&lt;poor&gt; against good: worse" in page
    assert "<poor>" not in page
    assert "times in the training text" in page
    assert page.count("<article>") == 10
    assert "<mark>zero</mark>" in page


def test_an_unknown_tokenization_is_refused() -> None:
    with pytest.raises(ConfigError, match="tokenization = 'moses'"):
        compare_systems(TEST_SET, [GOOD, POOR], tokenization="moses")


def test_references_are_divided_among_their_sources(tmp_path: Path) -> None:
    files = {
        "a.en": "1\n2\n",
        "b.en": "3\n",
        "a.de": "eins\nzwei\n",
        "a2.de": "1\n2\n",
        "b.de": "drei\n",
        "b2.de": "3\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8", newline="\n")
    paths = [tmp_path / name for name in files]
    one, other = read_test_sets(paths[:2], paths[2:])
    assert (one.name, one.sources, one.references) == ("a", ("1", "2"), [("eins", "zwei"), ("1", "2")])
    assert (other.name, other.sources, other.references) == ("b", ("3",), [("drei",), ("3",)])
    with pytest.raises(UserError, match="2 source and 3 reference files"):
        read_test_sets(paths[:2], paths[2:5])
    with pytest.raises(CorpusError, match=r"b\.de: 1 lines, but the test set a has 2"):
        read_system_output(paths[4], one)
