"""Test sets, each with one or more human translations, and the translations of systems that are measured on them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from transduce.errors import CorpusError, UserError
from transduce.pages import format_count
from transduce.text import ParallelCorpus, open_parallel_corpus, read_lines, split_name
from transduce.translation import Translator


@dataclass(frozen=True)
class TestSet:
    """Sentences with human translations of each."""

    __test__: ClassVar = False  # no test of pytest

    name: str
    """What the test set is called in reports: the name of the file with the sources, without its endings. If two test
    sets would be called the same, with them; if that does not help, the path of the file."""
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    """One sequence for each human translator, line for line."""

    def describe_blank_references(self) -> list[str]:
        """A message for each translator who left lines blank that the sources have; usually none."""
        messages = []
        for number, lines in enumerate(self.references, start=1):
            pairs = enumerate(zip(self.sources, lines, strict=True), start=1)
            blank = [line for line, (source, reference) in pairs if source.strip() and not reference.strip()]
            if blank:
                which = f"reference {number}" if len(self.references) > 1 else "the reference"
                messages.append(
                    f"{self.name}: {which} is blank in {format_count(len(blank), 'line')} of {len(lines):,} (the first "
                    f"is line {blank[0]:,}), which makes scores worse: complete it, or leave these lines out everywhere"
                )
        return messages


@dataclass(frozen=True)
class SystemOutput:
    """The translations of a test set by one system: a model, or any other, of which there is only a file."""

    system: str
    hypotheses: Sequence[str]
    """One translation for each source, in their order."""
    beam: int | None = None
    """Hypotheses that the search kept for each sentence; None for translations from a file."""
    seconds: float | None = None
    """Time that the translation took, without loading the model; None for translations from a file."""


def read_test_sets(sources: Sequence[Path], references: Sequence[Path]) -> list[TestSet]:
    """Read test sets, one for each file of sources.

    Args:
        sources: files of sentences, one per line.
        references: files of human translations, line for line, as many for each file of sources: with two files of
            sources and four of references, the first two belong to the first one.

    Raises:
        UserError: the references cannot be divided among the sources.
        CorpusError: a file is missing or empty, is not UTF-8, or differs from its sources in the number of lines; or
            there is no text in a reference.
    """
    if not sources or not references or len(references) % len(sources):
        raise UserError(
            f"{len(sources)} source and {len(references)} reference files: give at least one reference for each "
            "source, and the same number for each"
        )
    count = len(references) // len(sources)
    groups = [references[start : start + count] for start in range(0, len(references), count)]
    names = _name_files(sources)
    return [_read_test_set(*given) for given in zip(names, sources, groups, strict=True)]


def read_paired_test_sets(
    paths: Sequence[Path], columns: tuple[str, str] | None = None, languages: tuple[str, str] = ("", "")
) -> list[TestSet]:
    """Read test sets with one reference, each from a file with both sides.

    Args:
        paths: files in any of the formats of training text.
        columns: what they call source and reference; by default as for training text.
        languages: codes of source and target, which tell them apart where there are no `columns`.

    Raises:
        UserError: two of them are the same.
        CorpusError, ConfigError: a file is missing or empty or breaks its format, or does not say which side is which;
            or there is no text in a reference.
    """
    test_sets = []
    for name, path in zip(_name_files(paths), paths, strict=True):
        corpus = open_parallel_corpus(
            Path(), None, None, str(path), columns, languages, setting="--columns", has_direction=True
        )
        sources, references = _read_sides(corpus, path)
        test_sets.append(TestSet(name, sources, [references]))
    return test_sets


def _read_test_set(name: str, source: Path, references: Sequence[Path]) -> TestSet:
    read: list[tuple[str, ...]] = []
    sources: tuple[str, ...] = ()
    for path in references:
        sources, lines = _read_sides(open_parallel_corpus(Path(), str(source), str(path), None, None), path)
        read.append(lines)
    return TestSet(name, sources, read)


def _read_sides(corpus: ParallelCorpus, path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sources and references, which are in the file `path`."""
    corpus.check()
    sources, references = zip(*corpus, strict=True)
    if not any(map(str.strip, references)):
        raise CorpusError(f"{path}: the reference is blank; there is nothing to score")
    return sources, references


def _name_files(paths: Sequence[Path]) -> list[str]:
    """The file names without their last extensions, unless these are needed to tell the files apart."""
    parts = [split_name(path) for path in paths]
    plain = [f"{stem}{ending}" for stem, ending, _ in parts]
    for names in ([stem for stem, _, _ in parts], plain, list(map(str, paths))):
        if len(set(names)) == len(names):
            return names
    raise UserError(f"{', '.join(map(str, paths))}: the same test set is given twice")


def translate_test_set(
    translator: Translator, system: str, test_set: TestSet, *, beam: int | None = None
) -> SystemOutput:
    """Translate the sources of a test set; `beam` is the model's own unless given."""
    started = time.perf_counter()
    hypotheses = translator.translate(test_set.sources, beam=beam)
    seconds = time.perf_counter() - started
    return SystemOutput(system, hypotheses, translator.search.beam if beam is None else beam, seconds)


def read_system_output(path: Path, test_set: TestSet) -> SystemOutput:
    """Read the translations of a test set from a file, one per line. The name of the system is the path.

    Raises:
        CorpusError: the file cannot be read, or has another number of lines than the test set.
    """
    hypotheses = list(read_lines(path))
    if len(hypotheses) != len(test_set.sources):
        raise CorpusError(
            f"{path}: {len(hypotheses):,} lines, but the test set {test_set.name} has {len(test_set.sources):,}: give "
            "one translation for each line of its source"
        )
    return SystemOutput(str(path), hypotheses)
