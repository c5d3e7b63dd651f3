"""The files of a tokenizer: one SentencePiece model, or two and the vocabulary of a model made elsewhere."""

from collections.abc import Mapping
from pathlib import Path

from transduce.errors import UserError

SOURCE_MODEL = "tokenizer.model"
TARGET_MODEL = "target_tokenizer.model"
VOCABULARY = "vocabulary.json"


def tokenizer_files(path: Path) -> dict[str, Path]:
    """The files of the tokenizer at `path`, by the names that they have in a bundle.

    Args:
        path: a SentencePiece model, or a folder with `tokenizer.model`, as a bundle is one.
    """
    if not path.is_dir():
        return {SOURCE_MODEL: path}
    others = [name for name in (TARGET_MODEL, VOCABULARY) if (path / name).exists()]
    return {name: path / name for name in (SOURCE_MODEL, *others)}


def read_tokenizer_files(path: Path) -> Mapping[str, bytes]:
    """What is in them.

    Raises:
        UserError: One cannot be read.
    """
    found = {}
    for name, file in tokenizer_files(path).items():
        try:
            found[name] = file.read_bytes()
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error.strerror}); give a SentencePiece model") from None
    return found
