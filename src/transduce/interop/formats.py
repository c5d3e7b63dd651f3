"""The formats that bundles can be exported to, by name; each is imported when it is asked for."""

from importlib import import_module

from transduce.errors import ConfigError
from transduce.interop.runtime import ExportFormat

FORMATS = {
    "ctranslate2": "transduce.interop.ctranslate2.export_format",
    "huggingface": "transduce.interop.huggingface.export_format",
    "argos": "transduce.interop.argos.export_format",
    "marian": "transduce.interop.marian.export_format",
    "onnx": "transduce.interop.onnx.export_format",
}
"""The module of each, in which it is called `FORMAT`."""


def find_format(name: str) -> ExportFormat:
    """The format of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in FORMATS:
        raise ConfigError(f"format = {name!r}: must be one of {', '.join(FORMATS)}")
    found: ExportFormat = import_module(FORMATS[name]).FORMAT
    return found
