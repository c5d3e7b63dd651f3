from collections.abc import Callable, Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from transduce.config import TextConfig
from transduce.doctor.checking import check_lines_and_pairs
from transduce.doctor.checks.duplicates import NearDuplicates
from transduce.doctor.checks.leakage import measure_leakage
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.filtering import Prospect, estimate_prospect, find_later_duplicates

NUM_LINES = 12
partners = st.lists(st.integers(-1, NUM_LINES - 1), min_size=NUM_LINES, max_size=NUM_LINES)


def make_near(partner: list[int]) -> NearDuplicates:
    """Lines with a partner, which has them as its own if it has no other."""
    found = np.array(partner)
    for row, other in enumerate(partner):
        if other >= 0 and found[other] < 0:
            found[other] = row
    return NearDuplicates(found >= 0, found)


@given(partners, partners)
def test_of_each_connected_group_the_first_stays(source: list[int], target: list[int]) -> None:
    near: Mapping[str, NearDuplicates] = {"source": make_near(source), "target": make_near(target)}
    is_near = near["source"].is_near & near["target"].is_near
    groups = [{row} for row in range(NUM_LINES)]
    for side in near.values():
        for row, other in enumerate(side.partner.tolist()):
            if is_near[row] and other >= 0 and is_near[other]:
                own, others = (next(group for group in groups if one in group) for one in (row, other))
                if own is not others:
                    own |= others
                    groups.remove(others)
    expected = sorted(row for group in groups for row in group if row != min(group))
    assert find_later_duplicates(near).tolist() == expected


def test_it_is_foreseen_what_training_keeps_and_filters_leave_out(
    read: Callable[..., Text], invented: Callable, vocabulary: Vocabulary
) -> None:
    pairs = invented(1000)
    pairs[3] = pairs[2]
    pairs[4] = pairs[4][0], ""
    pairs[5] = "Anna", "Anna"
    pairs[6] = f"{pairs[6][0]}\x07", pairs[6][1]
    pairs[7] = f"<b>{pairs[7][0]}</b>", f"<b>{pairs[7][1]}</b>"
    pairs[8] = pairs[7]
    text = read(pairs)
    validation = read([pairs[100], *invented(50, seed=2)], "validation")
    config = TextConfig()
    checked = check_lines_and_pairs([text, validation], vocabulary, config, lambda _: None)
    prospect = estimate_prospect(
        checked.findings, checked.near_duplicates, measure_leakage(text, validation), text, config
    )
    characters = sum(len(target) for _, target in pairs)
    assert prospect.num_kept == 995
    assert prospect.num_target_characters == round(0.995 * characters)
    # The pair that training keeps of two with markup; the copy is left out by training itself.
    assert {name: prospect.filters[name] for name in ("markup", "leakage")} == {"markup": 1, "leakage": 1}
    assert "copies" not in prospect.filters
    config = TextConfig(drop_duplicates=False, drop_copies=False)
    prospect = estimate_prospect(checked.findings, checked.near_duplicates, None, text, config)
    assert isinstance(prospect, Prospect)
    assert prospect.num_kept == 998
    assert {name: prospect.filters[name] for name in ("markup", "copies")} == {"markup": 2, "copies": 1}
    assert "leakage" not in prospect.filters
