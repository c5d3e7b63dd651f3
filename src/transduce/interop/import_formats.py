"""The formats that can be imported; each is imported itself when somebody asks for one."""

from importlib import import_module
from pathlib import Path

from transduce.bundle import is_bundle
from transduce.errors import BundleError
from transduce.interop.runtime import ImportFormat

IMPORT_FORMATS = {
    "ctranslate2": "transduce.interop.ctranslate2.import_format",
    "huggingface": "transduce.interop.huggingface.import_format",
    "marian": "transduce.interop.marian.import_format",
}
"""The module of each, in which it is called `FORMAT`."""


def find_import_format(path: Path) -> tuple[str, ImportFormat]:
    """Name and format of the model in `path`.

    Raises:
        BundleError: there is nothing, or it is of no format that is known.
    """
    if not path.exists():
        raise BundleError(f"{path}: there is no such file or folder; give that of a model")
    if is_bundle(path):
        raise BundleError(f"{path}: is a bundle already: use it as it is")
    for name, module in IMPORT_FORMATS.items():
        chosen: ImportFormat = import_module(module).FORMAT
        if chosen.recognises(path):
            return name, chosen
    raise BundleError(
        f"{path}: is no model that can be imported; these can: a folder that Transformers has saved (config.json with "
        f"model_type marian or pegasus), a model of Marian (.npz), a folder of CTranslate2 (model.bin) or an Argos "
        f"package (.argosmodel)"
    )
