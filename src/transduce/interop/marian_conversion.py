"""A Marian model run by CTranslate2, which has a converter of its own for them."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transduce.errors import BundleError
from transduce.interop.ctranslate2_package import import_ctranslate2
from transduce.interop.ctranslate2_runtime import CTranslate2Runtime
from transduce.text import SOURCE_MODEL, TARGET_MODEL, Tokenizer


class ConvertedRuntime:
    """See `Runtime`.

    Args:
        model: an .npz file.
        vocabularies: of source and target, as YAML.
        tokenizer: whose ids are read and returned.
        models: the SentencePiece models of source and target that travel with the model.

    Raises:
        BundleError: CTranslate2 cannot convert the model.
        MissingExtraError: CTranslate2 is not installed.
    """

    def __init__(
        self, model: Path, vocabularies: tuple[Path, Path], tokenizer: Tokenizer, models: tuple[bytes, bytes]
    ) -> None:
        import_ctranslate2(f"running {model}")
        from ctranslate2.converters import MarianConverter  # noqa: PLC0415 - optional

        with TemporaryDirectory() as temporary:
            folder = Path(temporary) / "converted"
            try:
                MarianConverter(str(model), [str(path) for path in vocabularies]).convert(str(folder))
            except (ValueError, KeyError, RuntimeError) as error:
                raise BundleError(f"{model}: CTranslate2 cannot convert it: {error}") from error
            for name, content in zip((SOURCE_MODEL, TARGET_MODEL), models, strict=True):
                (folder / name).write_bytes(content)
            self._runtime = CTranslate2Runtime(folder, tokenizer, "float32")

    @property
    def name(self) -> str:
        """See `Runtime`."""
        return f"{self._runtime.name}, through its converter of Marian models"

    def encode(self, texts: Sequence[str]) -> list[list[int]] | None:
        """See `Runtime`."""
        return self._runtime.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str] | None:
        """See `Runtime`."""
        return self._runtime.decode(ids)

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Runtime`."""
        return self._runtime.forced_scores(sources, targets)

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """See `Runtime`."""
        return self._runtime.greedy(sources, max_lengths)
