"""The tokenizer: text to token ids and back, and its training with SentencePiece."""

import io
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import sentencepiece

from transduce.errors import ConfigError, CorpusError, UserError
from transduce.text.pieces import (
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY,
    JointPieces,
    PieceLists,
    SeparatePieces,
    find_tokenizer_files,
)

_MOST_SENTENCES = {"bpe": 1_000_000, "unigram": 250_000}
"""More than enough for any vocabulary, and in training about 0.8 GB at 140 characters a sentence; of a larger corpus, a
random sample of so many is learned from."""

_TOO_MANY_PIECES = re.compile(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)")
_TOO_FEW_PIECES = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")


def _train_model(sentences: Iterable[str], num_pieces: int, algorithm: str, *, shrink: bool) -> bytes:
    """A SentencePiece model of `num_pieces` pieces; with `shrink`, of the nearest number that the text allows."""
    # SentencePiece has a sampler, too, but the sample is another one in every process.
    sample = _sample(sentences, _MOST_SENTENCES[algorithm])
    try:
        return _train(sample, num_pieces, algorithm, exactly=not shrink)
    except RuntimeError as error:
        needed = _TOO_FEW_PIECES.search(str(error))
        if not (shrink and needed):
            raise _explain_error(error, num_pieces) from None
        return _train(sample, int(needed[1]), algorithm, exactly=False)


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


def _train(sample: list[str], num_pieces: int, algorithm: str, *, exactly: bool) -> bytes:
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
        # The rarest characters, 1 in 2000, are spelled in bytes instead of taking a piece each.
        byte_fallback=True,
        character_coverage=0.9995,
        max_sentence_length=65_536,
        # The pieces do not depend on the number of threads, but the model records it.
        num_threads=4,
        minloglevel=2,
    )
    return model.getvalue()


def _explain_error(error: RuntimeError, num_pieces: int) -> ConfigError | CorpusError:
    # One more everywhere, for <pad>.
    setting = f"text.vocabulary = {num_pieces + 1}"
    if most := _TOO_MANY_PIECES.search(str(error)):
        return ConfigError(
            f"{setting} is more than the training text has pieces for: set it to at most {int(most[1]) + 1}, "
            f'or to "fitted"; or give more text'
        )
    if least := _TOO_FEW_PIECES.search(str(error)):
        return ConfigError(
            f"{setting} is too small for the characters of the training text: set it to at least {int(least[1]) + 1}, "
            f'or to "fitted"'
        )
    if "sentences_.empty()" in str(error):
        return CorpusError("the training text is blank, or every line has more than 65536 bytes: give more text")
    return CorpusError(f"SentencePiece cannot find pieces in the training text: {error}")


