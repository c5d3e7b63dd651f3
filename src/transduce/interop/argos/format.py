"""The export of bundles as packages of Argos Translate and LibreTranslate."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from transduce.bundle import Bundle
from transduce.errors import BundleError
from transduce.interop.argos.package import TOKENIZER, argos_code, language_name, pack, unpack
from transduce.interop.argos.splitter import splitter_model
from transduce.interop.conversion import SentencePieceCodec
from transduce.interop.ctranslate2 import format as ctranslate2_format
from transduce.interop.formats import Runtime, render_card
from transduce.text import Tokenizer

PACKAGE_VERSION = "1.0"
ARGOS_VERSION = "1.9.0"
"""The version in Argos's own packages; the program does not read it."""

MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")
"""The files of an exported CTranslate2 folder that CTranslate2 reads."""


class ArgosFormat:
    """The `ExportFormat` of Argos Translate, which LibreTranslate uses, too: one file that works without a network.

    A package is a zip file of one folder:

        translate-en_de-1_0/metadata.json        the languages
                            README.md
                            sentencepiece.model  divides sources into pieces, joins those of targets
                            model/               a CTranslate2 model
                            minisbd/en.onnx      divides text into sentences
    """

    precisions = ctranslate2_format.FORMAT.precisions
    suffix = ".argosmodel"

    def obstacles(self, bundle: Bundle) -> list[str]:
        found = ctranslate2_format.FORMAT.obstacles(bundle)
        if not bundle.load_tokenizer().is_joint:
            found.append("a tokenizer for each language: a package has one SentencePiece model for both")
        try:
            _argos_codes(bundle)
        except BundleError as error:
            found.append(str(error))
        return found

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        source, target = _argos_codes(bundle)
        metadata = {
            "package_version": PACKAGE_VERSION,
            "argos_version": ARGOS_VERSION,
            "from_code": source,
            "from_name": language_name(source),
            "to_code": target,
            "to_name": language_name(target),
        }
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            folder = Path(temporary) / f"translate-{source}_{target}-{PACKAGE_VERSION.replace('.', '_')}"
            splitter = folder / "minisbd" / f"{source}.onnx"
            (folder / "model").mkdir(parents=True)
            splitter.parent.mkdir()
            splitter.write_bytes(splitter_model(source))
            ctranslate2_format.FORMAT.write(bundle, folder / "model", precision)
            for file in (folder / "model").iterdir():
                if file.name not in MODEL_FILES:
                    file.unlink()
            (folder / TOKENIZER).write_bytes(bundle.load_tokenizer().model_bytes)
            texts = {
                "metadata.json": json.dumps(metadata, indent=2) + "\n",
                "README.md": render_card(
                    __file__, bundle.description, precision, source=language_name(source), target=language_name(target)
                ),
            }
            for name, text in texts.items():
                (folder / name).write_text(text, encoding="utf-8", newline="\n")
            pack(folder, path)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - its own tokenizer is in the package
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            unpack(path, folder)
            own = Tokenizer.load(folder / TOKENIZER)
            # Argos Translate itself can neither score a translation nor be asked for tokens.
            codec = SentencePieceCodec((own.model_bytes, own.model_bytes), own)
            return ctranslate2_format.load_runtime(folder / "model", own, codec=codec, origin=" in an Argos package")

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        with tempfile.TemporaryDirectory() as temporary:
            unpack(path, Path(temporary))
            return ctranslate2_format.FORMAT.read_back(Path(temporary) / "model")


FORMAT = ArgosFormat()


def _argos_codes(bundle: Bundle) -> tuple[str, str]:
    languages = bundle.description.languages
    return argos_code(languages.source), argos_code(languages.target)
