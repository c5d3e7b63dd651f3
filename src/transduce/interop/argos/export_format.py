"""The README.md of an Argos package: what the model is and what is known about it."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from transduce.bundle import Bundle
from transduce.errors import BundleError
from transduce.interop.argos.package import TOKENIZER, argos_code, language_name, pack, unpacked
from transduce.interop.argos.splitter import splitter_model
from transduce.interop.ctranslate2 import export_format as ctranslate2_format
from transduce.interop.formats import Runtime, render_card
from transduce.text import Tokenizer

PACKAGE_VERSION = "1.0"
ARGOS_VERSION = "1.9.0"
"""What packages of Argos's own say; the program does not look at it."""

MODEL_FILES = ("config.json", "model.bin", "shared_vocabulary.json")
"""Of the CTranslate2 folder, what CTranslate2 reads."""


class ArgosFormat:
    """See `ExportFormat`."""

    precisions = ctranslate2_format.FORMAT.precisions
    suffix = ".argosmodel"

    def obstacles(self, bundle: Bundle) -> list[str]:
        """See `ExportFormat`."""
        found = ctranslate2_format.FORMAT.obstacles(bundle)
        if not bundle.load_tokenizer().is_joint:
            found.append("a tokenizer for each language: a package has one SentencePiece model for both")
        try:
            _codes(bundle)
        except BundleError as error:
            found.append(str(error))
        return found

    def write(self, bundle: Bundle, path: Path, precision: str) -> None:
        """See `ExportFormat`.

        Raises:
            BundleError: the bundle does not say its languages.
            MissingExtraError: CTranslate2 or the package `onnx` is not installed.
        """
        source, target = _codes(bundle)
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
        """See `ExportFormat`.

        Raises:
            BundleError: there is no package, or it is damaged.
            MissingExtraError: CTranslate2 is not installed.
        """
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            unpacked(path, folder)
            own = Tokenizer.load(folder / TOKENIZER)
            return PackageRuntime(ctranslate2_format.FORMAT.load(folder / "model", own), own)

    def read_back(self, path: Path) -> Mapping[str, Tensor]:
        """See `ExportFormat`."""
        with tempfile.TemporaryDirectory() as temporary:
            unpacked(path, Path(temporary))
            return ctranslate2_format.FORMAT.read_back(Path(temporary) / "model")


FORMAT = ArgosFormat()


class PackageRuntime:
    """See `Runtime`: what Argos Translate runs on a sentence, with greedy search instead of a beam.

    Argos Translate itself can neither score a translation nor be asked for tokens.

    Args:
        model: CTranslate2 with the model of the package.
        tokenizer: that of the package.
    """

    def __init__(self, model: Runtime, tokenizer: Tokenizer) -> None:
        self._model = model
        self._tokenizer = tokenizer

    @property
    def name(self) -> str:
        """See `Runtime`."""
        return f"{self._model.name} in an Argos package"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Runtime`."""
        return [[*ids, self._tokenizer.end_id] for ids in self._tokenizer.encode_all(texts)]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Runtime`. Argos Translate makes a space of every "_" besides."""
        return [self._tokenizer.decode(row) for row in ids]

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Runtime`."""
        return self._model.forced_scores(sources, targets)

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """See `Runtime`."""
        return self._model.greedy(sources, max_lengths)


def _codes(bundle: Bundle) -> tuple[str, str]:
    """Source and target language as Argos writes them."""
    languages = bundle.description.languages
    return argos_code(languages.source), argos_code(languages.target)
