"""`transduce translate`."""

import sys
import time
from collections.abc import Iterator
from json import dumps
from pathlib import Path

from transduce.bundle import Bundle, find_bundle
from transduce.cli.computation import Computation
from transduce.cli.console import say, standard_input
from transduce.cli.line_progress import LARGEST_BLOCK, LineProgress
from transduce.cli.translate_options import Kept, Search, line_options
from transduce.errors import ConfigError, CorpusError
from transduce.interop import NATIVE
from transduce.text import arriving_blocks, read_document, rebuilt, split_document
from transduce.translation import PROBLEMS, AlignmentHead, AskedLine, Line, LineDetails, LineTranslator
from transduce.translation.allocator import give_back_freed_memory

STANDARD_INPUT = "standard input"

_SEARCH, _KEPT, _COMPUTATION = Search(), Kept(), Computation()


def translate(
    model: Path,
    /,
    *,
    search: Search = _SEARCH,
    kept: Kept = _KEPT,
    guard: bool = False,
    json: bool = False,
    json_input: bool = False,
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
        json_input: read one JSON object a line: "text", and what is asked of this line besides what is asked of all:
            "require" and "forbid" (lists of words or phrases) and "prefix".
        document: read everything first, as a document: sentences are found, also several in a line, translated, and
            put back with all that stands between them.
        computation: what computes.
    """
    if document and (json or json_input or search.num_best > 1):
        raise ConfigError("--document reads and writes one text: leave out --json, --json-input and --num-best")
    options = line_options(search, kept, guard=guard)
    _check_engine(computation.engine, {"--json": json, **kept.asked()})
    loaded = computation.load(model, "auto", search.ensemble)
    bundle = Bundle.open(find_bundle(model)) if computation.engine == NATIVE else None
    head = None if bundle is None else AlignmentHead.load(bundle)
    translator = LineTranslator(loaded, options, head)
    started = time.monotonic()
    if document:
        num_lines = _translate_document(translator)
    else:
        details = LineDetails(bundle, translator.translator) if json and bundle is not None else None
        num_lines = _translate_lines(translator, details, json_input=json_input)
    _report(translator)
    say(f"{num_lines:,} {'sentences' if document else 'lines'} in {time.monotonic() - started:.1f} s")


def _check_engine(engine: str, asked: dict[str, bool]) -> None:
    """That nothing is asked of another engine that only the native one, whose attention is read, can tell.

    Raises:
        ConfigError: something is; names the options.
    """
    names = ", ".join(name for name, is_asked in asked.items() if is_asked)
    if names and engine != NATIVE:
        raise ConfigError(f"{names}: needs the native engine, whose attention is read; leave out --engine {engine}")


def _translate_lines(translator: LineTranslator, details: LineDetails | None, *, json_input: bool) -> int:
    num_lines, stream = 0, standard_input()
    with LineProgress(stream) as progress:
        for block in arriving_blocks(stream, STANDARD_INPUT, progress.block_size):
            started = time.monotonic()
            first = num_lines + 1
            for number, line in enumerate(_translated(translator, block, first, json_input=json_input), start=first):
                _write(number, line, translator.options.num_best, details)
            sys.stdout.flush()  # somebody may wait for this block before writing the next
            num_lines += len(block)
            progress.done(len(block), time.monotonic() - started)
            if len(block) == LARGEST_BLOCK:  # of a long text: blocks of all sizes come and go, and gaps add up
                give_back_freed_memory()
    return num_lines


def _translated(translator: LineTranslator, block: list[str], first: int, *, json_input: bool) -> Iterator[Line]:
    """The lines of a block; before an error, those in front of it."""
    if not json_input:
        yield from translator.translate(block)
        return
    asked: list[AskedLine] = []
    problem: CorpusError | None = None
    for number, line in enumerate(block, start=first):
        try:
            asked.append(AskedLine.read(line, number, STANDARD_INPUT))
        except CorpusError as error:
            problem = error
            break
    yield from translator.translate([one.text for one in asked], [one.constraints for one in asked])
    if problem is not None:
        raise problem


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
    text = "" if stream is None else read_document(stream, STANDARD_INPUT)
    document = split_document(text, translator.translator.source_language)
    translations = [line.translation.text for line in translator.translate(document.sentences)]
    sys.stdout.write(rebuilt(document, translations))
    return len(translations)


def _output(number: int, line: Line, num_best: int) -> Iterator[str]:
    if num_best == 1:
        yield line.translation.text
        return
    for alternative in line.translation.alternatives:
        value = alternative.score if alternative.utility is None else alternative.utility
        yield f"{number}\t{value:.4f}\t{alternative.text}"


def _report(translator: LineTranslator) -> None:
    report = translator.guard_report
    if report is not None:
        found = ", ".join(f"{name} {report.before[name]} -> {report.after[name]}" for name in PROBLEMS)
        say(f"guard: {report.retried:,} lines tried once more, {report.kept:,} replaced; {found}")
