"""The tokenizer: text to token ids and back, its files, its training with SentencePiece, and BPE-dropout."""

import io
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import heappop, heappush
from itertools import repeat
from pathlib import Path

import sentencepiece
from pydantic import ValidationError

from transduce.config import TAG_PATTERN, Record, describe_file_error
from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text.corpus import LONE_SURROGATE

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
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        processor.id_to_piece(list(range(processor.get_piece_size())))  # each must be UTF-8
    except (RuntimeError, UnicodeDecodeError):
        raise UserError(f"{name}: is not a SentencePiece model, or is damaged; {remedy}") from None
    return processor


_WORD = re.compile("▁?[^▁]+|▁")

_MAX_WORDS = 1 << 16
"""Words whose spelling without dropout is kept in memory: some 30 MB."""

_MAX_GAP = 1 << 62
"""A gap (number of merges) longer than any text."""

_Merge = tuple[float, int, int, str]
"""A possible merge, the best one first: negative score, positions of the two symbols, and their piece."""


class BPEDropout:
    """BPE-dropout: merges of a BPE model skipped at random, so that training sees words in many spellings.

    The method is that of Provilkov et al. 2020. SentencePiece implements it, too, but version 0.2.3 draws different
    random numbers in every process, whatever the seed: a resumed run would see different text.

    Args:
        processor: a model trained with BPE whose pieces do not reach across words, SentencePiece's default.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        special = (processor.is_unknown, processor.is_control, processor.is_byte)
        ids = [index for index in range(processor.get_piece_size()) if not any(kind(index) for kind in special)]
        self._ids = {processor.id_to_piece(index): index for index in ids}
        self._scores = {processor.id_to_piece(index): processor.get_score(index) for index in ids}
        self._encode_word = lru_cache(_MAX_WORDS)(self._encode_word_without_dropout)

    def encode(self, texts: Sequence[str], dropout: float, seed: int) -> list[list[int]]:
        """Ids of every text; each merge is skipped with probability `dropout`, decided by `seed`."""
        gaps = _draw_gaps(dropout, seed)
        gap = next(gaps)
        sampled = []
        for text, expected in zip(texts, self._processor.encode(list(texts)), strict=True):
            unsampled: list[int] = []
            ids: list[int] = []
            for word in _WORD.findall(self._processor.normalize(text)):
                spelling, num_merges = self._encode_word(word)
                unsampled += spelling
                if gap < num_merges:
                    spelling, gap = self._apply_merges(word, gap, gaps)
                else:
                    gap -= num_merges
                ids += spelling
            if unsampled != expected:
                raise ConfigError(
                    f"text.bpe_dropout = {dropout}: this tokenizer does not consist of merges within words, as "
                    f"{text!r:.80} shows: use one trained with BPE and byte fallback, or set bpe_dropout to 0"
                )
            sampled.append(ids)
        return sampled

    def _encode_word_without_dropout(self, word: str) -> tuple[list[int], int]:
        many = len(word)
        ids, left = self._apply_merges(word, many, repeat(many))
        return ids, many - left

    def _apply_merges(self, word: str, gap: int, gaps: Iterator[int]) -> tuple[list[int], int]:
        """Ids of the word if `gap` merges are done before one is skipped, and the remaining gap after it.

        A merge that was skipped does not come up again, as in SentencePiece.
        """
        symbols = list(word)
        before = list(range(-1, len(word) - 1))
        behind = [*range(1, len(word)), -1]
        agenda: list[_Merge] = []
        for left, right in enumerate(behind):
            self._push_merge(agenda, symbols, left, right)
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
            self._push_merge(agenda, symbols, before[left], left)
            self._push_merge(agenda, symbols, left, behind[left])
        return [index for symbol in symbols if symbol for index in self._ids_of(symbol)], gap

    def _push_merge(self, agenda: list[_Merge], symbols: list[str], left: int, right: int) -> None:
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
        yield int(min(math.log(1.0 - chance.random()) / math.log1p(-dropout), _MAX_GAP)) if dropout else _MAX_GAP


class PieceLists(Record):
    """The pieces of a tokenizer with a SentencePiece model for each side, in the order of their ids.

    A piece produced by the SentencePiece model of one side that only the other side has is read as `<unk>`.
    """

    shared: tuple[str, ...]
    """Pieces of both sides; the first two are `<unk>` and `</s>`."""

    source: tuple[str, ...] = ()
    """Pieces of the source alone."""

    target: tuple[str, ...] = ()
    """Pieces of the target alone."""

    ends_sources: bool = True
    """Whether sources end with `</s>` as targets do."""

    @property
    def all(self) -> tuple[str, ...]:
        """The piece of each id."""
        return (*self.shared, *self.source, *self.target)


def _check_lists(lists: PieceLists, name: str) -> None:
    if lists.shared[:2] != _SPECIAL:
        raise UserError(f"{name}: its vocabulary begins with {list(lists.shared[:2])}, must begin with <unk> and </s>")
    if "" in lists.all:
        raise UserError(f"{name}: piece {lists.all.index('')} of its vocabulary is empty")
    twice, count = Counter(lists.all).most_common(1)[0]
    if count > 1:
        raise UserError(f"{name}: its vocabulary has the piece {twice!r} twice: each must have one id")


_MAX_SENTENCES = {"bpe": 1_000_000, "unigram": 250_000}
"""Maximum number of sentences for training the tokenizer; of a larger corpus, a random sample is used. Ample for any
vocabulary, and about 0.8 GB at 140 characters per sentence."""

_TOO_MANY_PIECES = re.compile(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)")
_TOO_FEW_PIECES = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")


def _sample(sentences: Iterable[str], size: int) -> list[str]:
    """At most `size` sentences that are not blank, each as likely as the others to be among them; always the same."""
    sample: list[str] = []
    chance = random.Random(0)  # noqa: S311 - nothing here is secret
    for number, sentence in enumerate(filter(str.strip, sentences)):
        if number < size:
            sample.append(sentence)
        elif (place := int(chance.random() * (number + 1))) < size:
            sample[place] = sentence
    return sample


def _train(sample: list[str], num_pieces: int, algorithm: str, tags: Sequence[str], *, exactly: bool) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample),
        model_writer=model,
        model_type=algorithm,
        vocab_size=num_pieces,
        hard_vocab_limit=exactly,
        unk_id=0,
        eos_id=1,
        bos_id=-1,
        pad_id=-1,
        control_symbols=list(tags),
        # The rarest characters, 1 in 2000, are spelled in bytes instead of taking a piece each.
        byte_fallback=True,
        character_coverage=0.9995,
        max_sentence_length=65_536,
        # The pieces do not depend on the number of threads, but the model records it.
        num_threads=4,
        minloglevel=2,
    )
    return model.getvalue()


def _explain_error(error: RuntimeError, vocabulary: int) -> ConfigError | CorpusError:
    # SentencePiece does not count <pad>: its numbers are one less.
    setting = f"text.vocabulary = {vocabulary}"
    if most := _TOO_MANY_PIECES.search(str(error)):
        return ConfigError(
            f"{setting} is too large for the training text: set it to at most {int(most[1]) + 1}, "
            f'or to "fitted"; or give more text'
        )
    if least := _TOO_FEW_PIECES.search(str(error)):
        return ConfigError(
            f"{setting} is too small for the characters of the training text: set it to at least {int(least[1]) + 1}, "
            f'or to "fitted"'
        )
    if "sentences_.empty()" in str(error):
        return CorpusError(
            "no line is left to train a tokenizer on: every line of the training text is blank, longer than "
            "65,536 bytes, or held out for validation, as are all that are the same: give more text"
        )
    return CorpusError(f"SentencePiece failed on the training text: {error}")


_ADVICE = (
    "give a model trained by SentencePiece, with the flags "
    "--unk_id=0 --eos_id=1 --bos_id=-1 --pad_id=-1 --byte_fallback=true"
)
_ADVICE_FOR_TWO = "give the SentencePiece models that the translation model was trained with"
_TAG = re.compile(rf"\s*({TAG_PATTERN})\s*")
SYNTHETIC_TAGS = (">>bt<<", ">>ft<<")
"""Tags of training pairs that a model has made from text in the target or in the source language alone."""
_SPECIAL = ("<unk>", "</s>")
PIECES_WITHOUT_TEXT = frozenset({"</s>", "<s>", "<pad>", "<blank>"})
"""Pieces without text: in a tokenizer trained by Transduce, the end symbol and the padding."""


class Tokenizer:
    """One vocabulary for both languages: `<unk>` 0, `</s>` 1, the pieces, and `<pad>` last (paper 5.1).

    Its pieces are those of one SentencePiece model. Only imported models have one for each language, and `lists` that
    assign ids: a text then has different ids as a source and as a target.

    Args:
        source_model: the SentencePiece model of source texts.
        target_model: that of target texts, which is the same without `lists`.
        name: what errors call the tokenizer.
        lists: the pieces of a model made elsewhere, in the order of their ids.

    Raises:
        UserError: one is not a SentencePiece model; without `lists`, `<unk>` is not 0 or `</s>` is not 1; or the lists
            begin differently, or have a repeated or empty piece.
    """

    unknown_id = 0
    end_id = 1

    def __init__(self, source_model: bytes, target_model: bytes, name: str, lists: PieceLists | None = None) -> None:
        self.model_bytes, self.target_model_bytes = source_model, target_model
        """The SentencePiece models of sources and of targets, usually the same."""
        self._lists = lists
        if lists is None:
            self._source = self._target = open_model(source_model, name, _ADVICE)
            if (found := (self._source.unk_id(), self._source.eos_id())) != (self.unknown_id, self.end_id):
                raise UserError(
                    f"{name}: <unk> must have the id 0 and </s> the id 1, but have {found[0]} and {found[1]}; {_ADVICE}"
                )
            self._spellings = tuple(self._source.id_to_piece(list(range(self._source.get_piece_size()))))
            ids = {piece: index for index, piece in enumerate(self._spellings) if self._source.is_control(index)}
        else:
            _check_lists(lists, name)
            self._source = open_model(source_model, f"{name}, source", _ADVICE_FOR_TWO)
            self._target = open_model(target_model, f"{name}, target", _ADVICE_FOR_TWO)
            self._spellings = lists.all
            # If no character of "</s>" is in the vocabulary, SentencePiece encodes it as one piece, which must not end
            # the text.
            ids = {piece: index for index, piece in enumerate(lists.all) if piece not in _SPECIAL}
            self._source_ids, self._target_ids = (
                {piece: index for piece, index in ids.items() if piece not in others}
                for others in (set(lists.target), set(lists.source))
            )
            ids = self._source_ids
        self._tags = {piece: index for piece, index in ids.items() if _TAG.fullmatch(piece)}
        self.ends_sources = lists is None or lists.ends_sources
        """Whether sources end with `</s>`."""
        self.vocabulary = len(self._spellings) + 1
        self.pad_id = self.vocabulary - 1

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        vocabulary: int,
        algorithm: str,
        *,
        tags: Sequence[str] = (),
        shrink: bool = False,
    ) -> "Tokenizer":
        """The tokenizer that fits `sentences`; the same for the same text, on any machine.

        Args:
            sentences: source and target side of the training text, in one stream that is read once.
            vocabulary: number of token ids, `<pad>` included.
            algorithm: "bpe" or "unigram". Lines of more than 65,536 bytes are not learned from.
            tags: as in ">>de<<": each has an id of its own, which a source text has that begins with it.
            shrink: if the text does not allow `vocabulary`, use the nearest size that it allows.

        Raises:
            ConfigError: the text is too short, or has too many distinct characters, for `vocabulary`.
            CorpusError: there is no text.
        """
        # SentencePiece has a sampler, but its sample differs in every process.
        sample = _sample(sentences, _MAX_SENTENCES[algorithm])
        try:
            model = _train(sample, vocabulary - 1, algorithm, tags, exactly=not shrink)
        except RuntimeError as error:
            needed = _TOO_FEW_PIECES.search(str(error))
            if not (shrink and needed):
                raise _explain_error(error, vocabulary) from None
            model = _train(sample, int(needed[1]), algorithm, tags, exactly=False)
        return cls.from_bytes(model, "the trained tokenizer")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer in a file that SentencePiece wrote, or in a folder that has one, as a bundle.

        Raises:
            UserError: it cannot be read, is not a SentencePiece model, or its special symbols have other ids.
        """
        files = {}
        for name, file in find_tokenizer_files(path).items():
            try:
                files[name] = file.read_bytes()
            except OSError as error:
                raise UserError(f"{file}: cannot be read ({error.strerror}); give a SentencePiece model") from None
        return cls.from_files(files, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Tokenizer":
        """The tokenizer in the bytes of a SentencePiece model; `name` is what errors call them."""
        return cls(data, data, name)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> "Tokenizer":
        """The tokenizer of which `files` has the files, by their names in a bundle; `name` is what errors call it."""
        missing = {TARGET_MODEL, VOCABULARY} - files.keys()
        if len(missing) == 2:
            return cls.from_bytes(files[SOURCE_MODEL], name)
        if missing:
            raise UserError(f"{name}: lacks {min(missing)}, which is required with {', '.join(sorted(files))}")
        try:
            lists = PieceLists.model_validate_json(files[VOCABULARY])
        except ValidationError as error:
            raise UserError(
                f"{name}, {VOCABULARY}: {describe_file_error(error)}; must be a JSON object with lists of pieces, "
                f"shared, source and target: use an undamaged copy"
            ) from None
        return cls(files[SOURCE_MODEL], files[TARGET_MODEL], name, lists)

    @classmethod
    def with_vocabulary(
        cls,
        source_model: bytes,
        target_model: bytes,
        vocabulary: Sequence[str],
        name: str,
        *,
        source_only: Sequence[str] = (),
        target_only: Sequence[str] = (),
        ends_sources: bool = True,
    ) -> "Tokenizer":
        """The tokenizer of an imported model, which looks up the pieces of two SentencePiece models in a list.

        A `>>xx<<` of the list at the beginning of a source text is one token. If both models are one joint model with
        its own pieces, the result is the tokenizer of that model.

        Args:
            source_model: the SentencePiece model of source texts.
            target_model: that of target texts.
            vocabulary: the piece of each id from 0 on, which begin with `<unk>` and `</s>`; without `<pad>`.
            name: what errors call it.
            source_only: pieces of further ids that targets never have.
            target_only: pieces of further ids, after those, that sources never have.
            ends_sources: whether sources end with `</s>`.

        Raises:
            UserError: one is not a SentencePiece model, or the list begins differently or has a repeated piece.
        """
        lists = PieceLists(
            shared=tuple(vocabulary), source=tuple(source_only), target=tuple(target_only), ends_sources=ends_sources
        )
        found = cls(source_model, target_model, name, lists)
        if source_model != target_model or source_only or target_only or not ends_sources:
            return found
        try:
            joint = cls.from_bytes(source_model, name)
        except UserError:
            return found
        return joint if joint.pieces(range(joint.pad_id)) == [*vocabulary] else found

    @property
    def is_joint(self) -> bool:
        """Whether the tokenizer is one SentencePiece model alone, so that sources and targets have the same ids."""
        return self._lists is None

    @property
    def files(self) -> Mapping[str, bytes]:
        """The files of the tokenizer, by their names in a bundle; equal for equal tokenizers."""
        if self._lists is None:
            return {SOURCE_MODEL: self.model_bytes}
        vocabulary = self._lists.model_dump_json(indent=1).encode() + b"\n"
        return {SOURCE_MODEL: self.model_bytes, TARGET_MODEL: self.target_model_bytes, VOCABULARY: vocabulary}

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of a source text, without `</s>`.

        No text gives a special symbol: "</s>" is spelled like any word.
        """
        (ids,) = self.encode_all([text])
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every source text, on all cores."""
        tags, rests = self._split_tags(texts)
        if self.is_joint:
            rows = _encode(self._source, rests)
        else:
            pieces = self._source.encode(_replace_surrogates(rests), out_type=str)
            rows = [[self._source_ids.get(piece, self.unknown_id) for piece in row] for row in pieces]
        return [[*tag, *row] for tag, row in zip(tags, rows, strict=True)] if self._tags else rows

    def _split_tags(self, texts: Sequence[str]) -> tuple[list[list[int]], Sequence[str]]:
        """The ids of the tag at the beginning of each source text, if it has one, and the rests."""
        if not self._tags:
            return [], texts
        split = [self.split_tag(text) for text in texts]
        return [[self._tags[tag.strip()]] if tag else [] for tag, _ in split], [rest for _, rest in split]

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every target text."""
        if self.is_joint:
            return _encode(self._target, texts)
        rows = self._target.encode(_replace_surrogates(texts), out_type=str)
        return [[self._target_ids.get(piece, self.unknown_id) for piece in row] for row in rows]

    def encode_sampled(self, texts: Iterable[str], dropout: float, seed: int) -> list[list[int]]:
        """`encode_all` with a share `dropout` of BPE's merges skipped at random (Provilkov et al. 2020).

        A pure function of its arguments, in every process.

        Raises:
            ConfigError: the tokenizer does not consist of merges within words: it was not trained with BPE, or is
                imported.
        """
        if not self.is_joint:  # SentencePiece cannot tell which pieces the translation model has
            raise ConfigError(
                f"text.bpe_dropout = {dropout}: the tokenizer of an imported model with one SentencePiece model per "
                "language does not support it: set bpe_dropout to 0"
            )
        tags, rests = self._split_tags(list(texts))
        rows = self._bpe_dropout.encode(_replace_surrogates(rests), dropout, seed)
        return [[*tag, *row] for tag, row in zip(tags, rows, strict=True)] if self._tags else rows

    @cached_property
    def _bpe_dropout(self) -> BPEDropout:
        return BPEDropout(self._source)

    def as_source(self, ids: Sequence[int]) -> list[int]:
        """The ids of a source as the network reads them: with `</s>`, unless it was trained without; never empty."""
        return [*ids, self.end_id] if self.ends_sources or not ids else list(ids)

    def as_target(self, ids: Sequence[int]) -> list[int]:
        """The ids of a target as the network predicts them, with `</s>` at the end."""
        return [*ids, self.end_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a target; `</s>` and `<pad>` have none, and a piece that only sources have appears as it is
        spelled.
        """
        shown = [index for index in ids if index not in (self.end_id, self.pad_id)]
        if self.is_joint:
            text: str = self._target.decode(shown)
            return text
        unknown = self._target.id_to_piece(self._target.unk_id())
        pieces = [unknown if index == self.unknown_id else self._spellings[index] for index in shown]
        text = self._target.decode_pieces([piece for piece in pieces if piece not in PIECES_WITHOUT_TEXT])
        return text.replace("▁", " ").strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id; "▁" is the space before a word."""
        return ["<pad>" if index == self.pad_id else self._spellings[index] for index in ids]

    @property
    def tags(self) -> list[str]:
        """The tags that a text to translate may begin with, as in ">>de<<"; those of synthetic pairs are not for it."""
        return [tag for tag in self._tags if tag not in SYNTHETIC_TAGS]

    def split_tag(self, text: str) -> tuple[str, str]:
        """The tag at the beginning of a source text, as in ">>fra<< " (usually empty), and the rest."""
        found = _TAG.match(text) if self._tags else None
        if found is None or found[1] not in self._tags:
            return "", text
        return found[0], text[found.end() :]

    def repeat_tags(self, texts: Sequence[str], tag: str = "") -> list[str]:
        """Consecutive texts, where each without a tag of its own begins with that of the text before it.

        `tag` is for the first text.
        """
        tagged = []
        for text in texts:
            own, _ = self.split_tag(text)
            tagged.append(text if own else tag + text)
            tag = own or tag
        return tagged


def fit_vocabulary_size(num_pairs: int) -> int:
    """A vocabulary size for `num_pairs`; grows with their square root, from 512 to the paper's 37,000.

    A multiple of 8, which suits matrix products: 952 for a thousand pairs, 9,488 for 100 thousand.
    """
    return min(max(8 * round(30 * math.sqrt(num_pairs) / 8), 512), 37_000)


def _encode(model: sentencepiece.SentencePieceProcessor, texts: Iterable[str]) -> list[list[int]]:
    ids: list[list[int]] = model.encode(_replace_surrogates(texts))
    return ids


def _replace_surrogates(texts: Iterable[str]) -> list[str]:
    # SentencePiece rejects a whole text with an unpaired surrogate, which JSON can contain.
    return [LONE_SURROGATE.sub("\ufffd", text) for text in texts]
