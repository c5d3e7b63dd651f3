"""A comparison is what sacreBLEU's paired tests say, in figures and in words; see also tests/cli/test_evaluate.py."""

import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.evaluation import (
    Difference,
    SystemOutput,
    TestSet,
    analyse,
    compare_systems,
    count_words,
    measure_differences,
    read_system_output,
    read_test_sets,
    render_comparison,
    score_corpus,
)
from transduce.evaluation.significance import correct_for_several_systems

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


def test_each_line_is_counted_once_by_each_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """TER takes minutes for long texts."""
    counted: list[str] = []
    count = TER._compute_segment_statistics

    def count_and_remember(self: TER, hypothesis: str, reference: Any) -> list[float]:
        counted.append(hypothesis)
        return count(self, hypothesis, reference)

    monkeypatch.setattr(TER, "_compute_segment_statistics", count_and_remember)
    comparison = compare_systems(TEST_SET, [GOOD, POOR])
    assert len(counted) == 2 * len(REFERENCES)
    assert [one.scores for one in comparison.systems] == [
        score_corpus(output.hypotheses, REFERENCES, confidence=True) for output in (GOOD, POOR)
    ]
    ((*differences,),) = measure_differences(TEST_SET, [GOOD, POOR])
    assert [comparison.systems[1].differences] == [differences]


def test_the_same_translations_do_not_differ() -> None:
    ((*differences,),) = measure_differences(TEST_SET, [GOOD, replace(GOOD, system="copy")])
    for one in differences:
        assert (one.p_bootstrap, one.p_randomization, one.gain, one.verdict) == (1.0, 1.0, 0.0, "not decided")


def test_chance_is_not_decided() -> None:
    ((*differences,),) = measure_differences(
        TEST_SET, [SystemOutput("one", spoil(0.3, 5)), SystemOutput("other", spoil(0.3, 6))]
    )
    assert {one.verdict for one in differences} == {"not decided"}


def test_probabilities_are_those_of_sacrebleu_where_chance_never_repeats_the_difference() -> None:
    one, other = SystemOutput("one", spoil(0.3, 5)), SystemOutput("other", spoil(0.32, 6))
    ((found,),) = measure_differences(TEST_SET, [one, other], ["chrf"])
    named = [(output.system, list(output.hypotheses)) for output in (one, other)]
    for kind, count, probability in (("bs", 1000, found.p_bootstrap), ("ar", 10_000, found.p_randomization)):
        _, results = PairedTest(named, {"chrF": CHRF()}, [REFERENCES], kind, count)()
        (expected,) = (values[1] for name, values in results.items() if name != "System")
        assert 0.01 < probability == pytest.approx(expected.p_value, abs=0.001)


