"""The file of an Argos package: a zip archive with one folder, named by languages."""

import json
import re
import shutil
import zipfile
import zlib
from pathlib import Path

from transduce.bundle import Languages
from transduce.errors import BundleError
from transduce.interop.ctranslate2.model_file import MODEL_FILE
from transduce.interop.ctranslate2.runtime import CONFIG_FILE
from transduce.text import LANGUAGE_NAMES

_OWN_CODES = {"pt-br": "pb", "zh-hans": "zh", "zh-cn": "zh", "zh-hant": "zt", "zh-tw": "zt"}


def argos_code(code: str) -> str:
    """The language `code`, as in "de" or "pt-BR", in Argos's spelling: in lower case, as LibreTranslate needs it."""
    small = code.lower().replace("_", "-")
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]{1,8})*", small):
        raise BundleError(
            f"the language {code!r}: an Argos package is found by its languages, each a code such as 'de'; "
            f'write them in bundle.json, as in "languages": {{"source": "en", "target": "de"}}'
        )
    return _OWN_CODES.get(small, small)


def language_name(code: str) -> str:
    """The English name of a code that `argos_code` returned; the code where no name is known."""
    language, _, region = code.partition("-")
    name = LANGUAGE_NAMES.get(language, language)
    return f"{name} ({region})" if region else name


TOKENIZER = "sentencepiece.model"
_SIDES = ("shared", "source", "target")
_VOCABULARIES = [f"{side}_vocabulary{ending}" for side in _SIDES for ending in (".json", ".txt")]
_IN_MODEL = [f"model/{name}" for name in (MODEL_FILE, CONFIG_FILE, *_VOCABULARIES)]
_WANTED = ("metadata.json", TOKENIZER, *_IN_MODEL)
"""The files that are extracted from the one folder of a package; no other name is ever written."""

_MOST_BYTES = 2**32
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every file: the same files make the same package at any time."""


def pack(folder: Path, path: Path) -> None:
    """Write `folder` with all its files to a zip file at `path`."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(file for file in folder.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(folder.parent).as_posix(), _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16  # readable by everybody, as far as the system knows of such things
            archive.writestr(entry, file.read_bytes())


def is_package(path: Path) -> bool:
    """Whether `path` calls itself an Argos package."""
    return path.suffix == ".argosmodel" and path.is_file()


def unpack(path: Path, folder: Path) -> Languages:
    """Extract the folder `model` and the SentencePiece model of the package at `path` into `folder`.

    Returns:
        The languages that the package names.
    """
    try:
        with zipfile.ZipFile(path) as package:
            entries = {entry.filename.partition("/")[2]: entry for entry in package.infolist()}
            wanted = {name: entries[name] for name in _WANTED if name in entries}
            if (size := sum(entry.file_size for entry in wanted.values())) > _MOST_BYTES:
                raise BundleError(f"{path}: would take {size:,} bytes, more than the {_MOST_BYTES:,} of any such model")
            if f"model/{MODEL_FILE}" not in wanted:
                raise BundleError(f"{path}: has no model/{MODEL_FILE}: it is no Argos package with a translation model")
            (folder / "model").mkdir()
            for name, entry in wanted.items():
                with package.open(entry) as content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
            return _read_languages(folder / "metadata.json")
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise BundleError(f"{path}: is no zip file, or is damaged: {error}; give an undamaged Argos package") from None


def _read_languages(path: Path) -> Languages:
    """The languages in metadata.json, empty where it names none."""
    try:
        metadata = json.loads(path.read_bytes())
        codes = metadata["from_code"], metadata["to_code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Languages()
    source, target = (code if isinstance(code, str) and code.isprintable() else "" for code in codes)
    return Languages(source=source, target=target)
