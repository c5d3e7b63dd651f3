"""Text to token ids and back: a SentencePiece model, and `<pad>` behind its pieces."""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import sentencepiece

from transduce.errors import UserError
from transduce.text.merge_dropout import MergeDropout
from transduce.text.tokenizer_training import train_model

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Tokenizer:
    """One vocabulary for both languages: `<unk>` 0, `</s>` 1, the pieces, and `<pad>` last (paper 5.1).

    Args:
        model_bytes: a SentencePiece model.
        name: what errors call it.

    Raises:
        UserError: It is no SentencePiece model, or its special symbols have other ids.
    """

    unknown_id = 0
    end_id = 1

    def __init__(self, model_bytes: bytes, name: str) -> None:
        self.model_bytes = model_bytes
        self._processor = _processor(model_bytes, name)
        self.vocabulary: int = self._processor.get_piece_size() + 1
        self.pad_id = self.vocabulary - 1

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary: int, algorithm: str, *, shrink: bool = False) -> "Tokenizer":
        """The tokenizer that fits `sentences`; the same for the same text, on any machine.

        Args:
            sentences: source and target side of the training text, in one stream that is read once.
            vocabulary: number of token ids, `<pad>` included.
            algorithm: "bpe" or "unigram".
            shrink: take the nearest size that the text allows, where it does not allow `vocabulary`.

        Raises:
            ConfigError: The text is too little, or has too many characters, for `vocabulary`.
            CorpusError: There is no text.
        """
        return cls(train_model(sentences, vocabulary - 1, algorithm, shrink=shrink), "the trained tokenizer")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer in a file that SentencePiece wrote.

        Raises:
            UserError: It cannot be read, is no SentencePiece model, or its special symbols have other ids.
        """
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Tokenizer":
        """The tokenizer in the bytes of such a file; `name` is what errors call them.

        Raises:
            UserError: They are no SentencePiece model, or its special symbols have other ids.
        """
        return cls(data, name)

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces, without `</s>`. No text gives a special symbol: "</s>" is spelled like any word."""
        (well_formed,) = _well_formed([text])
        ids: list[int] = self._processor.encode(well_formed)
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text, on all cores."""
        ids: list[list[int]] = self._processor.encode(_well_formed(texts))
        return ids

    def encode_sampled(self, texts: Iterable[str], dropout: float, seed: int) -> list[list[int]]:
        """`encode_all` with a share `dropout` of BPE's merges skipped at random (Provilkov et al. 2020).

        A pure function of its arguments, in every process.

        Raises:
            ConfigError: The tokenizer is not made of merges within words: it was not trained with BPE.
        """
        return self._merge_dropout.encode(_well_formed(texts), dropout, seed)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces; `</s>` and `<pad>` have none."""
        text: str = self._processor.decode([index for index in ids if index not in (self.end_id, self.pad_id)])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, to be shown; "▁" is the space in front of a word."""
        return ["<pad>" if index == self.pad_id else self._processor.id_to_piece(index) for index in ids]

    @cached_property
    def _merge_dropout(self) -> MergeDropout:
        return MergeDropout(self._processor)


def fitted_vocabulary(num_pairs: int) -> int:
    """A number of token ids that `num_pairs` can teach; grows with their square root, from 512 to the paper's 37,000.

    A multiple of 8, which suits matrix products: 952 for a thousand pairs, 9,488 for 100 thousand.
    """
    return min(max(8 * round(30 * math.sqrt(num_pairs) / 8), 512), 37_000)


def _processor(model_bytes: bytes, name: str) -> sentencepiece.SentencePieceProcessor:
    remedy = (
        "give a model trained by SentencePiece, with the flags "
        "--unk_id=0 --eos_id=1 --bos_id=-1 --pad_id=-1 --byte_fallback=true"
    )
    if not model_bytes:
        raise UserError(f"{name}: is empty, not a SentencePiece model; {remedy}")
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model_bytes)
    except RuntimeError:
        raise UserError(f"{name}: is not a SentencePiece model, or is damaged; {remedy}") from None
    found = processor.unk_id(), processor.eos_id()
    if found != (Tokenizer.unknown_id, Tokenizer.end_id):
        raise UserError(
            f"{name}: <unk> must have the id 0 and </s> the id 1, but have {found[0]} and {found[1]}; {remedy}"
        )
    return processor


def _well_formed(texts: Iterable[str]) -> list[str]:
    # Half of a surrogate pair, as JSON can hold, is no character: SentencePiece refuses the whole text.
    return [_LONE_SURROGATE.sub("\ufffd", text) for text in texts]
