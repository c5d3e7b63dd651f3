"""CTranslate2 with a model loaded, as a proof wants it: on the CPU, on one thread."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from transduce.interop.ctranslate2.package import import_ctranslate2
from transduce.interop.ctranslate2.settings import adds_source_end
from transduce.text import SOURCE_MODEL, TARGET_MODEL, Tokenizer

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
