"""Where systems differ: by length, by frequency of the words, by phrases, and sentence by sentence.

The questions are those of compare-mt (Neubig et al. 2019). Words are those that BLEU counts.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transduce.evaluation.scores import score_corpus
from transduce.evaluation.test_sets import SystemOutput, TestSet

LENGTH_LIMITS = (0, 10, 20, 30, 40, 60)
"""Fewest words of each class of lengths."""

FREQUENCY_LIMITS = (0, 1, 2, 5, 10, 100, 1000)
"""Lowest frequency of each class of words."""

MAX_PHRASE = 4
"""Words of the longest phrase that is counted, as in BLEU."""

MIN_LINES = 10
"""Fewest sentences of a class of lengths, and fewest words of a class of frequencies, that are scored."""


def split_words(lines: Iterable[str], tokenization: str) -> list[list[str]]:
    """The words of each line, as BLEU counts them with one of sacreBLEU's tokenisations."""
    tokenize = BLEU(tokenize=tokenization).tokenizer
    return [tokenize(line.rstrip()).split() for line in lines]


def count_words(lines: Iterable[str], tokenization: str) -> Counter[str]:
    """How often each word occurs in the lines, of which one at a time is in memory."""
    tokenize = BLEU(tokenize=tokenization).tokenizer
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(tokenize(line.rstrip()).split())
    return counts


@dataclass(frozen=True)
class ClassScores:
    """A figure of each system for every class that has enough cases."""

    names: Sequence[str]
    """Names of the classes, as in "10-19"."""
    counts: Sequence[int]
    """The number of cases in each class."""
    values: Sequence[Sequence[float]]
    """For each system, its figure in each class, from 0 to 100."""


def score_by_length(test_set: TestSet, outputs: Sequence[SystemOutput], tokenization: str) -> ClassScores:
    """BLEU of each system by the number of words in the first reference."""
    lengths = [len(words) for words in split_words(test_set.references[0], tokenization)]
    names, counts, values = [], [], []
    for name, low, high in _name_classes(LENGTH_LIMITS):
        lines = [index for index, length in enumerate(lengths) if low <= length < high]
        if len(lines) < MIN_LINES:
            continue
        first, *more = [[reference[index] for index in lines] for reference in test_set.references]
        names.append(name)
        counts.append(len(lines))
        hypotheses = ([output.hypotheses[index] for index in lines] for output in outputs)
        values.append(
            [
                score_corpus(own, first, ["bleu"], more_references=more, tokenization=tokenization)[0].value
                for own in hypotheses
            ]
        )
    return ClassScores(names, counts, list(zip(*values, strict=True)) if values else [() for _ in outputs])


def score_by_frequency(
    test_set: TestSet, outputs: Sequence[SystemOutput], tokenization: str, frequencies: Counter[str]
) -> ClassScores:
    """How well each system translates words of a class of frequencies: F1, the harmonic mean of precision and recall.

    A word is right as often as it occurs both in the translation and in the reference; of several references, in the
    one that shares the most words with the translation.

    Args:
        test_set: the sentences and their references.
        outputs: the translations.
        tokenization: decides what a word is.
        frequencies: how often each word occurs, in the training text for instance.
    """
    references = [split_words(one, tokenization) for one in test_set.references]
    classes = _name_classes(FREQUENCY_LIMITS)
    class_of = _find_class(FREQUENCY_LIMITS)
    right, found, expected = ([Counter[int]() for _ in outputs] for _ in range(3))
    for number, output in enumerate(outputs):
        for words, *given in zip(split_words(output.hypotheses, tokenization), *references, strict=True):
            counts = Counter(words)
            reference = _find_nearest(counts, [Counter(one) for one in given])
            for word, count in counts.items():
                found[number][class_of(frequencies[word])] += count
            for word, count in reference.items():
                expected[number][class_of(frequencies[word])] += count
            for word, count in (counts & reference).items():
                right[number][class_of(frequencies[word])] += count
    shown = [index for index in range(len(classes)) if expected[0][index] >= MIN_LINES]
    return ClassScores(
        [classes[index][0] for index in shown],
        [expected[0][index] for index in shown],
        [
            [200 * right[number][one] / max(1, found[number][one] + expected[number][one]) for one in shown]
            for number in range(len(outputs))
        ],
    )


def _find_nearest(words: Counter[str], references: Sequence[Counter[str]]) -> Counter[str]:
    """The reference that shares the most words with a translation."""
    return max(references, key=lambda one: (words & one).total())


def _name_classes(limits: Sequence[int]) -> list[tuple[str, int, float]]:
    """Name, lowest value and first value beyond each class of numbers from each limit to below the next."""
    # Short names, as in "10-19" and "1000+", fit below the bars of a chart.
    bounded = [
        (f"{low}" if high == low + 1 else f"{low}-{high - 1}", low, float(high)) for low, high in pairwise(limits)
    ]
    return [*bounded, (f"{limits[-1]}+", limits[-1], float("inf"))]


