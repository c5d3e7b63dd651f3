"""Models of other programs: export and import, each verified by a parity proof."""

from typing import TYPE_CHECKING

from transduce.lazy_imports import import_on_first_use

if TYPE_CHECKING:
    from transduce.interop.engines import ENGINES, NATIVE, load_translator, read_exported_settings, read_languages
    from transduce.interop.export_import import export_bundle, import_model
    from transduce.interop.formats import (
        FORMATS,
        IMPORT_FORMATS,
        ExportFormat,
        ImportedModel,
        ImportFormat,
        Runtime,
        find_export_format,
        find_import_format,
    )
    from transduce.interop.parity import TOLERANCES, Parity, Tolerance
else:
    __getattr__ = import_on_first_use(
        __name__,
        {
            "transduce.interop.engines": "ENGINES NATIVE load_translator read_exported_settings read_languages",
            "transduce.interop.export_import": "export_bundle import_model",
            "transduce.interop.formats": (
                "ExportFormat FORMATS IMPORT_FORMATS ImportFormat ImportedModel Runtime "
                "find_export_format find_import_format"
            ),
            "transduce.interop.parity": "Parity TOLERANCES Tolerance",
        },
    )

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
    "export_bundle",
    "find_export_format",
    "find_import_format",
    "import_model",
    "load_translator",
    "read_exported_settings",
    "read_languages",
]
