"""The screening of training text: what the doctor finds without a tokenizer, and the pairs that filters leave out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import numpy as np

from transduce.config import FilterName, TextConfig
from transduce.doctor.checks.languages import find_wrong_languages, measure_languages
from transduce.doctor.checks.leakage import measure_leakage
from transduce.doctor.corpus.reading import read_corpora
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.filtering import LEAKAGE_FILTERS, Rows, find_filtered
from transduce.doctor.findings import Finding, sort_reported_findings
from transduce.doctor.line_and_pair_checks import SEARCHES, check_lines_and_pairs
from transduce.errors import ConfigError, MissingExtraError
from transduce.text import ParallelCorpus
from transduce.text.languages import load_language_identifier

MIN_PAIRS = 1_000
"""Pairs of the smallest text that is screened without filters: of fewer, little can be said."""

MAX_SCREENED_PAIRS = 1_000_000
"""Pairs that are screened without filters, the first ones: they take two minutes and 1 GB of memory."""


@dataclass(frozen=True)
class Screening:
    """What was found in training text."""

    findings: tuple[Finding, ...]
    """As `transduce doctor` reports them; those about languages, pieces and unknown words are missing."""
    filtered: Mapping[str, Rows]
    """The pairs that each filter leaves out, by their indices through all corpora."""


def screen_text(
    training: Sequence[tuple[str, ParallelCorpus]],
    validation: tuple[str, ParallelCorpus] | None,
    config: TextConfig,
    filters: Sequence[FilterName] = (),
    languages: tuple[str, str] = ("", ""),
    *,
    report: Callable[[str], None],
) -> Screening:
    """Check the lines and pairs of training text, and choose the pairs that filters leave out.

    Without filters, only the first `MAX_SCREENED_PAIRS` pairs are checked, and a text of less than `MIN_PAIRS` is not.

    Args:
        training: the corpora, each with the name of its files.
        validation: validation text, if it is not held out.
        config: the rules of cleaning.
        filters: names of findings whose pairs are left out.
        languages: codes of the source and the target language, "" if unknown, for the filter `other_language`.
        report: receives messages about progress, one sentence each.

    Raises:
        ConfigError: a filter compares with validation text, and there is none.
        CorpusError: a file cannot be read, is not UTF-8 or breaks its format.
        MissingExtraError: `other_language` is a filter, and py3langid is not installed.
    """
    if "other_language" in filters and load_language_identifier() is None:
        raise MissingExtraError("py3langid", "data", 'the filter "other_language" in data.filters')
    if validation is None and (unused := LEAKAGE_FILTERS & set(filters)):
        raise ConfigError(
            f"data.filters: {', '.join(sorted(unused))}: compares training text with validation text, and none is "
            "given: give data.validation_source and data.validation_target, or leave it out"
        )
    if not training:
        return Screening((), {name: np.zeros(0, np.int64) for name in filters})
    vocabulary = Vocabulary()
    report("looking at the training text")
    read = read_corpora("training", training if filters else list(_take_first(training)), vocabulary, SEARCHES)
    if len(read) < MIN_PAIRS and not filters:
        return Screening((), {})
    texts = [read, *([read_corpora("validation", [validation], vocabulary, SEARCHES)] if validation else [])]
    vocabulary.forget_spellings()
    checked = check_lines_and_pairs(texts, vocabulary, config, lambda _: None)
    findings = list(checked.findings)
    if "other_language" in filters:
        pairs = enumerate(chain.from_iterable(part.corpus for part in read.parts))
        kept = (one for one in pairs if not (config.drop_copies and read.is_exact_copy[one[0]]))
        findings += find_wrong_languages(read, measure_languages(read, kept, languages))
    leakage = measure_leakage(read, texts[1]) if validation and LEAKAGE_FILTERS & {*filters} else None
    filtered: dict[str, Rows] = {
        name: find_filtered(name, findings, checked.near_duplicates, leakage, read) for name in filters
    }
    return Screening(sort_reported_findings(checked.findings), filtered)


def _take_first(corpora: Sequence[tuple[str, ParallelCorpus]]) -> Iterator[tuple[str, ParallelCorpus]]:
    """The corpora up to `MAX_SCREENED_PAIRS` pairs."""
    left = MAX_SCREENED_PAIRS
    for name, corpus in corpora:
        if left <= 0:
            return
        yield name, replace(corpus, read=partial(_read_first, corpus, left))
        left -= sum(1 for _ in islice(corpus, left))


def _read_first(corpus: ParallelCorpus, count: int) -> Iterator[tuple[str, str]]:
    return islice(corpus, count)