def _find_class(limits: Sequence[int]) -> Callable[[int], int]:
    return lambda value: sum(value >= limit for limit in limits) - 1


@dataclass(frozen=True)
class PhraseDifference:
    """A phrase of the references that one system has right more often than the other."""

    phrase: str
    baseline: int
    """How often the baseline's translation of a sentence has the phrase where the reference has it."""
    value: int
    """The same of the other system."""
    total: int
    """Number of occurrences of the phrase in the references; where a sentence has several, in the one with the most."""


MAX_PHRASES = 10
"""Phrases that are shown of each kind."""


def find_phrase_differences(
    test_set: TestSet, baseline: SystemOutput, output: SystemOutput, tokenization: str
) -> tuple[list[PhraseDifference], list[PhraseDifference]]:
    """The phrases of one to four words that the system has right more often than the baseline, and less often.

    Each list has at most `MAX_PHRASES`. Of phrases that contain each other and have equal counts, the longest is shown.
    """
    references = [split_words(one, tokenization) for one in test_set.references]
    translations = [split_words(one.hypotheses, tokenization) for one in (baseline, output)]
    totals: Counter[tuple[str, ...]] = Counter()
    rights: tuple[Counter[tuple[str, ...]], ...] = (Counter(), Counter())
    for index, (first, *more) in enumerate(zip(*references, strict=True)):
        expected = _count_phrases(first)
        for words in more:
            expected |= _count_phrases(words)
        totals.update(expected)
        for right, lines in zip(rights, translations, strict=True):
            right.update(expected & _count_phrases(lines[index]))
    gains = Counter({phrase: rights[1][phrase] - rights[0][phrase] for phrase in totals})

    def choose(sign: int) -> list[PhraseDifference]:
        ranked = sorted(gains, key=lambda phrase: (-sign * gains[phrase], -len(phrase), phrase))
        chosen: list[tuple[str, ...]] = []
        for phrase in ranked:
            if sign * gains[phrase] < 2 or len(chosen) == MAX_PHRASES:
                break
            if not any(gains[one] == gains[phrase] and _contains(one, phrase) for one in chosen):
                chosen.append(phrase)
        return [PhraseDifference(" ".join(one), rights[0][one], rights[1][one], totals[one]) for one in chosen]

    return choose(1), choose(-1)


def _count_phrases(words: Sequence[str]) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + length])
        for length in range(1, MAX_PHRASE + 1)
        for start in range(len(words) - length + 1)
    )


def _contains(phrase: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(phrase[start : start + len(part)] == part for start in range(len(phrase) - len(part) + 1))


@dataclass(frozen=True)
class SentenceDifference:
    """A sentence that two systems translate differently well."""

    line: int
    """The number of the line in the test set, from 1."""
    source: str
    references: Sequence[str]
    baseline: str
    output: str
    baseline_score: float
    """chrF of the baseline's translation of this sentence."""
    score: float
    """chrF of the system's translation."""


def find_sentence_differences(
    test_set: TestSet, baseline: SystemOutput, output: SystemOutput, max_count: int = 10
) -> tuple[list[SentenceDifference], list[SentenceDifference]]:
    """The sentences with the largest gains of the system over the baseline, and with the largest losses, in chrF."""
    scorer = CHRF()
    found = []
    for index, source in enumerate(test_set.sources):
        references = [one[index] for one in test_set.references]
        texts = baseline.hypotheses[index], output.hypotheses[index]
        if texts[0] != texts[1]:
            scores = [float(scorer.sentence_score(text, references).score) for text in texts]
            found.append(SentenceDifference(index + 1, source, references, *texts, *scores))
    found.sort(key=lambda one: one.baseline_score - one.score)
    better = [one for one in found[:max_count] if one.score > one.baseline_score]
    worse = [one for one in reversed(found[-max_count:]) if one.score < one.baseline_score]
    return better, worse


def mark_shared(translation: str, references: Sequence[str]) -> list[tuple[str, bool]]:
    """A translation in pieces, each with whether it also occurs in a reference, in the same order.

    Of several references, it is the one that shares the most characters with the translation.
    """
    marked = [_mark_shared(translation, reference) for reference in references]
    return max(marked, key=lambda pieces: sum(len(text) for text, is_shared in pieces if is_shared))


def _mark_shared(translation: str, reference: str) -> list[tuple[str, bool]]:
    # Words, and what is between them; single characters if the reference has no spaces.
    found, expected = (
        re.findall(r"\w+|\W", text) if " " in reference else list(text) for text in (translation, reference)
    )
    pieces, behind = [], 0
    for block in SequenceMatcher(None, found, expected, autojunk=False).get_matching_blocks():
        same = "".join(found[block.a : block.a + block.size])
        pieces += [("".join(found[behind : block.a]), False), (same, bool(same.strip()))]
        behind = block.a + block.size
    return [(text, is_shared) for text, is_shared in pieces if text]
