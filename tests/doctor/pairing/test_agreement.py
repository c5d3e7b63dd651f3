import random
from collections.abc import Callable

import numpy as np
import pytest

from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.pairing.agreement import (
    MAX_LOG_RATIO,
    learn_agreement,
    measure_relatedness,
    transfer_agreement,
)


def test_translations_and_unrelated_lines_are_far_apart(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    text = read(invented(2000))
    relatedness = measure_relatedness(text)
    assert relatedness.num_stretches == 2
    assert relatedness.source_rows.tolist() == relatedness.target_rows.tolist() == [*range(2000)]
    agreement = learn_agreement(text, relatedness, vocabulary)
    assert agreement is not None
    assert agreement.is_reliable
    evidence = agreement.compute_log_ratio(np.array([10.0, np.median(agreement.unrelated), np.nan]))
    assert evidence[0] == MAX_LOG_RATIO
    assert evidence[1] < 0
    assert np.isnan(evidence[2])
    middle = np.median(agreement.unrelated) + agreement.distance / 2
    assert agreement.compute_log_ratio(np.array([middle])) == pytest.approx(0)


def test_blank_lines_between_pairs_are_passed_over(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    text = read([line for pair in invented(1000) for line in (pair, ("", ""))])
    relatedness = measure_relatedness(text)
    assert relatedness.source_rows.tolist() == relatedness.target_rows.tolist() == [*range(0, 2000, 2)]
    agreement = learn_agreement(text, relatedness, vocabulary)
    assert agreement is not None
    assert agreement.is_reliable


def test_shifted_lines_are_related(read: Callable[..., Text], invented: Callable) -> None:
    sources, targets = zip(*invented(2000), strict=True)
    relatedness = measure_relatedness(read(list(zip(sources[3:], targets[:-3], strict=True))))
    assert (relatedness.target_rows - relatedness.source_rows).tolist() == [3] * len(relatedness.source_rows)
    assert len(relatedness.source_rows) > 1900


def test_from_unrelated_lines_nothing_is_learned(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    sources, targets = zip(*invented(1500), strict=True)
    text = read(list(zip(sources, random.Random(1).sample(targets, len(targets)), strict=True)))  # noqa: S311 - nothing here is secret
    relatedness = measure_relatedness(text)
    assert relatedness.num_stretches == 2
    assert not len(relatedness.source_rows)
    assert learn_agreement(text, relatedness, vocabulary) is None


@pytest.mark.parametrize("pairs", [[("a", "b")] * 10, [("ja", "yes"), ("nein", "no")] * 300])
def test_too_little_text_teaches_nothing(
    read: Callable[..., Text], vocabulary: Vocabulary, pairs: list[tuple[str, str]]
) -> None:
    text = read(pairs)
    assert learn_agreement(text, measure_relatedness(text), vocabulary) is None


def test_what_was_learned_judges_other_text(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    training, test = read(invented(2000)), read(invented(400, seed=2), "test")
    learned = learn_agreement(training, measure_relatedness(training), vocabulary)
    assert learned is not None
    agreement = transfer_agreement(learned, test, measure_relatedness(test))
    assert agreement is not None
    assert len(agreement.related) > 380
    assert agreement.is_reliable
