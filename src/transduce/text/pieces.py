"""The pieces of a tokenizer: SentencePiece models, their files, and BPE-dropout."""

import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import repeat
from pathlib import Path

import sentencepiece
from pydantic import ValidationError

from transduce.config import Settings, first_problem
from transduce.errors import ConfigError, UserError

SOURCE_MODEL = "tokenizer.model"
TARGET_MODEL = "target_tokenizer.model"
VOCABULARY = "vocabulary.json"


def find_tokenizer_files(path: Path) -> dict[str, Path]:
    """The files of the tokenizer at `path`, a SentencePiece model or a folder with one, by their names in a bundle."""
    if not path.is_dir():
        return {SOURCE_MODEL: path}
    others = [name for name in (TARGET_MODEL, VOCABULARY) if (path / name).exists()]
    return {name: path / name for name in (SOURCE_MODEL, *others)}


def open_model(model: bytes, name: str, remedy: str) -> sentencepiece.SentencePieceProcessor:
    """Open a SentencePiece model; errors name it `name` and advise `remedy`."""
    if not model:
        raise UserError(f"{name}: is empty, not a SentencePiece model; {remedy}")
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise UserError(f"{name}: is not a SentencePiece model, or is damaged; {remedy}") from None


_WORD = re.compile("▁?[^▁]+|▁")

_MOST_WORDS = 1 << 16
"""Words whose spelling without dropout is kept in memory: some 30 MB."""

_NEVER = 1 << 62
"""A gap longer than any text."""

_Merge = tuple[float, int, int, str]
"""A possible merge, the best one first: negative score, positions of the two symbols, and their piece."""


class BPEDropout:
    """BPE-dropout: merges of a BPE model skipped at random, so that training sees words in many spellings.

    The method is that of Provilkov et al. 2020. SentencePiece implements it, too, but at least its version 0.2.3 draws
    other random numbers in every process, whatever the seed: a run that is resumed would see other text.

    Args:
        processor: a model trained with BPE whose pieces do not reach across words, SentencePiece's default.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        special = (processor.is_unknown, processor.is_control, processor.is_byte)
        ids = [index for index in range(processor.get_piece_size()) if not any(kind(index) for kind in special)]
        self._ids = {processor.id_to_piece(index): index for index in ids}
        self._scores = {processor.id_to_piece(index): processor.get_score(index) for index in ids}
        self._spell = lru_cache(_MOST_WORDS)(self._spell_undisturbed)

    def encode(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids of every text; each merge is skipped with probability `dropout`, decided by `seed`."""
        gaps = _draw_gaps(dropout, seed)
        gap = next(gaps)
        sampled = []
        for text, expected in zip(texts, self._processor.encode(list(texts)), strict=True):
            unsampled: list[int] = []
            ids: list[int] = []
            for word in _WORD.findall(self._processor.normalize(text)):
                spelling, num_merges = self._spell(word)
                unsampled += spelling
                if gap < num_merges:
                    spelling, gap = self._merge(word, gap, gaps)
                else:
                    gap -= num_merges
                ids += spelling
            if unsampled != expected:
                raise ConfigError(
                    f"text.bpe_dropout = {dropout}: this tokenizer is not made of merges within words, as {text!r:.80} "
                    f"shows: use one trained with BPE and byte fallback, or set bpe_dropout to 0"
                )
            sampled.append(ids)
        return sampled

    def _spell_undisturbed(self, word: str) -> tuple[list[int], int]:
        many = len(word)
        ids, left = self._merge(word, many, repeat(many))
        return ids, many - left

    def _merge(self, word: str, gap: int, gaps: Iterator[int]) -> tuple[list[int], int]:
        """Ids of the word if `gap` merges are done before one is skipped, and what is left of the gap after it.

        A merge that was skipped does not come up again, as in SentencePiece.
        """
        symbols = list(word)
        before = list(range(-1, len(word) - 1))
        behind = [*range(1, len(word)), -1]
        agenda: list[_Merge] = []
        for left, right in enumerate(behind):
            self._propose(agenda, symbols, left, right)
        while agenda:
            _, left, right, piece = heappop(agenda)
            # One of the two may have been merged with another neighbour in the meantime.
            if not (symbols[left] and symbols[right] and len(symbols[left] + symbols[right]) == len(piece)):
                continue
            if gap == 0:
                gap = next(gaps)
                continue
            gap -= 1
            symbols[left], symbols[right] = piece, ""
            behind[left] = behind[right]
            if behind[right] >= 0:
                before[behind[right]] = left
            self._propose(agenda, symbols, before[left], left)
            self._propose(agenda, symbols, left, behind[left])
        return [index for symbol in symbols if symbol for index in self._ids_of(symbol)], gap

    def _propose(self, agenda: list[_Merge], symbols: list[str], left: int, right: int) -> None:
        """Put the merge of two places on the agenda if it gives a piece; -1 is the place of no symbol."""
        if left >= 0 and right >= 0 and (piece := symbols[left] + symbols[right]) in self._scores:
            heappush(agenda, (-self._scores[piece], left, right, piece))

    def _ids_of(self, symbol: str) -> list[int]:
        if symbol in self._ids:
            return [self._ids[symbol]]
        return [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in symbol.encode()]


