"""Texts as Marian reads and writes them: divided by SentencePiece models, and looked up in its vocabularies."""

from collections.abc import Collection, Sequence

import sentencepiece

from transduce.text import Tokenizer


class MarianPieces:
    """The tokenizer that travels with a model of Marian's, with the ids of ours.

    Args:
        models: the SentencePiece models of source and target.
        sources: the pieces in the vocabulary of the source; any other is unknown to it, the target's own among them.
        tokenizer: whose ids are returned and read.
    """

    def __init__(self, models: tuple[bytes, bytes], sources: Collection[str], tokenizer: Tokenizer) -> None:
        self._source, self._target = (sentencepiece.SentencePieceProcessor(model_proto=model) for model in models)
        self._tokenizer = tokenizer
        pieces, known = tokenizer.pieces(range(tokenizer.pad_id)), frozenset(sources)
        self._ids = {piece: index for index, piece in enumerate(pieces) if piece in known}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, `</s>` included."""
        languages, rests = zip(*map(self._tokenizer.split_language, texts), strict=True) if texts else ((), ())
        rows = self._source.encode(list(rests), out_type=str)
        unknown = self._tokenizer.unknown_id
        return [
            [self._ids.get(piece, unknown) for piece in (*language.split(), *row, "</s>")]
            for language, row in zip(languages, rows, strict=True)
        ]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids, without spaces at its ends where our tokenizer leaves them out."""
        texts = [self._target.decode_pieces(self._tokenizer.pieces(row)[:-1]) for row in ids]
        return texts if self._tokenizer.is_joint else [text.strip() for text in texts]