def test_probabilities_of_ter_are_those_of_sacrebleu_if_ties_count(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = SystemOutput("one", spoil(0.3, 5)), SystemOutput("other", spoil(0.32, 6))
    ((found,),) = measure_differences(TEST_SET, [one, other], ["ter"])

    def test_by_sacrebleu(kind: str, count: int) -> float:
        named = [(output.system, list(output.hypotheses)) for output in (one, other)]
        _, results = PairedTest(named, {"TER": TER()}, [REFERENCES], kind, count)()
        (expected,) = (values[1] for name, values in results.items() if name != "System")
        return float(expected.p_value)

    assert found.p_bootstrap == pytest.approx(test_by_sacrebleu("bs", 1000), abs=1e-9)
    num_ties = []

    def count_ties(differences: np.ndarray, difference: float) -> float:
        num_ties.append(np.isclose(differences, difference, rtol=0).sum())
        larger = (differences > difference) & ~np.isclose(differences, difference, rtol=0)
        return float((1 + larger.sum() + num_ties[0]) / (1 + len(differences)))

    without_ties = test_by_sacrebleu("ar", 10_000)
    monkeypatch.setattr("sacrebleu.significance._compute_p_value", count_ties)
    assert found.p_randomization == pytest.approx(test_by_sacrebleu("ar", 10_000), abs=1e-9)
    assert num_ties[0] > 100
    # Of equal differences, rounding decides which sacreBLEU takes for larger ones.
    assert without_ties < found.p_randomization <= without_ties + num_ties[0] / 10_000


@pytest.mark.parametrize(("num_different", "probability"), [(1, 1.0), (3, 0.25), (7, 2 / 2**7)])
def test_a_few_better_lines_are_as_probable_as_a_coin_that_falls_on_one_side(
    num_different: int, probability: float
) -> None:
    # Of all ways to exchange lines, two in 2^n give a difference as large: none is exchanged, or all are.
    better = [*REFERENCES[:num_different], *GOOD.hypotheses[num_different:]]
    worse = [*["zero"] * num_different, *GOOD.hypotheses[num_different:]]
    ((*differences,),) = measure_differences(TEST_SET, [SystemOutput("worse", worse), SystemOutput("better", better)])
    for one in differences:
        assert one.gain > 0
        assert one.p_randomization == pytest.approx(probability, rel=0.15)
        assert one.is_significant == (num_different > 5)


def test_figures_are_the_same_every_time_and_in_every_company() -> None:
    alone = measure_differences(TEST_SET, [GOOD, POOR])
    together = measure_differences(TEST_SET, [GOOD, SystemOutput("other", spoil(0.2)), POOR])
    assert alone[0] == together[1]


def test_a_difference_has_an_interval_around_it() -> None:
    for baseline, other in ((GOOD, POOR), (POOR, GOOD)):
        ((*differences,),) = measure_differences(TEST_SET, [baseline, other], ["bleu", "ter"])
        for one in differences:
            assert one.low < one.value - one.baseline < one.high
            assert (one.low > 0) == (one.high > 0)  # a decided difference is on one side of 0
            # About as wide as that of a normal distribution with the same standard error.
            assert one.high - one.low == pytest.approx(2 * 1.96 * one.standard_error, rel=0.15)
    ((*differences,),) = measure_differences(TEST_SET, [GOOD, replace(GOOD, system="copy")], ["ter"])
    assert {(one.low, one.high, one.detectable) for one in differences} == {(0.0, 0.0, 0.0)}


def test_a_larger_test_set_shows_smaller_differences() -> None:
    def measure(times: int) -> float:
        test_set = TestSet("longer", list(TEST_SET.sources) * times, [REFERENCES * times])
        outputs = [SystemOutput(one.system, [*one.hypotheses] * times) for one in (GOOD, POOR)]
        return measure_differences(test_set, outputs, ["ter"])[0][0].detectable

    # The standard error falls with the root of the number of lines.
    assert measure(4) == pytest.approx(measure(1) / 2, rel=0.1)


def difference(p: float, metric: str = "BLEU") -> Difference:
    return Difference(metric, 20.0, 21.0, p / 2, p, 0.1, 1.9, 0.5)


def test_several_systems_are_corrected_by_holm() -> None:
    # Worked by hand: 0.01 x 3; 0.02 x 2; the greater one of 0.03 x 1 and the one before.
    found = correct_for_several_systems([[difference(0.03)], [difference(0.01)], [difference(0.02)]])
    assert [one.p for (one,) in found] == pytest.approx([0.04, 0.03, 0.04])
    found = correct_for_several_systems([[difference(0.04), difference(0.9)], [difference(0.03), difference(0.6)]])
    assert [[one.p for one in own] for own in found] == [pytest.approx([0.06, 1.0]), pytest.approx([0.06, 1.0])]
    assert {one.verdict for own in found for one in own} == {"not decided"}
    assert found[0][0].detectable > difference(0.04).detectable
    assert correct_for_several_systems([[difference(0.04)]]) == [[difference(0.04)]]
    assert difference(0.04).verdict == "better"


def test_a_comparison_says_how_it_was_tested_and_what_it_cannot_show() -> None:
    two = compare_systems(TEST_SET, [GOOD, POOR], ["ter"])
    assert two.size == "60 lines, 1 reference each"
    assert two.notes == ["paired bootstrap: 1,000 resamples; approximate randomisation: 10,000 trials; seed 12345"]
    assert "p, corrected" not in two.tabulate().heads
    near = SystemOutput("near", spoil(0.12, 7))
    several = compare_systems(TEST_SET, [GOOD, POOR, near, replace(GOOD, system="copy")], ["bleu", "ter"])
    _, corrected, undecided, same = several.notes
    assert corrected.startswith("corrected: the greater p, corrected for 3 systems compared with one (Holm 1979)")
    sizes = ", ".join(f"{one.metric} {one.detectable:.2f}" for one in several.systems[2].differences)
    assert undecided.startswith("near: not decided")
    assert f"a difference of about {sizes} in four of five cases" in undecided
    assert same == "copy: the translations are those of the baseline"
    table = several.tabulate()
    column = table.heads.index("p, corrected")
    assert table.rows[1][column] == f"{several.systems[1].differences[0].p:.4f}"
    found = several.as_json()
    assert found["tests"] == {"resamples": 1000, "trials": 10_000, "seed": 12345}
    assert (found["references"], found["notes"]) == (1, several.notes)
    assert found["systems"][1]["scores"]["bleu"]["p"] == several.systems[1].differences[0].p


def test_a_seed_of_sacrebleu_is_taken_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = measure_differences(TEST_SET, [GOOD, POOR], ["ter"])
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert measure_differences(TEST_SET, [GOOD, POOR], ["ter"])[0][0].low != before[0][0].low
    assert compare_systems(TEST_SET, [GOOD, POOR], ["ter"]).notes[0].endswith("seed 7")
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert compare_systems(TEST_SET, [GOOD, POOR], ["ter"]).notes[0].endswith("no fixed seed")


def test_memory_for_the_draws_does_not_grow_with_the_test_set() -> None:
    count = 200_000
    lines = ["a b c d"] * count
    large = TestSet("large", lines, [lines])
    errors = np.arange(count) % 3 == 0, np.arange(count) % 3 == 1

    def count_errors(*arguments: Any) -> list[list[float]]:
        is_wrong = errors[arguments[2] == other]
        return np.stack([is_wrong, np.full(count, 4)], axis=1).astype(float).tolist()  # type: ignore[no-any-return]

    other = tuple(["a b c e"] * count)
    outputs = [SystemOutput("one", lines), SystemOutput("two", list(other))]
    tracemalloc.start()
    try:
        ((difference,),) = measure_differences(large, outputs, ["ter"], count=count_errors)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert difference.verdict == "not decided"
    assert peak < 200e6  # all resamples and trials would take 360 MB


@pytest.mark.parametrize("seed", ["abc", "-1", "1.5", ""])
def test_a_seed_that_is_no_number_is_refused(seed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(ConfigError, match=r"SACREBLEU_SEED = .* must be a whole number"):
        compare_systems(TEST_SET, [GOOD, POOR], ["ter"])
    with pytest.raises(ConfigError, match="SACREBLEU_SEED"):
        score_corpus(REFERENCES, REFERENCES, confidence=True)


def test_a_test_set_of_one_line_decides_nothing() -> None:
    one = TestSet("one", ["1"], [["one two three four five"]])
    outputs = [SystemOutput("right", ["one two three four five"]), SystemOutput("wrong", ["one two three five four"])]
    comparison = compare_systems(one, outputs)
    assert comparison.systems[1].verdict == "not decided"
    assert not any("would show a difference" in note for note in comparison.notes)  # nothing says how much scores vary


def test_intervals_that_overlap_are_no_contradiction() -> None:
    # The same lines are bad in both systems, and one system has one more mistake in each line.
    spoilt = [line if number % 2 else "zero" for number, line in enumerate(REFERENCES)]
    worse = [line.rsplit(" ", 1)[0] + " zero" for line in spoilt]
    comparison = compare_systems(TEST_SET, [SystemOutput("one", spoilt), SystemOutput("other", worse)], ["ter"])
    assert comparison.systems[1].verdict == "worse"
    assert any("may overlap where their difference is decided" in note for note in comparison.notes)
    assert not any("may overlap" in note for note in compare_systems(TEST_SET, [GOOD, POOR], ["ter"]).notes)


def test_few_lines_are_named() -> None:
    few = TestSet("few", TEST_SET.sources[:20], [REFERENCES[:20]])
    outputs = [SystemOutput(one.system, one.hypotheses[:20]) for one in (GOOD, POOR)]
    assert compare_systems(few, outputs, ["ter"]).notes[-1].startswith("fewer than 50 lines")


def test_a_verdict_names_metrics_that_disagree() -> None:
    comparison = compare_systems(TEST_SET, [GOOD, POOR])
    assert comparison.verdicts == ["poor against good: worse"]
    system = comparison.systems[1]
    undecided = replace(system.differences[2], p_bootstrap=0.2)
    mixed = replace(system, differences=[*system.differences[:2], undecided])
    assert mixed.verdict == "not decided (TER); worse (BLEU, chrF)"


def test_the_page_shows_what_was_found() -> None:
    comparison = compare_systems(TEST_SET, [GOOD, SystemOutput("<poor>", POOR.hypotheses)])
    page = render_comparison(
        [(comparison, analyse(comparison, count_words(REFERENCES, "13a")))], is_training_counted=True
    )
    assert "&lt;poor&gt; against good: worse" in page
    assert "<poor>" not in page
    assert "times in the training text" in page
    assert "60 lines, 1 reference each" in page
    assert "1,000 resamples; approximate randomisation: 10,000 trials; seed 12345" in page
    assert page.count("<article>") == 10
    assert "<mark>zero</mark>" in page


def test_files_of_the_same_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    outputs = []
    for system in (GOOD, POOR):
        path = tmp_path / system.system / "test.txt"
        path.parent.mkdir()
        path.write_text("".join(f"{line}\n" for line in system.hypotheses), encoding="utf-8", newline="\n")
        outputs.append(read_system_output(path, TEST_SET))
    comparison = compare_systems(TEST_SET, outputs, ["ter"])
    assert comparison.verdicts == [f"{tmp_path / 'poor' / 'test.txt'} against {tmp_path / 'good' / 'test.txt'}: worse"]
    page = render_comparison([(comparison, analyse(comparison))], is_training_counted=False)
    ends = [f"{Path(name) / 'test.txt'}</text>" for name in ("good", "poor")]
    assert [page.count(end) for end in ends] == [2, 2]  # of two charts, which may show the end of a path alone


def test_charts_of_many_systems_say_that_they_show_the_first_ones() -> None:
    outputs = [SystemOutput(f"number{number}", spoil(0.1, number)) for number in range(8)]
    comparison = compare_systems(TEST_SET, outputs, ["ter"])
    page = render_comparison([(comparison, analyse(comparison))], is_training_counted=False)
    assert ">BLEU by length, first 6 systems</text>" in page
    assert [page.count(f">number{number}</text>") for number in range(8)] == 6 * [2] + 2 * [0]
    assert "number7" in page  # in the tables


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