def _draw_gaps(dropout: float, seed: int) -> Iterator[int]:
    """The number of merges before each skipped one: geometric, one random number for each skipped merge."""
    chance = random.Random(seed)  # noqa: S311 - nothing here is secret
    while True:
        # 1 - random() is above 0.
        yield int(min(math.log(1.0 - chance.random()) / math.log1p(-dropout), _NEVER)) if dropout else _NEVER


_ADVICE = (
    "give a model trained by SentencePiece, with the flags "
    "--unk_id=0 --eos_id=1 --bos_id=-1 --pad_id=-1 --byte_fallback=true"
)


class JointPieces:
    """The pieces of one SentencePiece model for both languages (paper 5.1), with the ids of the model; see `Tokenizer`.

    Raises:
        UserError: it is no SentencePiece model in which `<unk>` is 0 and `</s>` is 1.
    """

    ends_sources = True

    def __init__(self, model: bytes, name: str) -> None:
        self.source_model = self.target_model = model
        self._processor = open_model(model, name, _ADVICE)
        found = self._processor.unk_id(), self._processor.eos_id()
        if found != (0, 1):
            raise UserError(
                f"{name}: <unk> must have the id 0 and </s> the id 1, but have {found[0]} and {found[1]}; {_ADVICE}"
            )

    @cached_property
    def spellings(self) -> tuple[str, ...]:
        return tuple(self._processor.id_to_piece(list(range(self._processor.get_piece_size()))))

    @property
    def files(self) -> Mapping[str, bytes]:
        return {SOURCE_MODEL: self.source_model}

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode(list(texts))
        return ids

    encode_targets = encode_sources

    def encode_sampled(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        return self._bpe_dropout.encode(texts, dropout, seed)

    @cached_property
    def _bpe_dropout(self) -> BPEDropout:
        return BPEDropout(self._processor)

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._processor.decode(list(ids))
        return text

    def split_language(self, text: str) -> tuple[str, str]:
        return "", text


_ADVICE_FOR_TWO = "give the SentencePiece models that the translation model was trained with"
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
    """Pieces of the source alone."""

    target: tuple[str, ...] = ()
    """Pieces of the target alone."""

    ends_sources: bool = True
    """Whether `</s>` stands behind a source, too, and not only behind a target."""

    @property
    def all(self) -> tuple[str, ...]:
        """The piece of each id."""
        return (*self.shared, *self.source, *self.target)


class SeparatePieces:
    """The pieces of an imported model: a SentencePiece model for each language, and a list that assigns ids.

    Raises:
        UserError: One is no SentencePiece model; or the list begins otherwise, or has a piece twice or without letters.
    """

    def __init__(self, source_model: bytes, target_model: bytes, lists: PieceLists, name: str) -> None:
        _check_lists(lists, name)
        self.source_model, self.target_model, self._lists = source_model, target_model, lists
        self._source = open_model(source_model, f"{name}, source", _ADVICE_FOR_TWO)
        self._target = open_model(target_model, f"{name}, target", _ADVICE_FOR_TWO)
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
        """Read the pieces from the files of a tokenizer, which `name` names in errors."""
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
        vocabulary = self._lists.model_dump_json(indent=1).encode() + b"\n"
        return {SOURCE_MODEL: self.source_model, TARGET_MODEL: self.target_model, VOCABULARY: vocabulary}

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        languages, rests = zip(*map(self.split_language, texts), strict=True) if texts else ((), ())
        rows = self._source.encode(list(rests), out_type=str)
        return [
            [self._source_ids.get(piece, 0) for piece in (*filter(None, [language.strip()]), *row)]
            for language, row in zip(languages, rows, strict=True)
        ]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        rows = self._target.encode(list(texts), out_type=str)
        return [[self._target_ids.get(piece, 0) for piece in row] for row in rows]

    def encode_sampled(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:  # noqa: ARG002 - as its sibling
        """Refuse: SentencePiece does not know which pieces the translation model has."""
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
        found = _LANGUAGE.match(text)
        if found is None or found[1] not in self._source_ids:
            return "", text
        return found[0], text[found.end() :]


def _check_lists(lists: PieceLists, name: str) -> None:
    if lists.shared[:2] != _SPECIAL:
        raise UserError(f"{name}: its vocabulary begins with {list(lists.shared[:2])}, must begin with <unk> and </s>")
    if "" in lists.all:
        raise UserError(f"{name}: piece {lists.all.index('')} of its vocabulary is empty")
    twice, count = Counter(lists.all).most_common(1)[0]
    if count > 1:
        raise UserError(f"{name}: its vocabulary has the piece {twice!r} twice: each must have one id")
