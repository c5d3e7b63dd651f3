"""`transduce translate`."""

import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transduce.bulk import BlockTranslator, BlockTranslatorSettings
from transduce.bulk.block_translator import describe_unusual_line
from transduce.cli.console import MAX_BLOCK, LineProgress, LiveLine, format_duration, open_standard_input, print_message
from transduce.cli.translation_options import (
    BulkFlags,
    EngineFlags,
    InputFlags,
    SourceFlags,
    TranslationFlags,
    check_document_flags,
    check_engine,
    make_options,
    name_flags_in_errors,
    report_guard,
)
from transduce.errors import ConfigError
from transduce.interop import NATIVE
from transduce.kernels.memory import give_back_freed_memory
from transduce.pages import format_count
from transduce.text import read_available_blocks, read_document
from transduce.translation import LineTranslator, translate_texts
from transduce.translation.confidence.guard import GuardReport, add_reports

STANDARD_INPUT = "standard input"

_FLAGS, _SOURCE_FLAGS, _INPUT_FLAGS = TranslationFlags(), SourceFlags(), InputFlags()
_ENGINE_FLAGS, _BULK_FLAGS = EngineFlags(), BulkFlags()


@name_flags_in_errors()
def translate(
    model: Path,
    /,
    *,
    flags: TranslationFlags = _FLAGS,
    ensemble: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
    source_flags: SourceFlags = _SOURCE_FLAGS,
    json: bool = False,
    input_flags: InputFlags = _INPUT_FLAGS,
    engine_flags: EngineFlags = _ENGINE_FLAGS,
    bulk_flags: BulkFlags = _BULK_FLAGS,
) -> None:
    """Translate standard input to standard output, line by line.

    Args:
        model: a bundle, the folder of a run, or, with --engine, a folder written by `transduce export`.
        flags: options of the search.
        ensemble: another bundle with the same tokenizer, whose probabilities are averaged with the model's; may be
            given several times. Words are aligned by the model's attention, and there is no confidence.
        source_flags: protected spans and glossary.
        json: print one JSON object per line: translation, score, tokens, alternatives, alignment, confidence.
        input_flags: how the input is read.
        engine_flags: engine, precision and device.
        bulk_flags: files instead of standard input.
    """
    document, max_pieces = input_flags.document, input_flags.max_pieces
    if document and (json or input_flags.json_input or flags.num_best > 1):
        raise ConfigError("--document: reads and writes one text; leave out --json, --json-input and --num-best")
    if document:
        check_document_flags(flags)
    bulk_flags.check()
    if document and bulk_flags.input:
        raise ConfigError("--document: reads standard input; leave it out, or give the text there instead of --input")
    options = make_options(flags, source_flags)
    if document:
        options.check_for_document()
    check_engine(engine_flags.engine, {"--json": json, **source_flags.given})
    if max_pieces is not None and engine_flags.engine != NATIVE:
        raise ConfigError(
            f"--max-pieces {max_pieces}: needs the native engine, as an exported model has a fixed number of "
            f"positions: leave out --engine {engine_flags.engine}"
        )
    settings = BlockTranslatorSettings(
        model=model.absolute(),
        options=options,
        engine=engine_flags.engine,
        precision=engine_flags.choose_precision("auto"),
        device=engine_flags.device,
        ensemble=tuple(other.absolute() for other in ensemble),
        max_pieces=max_pieces,
        json=json,
        json_input=input_flags.json_input,
    )
    engine_flags.report_missing_kernels((model, *ensemble))
    if bulk_flags.input:
        _translate_files(settings, bulk_flags)
        return
    translator = BlockTranslator.load(settings, report=print_message)
    started = time.monotonic()
    num_lines = _translate_document(translator.line_translator) if document else _translate_lines(translator)
    count = format_count(num_lines, "sentence" if document else "line")
    print_message(f"{count} in {time.monotonic() - started:.1f} s")


def _translate_lines(translator: BlockTranslator) -> int:
    num_lines, stream = 0, open_standard_input()
    guard_report: GuardReport | None = None
    with LineProgress(stream) as progress:
        for lines in read_available_blocks(stream, STANDARD_INPUT, progress.choose_block_size):
            started = time.monotonic()
            numbers = range(num_lines + 1, num_lines + 1 + len(lines))
            block = translator.translate(lines, numbers, STANDARD_INPUT)
            for line in block.lines:
                sys.stdout.write(line + "\n")
            for message in block.messages:
                print_message(message)
            sys.stdout.flush()  # the writer may wait for this block before sending the next
            if block.error is not None:
                raise block.error
            guard_report = add_reports(guard_report, block.guard_report)
            num_lines += len(lines)
            progress.add_finished_lines(len(lines), time.monotonic() - started)
            if len(lines) == MAX_BLOCK:  # of a long text: blocks of all sizes come and go, and gaps add up
                give_back_freed_memory()
    report_guard(guard_report)
    return num_lines


def _translate_document(translator: LineTranslator) -> int:
    stream = open_standard_input()
    text = "" if stream is None else read_document(stream, STANDARD_INPUT)
    ((translation, lines),) = translate_texts(translator, [text])
    sys.stdout.write(translation)
    for number, line in enumerate(lines, start=1):
        for message in describe_unusual_line(f"sentence {number}", line, "it is left untranslated"):
            print_message(message)
    report_guard(translator.guard_report)
    return len(lines)


def _translate_files(settings: BlockTranslatorSettings, flags: BulkFlags) -> None:
    from transduce.bulk import BulkTask, translate_files  # noqa: PLC0415 - plain translation is not to wait for it

    assert flags.output is not None  # noqa: S101 - `check` has seen to it
    task = BulkTask(
        settings=settings,
        inputs=tuple(map(str, flags.input)),
        output=str(flags.output),
        column=flags.column,
        translation_column=flags.translation_column,
        block_lines=flags.block_lines,
    )
    started, live = time.monotonic(), LiveLine(time.monotonic())
    num_lines, guard_report = 0, None
    try:
        for progress in translate_files(task, flags.make_pool, live.print_above):
            for message in progress.messages:
                live.print_above(message)
            num_lines, guard_report = progress.num_lines, progress.guard_report
            line = f"{num_lines:,} lines  {num_lines / max(progress.seconds, 1e-6):,.1f} lines/s  {progress.share:.1%}"
            if progress.seconds_remaining is not None:
                line += f"  {format_duration(progress.seconds_remaining)} left"
            live.update(line)
    finally:
        live.stop()
    report_guard(guard_report)
    print_message(
        f"{format_count(num_lines, 'line')} in {time.monotonic() - started:.1f} s; {flags.output} is complete"
    )
