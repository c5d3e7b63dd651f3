"""A Marian model run by CTranslate2, which has a converter of its own for them."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transduce.errors import BundleError
from transduce.interop.ctranslate2.package import import_ctranslate2
from transduce.interop.ctranslate2.runtime import CTranslate2Runtime
from transduce.interop.marian.pieces import MarianPieces
from transduce.text import Tokenizer


class ConvertedRuntime:
    """See `Runtime`.

    Args:
        model: an .npz file.
        vocabularies: of source and target, as YAML.
        tokenizer: whose ids are read and returned.
        pieces: divides texts and puts them together.

    Raises:
        BundleError: CTranslate2 cannot convert the model.
        MissingExtraError: CTranslate2 is not installed.
    """

    def __init__(
        self, model: Path, vocabularies: tuple[Path, Path], tokenizer: Tokenizer, pieces: MarianPieces
    ) -> None:
        import_ctranslate2(f"running {model}")
        from ctranslate2.converters import MarianConverter  # noqa: PLC0415 - optional

        with TemporaryDirectory() as temporary:
            folder = Path(temporary) / "converted"
            try:
                MarianConverter(str(model), [str(path) for path in vocabularies]).convert(str(folder))
            except (ValueError, KeyError, RuntimeError) as error:
                raise BundleError(f"{model}: CTranslate2 cannot convert it: {error}") from error
            self._runtime = CTranslate2Runtime(folder, tokenizer, "float32")
        self._pieces = pieces

    @property
    def name(self) -> str:
        """See `Runtime`."""
        return f"{self._runtime.name}, through its converter of Marian models"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Runtime`."""
        return self._pieces.encode(texts)

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """See `Runtime`."""
        return self._pieces.decode(ids)

    def forced_scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """See `Runtime`."""
        return self._runtime.forced_scores(sources, targets)

    def greedy(self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> list[list[int]]:
        """See `Runtime`."""
        return self._runtime.greedy(sources, max_lengths)
