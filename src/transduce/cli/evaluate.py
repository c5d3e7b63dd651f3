"""`transduce evaluate` and `transduce compare`: scores of translations, and whether systems differ."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, ClassVar

from cyclopts import Parameter

from transduce.cli.console import print_json, print_message
from transduce.cli.corpus_options import is_in_one_file
from transduce.cli.translation_options import EngineFlags, name_flags_in_errors
from transduce.errors import UserError
from transduce.evaluation import (
    COMPARISON_PAGE,
    Comparison,
    Score,
    SystemOutput,
    TestSet,
    analyse,
    check_tokenization,
    compare_systems,
    count_words,
    format_scores,
    read_paired_test_sets,
    read_system_output,
    read_test_sets,
    render_comparison,
    score_corpus,
    translate_test_set,
)
from transduce.evaluation.comet import CometScorer, summarize_lines
from transduce.interop import read_languages
from transduce.pages import format_columns, format_count
from transduce.storage import check_output_file, write_output_file
from transduce.text import choose_tokenization, read_lines

_ENGINE_FLAGS = EngineFlags()

MIN_CHRF_OF_GOOD_LINES = 50
"""From this chrF on, a message explains a BLEU of 0: the translations cannot be as bad as that."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TestSetFlags:
    """The test sets, and how they are translated and scored.

    Args:
        source: the text to translate, one sentence per line, required without --pairs; given several times, as many
            test sets.
        reference: human translations, line for line, neither tokenised nor lower-cased. Given several times for one
            source, several references; for several sources, first those of the first source, and equally many for each.
        pairs: instead of both: a file with source and reference, in any of the formats of training text; given several
            times, as many test sets.
        columns: what the file of --pairs calls source and reference, as in en de. Default: as for training text,
            by the languages of the first model.
        beam: hypotheses kept for each sentence; 1 is greedy. Default: the model's setting.
        tokenize: how BLEU splits text into words: 13a, intl, char or zh; or none, for a model trained on tokenised
            text. With char or zh, TER splits Chinese characters, too. Default: zh for Chinese, char for other scripts
            without spaces between words, else 13a.
        comet: a checkpoint of COMET on this disk (model.ckpt), by which translations are scored, too, with the command
            comet-score; nothing is downloaded. Of several references, it takes the first one.
    """

    __test__: ClassVar = False  # no test of pytest
    source: Annotated[list[Path] | None, Parameter(negative=())] = None
    reference: Annotated[list[Path] | None, Parameter(negative=())] = None
    pairs: Annotated[list[Path] | None, Parameter(negative=())] = None
    columns: tuple[str, str] | None = None
    beam: int | None = None
    tokenize: str | None = None
    comet: Path | None = None

    def find_comet(self) -> CometScorer | None:
        """COMET, if it is asked for."""
        return None if self.comet is None else CometScorer.find(self.comet)

    def read(self, systems: Sequence[Path]) -> list[TestSet]:
        """The test sets; see `read_test_sets`. An unknown tokenisation is refused before anything is read.

        Blank references are reported.

        The languages of the first model among `systems` tell the sides of `pairs` apart where there are no `columns`.

        Raises:
            BundleError: there is no model.
            UserError: files are missing, or given in both ways.
        """
        if self.tokenize is not None:
            check_tokenization(self.tokenize)
        if is_in_one_file(self.source, self.reference, self.pairs, self.columns, name="--reference"):
            model = next((system for system in systems if not system.is_file()), None)
            languages = ("", "") if model is None else read_languages(model)
            test_sets = read_paired_test_sets(self.pairs or [], self.columns, languages)
        else:
            test_sets = read_test_sets(self.source or [], self.reference or [])
        for test_set in test_sets:
            for message in test_set.describe_blank_references():
                print_message(message)
        return test_sets


_TEST_SETS = TestSetFlags()


