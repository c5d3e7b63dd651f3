"""`transduce translate` and `transduce translate-file`."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bundle import Bundle, check_output_file, find_bundle, read_calibration, write_output_file
from transduce.bundle.bundle import CALIBRATION
from transduce.cli.console import MAX_BLOCK, LineProgress, format_count, print_message, standard_input
from transduce.cli.options import Computation, InputFlags, SourceFlags, TranslationFlags, make_options
from transduce.documents import find_format, read_formatted_document
from transduce.errors import ConfigError, CorpusError, OutputError
from transduce.interop import NATIVE
from transduce.kernels.hardware import give_back_freed_memory
from transduce.text import read_available_blocks, read_document, rebuild_document, split_document
from transduce.translation import (
    PROBLEMS,
    Line,
    LineTranslator,
    TextConstraints,
    TranslatedSentence,
    TranslationLine,
    describe_lines,
)

STANDARD_INPUT = "standard input"

_FLAGS, _SOURCE_FLAGS, _INPUT_FLAGS = TranslationFlags(), SourceFlags(), InputFlags()
_COMPUTATION = Computation()


def translate(
    model: Path,
    /,
    *,
    flags: TranslationFlags = _FLAGS,
    ensemble: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
    source_flags: SourceFlags = _SOURCE_FLAGS,
    json: bool = False,
    input_flags: InputFlags = _INPUT_FLAGS,
    computation: Computation = _COMPUTATION,
) -> None:
    """Translate standard input to standard output, line by line.

    Args:
        model: a bundle, the folder of a run, or, with --engine, a folder written by `transduce export`.
        flags: options of the search.
        ensemble: another bundle with the same tokenizer, whose probabilities are averaged with the model's; may be
            given several times.
        source_flags: protected spans and glossary.
        json: print one JSON object per line: translation, score, tokens, alternatives, alignment, confidence.
        input_flags: how the input is read.
        computation: engine, precision and device.
    """
    document, max_pieces = input_flags.document, input_flags.max_pieces
    if document and (json or input_flags.json_input or flags.num_best > 1):
        raise ConfigError("--document: reads and writes one text; leave out --json, --json-input and --num-best")
    options = make_options(flags, source_flags)
    _check_engine(computation.engine, {"--json": json, **source_flags.given})
    if max_pieces is not None and computation.engine != NATIVE:
        raise ConfigError(
            f"--max-pieces {max_pieces}: needs the native engine, as an exported model has a fixed number of "
            f"positions: leave out --engine {computation.engine}"
        )
    loaded = computation.load(model, "auto", ensemble)
    if max_pieces is not None:
        loaded = loaded.with_search({"max_pieces": max_pieces})
    bundle = _open_calibrated_bundle(model) if computation.engine == NATIVE else None
    head = confidence = None
    if bundle is not None and (json or options.keeps_spans):
        from transduce.translation import AlignmentHead  # noqa: PLC0415 - loads PyTorch

        head = AlignmentHead.load(bundle)
    if bundle is not None and json:
        from transduce.translation import Confidence  # noqa: PLC0415 - loads sacreBLEU

        confidence = Confidence.load(bundle)
    translator = LineTranslator(loaded, options, head)
    started = time.monotonic()
    if document:
        num_lines = _translate_document(translator)
    else:
        describe = None
        if json and computation.engine == NATIVE:
            describe = partial(
                describe_lines, translator=loaded, confidence=confidence, head=head, has_alignment=head is not None
            )
        num_lines = _translate_lines(translator, describe, json_input=input_flags.json_input)
    _report_guard(translator)
    count = format_count(num_lines, "sentence" if document else "line")
    print_message(f"{count} in {time.monotonic() - started:.1f} s")


def translate_file(
    model: Path,
    document: Path,
    output: Path,
    /,
    *,
    flags: TranslationFlags = _FLAGS,
    source_flags: SourceFlags = _SOURCE_FLAGS,
    computation: Computation = _COMPUTATION,
    force: bool = False,
) -> None:
    """Translate a document, and keep its formatting.

    Args:
        model: a bundle, the folder of a run, or, with --engine, a folder written by `transduce export`.
        document: the document to translate, as in report.docx.
        output: the translation, with the same ending.
        flags: options of the search.
        source_flags: protected spans and glossary.
        computation: engine, precision and device.
        force: replace any existing file.
    """
    from transduce.translation import AlignmentHead, DocumentTranslator  # noqa: PLC0415 - the former loads PyTorch

    if flags.num_best > 1:
        raise ConfigError("--num-best: a document has one translation; leave it out")
    ending = find_format(document.name)
    if find_format(output.name) != ending:
        raise OutputError(f"{output}: must end in {ending}, as a document keeps its format")
    check_output_file(output, _is_never_replaced, _EMPTY, force=force)
    options = make_options(flags, source_flags)
    _check_engine(computation.engine, source_flags.given)
    read = read_formatted_document(document.read_bytes(), ending)
    started = time.monotonic()
    is_native = computation.engine == NATIVE
    bundle = _open_calibrated_bundle(model) if is_native else None
    translator = DocumentTranslator(
        computation.load(model, "auto"),
        options,
        None if bundle is None else AlignmentHead.load(bundle),
        can_align=is_native,
    )
    write_output_file(output, translator.translate(read), _is_never_replaced, _EMPTY, force=force)
    print_message(f"{output} written in {time.monotonic() - started:.1f} s")


_EMPTY = "empty file"


def _is_never_replaced(_path: Path) -> bool:
    """Nothing tells a translated document from any other."""
    return False


def _open_calibrated_bundle(model: Path) -> Bundle | None:
    """The bundle of a model, after checking its calibration; None if it is not calibrated."""
    folder = find_bundle(model)
    if not (folder / CALIBRATION).exists():
        return None
    bundle = Bundle.open(folder)
    read_calibration(bundle)
    return bundle


def _check_engine(engine: str, flags: dict[str, bool]) -> None:
    """Check that flags that need the attention weights of the native engine are not given to another engine."""
    names = ", ".join(name for name, is_given in flags.items() if is_given)
    if names and engine != NATIVE:
        raise ConfigError(
            f"{names}: needs the native engine, which provides attention weights: leave out --engine {engine}"
        )


def _translate_lines(
    translator: LineTranslator,
    describe: Callable[[Sequence[Line]], list[TranslatedSentence]] | None,
    *,
    json_input: bool,
) -> int:
    num_lines, stream = 0, standard_input()
    with LineProgress(stream) as progress:
        for block in read_available_blocks(stream, STANDARD_INPUT, progress.block_size):
            started = time.monotonic()
            given, problem = (
                _read_json_lines(translator, block, num_lines + 1)
                if json_input
                else ([(text, None) for text in block], None)
            )
            lines = translator.translate([text for text, _ in given], [constraints for _, constraints in given])
            found = [None] * len(lines) if describe is None else describe(lines)
            for number, (line, known) in enumerate(zip(lines, found, strict=True), start=num_lines + 1):
                _write_line(number, line, translator.options.num_best, known)
            sys.stdout.flush()  # the writer may wait for this block before sending the next
            if problem is not None:
                raise problem
            num_lines += len(block)
            progress.add_finished_lines(len(block), time.monotonic() - started)
            if len(block) == MAX_BLOCK:  # of a long text: blocks of all sizes come and go, and gaps add up
                give_back_freed_memory()
    return num_lines


def _read_json_lines(
    translator: LineTranslator, block: list[str], first: int
) -> tuple[list[tuple[str, TextConstraints | None]], CorpusError | None]:
    """The texts of a block with the constraints of each; with an error, those before the faulty line."""
    found: list[tuple[str, TextConstraints | None]] = []
    for number, line in enumerate(block, start=first):
        try:
            one = TranslationLine.read(line, number, STANDARD_INPUT)
            if (constraints := one.constraints) is not None:
                translator.check(constraints)
        except CorpusError as error:
            return found, error
        except ConfigError as error:
            return found, CorpusError(f"{STANDARD_INPUT}, line {number}: {error}")
        found.append((one.text, constraints))
    return found, None


def _write_line(number: int, line: Line, num_best: int, known: TranslatedSentence | None) -> None:
    if known is not None:
        sys.stdout.write(dumps({"line": number, **known.as_json()}, ensure_ascii=False, allow_nan=False) + "\n")
    elif num_best == 1:
        sys.stdout.write(line.translation.text + "\n")
    else:
        for alternative in line.translation.alternatives:
            value = alternative.score if alternative.utility is None else alternative.utility
            sys.stdout.write(f"{number}\t{value:.4f}\t{alternative.text}\n")
    _report_line(f"line {number}", line, "its line is left blank")


def _report_line(name: str, line: Line, otherwise: str) -> None:
    """Report on standard error what is unusual about a line or sentence; `otherwise` says what replaces a
    translation.
    """
    if line.has_failed:
        print_message(
            f"{name}: no translation meets the constraints, or the text is too long for constraints; {otherwise}"
        )
    if line.translation.num_parts > 1:
        print_message(
            f"{name} is longer than the model reads at once; translated in {line.translation.num_parts} parts"
        )
    if line.is_given_up:
        print_message(
            f"{name}: no translation keeps all protected spans; left untranslated, with glossary terms replaced"
        )
    elif line.how == "in parts":
        print_message(
            f"{name}: no translation of a whole sentence keeps all protected spans; translated in parts around them"
        )


def _translate_document(translator: LineTranslator) -> int:
    stream = standard_input()
    text = "" if stream is None else read_document(stream, STANDARD_INPUT)
    document = split_document(text, translator.translator.source_language)
    lines = translator.translate(document.sentences)
    sys.stdout.write(
        rebuild_document(document, [line.source if line.has_failed else line.translation.text for line in lines])
    )
    for number, line in enumerate(lines, start=1):
        _report_line(f"sentence {number}", line, "it is left untranslated")
    return len(lines)


def _report_guard(translator: LineTranslator) -> None:
    if (report := translator.guard_report) is not None:
        found = ", ".join(f"{name} {report.before[name]} -> {report.after[name]}" for name in PROBLEMS)
        retried = format_count(report.retried, "line")
        print_message(f"guard: {retried} retried, {report.kept:,} replaced; {found}")
