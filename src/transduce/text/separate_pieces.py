"""The pieces of a model made elsewhere: a SentencePiece model for each language, and a list that gives them ids."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError, UserError
from transduce.text.sentencepiece_model import open_model
from transduce.text.tokenizer_files import SOURCE_MODEL, TARGET_MODEL, VOCABULARY

_REMEDY = "give the SentencePiece models that the translation model was trained with"
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")
_SPECIAL = ("<unk>", "</s>")
_SILENT = frozenset({"</s>", "<s>", "<pad>", "<blank>"})


class PieceLists(Settings):
    """All pieces, in the order of their ids: first those that both sides have.

    What one side lacks, its SentencePiece model may still make: then it is unknown to that side.
    """

    shared: tuple[str, ...]
    """Pieces of both sides; the first two are `<unk>` and `</s>`."""

    source: tuple[str, ...] = ()
    """Those of the source alone."""

    target: tuple[str, ...] = ()
    """Those of the target alone."""

    ends_sources: bool = True
    """Whether `</s>` stands behind a source, too, and not only behind a target."""

    @property
    def all(self) -> tuple[str, ...]:
        """The piece of each id."""
        return (*self.shared, *self.source, *self.target)


class SeparatePieces:
    """Ids are places in a list, in which the pieces that either model makes are looked up.

    Args:
        source_model: the SentencePiece model of source texts.
        target_model: that of target texts.
        lists: the pieces, by id.
        name: what errors call it.

    Raises:
        UserError: One is no SentencePiece model; or the list begins otherwise, or has a piece twice or without letters.
    """

    def __init__(self, source_model: bytes, target_model: bytes, lists: PieceLists, name: str) -> None:
        _check(lists, name)
        self.source_model, self.target_model, self._lists = source_model, target_model, lists
        self._source = open_model(source_model, f"{name}, source", _REMEDY)
        self._target = open_model(target_model, f"{name}, target", _REMEDY)
        self.spellings, self.ends_sources = lists.all, lists.ends_sources
        # Where no letter of "</s>" is known, SentencePiece makes one piece of it, which must not end the text.
        ids = {piece: index for index, piece in enumerate(self.spellings) if piece not in _SPECIAL}
        self._source_ids, self._target_ids = (
            {piece: index for piece, index in ids.items() if piece not in others}
            for others in (set(lists.target), set(lists.source))
        )
        self._unknown = self._target.id_to_piece(self._target.unk_id())

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> "SeparatePieces":
        """What `files` keeps.

        Raises:
            UserError: A file is damaged.
        """
        try:
            lists = PieceLists.model_validate_json(files[VOCABULARY])
        except ValidationError as error:
            raise UserError(
                f"{name}, {VOCABULARY}: {first_problem(error)}; must be a JSON object with lists of pieces, shared, "
                f"source and target: use an undamaged copy"
            ) from None
        return cls(files[SOURCE_MODEL], files[TARGET_MODEL], lists, name)

    @property
    def files(self) -> Mapping[str, bytes]:
        """What is written of it, by name."""
        vocabulary = self._lists.model_dump_json(indent=1).encode() + b"\n"
        return {SOURCE_MODEL: self.source_model, TARGET_MODEL: self.target_model, VOCABULARY: vocabulary}

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the pieces of each text; a language token in front of it is one."""
        languages, rests = zip(*map(self.split_language, texts), strict=True) if texts else ((), ())
        rows = self._source.encode(list(rests), out_type=str)
        return [
            [self._source_ids.get(piece, 0) for piece in (*filter(None, [language.strip()]), *row)]
            for language, row in zip(languages, rows, strict=True)
        ]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the pieces of each text."""
        rows = self._target.encode(list(texts), out_type=str)
        return [[self._target_ids.get(piece, 0) for piece in row] for row in rows]

    def encode_sampled(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:  # noqa: ARG002 - as its sibling
        """Refused: which pieces the translation model knows is not for SentencePiece to say.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            f"text.bpe_dropout = {dropout}: this tokenizer is that of a model made elsewhere, with a SentencePiece "
            f"model for each language and a vocabulary beside them: set bpe_dropout to 0"
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces, by the model of the target; a piece that is unknown to it stands for itself."""
        pieces = [self._unknown if index == 0 else self.spellings[index] for index in ids]
        text: str = self._target.decode_pieces([piece for piece in pieces if piece not in _SILENT])
        return text.replace("▁", " ").strip()

    def split_language(self, text: str) -> tuple[str, str]:
        """A language token that the vocabulary has, with the spaces around it, and what follows it."""
        found = _LANGUAGE.match(text)
        if found is None or found[1] not in self._source_ids:
            return "", text
        return found[0], text[found.end() :]


def _check(lists: PieceLists, name: str) -> None:
    if lists.shared[:2] != _SPECIAL:
        raise UserError(f"{name}: its vocabulary begins with {list(lists.shared[:2])}, must begin with <unk> and </s>")
    if "" in lists.all:
        raise UserError(f"{name}: piece {lists.all.index('')} of its vocabulary is empty")
    twice, count = Counter(lists.all).most_common(1)[0]
    if count > 1:
        raise UserError(f"{name}: its vocabulary has the piece {twice!r} twice: each must have one id")