@name_flags_in_errors()
def evaluate(
    systems: list[Path],
    /,
    *,
    test_set_flags: TestSetFlags = _TEST_SETS,
    output: Path | None = None,
    confidence: bool = False,
    engine_flags: EngineFlags = _ENGINE_FLAGS,
    json: bool = False,
    force: bool = False,
) -> None:
    """Score translations of test sets: BLEU, chrF, TER, with signatures.

    Args:
        systems: what is scored, each of them a bundle, the folder of a run, with --engine a folder written by
            `transduce export`, or a text file with one translation per line, made by any program.
        test_set_flags: the test sets.
        output: a folder to write the translations to, as TEST-SET.SYSTEM.txt. Test sets whose files have the same name
            are called by their paths, with _ between the folders.
        confidence: add the 95 % confidence interval of each score, by bootstrap resampling of the lines.
        engine_flags: what computes.
        json: print one JSON object.
        force: replace existing files in the output folder.
    """
    comet = test_set_flags.find_comet()
    test_sets = test_set_flags.read(systems)
    files = {} if output is None else _name_outputs(output, systems, test_sets, force=force)
    outputs = _translate(systems, test_sets, test_set_flags.beam, engine_flags)
    for (system, number), path in files.items():
        text = "".join(f"{line}\n" for line in outputs[number][system].hypotheses)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output_file(path, text.encode("utf-8"), None, "translation", force=force)
    if len(systems) > 1:
        _print_comparisons(
            [
                compare_systems(test_set, own, tokenization=test_set_flags.tokenize, comet=comet, report=print_message)
                for test_set, own in zip(test_sets, outputs, strict=True)
            ],
            json=json,
        )
        return
    results = []
    for test_set, (own,) in zip(test_sets, outputs, strict=True):
        first, *more = test_set.references
        scores = score_corpus(
            own.hypotheses, first, more_references=more, tokenization=test_set_flags.tokenize, confidence=confidence
        )
        if comet is not None:
            (values,) = comet.score(test_set, [own], print_message)
            scores.append(summarize_lines(values, comet.signature, confidence=confidence))
        results.append(_describe(systems[0], test_set, own, scores))
        if own.seconds is None:
            print_message(f"{test_set.name}: {format_count(len(test_set.sources), 'line')}")
        if not json:
            if len(test_sets) > 1:
                print(test_set.name)
            print(format_scores(scores))
        values_by_metric = {score.metric: score.value for score in scores}
        if values_by_metric["BLEU"] == 0 and values_by_metric["chrF"] >= MIN_CHRF_OF_GOOD_LINES:
            print_message(
                f"{test_set.name}: BLEU is 0 if no four words in a row are those of a reference, as in lines of up to "
                "three words; chrF counts characters"
            )
    if json:
        print_json(results[0] if len(results) == 1 else {"test_sets": results})


@name_flags_in_errors()
def compare(
    systems: list[Path],
    /,
    *,
    test_set_flags: TestSetFlags = _TEST_SETS,
    output: Path | None = None,
    frequencies: Path | None = None,
    engine_flags: EngineFlags = _ENGINE_FLAGS,
    json: bool = False,
    force: bool = False,
) -> None:
    """Compare systems: scores, significance, and where they differ.

    Args:
        systems: at least two, each of them a bundle, the folder of a run, with --engine a folder written by `transduce
            export`, or a text file with one translation per line, made by any program.
        test_set_flags: the test sets.
        output: a page (HTML) to write: scores by length and by frequency of the words, phrases, and sentences; an
            earlier page of this command is replaced.
        frequencies: the target side of the training text, by which the page counts how frequent words are. Default:
            they are counted in the references.
        engine_flags: what computes.
        json: print one JSON object.
        force: replace any existing file.
    """
    if len(systems) < 2:
        raise UserError(f"{systems[0]}: a comparison needs at least two systems")
    if frequencies is not None and output is None:
        raise UserError("--frequencies: only the page shows them; give --output as well")
    if output is not None:
        COMPARISON_PAGE.check(output, force=force, also_prints=True)
    comet = test_set_flags.find_comet()
    test_sets = test_set_flags.read(systems)
    tokenizations = [test_set_flags.tokenize or choose_tokenization(one.references[0]) for one in test_sets]
    counts = {} if frequencies is None else {one: count_words(read_lines(frequencies), one) for one in {*tokenizations}}
    outputs = _translate(systems, test_sets, test_set_flags.beam, engine_flags)
    comparisons = [
        compare_systems(test_set, own, tokenization=tokenization, comet=comet, report=print_message)
        for test_set, own, tokenization in zip(test_sets, outputs, tokenizations, strict=True)
    ]
    _print_comparisons(comparisons, json=json)
    if output is not None:
        analyses = [(one, analyse(one, counts.get(one.tokenization))) for one in comparisons]
        page = render_comparison(analyses, is_training_counted=frequencies is not None)
        COMPARISON_PAGE.write(output, page, force=force)
        print_message(f"{output}: open it in a browser")


