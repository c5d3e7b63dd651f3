"""`transduce translate-file`."""

import time
from pathlib import Path

from transduce.bulk.block_translator import describe_unusual_line, open_calibrated_bundle
from transduce.cli.console import print_message
from transduce.cli.translation_options import (
    DocumentFlags,
    EngineFlags,
    SourceFlags,
    check_engine,
    make_options,
    name_flags_in_errors,
    report_guard,
)
from transduce.documents import FORMATS, find_document_ending, read_formatted_document
from transduce.errors import OutputError
from transduce.interop import NATIVE
from transduce.storage import check_output_file, write_output_file

_FLAGS, _SOURCE_FLAGS, _ENGINE_FLAGS = DocumentFlags(), SourceFlags(), EngineFlags()


@name_flags_in_errors()
def translate_file(
    model: Path,
    document: Path,
    output: Path,
    /,
    *,
    flags: DocumentFlags = _FLAGS,
    source_flags: SourceFlags = _SOURCE_FLAGS,
    engine_flags: EngineFlags = _ENGINE_FLAGS,
    force: bool = False,
) -> None:
    """Translate a document, and keep its formatting.

    Args:
        model: a bundle, the folder of a run, or, with --engine, a folder written by `transduce export`.
        document: the document to translate, as in report.docx.
        output: the translation, with the same ending.
        flags: options of the search.
        source_flags: protected spans and glossary.
        engine_flags: engine, precision and device.
        force: replace any existing file.
    """
    from transduce.translation import AlignmentHead, DocumentTranslator  # noqa: PLC0415 - the former loads PyTorch

    ending = find_document_ending(document.name)
    if FORMATS[find_document_ending(output.name)] != FORMATS[ending]:  # .htm and .html are the same
        raise OutputError(f"{output}: must end in {ending}, as a document keeps its format")
    if output.exists() and output.samefile(document):
        raise OutputError(f"{output}: is the document to translate, which would be lost: choose another name")
    check_output_file(output, None, "document", force=force)
    options = make_options(flags, source_flags)
    check_engine(engine_flags.engine, source_flags.given)
    engine_flags.report_missing_kernels([model])
    read = read_formatted_document(document.read_bytes(), ending)
    started = time.monotonic()
    is_native = engine_flags.engine == NATIVE
    bundle = open_calibrated_bundle(model) if is_native else None
    translator = DocumentTranslator(
        engine_flags.load(model, "auto"),
        options,
        None if bundle is None else AlignmentHead.load(bundle),
        can_align=bundle is not None and bundle.model_config.architecture == "transformer",
    )
    write_output_file(output, translator.translate(read), None, "document", force=force)
    for line in translator.lines:
        for message in describe_unusual_line(f"sentence {line.source[:50]!r}", line, "it is left untranslated"):
            print_message(message)
    report_guard(translator.guard_report)
    print_message(f"{output} written in {time.monotonic() - started:.1f} s")
