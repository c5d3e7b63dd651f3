"""Opening the models that SentencePiece writes."""

import sentencepiece

from transduce.errors import UserError


def open_model(model: bytes, name: str, remedy: str) -> sentencepiece.SentencePieceProcessor:
    """The model in `model`; `name` is what errors call it, `remedy` what they advise.

    Raises:
        UserError: It is no SentencePiece model.
    """
    if not model:
        raise UserError(f"{name}: is empty, not a SentencePiece model; {remedy}")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise UserError(f"{name}: is not a SentencePiece model, or is damaged; {remedy}") from None
