"""Packages of Argos Translate and LibreTranslate: a zip archive with a CTranslate2 model, tokenizer and sentence
splitter.
"""

import json
import lzma
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from transduce.bundle import Bundle, Languages
from transduce.errors import BundleError, UserError
from transduce.interop import ctranslate2 as ctranslate2_format
from transduce.interop.argos.splitter import make_splitter
from transduce.interop.ctranslate2.layout import MODEL_FILE
from transduce.interop.ctranslate2.runtime import CONFIG_FILE
from transduce.interop.formats import ImportedModel, Runtime, find_unsupported_tags, render_export_card
from transduce.storage import write_files
from transduce.text import Tokenizer
from transduce.text.languages import find_argos_code, get_language_name


def convert_to_argos_code(code: str) -> str:
    """The language `code`, as in "de" or "pt-BR", in Argos's spelling.

    Raises:
        BundleError: it is no language code.
    """
    found = find_argos_code(code)
    if found is None:
        raise BundleError(
            f"the language {code!r}: an Argos package is found by its languages, each a code such as 'de'; "
            f'write them in bundle.json, as in "languages": {{"source": "en", "target": "de"}}'
        )
    return found


TOKENIZER = "sentencepiece.model"
_SIDES = ("shared", "source", "target")
_VOCABULARIES = [f"{side}_vocabulary{ending}" for side in _SIDES for ending in (".json", ".txt")]
_IN_MODEL = [f"model/{name}" for name in (MODEL_FILE, CONFIG_FILE, *_VOCABULARIES)]
_WANTED = ("metadata.json", TOKENIZER, *_IN_MODEL)
"""The files that are extracted from the folder of a package; others are ignored."""

_MAX_BYTES = 2**32
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError),
    UnicodeDecodeError,
)
"""The exceptions that reading a damaged zip file raises, besides OSError, which damaged bzip2 data raises."""
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every file: the same files make the same package at any time."""


def pack(folder: Path, path: Path) -> None:
    """Write `folder` with all its files to a zip file at `path`."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(folder.parent).as_posix(), _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16  # readable by all users
            archive.writestr(entry, file.read_bytes())


def unpack(path: Path, folder: Path) -> Languages:
    """Extract the folder `model` and the SentencePiece model of the package at `path` into `folder`.

    Returns:
        The languages that the package names.
    """
    try:
        with zipfile.ZipFile(path) as package:
            entries = {entry.filename.partition("/")[2]: entry for entry in package.infolist()}
            wanted = {name: entries[name] for name in _WANTED if name in entries}
            if (size := sum(entry.file_size for entry in wanted.values())) > _MAX_BYTES:
                raise BundleError(f"{path}: has {size:,} bytes unpacked; at most {_MAX_BYTES:,} are accepted")
            if f"model/{MODEL_FILE}" not in wanted:
                raise BundleError(
                    f"{path}: has no model/{MODEL_FILE}: it is not an Argos package with a translation model"
                )
            (folder / "model").mkdir()
            for name, entry in wanted.items():
                with package.open(entry) as content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
            return _read_languages(folder / "metadata.json")
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except _DAMAGE as error:
        raise BundleError(
            f"{path}: is not a zip file, or is damaged: {error}; give an undamaged Argos package"
        ) from None


def _read_languages(path: Path) -> Languages:
    """The languages in metadata.json, empty if it has none."""
    try:
        metadata = json.loads(path.read_bytes())
        codes = metadata["from_code"], metadata["to_code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Languages()
    source, target = (code if isinstance(code, str) and code.isprintable() else "" for code in codes)
    return Languages(source=source, target=target)


PACKAGE_VERSION = "1.0"
ARGOS_VERSION = "1.9.0"
"""The version in Argos's own packages; the program does not read it."""

MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")
"""The files of an exported CTranslate2 folder that CTranslate2 reads."""


class ArgosFormat:
    """The `ExportFormat` and `ImportFormat` of Argos Translate and LibreTranslate: one file that needs no network.

    A package is a zip file of one folder:

        translate-en_de-1_0/metadata.json        the languages
                            README.md
                            sentencepiece.model  divides sources into pieces, joins those of targets
                            model/               a CTranslate2 model
                            minisbd/en.onnx      divides text into sentences
    """

    precisions = ctranslate2_format.FORMAT.precisions
    suffix = ".argosmodel"
    packages = (*ctranslate2_format.FORMAT.packages, "onnx")  # the graph that divides text into sentences

    def find_unsupported_features(self, bundle: Bundle) -> list[str]:
        found, tokenizer = ctranslate2_format.FORMAT.find_unsupported_features(bundle), bundle.load_tokenizer()
        found += find_unsupported_tags(tokenizer, "Argos Translate")
        if not tokenizer.is_joint:
            found.append("separate tokenizers: a package has one SentencePiece model for both languages")
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
            "from_name": get_language_name(source),
            "to_code": target,
            "to_name": get_language_name(target),
        }
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            folder = Path(temporary) / f"translate-{source}_{target}-{PACKAGE_VERSION.replace('.', '_')}"
            splitter = folder / "minisbd" / f"{source}.onnx"
            (folder / "model").mkdir(parents=True)
            splitter.parent.mkdir()
            splitter.write_bytes(make_splitter(source))
            ctranslate2_format.FORMAT.write(bundle, folder / "model", precision)
            for file in (folder / "model").iterdir():
                if file.name not in MODEL_FILES:
                    file.unlink()
            names = {"source": get_language_name(source), "target": get_language_name(target)}
            files: dict[str, str | bytes] = {
                TOKENIZER: bundle.load_tokenizer().model_bytes,
                "metadata.json": json.dumps(metadata, indent=2) + "\n",
                "README.md": render_export_card(__file__, bundle.description, precision, **names),
            }
            write_files(folder, files)
            pack(folder, path)

    def load(self, path: Path, tokenizer: Tokenizer) -> Runtime:  # noqa: ARG002 - its own tokenizer is in the package
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            unpack(path, folder)
            own = Tokenizer.load(folder / TOKENIZER)
            # Argos Translate itself can neither score translations nor return tokens.
            return ctranslate2_format.load_runtime(folder / "model", own, own, " in an Argos package")

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        with tempfile.TemporaryDirectory() as temporary:
            unpack(path, Path(temporary))
            return ctranslate2_format.FORMAT.read_back(Path(temporary) / "model")

    def recognises(self, path: Path) -> bool:
        return path.suffix == self.suffix and path.is_file()

    def read(self, path: Path, tokenizer: Path | None) -> ImportedModel:
        with tempfile.TemporaryDirectory() as temporary:
            languages = unpack(path, Path(temporary))
            model = Path(temporary) / "model"
            try:
                return ctranslate2_format.read_folder(model, tokenizer, languages)
            except UserError as error:
                # The user does not know the temporary folder.
                raise type(error)(str(error).replace(str(model), f"{path}: model")) from None


FORMAT = ArgosFormat()


def _argos_codes(bundle: Bundle) -> tuple[str, str]:
    languages = bundle.description.languages
    return convert_to_argos_code(languages.source), convert_to_argos_code(languages.target)
