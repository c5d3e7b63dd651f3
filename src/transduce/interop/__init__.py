"""Models of other programs: export and import, each with a proof that both programs compute the same."""

from transduce.interop.exchange import ENGINES, NATIVE, check_exportable, export_bundle, import_model, load_translator
from transduce.interop.formats import (
    FORMATS,
    IMPORT_FORMATS,
    ExportFormat,
    ImportedModel,
    ImportFormat,
    Runtime,
    find_format,
    find_import_format,
)
from transduce.interop.parity import TOLERANCES, Parity, Tolerance

__all__ = [
    "ENGINES",
    "FORMATS",
    "IMPORT_FORMATS",
    "NATIVE",
    "TOLERANCES",
    "ExportFormat",
    "ImportFormat",
    "ImportedModel",
    "Parity",
    "Runtime",
    "Tolerance",
    "check_exportable",
    "export_bundle",
    "find_format",
    "find_import_format",
    "import_model",
    "load_translator",
]
