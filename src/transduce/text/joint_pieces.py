"""The pieces of one SentencePiece model for both languages, as in the paper (5.1)."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import sentencepiece

from transduce.errors import UserError
from transduce.text.merge_dropout import MergeDropout
from transduce.text.sentencepiece_model import open_model
from transduce.text.tokenizer_files import SOURCE_MODEL

_REMEDY = (
    "give a model trained by SentencePiece, with the flags "
    "--unk_id=0 --eos_id=1 --bos_id=-1 --pad_id=-1 --byte_fallback=true"
)


class JointPieces:
    """Ids are those of the model itself; `</s>` stands behind every text.

    Args:
        model: a SentencePiece model in which `<unk>` is 0 and `</s>` is 1.
        name: what errors call it.

    Raises:
        UserError: It is no such model.
    """

    ends_sources = True

    def __init__(self, model: bytes, name: str) -> None:
        self.source_model = self.target_model = model
        self._processor = open_model(model, name, _REMEDY)
        found = self._processor.unk_id(), self._processor.eos_id()
        if found != (0, 1):
            raise UserError(
                f"{name}: <unk> must have the id 0 and </s> the id 1, but have {found[0]} and {found[1]}; {_REMEDY}"
            )

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        """Of each id."""
        return tuple(pieces_of(self._processor))

    @property
    def files(self) -> Mapping[str, bytes]:
        """What is written of it, by name."""
        return {SOURCE_MODEL: self.source_model}

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the pieces of each text."""
        ids: list[list[int]] = self._processor.encode(list(texts))
        return ids

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The same: the model is one for both sides."""
        return self.encode_sources(texts)

    def encode_sampled(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """See `MergeDropout.encode`."""
        return self._merge_dropout.encode(texts, dropout, seed)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces."""
        text: str = self._processor.decode(list(ids))
        return text

    def split_language(self, text: str) -> tuple[str, str]:
        """No text has a language token in front."""
        return "", text

    @cached_property
    def _merge_dropout(self) -> MergeDropout:
        return MergeDropout(self._processor)


def pieces_of(processor: sentencepiece.SentencePieceProcessor) -> list[str]:
    """All pieces of a model, by its own ids."""
    pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
    return pieces