_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Tokenizer:
    """One vocabulary for both languages: `<unk>` 0, `</s>` 1, the pieces, and `<pad>` last (paper 5.1).

    Its pieces are those of one SentencePiece model. Only models made elsewhere have one for each language: then a text
    has other ids as a source than as a target.
    """

    unknown_id = 0
    end_id = 1

    def __init__(self, pieces: JointPieces | SeparatePieces) -> None:
        self._pieces = pieces
        self.ends_sources = pieces.ends_sources
        """Whether the network reads `</s>` behind a source."""
        self.model_bytes, self.target_model_bytes = pieces.source_model, pieces.target_model
        """The SentencePiece models of sources and of targets, as a rule the same."""
        self.vocabulary = len(pieces.spellings) + 1
        self.pad_id = self.vocabulary - 1

    @classmethod
    def train(cls, sentences: Iterable[str], vocabulary: int, algorithm: str, *, shrink: bool = False) -> "Tokenizer":
        """The tokenizer that fits `sentences`; the same for the same text, on any machine.

        Args:
            sentences: source and target side of the training text, in one stream that is read once.
            vocabulary: number of token ids, `<pad>` included.
            algorithm: "bpe" or "unigram". Lines of more than 65,536 bytes are not learned from.
            shrink: take the nearest size that the text allows, where it does not allow `vocabulary`.

        Raises:
            ConfigError: The text is too little, or has too many characters, for `vocabulary`.
            CorpusError: There is no text.
        """
        return cls.from_bytes(
            _train_model(sentences, vocabulary - 1, algorithm, shrink=shrink), "the trained tokenizer"
        )

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer in a file that SentencePiece wrote, or in a folder that has one, as a bundle.

        Raises:
            UserError: It cannot be read, is no SentencePiece model, or its special symbols have other ids.
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
        return cls(JointPieces(data, name))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> "Tokenizer":
        """The tokenizer that `files` says; `name` is what errors call it."""
        missing = {TARGET_MODEL, VOCABULARY} - files.keys()
        if len(missing) == 2:
            return cls.from_bytes(files[SOURCE_MODEL], name)
        if missing:
            raise UserError(f"{name}: has no {min(missing)}, which belongs to {', '.join(sorted(files))}")
        return cls(SeparatePieces.from_files(files, name))

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

        A `>>xx<<` of the list in front of a source text is one token. If all this is one joint model with its own
        pieces, it is the tokenizer of that model.

        Args:
            source_model: the SentencePiece model of source texts.
            target_model: that of target texts.
            vocabulary: the piece of each id from 0 on, which begin with `<unk>` and `</s>`; without `<pad>`.
            name: what errors call it.
            source_only: pieces of further ids that targets never have.
            target_only: pieces of further ids, behind those, that sources never have.
            ends_sources: whether `</s>` stands behind a source, too.

        Raises:
            UserError: One is no SentencePiece model, or the list begins otherwise, or has a piece twice.
        """
        lists = PieceLists(
            shared=tuple(vocabulary), source=tuple(source_only), target=tuple(target_only), ends_sources=ends_sources
        )
        found = cls(SeparatePieces(source_model, target_model, lists, name))
        if source_model != target_model or source_only or target_only or not ends_sources:
            return found
        try:
            joint = JointPieces(source_model, name)
        except UserError:
            return found
        return cls(joint) if joint.spellings == lists.shared else found

    @property
    def is_joint(self) -> bool:
        """Whether it is one SentencePiece model and nothing else, so that sources and targets have the same ids."""
        return isinstance(self._pieces, JointPieces)

    @property
    def files(self) -> Mapping[str, bytes]:
        """All that it is made of, by names in a folder; equal for equal tokenizers."""
        return self._pieces.files

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces of a source text, without `</s>`.

        No text gives a special symbol: "</s>" is spelled like any word.
        """
        (ids,) = self.encode_all([text])
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every source text, on all cores."""
        return self._pieces.encode_sources(_replace_surrogates(texts))

    def encode_targets(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every target text."""
        return self._pieces.encode_targets(_replace_surrogates(texts))

    def encode_sampled(self, texts: Iterable[str], dropout: float, seed: int) -> list[list[int]]:
        """`encode_all` with a share `dropout` of BPE's merges skipped at random (Provilkov et al. 2020).

        A pure function of its arguments, in every process.

        Raises:
            ConfigError: The tokenizer is not made of merges within words: it was not trained with BPE, or elsewhere.
        """
        return self._pieces.encode_sampled(_replace_surrogates(texts), dropout, seed)

    def as_source(self, ids: Sequence[int]) -> list[int]:
        """A source as the network reads it: `</s>` behind it, or nothing if it learned from such; never empty."""
        return [*ids, self.end_id] if self.ends_sources or not ids else list(ids)

    def as_target(self, ids: Sequence[int]) -> list[int]:
        """A target as it should come out, `</s>` included."""
        return [*ids, self.end_id]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a target; `</s>` and `<pad>` have none."""
        return self._pieces.decode([index for index in ids if index not in (self.end_id, self.pad_id)])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id; "▁" is the space in front of a word."""
        return ["<pad>" if index == self.pad_id else self._pieces.spellings[index] for index in ids]

    def split_language(self, text: str) -> tuple[str, str]:
        """The language token in front of a source text, as in ">>fra<< ", and what follows; mostly there is none."""
        return self._pieces.split_language(text)


def fit_vocabulary_size(num_pairs: int) -> int:
    """A size of vocabulary for `num_pairs`; grows with their square root, from 512 to the paper's 37,000.

    A multiple of 8, which suits matrix products: 952 for a thousand pairs, 9,488 for 100 thousand.
    """
    return min(max(8 * round(30 * math.sqrt(num_pairs) / 8), 512), 37_000)


def _replace_surrogates(texts: Iterable[str]) -> list[str]:
    # Half of a surrogate pair, as JSON can hold, is no character: SentencePiece refuses the whole text.
    return [_LONE_SURROGATE.sub("\ufffd", text) for text in texts]
