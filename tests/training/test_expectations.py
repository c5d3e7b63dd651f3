from transduce.training.expectations import MEASURED_RUNS, expected_quality


def test_the_nearest_corpus_of_each_kind_is_named() -> None:
    said = expected_quality(7_000)
    assert said is not None
    for text in {run.text for run in MEASURED_RUNS}:
        nearest = min((run for run in MEASURED_RUNS if run.text == text), key=lambda run: abs(run.num_pairs - 7_000))
        assert f"{text}, {nearest.num_pairs:,} pairs" in said
        assert f"BLEU {nearest.bleu:g}, chrF {nearest.chrf:g}" in said
        assert said.count(text) == 1


def test_nothing_is_said_of_sizes_that_were_not_measured() -> None:
    assert expected_quality(0) is None
    assert expected_quality(10_000_000) is None
