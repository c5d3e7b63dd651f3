"""The checks of all lines and pairs of a text, which need no tokenizer, one after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transduce.config import TextConfig
from transduce.doctor.checks.duplicates import (
    NearDuplicates,
    find_duplicates,
    find_near_duplicates,
    find_near_lines,
    find_several_counterparts,
)
from transduce.doctor.checks.encoding import (
    LINE_SEARCHES,
    find_carriage_returns,
    find_mixed_normal_forms,
    find_quoted_lines,
    find_unwanted_characters,
)
from transduce.doctor.checks.languages import find_other_scripts
from transduce.doctor.checks.leakage import Leakage, find_leakage, measure_leakage
from transduce.doctor.checks.lengths import find_blank_lines, find_unequal_files, find_unusual_ratios
from transduce.doctor.checks.letter_case import classify_case, find_changes_of_case
from transduce.doctor.checks.surface import PAIR_SEARCHES, classify_ending, find_surface_differences
from transduce.doctor.corpus.reading import Searches
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import Finding
from transduce.doctor.pairing import PairingResult, check_pairing
from transduce.doctor.pairing.sides import find_misplaced_lines, measure_sides

SEARCHES = Searches(LINE_SEARCHES, PAIR_SEARCHES, classify_ending, classify_case)
"""What the checks need to know of the characters of a text."""


@dataclass(frozen=True)
class CheckResults:
    """What the checks of lines and pairs found, which need no sample and no tokenizer."""

    findings: tuple[Finding, ...]
    """All findings, slight ones included."""
    pairings: tuple[PairingResult, ...]
    """For each text, which of its pairs belong together."""
    leakage: Mapping[str, Mapping[str, Leakage]]
    """By the name of each text and the name of a text before it, the pairs of the first that the second has, too."""
    near_duplicates: Mapping[str, NearDuplicates]
    """The lines of each side of the training text that are nearly the same as another line, by the name of the side."""


def check_lines_and_pairs(
    texts: Sequence[Text], vocabulary: Vocabulary, config: TextConfig, report: Callable[[str], None]
) -> CheckResults:
    """Look at every line and at every pair.

    Args:
        texts: the training text first.
        vocabulary: the words of all.
        config: the rules of cleaning.
        report: receives messages about progress.
    """
    report("looking at characters, lengths, numbers and repetitions")
    training = texts[0]
    findings: list[Finding] = []
    for text in texts:
        for found in (
            find_carriage_returns(text),
            find_quoted_lines(text),
            find_unequal_files(text),
            find_unwanted_characters(text, vocabulary),
            find_blank_lines(text),
            find_unusual_ratios(text),
            find_duplicates(text, config),
            find_several_counterparts(text),
            find_surface_differences(text, training, vocabulary, config),
            find_other_scripts(text, training, vocabulary, config),
            find_changes_of_case(text),
        ):
            findings += found
    findings += find_mixed_normal_forms(list(texts), vocabulary)
    near = {name: find_near_lines(side) for name, side in training.sides.items()}
    findings += find_near_duplicates(training, near)
    leakage: dict[str, dict[str, Leakage]] = {}
    for number, text in enumerate(texts):
        leakage[text.name] = {other.name: measure_leakage(text, other) for other in texts[:number]}
        for other in texts[:number]:
            findings += find_leakage(text, other, leakage[text.name][other.name])
    report("looking for lines that do not belong together")
    pairings: list[PairingResult] = []
    for text in texts:
        sides = measure_sides(text, training, vocabulary)
        findings += find_misplaced_lines(text, sides)
        learned = pairings[0].agreement if pairings else None
        pairings.append(check_pairing(text, learned, vocabulary, sides.is_swapped))
        findings += pairings[-1].findings
    return CheckResults(tuple(findings), tuple(pairings), leakage, near)
