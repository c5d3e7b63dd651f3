"""Finding the pieces of a vocabulary in text, with SentencePiece."""

import io
import random
import re
from collections.abc import Iterable

import sentencepiece

from transduce.errors import ConfigError, CorpusError

_MOST_SENTENCES = {"bpe": 1_000_000, "unigram": 250_000}
"""More than enough for any vocabulary, and in training about 0.8 GB at 140 characters a sentence; of a larger corpus, a
random sample of so many is learned from."""

_TOO_MANY_PIECES = re.compile(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)")
_TOO_FEW_PIECES = re.compile(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)")


def train_model(sentences: Iterable[str], num_pieces: int, algorithm: str, *, shrink: bool) -> bytes:
    """A SentencePiece model of `num_pieces` pieces; with `shrink`, of the nearest number that the text allows.

    Lines of more than 65,536 bytes are not learned from.

    Raises:
        ConfigError: The text is too little, or has too many characters, for `num_pieces`.
        CorpusError: There is no text.
    """
    # SentencePiece has a sampler, too, but the sample is another one in every process.
    sample = _sample(sentences, _MOST_SENTENCES[algorithm])
    try:
        return _train(sample, num_pieces, algorithm, exactly=not shrink)
    except RuntimeError as error:
        needed = _TOO_FEW_PIECES.search(str(error))
        if not (shrink and needed):
            raise _explained(error, num_pieces) from None
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


def _explained(error: RuntimeError, num_pieces: int) -> ConfigError | CorpusError:
    # One more everywhere, for <pad>.
    asked = f"text.vocabulary = {num_pieces + 1}"
    if most := _TOO_MANY_PIECES.search(str(error)):
        return ConfigError(
            f"{asked} is more than the training text has pieces for: set it to at most {int(most[1]) + 1}, "
            f'or to "fitted"; or give more text'
        )
    if least := _TOO_FEW_PIECES.search(str(error)):
        return ConfigError(
            f"{asked} is too small for the characters of the training text: set it to at least {int(least[1]) + 1}, "
            f'or to "fitted"'
        )
    if "sentences_.empty()" in str(error):
        return CorpusError("the training text is blank, or every line has more than 65536 bytes: give more text")
    return CorpusError(f"SentencePiece cannot find pieces in the training text: {error}")
