"""Models of other programs: export and import, each with a proof that both programs compute the same."""

from transduce.interop.engines import ENGINES, NATIVE, load_translator
from transduce.interop.export import check_exportable, export_bundle
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
from transduce.interop.model_import import import_model
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
