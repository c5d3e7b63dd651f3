"""The examination of a parallel corpus: all checks, one after the other, and what they found."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.data.input_files import open_untagged_corpus, spool_standard_input
from transduce.doctor.checks.coverage import Coverage, find_unknown_words, measure_coverage
from transduce.doctor.checks.duplicates import NearDuplicates
from transduce.doctor.checks.languages import (
    MAX_SENTENCES,
    LanguageShares,
    ScriptShares,
    find_wrong_languages,
    find_wrong_scripts,
    measure_languages,
    measure_scripts,
    name_language,
)
from transduce.doctor.checks.leakage import Leakage, measure_leakage
from transduce.doctor.checks.lengths import LengthFigures, measure_lengths
from transduce.doctor.checks.tokenization import (
    MAX_TOKENIZED_PAIRS,
    Tokenization,
    find_bad_tokenization,
    measure_tokenization,
    open_tokenizer,
)
from transduce.doctor.corpus.reading import open_unequal_corpus, read_corpora
from transduce.doctor.corpus.texts import Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.filtering import TrainingEstimate, estimate_training, judge_sample
from transduce.doctor.findings import Finding, sort_reported_findings
from transduce.doctor.line_and_pair_checks import SEARCHES, CheckResults, check_lines_and_pairs
from transduce.doctor.pairing import PairingResult
from transduce.errors import ConfigError
from transduce.pages import sample_randomly
from transduce.text import ParallelCorpus, Tokenizer
from transduce.text.languages import load_language_identifier, simplify_code


@dataclass(frozen=True)
class TextFigures:
    """What was measured of one text, whether or not anything is wrong."""

    text: Text
    lengths: LengthFigures
    scripts: list[ScriptShares]
    languages: list[LanguageShares]
    """Empty if py3langid is not installed."""
    tokenizer: str
    """Which tokenizer was used."""
    tokenization: list[Tokenization]
    """Empty if there is no text to train a tokenizer from."""
    pairing: PairingResult
    coverage: list[Coverage]
    """For each side, the share of words that the training text has, too; empty for the training text itself."""
    leakage: Mapping[str, Leakage]
    """Pairs that this text shares with another, by the name of the other text."""
    near_duplicates: Mapping[str, NearDuplicates]
    """Lines that are nearly the same as another line, by side; only for the training text."""


@dataclass(frozen=True)
class Examination:
    """What was found out about a parallel corpus."""

    findings: tuple[Finding, ...]
    """Serious findings before minor ones; within each group, findings about the most pairs first."""
    figures: tuple[TextFigures, ...]
    """Figures of the training text, and of validation and test text if there are any."""
    training_estimate: TrainingEstimate
    """How many pairs training keeps, and how many filters would leave out."""
    remarks: tuple[str, ...]
    """What was not checked, and why; and what in the files is not a pair."""
    pairs: Mapping[tuple[str, int], tuple[str, str]]
    """The lines of the pairs of all samples, by `PairReference.key`."""

    @property
    def is_serious(self) -> bool:
        """Whether there are serious findings."""
        return any(finding.severity == "serious" for finding in self.findings)


def examine_corpus(
    data: DataConfig,
    config: TextConfig,
    test: CorpusConfig | None = None,
    *,
    standard_input: BinaryIO | None = None,
    report: Callable[[str], None],
) -> Examination:
    """Examine the text of a run before it is trained on; nothing is written.

    A million pairs of 18 words take about two minutes of one processor core, and 1 GB of memory.

    Args:
        data: the training and validation text, as `transduce train` takes it.
        config: the tokenizer and the rules of cleaning.
        test: test text.
        standard_input: what `data.pairs = "-"` reads.
        report: receives messages about progress, one sentence each.

    Raises:
        CorpusError: a file cannot be read, is not UTF-8 or breaks its format.
        ConfigError: no training text is given.
        UserError: the tokenizer cannot be read.
    """
    if not data.training_corpora:
        raise ConfigError("no parallel text: give --source and --target, or --pairs, or a recipe with data.corpora")
    with _spool(data, standard_input) as spooled:
        given = {"training": data.training_corpora}
        given |= {
            name: (corpus,) for name, corpus in (("validation", data.validation_corpus), ("test", test)) if corpus
        }
        vocabulary = Vocabulary()
        texts = []
        for name, corpora in given.items():
            report(f"reading the {name} text")
            opened = [
                ("standard input" if corpus.pairs == "-" else corpus.name, _open(data, corpus, spooled, name))
                for corpus in corpora
            ]
            texts.append(read_corpora(name, opened, vocabulary, SEARCHES))
        vocabulary.forget_spellings()
        return _Examiner(data, config, texts, vocabulary, report).examine()


def _open(data: DataConfig, config: CorpusConfig, spooled: Path | None, text_name: str) -> ParallelCorpus:
    """A corpus as people wrote it: without its tag, and read to the end if one of two texts is shorter."""
    setting = {"validation": "data.validation_columns", "test": "--test-columns"}.get(text_name)
    return open_unequal_corpus(open_untagged_corpus(data, config, spooled, setting))


@contextmanager
def _spool(data: DataConfig, standard_input: BinaryIO | None) -> Iterator[Path | None]:
    """A temporary file with what `data` reads from standard input; None if it reads nothing from there."""
    if data.pairs != "-":
        yield None
        return
    with (
        TemporaryDirectory(prefix="transduce-doctor-") as folder,
        spool_standard_input(standard_input, Path(folder)) as path,
    ):
        yield path


class _Examiner:
    """Runs all checks.

    Args:
        data: the text's settings.
        config: the tokenizer and the rules of cleaning.
        texts: the training text first.
        vocabulary: the words of all.
        report: receives messages about progress.
    """

    def __init__(
        self,
        data: DataConfig,
        config: TextConfig,
        texts: Sequence[Text],
        vocabulary: Vocabulary,
        report: Callable[[str], None],
    ) -> None:
        self._data = data
        self._config = config
        self._texts = list(texts)
        self._training = texts[0]
        self._vocabulary = vocabulary
        self._report = report
        self._findings: list[Finding] = []

    def examine(self) -> Examination:
        """Run all checks."""
        checked = check_lines_and_pairs(self._texts, self._vocabulary, self._config, self._report)
        self._findings += checked.findings
        self._report("looking at languages, words and pieces")
        samples = [text.fetch_pairs(sample_randomly(range(len(text)), MAX_TOKENIZED_PAIRS)) for text in self._texts]
        tokenizer, description = open_tokenizer(self._config, samples[0], len(self._training))
        figures = tuple(
            self._measure(text, sample, (tokenizer, description), checked, number)
            for number, (text, sample) in enumerate(zip(self._texts, samples, strict=True))
        )
        findings = sort_reported_findings(self._findings)
        validation = next((text for text in self._texts if text.name == "validation"), None)
        leakage = None if validation is None else measure_leakage(self._training, validation)
        judged = judge_sample(samples[0], tokenizer, self._config)
        training_estimate = estimate_training(
            self._findings, checked.near_duplicates, leakage, self._training, self._config, judged
        )
        return Examination(findings, figures, training_estimate, self._make_remarks(figures), _fetch(findings))

    def _measure(
        self,
        text: Text,
        sample: Mapping[int, tuple[str, str]],
        tokenizer: tuple[Tokenizer | None, str],
        checked: CheckResults,
        number: int,
    ) -> TextFigures:
        is_left_out = text.is_exact_copy & (text is self._training and self._config.drop_copies)
        some = sample_randomly([row for row in sample if not is_left_out[row]], MAX_SENTENCES)
        few = [(row, sample[row]) for row in some]
        languages = measure_languages(text, few, self._data.languages)
        scripts = measure_scripts(text, self._vocabulary)
        self._findings += find_wrong_languages(text, languages)
        self._findings += find_wrong_scripts(text, scripts, self._data.languages, languages)
        tokenization = measure_tokenization(text, sample, tokenizer[0], self._config)
        self._findings += find_bad_tokenization(text, tokenization)
        coverage = []
        if text is not self._training:
            coverage = [measure_coverage(text, self._training, side, self._vocabulary) for side in text.sides]
            for one in coverage:
                self._findings += find_unknown_words(text, one, self._training, self._vocabulary)
        return TextFigures(
            text=text,
            lengths=measure_lengths(text),
            scripts=scripts,
            languages=languages,
            tokenizer=tokenizer[1],
            tokenization=tokenization,
            pairing=checked.pairings[number],
            coverage=coverage,
            leakage=checked.leakage[text.name],
            near_duplicates=checked.near_duplicates if text is self._training else {},
        )

    def _make_remarks(self, figures: Sequence[TextFigures]) -> tuple[str, ...]:
        remarks = []
        if load_language_identifier() is None:
            remarks.append("languages were not identified: pip install 'transduce[data]'")
        for one in figures:
            remarks += self._list_unjudged_languages(one)
            if one.pairing.agreement is None:
                remarks.append(
                    f"whether the single pairs of the {one.text.name} text belong together was not judged, and no "
                    "shift of lines was looked for: it has too little text, too few of its words tell, or too many of "
                    "its pairs are wrong"
                )
        for text in self._texts:
            omissions = {part.name: part.corpus.describe_omissions() for part in text.parts}
            remarks += [f"{name}: {omission}" for name, omission in omissions.items() if omission]
        if len(self._texts) == 1:
            remarks.append(
                "no validation or test text was given: what training holds out of its own text is easier than new text"
            )
        return tuple(remarks)

    def _list_unjudged_languages(self, figures: TextFigures) -> Iterator[str]:
        """A sentence for each side whose language the settings name, if the text does not tell whether it is right."""
        known = {*load_language_identifier().labels} if figures.languages else set()
        for one, scripts in zip(figures.languages, figures.scripts, strict=False):
            code = simplify_code(one.declared)
            if code and not one.is_judged and scripts.find_wrong_script(one.declared) is None:
                reason = "too few of its sentences tell" if code in known else "py3langid does not know that language"
                if one.has_several_languages:
                    reason = "corpora with different tags are in different languages"
                place = f"the {one.side}s of the {figures.text.name} text"
                yield f"whether {place} are in {name_language(code)} was not judged: {reason}"


def _fetch(findings: Sequence[Finding]) -> dict[tuple[str, int], tuple[str, str]]:
    """The pairs of all samples, by reading each text once."""
    references = [pair for finding in findings for sample in finding.shown_samples for pair in sample]
    fetched: dict[tuple[str, int], tuple[str, str]] = {}
    for text in {reference.text.name: reference.text for reference in references}.values():
        indices = [reference.index for reference in references if reference.text is text]
        fetched |= {(text.name, index): pair for index, pair in text.fetch_pairs(indices).items()}
    return fetched
