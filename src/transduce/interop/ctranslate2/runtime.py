"""The package `ctranslate2`, which not everybody has installed."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import sentencepiece
from pydantic import ValidationError

from transduce.bundle import BundleDescription, Languages
from transduce.config import SearchConfig, Settings, TransformerConfig
from transduce.errors import BundleError, MissingExtraError
from transduce.text import SOURCE_MODEL, TARGET_MODEL, Tokenizer


def import_ctranslate2(purpose: str) -> ModuleType:
    """The package; `purpose` says what needs it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import ctranslate2  # noqa: PLC0415 - optional
        import ctranslate2.specs  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("ctranslate2", "ctranslate2", purpose) from None
    package: ModuleType = ctranslate2
    return package


def compute_type(precision: str, device: str) -> str:
    """The arithmetic for weights in `precision`, as CTranslate2 calls it: float32 where `device` has no other for them.

    CTranslate2 would choose the same, and complain about it on standard error.

    Raises:
        MissingExtraError: CTranslate2 is not installed.
    """
    known = import_ctranslate2("running a model in CTranslate2").get_supported_compute_types(device)
    return precision if precision in known else "float32"


CONFIG_FILE = "config.json"
SECTION = "transduce"


class ExportedSettings(Settings):
    """CTranslate2 has no words for these; it passes over them."""

    model: TransformerConfig
    """The network, in our words."""

    search: SearchConfig
    """How the model translates unless told otherwise."""

    languages: Languages
    """From which language to which."""

    precision: str
    """Of the weights, as CTranslate2 calls it."""

    @classmethod
    def of(cls, description: BundleDescription, precision: str) -> "ExportedSettings":
        """Those of a bundle."""
        languages, search = description.languages, description.search
        return cls(model=description.model, search=search, languages=languages, precision=precision)


def read_settings(folder: Path) -> ExportedSettings:
    """Those in the config.json of `folder`.

    Raises:
        BundleError: there is no such file, or `transduce export` has not written it.
    """
    path = folder / CONFIG_FILE
    try:
        section = json.loads(path.read_bytes())[SECTION]
        # As JSON, in which pydantic's strict mode takes what Python's types would not let pass.
        return ExportedSettings.model_validate_json(json.dumps(section))
    except OSError as error:
        raise BundleError(f"{path}: cannot be read ({error.strerror}): give a folder that was exported") from None
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
        raise BundleError(
            f"{path}: has no section {SECTION!r}, or not its settings: give a folder that "
            f"transduce export --to ctranslate2 has written"
        ) from None


def adds_source_end(folder: Path) -> bool:
    """Whether CTranslate2 itself puts `</s>` behind every source of the model in `folder`."""
    path = folder / CONFIG_FILE  # which CTranslate2 before version 3 did not write
    return path.exists() and bool(json.loads(path.read_bytes()).get("add_source_eos", False))


BATCH_TOKENS = 4096


class CTranslate2Runtime:
    """See `Runtime`. CTranslate2 reads and writes pieces; of ids it knows nothing outside.

    Texts are divided by the SentencePiece model in the folder, if there is one, as the folder's README does it.

    Args:
        folder: a CTranslate2 model, exported by us or not.
        tokenizer: whose ids are read and returned; its pieces are the model's vocabulary.
        compute_type: CTranslate2's name of the arithmetic; "default" is that of the weights in the folder.

    Raises:
        MissingExtraError: CTranslate2 is not installed.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer, compute_type: str = "default") -> None:
        ctranslate2 = import_ctranslate2("running a model in CTranslate2")
        self._name = f"CTranslate2 {ctranslate2.__version__}"
        self._translator: Any = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=1
        )
        self._tokenizer = tokenizer
        self._ids = {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
        self._adds_source_end = adds_source_end(folder)
        self._source, self._target = _processors(folder)

    @property
    def name(self) -> str:
        """See `Runtime`."""
        return self._name

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """See `Runtime`."""
        if self._source is None:
            return None
        divided = [self._tokenizer.split_language(text) for text in texts]
        rows = self._source.encode([rest for _, rest in divided], out_type=str)
        pieces = [[*language.split(), *row] for (language, _), row in zip(divided, rows, strict=True)]
        return [self._tokenizer.as_source(self._to_ids(row)) for row in pieces]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        """See `Runtime`."""
        if self._target is None:
            return None
        texts = [self._target.decode_pieces(self._tokenizer.pieces(row)[:-1]) for row in ids]
        # A piece that only sources have stands for itself.
        return texts if self._tokenizer.is_joint else [text.replace("▁", " ").strip() for text in texts]

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Runtime`."""
        results = self._translator.score_batch(
            self._sources(sources),
            [self._tokenizer.pieces(target)[:-1] for target in targets],
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """See `Runtime`."""
        results = self._translator.translate_batch(
            self._sources(sources),
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(max_lengths, default=1),
            min_decoding_length=0,
            return_end_token=True,
        )
        # Greedy search does not look ahead: what a smaller limit leaves is the beginning.
        found = zip(results, max_lengths, strict=True)
        return [self._to_ids(result.hypotheses[0])[:limit] for result, limit in found]

    def _sources(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        """Pieces, without the end where CTranslate2 itself puts it."""
        end = -1 if self._adds_source_end else None
        return [self._tokenizer.pieces(row)[:end] for row in rows]

    def _to_ids(self, pieces: Sequence[str]) -> list[int]:
        return [self._ids.get(piece, self._tokenizer.unknown_id) for piece in pieces]


def _processors(
    folder: Path,
) -> tuple[sentencepiece.SentencePieceProcessor | None, sentencepiece.SentencePieceProcessor | None]:
    """What divides sources, and what puts targets together, by the models in `folder`."""
    models = [folder / SOURCE_MODEL, folder / TARGET_MODEL]
    source, target = (
        sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes()) if path.is_file() else None
        for path in models
    )
    return source, target or source