def _translate(
    systems: Sequence[Path], test_sets: Sequence[TestSet], beam: int | None, engine_flags: EngineFlags
) -> list[list[SystemOutput]]:
    """The translations of each test set by all systems."""
    if repeated := [system for system, count in Counter(systems).items() if count > 1]:
        raise UserError(f"{', '.join(map(str, repeated))}: the same system is given twice: name each system once")
    if len(test_sets) > 1 and (files := [path for path in systems if path.is_file()]):
        raise UserError(f"{files[0]}: has the translations of one test set; give one --source")
    outputs: list[list[SystemOutput]] = [[] for _ in test_sets]
    # Before anything is translated, as a file may be refused.
    written = {system: read_system_output(system, test_sets[0]) for system in systems if system.is_file()}
    engine_flags.report_missing_kernels(system for system in systems if system not in written)
    for system in systems:
        if system in written:
            outputs[0].append(written[system])
            continue
        translator = engine_flags.load(system)
        for own, test_set in zip(outputs, test_sets, strict=True):
            found = translate_test_set(translator, str(system), test_set, beam=beam)
            own.append(found)
            how = f"beam {found.beam}, {engine_flags.engine}, {engine_flags.choose_precision()}"
            names = f"{system}, {test_set.name}: " if len(systems) * len(test_sets) > 1 else ""
            print_message(f"{names}{format_count(len(test_set.sources), 'line')} in {found.seconds:.1f} s, {how}")
    return outputs


def _name_outputs(
    folder: Path, systems: Sequence[Path], test_sets: Sequence[TestSet], *, force: bool
) -> dict[tuple[int, int], Path]:
    """The file for the translations of each test set by each system, by the numbers of both.

    Raises:
        UserError: two of them would be the same file, or `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--output {folder}: is a file; give the name of a folder")
    files = {
        (number, place): folder / f"{_flatten(test_set.name)}.{system.resolve().name}.txt"
        for number, system in enumerate(systems)
        for place, test_set in enumerate(test_sets)
    }
    if len(set(files.values())) < len(files):
        raise UserError(
            f"--output {folder}: {', '.join(map(str, systems))}, or the test sets, have the same name, and so would "
            "their files; evaluate them one at a time, with a folder for each"
        )
    for path in files.values():
        check_output_file(path, None, "translation", force=force, makes_folder=True, also_prints=True)
    return files


def _flatten(name: str) -> str:
    """Make a file name of the name of a test set, which may be a path: its parts, joined by underscores."""
    path = PurePath(name)
    return "_".join(path.relative_to(path.anchor).parts)


def _describe(system: Path, test_set: TestSet, output: SystemOutput, scores: Sequence[Score]) -> dict[str, object]:
    """A JSON object with the scores by their lower-case names."""
    given = [{name: value for name, value in vars(score).items() if value is not None} for score in scores]
    return {
        "model": str(system),
        "test_set": test_set.name,
        "lines": len(test_set.sources),
        **({} if output.seconds is None else {"beam": output.beam, "seconds": round(output.seconds, 3)}),
        "scores": {str(figures.pop("metric")).lower(): figures for figures in given},
    }


def _print_comparisons(comparisons: Sequence[Comparison], *, json: bool) -> None:
    if json:
        print_json({"test_sets": [one.as_json() for one in comparisons]})
        return
    for one in comparisons:
        print(f"{one.test_set.name}: {one.size}\n")
        print(format_columns(one.tabulate()) + "\n")
        for score in one.systems[0].scores:
            print(f"{score.metric}: {score.signature}")
        for note in [*one.notes, "", *one.verdicts]:
            print(note)
