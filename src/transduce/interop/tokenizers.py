"""Tokenizers of other programs' models: their vocabularies, and what SentencePiece alone makes of texts."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from transduce.errors import BundleError, UserError
from transduce.interop.bundle_tensors import TokenRows
from transduce.text import SOURCE_MODEL, TARGET_MODEL, VOCABULARY, Tokenizer

SPECIAL = ("<unk>", "</s>")
"""The first two tokens of a bundle's vocabulary."""

MODELS = ((SOURCE_MODEL, TARGET_MODEL), ("source.spm", "target.spm"), (SOURCE_MODEL,), ("sentencepiece.model",))
"""File names of SentencePiece models that are looked for, in this order: two, of source and target, or one of both."""


@dataclass(frozen=True)
class ForeignVocabulary:
    """The tokens of another program's model, in the order of the rows of its matrices.

    `<pad>`, which is not listed, may have the last row.
    """

    sources: list[str]
    targets: list[str]
    has_pad: bool = False

    def without_pad(self) -> "ForeignVocabulary":
        """The same vocabulary with its last token, which is `<pad>`, no longer listed."""
        return ForeignVocabulary(self.sources[:-1], self.targets[:-1], has_pad=True)

    def rows(self, tokenizer: Tokenizer) -> TokenRows:
        """The rows of the ids of `tokenizer`; `<pad>` has none."""
        sides = ({token: row for row, token in enumerate(side)} for side in (self.sources, self.targets))
        pieces = tokenizer.pieces(range(tokenizer.pad_id))
        return TokenRows(*([*(side.get(piece, -1) for piece in pieces), -1] for side in sides))

    def make_tokenizer(self, models: tuple[bytes, bytes], origin: str, *, ends_sources: bool = True) -> Tokenizer:
        """A tokenizer with `<unk>`, `</s>`, the other tokens of both sides, those of one side alone, and `<pad>`.

        `models` are the SentencePiece models of source and target, which come from `origin`.
        """
        known = set(self.sources), set(self.targets)
        return Tokenizer.with_vocabulary(
            *models,
            [*SPECIAL, *(token for token in self.sources if token in known[1] and token not in SPECIAL)],
            origin,
            source_only=[token for token in self.sources if token not in known[1]],
            target_only=[token for token in self.targets if token not in known[0]],
            ends_sources=ends_sources,
        )


def make_tokenizer(
    tokens: ForeignVocabulary, folder: Path, given: Path | None, *, ends_sources: bool = True
) -> Tokenizer:
    """The tokenizer of a vocabulary, with the SentencePiece models in or beside the model's `folder`.

    `given` is a SentencePiece model, or a folder in which they are looked for instead.

    Raises:
        BundleError: the vocabulary beside the SentencePiece models is another one.
        UserError: there is no SentencePiece model, or it is damaged.
    """
    if given is not None and given.is_file():
        source = target = given
    else:
        places = [given] if given is not None else [folder, folder.absolute().parent]
        source, target = _find_models(places, folder, given)
    if target.name == TARGET_MODEL and (target.parent / VOCABULARY).exists():  # of a bundle that was exported
        tokenizer = Tokenizer.load(target.parent)
        if tokens.sources != tokens.targets or tokenizer.pieces(range(tokenizer.pad_id)) != tokens.sources:
            raise BundleError(f"{target.parent / VOCABULARY}: has other pieces than the vocabulary of {folder}")
        return tokenizer
    models = _read_bytes(source), _read_bytes(target)
    return tokens.make_tokenizer(models, str(folder), ends_sources=ends_sources)


def _find_models(places: Sequence[Path], folder: Path, given: Path | None) -> tuple[Path, Path]:
    for place in places:
        for names in MODELS:
            if all((place / name).is_file() for name in names):
                return place / names[0], place / names[-1]
    looked_for = " or ".join(" and ".join(names) for names in MODELS)
    where = "neither in it nor beside it" if given is None else f"not in {given}"
    raise UserError(f"{folder}: its SentencePiece model is {where} ({looked_for}): give it with --tokenizer")


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a SentencePiece model") from None


# Not that of `Tokenizer`, which a proof compares with this: the programs of exports have a copy of their own, too.
_TAG = re.compile(r"\s*(>>[^<>\s]+<<)\s*")


class SentencePieceCodec:
    """Encodes and decodes as the README of an export says: by SentencePiece and, for tags, a few lines of code.

    Its results are ids of the bundle, which a proof compares with those of `Tokenizer`. SentencePiece alone would spell
    a tag like any word.

    Args:
        tokenizer: the tokenizer with the SentencePiece models that travel with the model of another program.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        models = tokenizer.model_bytes, tokenizer.target_model_bytes
        self._source, self._target = (SentencePieceProcessor(model_proto=model) for model in models)
        self._tokenizer, self._tags = tokenizer, set(tokenizer.tags)
        shared, source_only, _ = list_pieces(tokenizer)
        self._ids = {piece: index for index, piece in enumerate([*shared, *source_only])}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, `</s>` included."""
        divided = [self._split_tag(text) for text in texts]
        rows = self._source.encode([rest for _, rest in divided], out_type=str)
        unknown = self._tokenizer.unknown_id
        return [
            self._tokenizer.as_source([self._ids.get(piece, unknown) for piece in (*tag, *row)])
            for (tag, _), row in zip(divided, rows, strict=True)
        ]

    def _split_tag(self, text: str) -> tuple[list[str], str]:
        """The tag at the beginning of a text, or nothing, and the rest."""
        tag = _TAG.match(text)
        if tag is None or tag[1] not in self._tags:
            return [], text
        return [tag[1]], text[tag.end() :]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids."""
        texts = [self._target.decode_pieces(self._tokenizer.pieces(row)[:-1]) for row in ids]
        # A piece that only sources have stands for itself.
        return texts if self._tokenizer.is_joint else [text.replace("▁", " ").strip() for text in texts]


def list_pieces(tokenizer: Tokenizer) -> tuple[list[str], list[str], list[str]]:
    """All pieces but `<pad>`: those of both sides, of sources alone, and of targets alone."""
    if tokenizer.is_joint:
        return tokenizer.pieces(range(tokenizer.pad_id)), [], []
    lists = json.loads(tokenizer.files[VOCABULARY])
    return lists["shared"], lists["source"], lists["target"]


def number_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """The id of each piece, `<pad>` included."""
    return {piece: index for index, piece in enumerate(tokenizer.pieces(range(tokenizer.vocabulary)))}
