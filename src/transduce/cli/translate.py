"""`transduce translate`."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from transduce.bundle import Bundle, find_bundle
from transduce.cli.computation import Computation
from transduce.cli.console import say, standard_input
from transduce.cli.line_progress import LARGEST_BLOCK, LineProgress
from transduce.errors import ConfigError
from transduce.interop import NATIVE
from transduce.search import Sampling
from transduce.text import USUAL_KINDS, Glossary, Kind, arriving_blocks, read_document, rebuilt, split_document
from transduce.translation import (
    PROBLEMS,
    AlignmentHead,
    Line,
    LineDetails,
    LineOptions,
    LineTranslator,
    TextConstraints,
)
from transduce.translation.allocator import give_back_freed_memory

Words = Annotated[tuple[str, ...], Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True)
class Search:
    """How translations are looked for.

    Args:
        num_best: alternatives for each line; above 1, what is printed is line number, tab, score, tab, translation.
        beam: hypotheses kept for each sentence; 1 is greedy. This and the next five: the model's own unless given.
        length_penalty: alpha in ((5 + n) / 6)^alpha, by which a hypothesis of n tokens is divided.
        min_length: fewest tokens of a translation, the end included.
        no_repeat_ngram: no sequence of so many tokens comes twice in a translation; 0 allows it.
        repetition_penalty: what the log-probability of a token that is there already is multiplied by; 1 is none.
        diversity: nats that a continuation loses for each better one of the same hypothesis, so that alternatives
            differ more.
        prefix: how every translation begins.
        require: a word or phrase that every translation contains exactly once; may be given several times.
        forbid: a word or phrase that no translation contains; may be given several times.
        samples: instead of searching, draw so many translations of each line at random; --num-best says how many of
            them are printed.
        temperature: of the distribution that is drawn from; 1 is the model's, less is bolder.
        top_k: draw from so many of the most probable tokens; 0 is all.
        top_p: draw from the most probable tokens whose probabilities add up to this.
        seed: of what is drawn.
        mbr: rank the samples by their mean chrF against each other (minimum Bayes risk).
        ensemble: another bundle with the same tokenizer, whose probabilities are averaged with the model's; may be
            given several times.
    """

    num_best: int = 1
    beam: int | None = None
    length_penalty: float | None = None
    min_length: int | None = None
    no_repeat_ngram: int | None = None
    repetition_penalty: float | None = None
    diversity: float | None = None
    prefix: str = ""
    require: Words = ()
    forbid: Words = ()
    samples: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    mbr: bool = False
    ensemble: Annotated[tuple[Path, ...], Parameter(negative=())] = ()

    def settings(self) -> dict[str, Any]:
        """Those of the search that are given, by their names in its configuration."""
        names = ("beam", "length_penalty", "min_length", "no_repeat_ngram", "repetition_penalty", "diversity")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def constraints(self) -> TextConstraints | None:
        """What translations must and must not contain, if anything is asked."""
        if not (self.prefix or self.require or self.forbid):
            return None
        return TextConstraints(self.prefix, self.require, forbidden=self.forbid)


@Parameter(name="*")
@dataclass(frozen=True)
class Kept:
    """What of the source is kept.

    Args:
        protect: keep web addresses, e-mail addresses, XML and HTML tags and {placeholders} as they are, each as often
            as it is there.
        protect_numbers: keep numbers as they are, too.
        glossary: a file with two columns, term and translation, tab between: terms that must be translated so.
    """

    protect: bool = False
    protect_numbers: bool = False
    glossary: Path | None = None

    def kinds(self) -> tuple[Kind, ...] | None:
        """Of spans that are kept; None if there are none."""
        numbers: tuple[Kind, ...] = ("number",) if self.protect_numbers else ()
        return (*(USUAL_KINDS if self.protect else ()), *numbers) or None

    def asked(self) -> dict[str, bool]:
        """Which of the options are given."""
        return {f"--{name.replace('_', '-')}": bool(value) for name, value in asdict(self).items()}


_SEARCH, _KEPT, _COMPUTATION = Search(), Kept(), Computation()


def translate(
    model: Path,
    /,
    *,
    search: Search = _SEARCH,
    kept: Kept = _KEPT,
    guard: bool = False,
    json: bool = False,
    document: bool = False,
    computation: Computation = _COMPUTATION,
) -> None:
    """Translate standard input to standard output, line by line.

    Args:
        model: a bundle, the folder of a run, or for another engine what was exported to it.
        search: how translations are looked for.
        kept: what of the source is kept.
        guard: try translations that repeat themselves, copy the source, are empty or lose numbers once more with
            safer settings, and say how many there were.
        json: print one JSON object a line: translation, score, tokens, alternatives, alignment, confidence.
        document: read everything first, as a document: sentences are found, also several in a line, translated, and
            put back with all that stands between them.
        computation: what computes.
    """
    if search.samples and search.settings().keys() & {"no_repeat_ngram", "repetition_penalty", "diversity"}:
        raise ConfigError(
            "--no-repeat-ngram, --repetition-penalty and --diversity are for searching, not for --samples"
        )
    if document and (json or search.num_best > 1):
        raise ConfigError("--document writes one text: leave out --json and --num-best")
    options = _line_options(search, kept, guard=guard)
    _check_engine(computation.engine, {"--json": json, **kept.asked()})
    loaded = computation.load(model, "auto", search.ensemble)
    bundle = Bundle.open(find_bundle(model)) if computation.engine == NATIVE else None
    head = None if bundle is None else AlignmentHead.load(bundle)
    translator = LineTranslator(loaded.with_search(search.settings()), options, head)
    started = time.monotonic()
    if document:
        num_lines = _translate_document(translator)
    else:
        details = LineDetails(bundle, translator.translator) if json and bundle is not None else None
        num_lines = _translate_lines(translator, details)
    _report(translator)
    say(f"{num_lines:,} {'sentences' if document else 'lines'} in {time.monotonic() - started:.1f} s")


def _line_options(search: Search, kept: Kept, *, guard: bool) -> LineOptions:
    return LineOptions(
        num_best=search.num_best,
        constraints=search.constraints(),
        protected=kept.kinds(),
        glossary=None if kept.glossary is None else Glossary.read(kept.glossary),
        num_samples=search.samples,
        sampling=Sampling(search.temperature, search.top_k, search.top_p),
        seed=search.seed,
        minimum_bayes_risk=search.mbr,
        guard=guard,
    )


def _check_engine(engine: str, asked: dict[str, bool]) -> None:
    """That nothing is asked of another engine that only the native one, whose attention is read, can tell.

    Raises:
        ConfigError: something is; names the options.
    """
    names = ", ".join(name for name, is_asked in asked.items() if is_asked)
    if names and engine != NATIVE:
        raise ConfigError(f"{names}: needs the native engine, whose attention is read; leave out --engine {engine}")


def _translate_lines(translator: LineTranslator, details: LineDetails | None) -> int:
    num_lines, stream = 0, standard_input()
    with LineProgress(stream) as progress:
        for block in arriving_blocks(stream, "standard input", progress.block_size):
            started = time.monotonic()
            for number, line in enumerate(translator.translate(block), start=num_lines + 1):
                _write(number, line, translator.options.num_best, details)
            sys.stdout.flush()  # somebody may wait for this block before writing the next
            num_lines += len(block)
            progress.done(len(block), time.monotonic() - started)
            if len(block) == LARGEST_BLOCK:  # of a long text: blocks of all sizes come and go, and gaps add up
                give_back_freed_memory()
    return num_lines


def _write(number: int, line: Line, num_best: int, details: LineDetails | None) -> None:
    if details is not None:
        sys.stdout.write(dumps({"line": number, **details.of(line)}, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        sys.stdout.writelines(text + "\n" for text in _output(number, line, num_best))
    if line.has_failed:
        say(f"line {number}: no translation has what is asked for, or the line is too long; it is left blank")
    if line.translation.num_parts > 1:
        parts = f"read in {line.translation.num_parts} parts"
        say(f"line {number} is longer than the model reads at a time: {parts}")


def _translate_document(translator: LineTranslator) -> int:
    stream = standard_input()
    text = "" if stream is None else read_document(stream, "standard input")
    document = split_document(text, translator.translator.source_language)
    translations = [line.translation.text for line in translator.translate(document.sentences)]
    sys.stdout.write(rebuilt(document, translations))
    return len(translations)


def _output(number: int, line: Line, num_best: int) -> Iterator[str]:
    if num_best == 1:
        yield line.translation.text
        return
    for alternative in line.translation.alternatives:
        yield f"{number}\t{alternative.score:.4f}\t{alternative.text}"


def _report(translator: LineTranslator) -> None:
    report = translator.guard_report
    if report is not None:
        found = ", ".join(f"{name} {report.before[name]} -> {report.after[name]}" for name in PROBLEMS)
        say(f"guard: {report.retried:,} lines tried once more, {report.kept:,} replaced; {found}")
