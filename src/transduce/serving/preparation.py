"""Requests on their way into the queue: texts in sentences, and how long each is."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from transduce.serving.answers import TranslatedSentence, TranslatedText
from transduce.serving.models import LoadedModel
from transduce.serving.wishes import TranslationWish
from transduce.text import Document, segments, split_document, subdivided

MOST_PARTS = 8
"""Of a sentence that is longer than the model reads at a time: with more, each is computed as a sentence of its own, so
that others have their turn in between, and nothing more is computed of it once nobody waits for it."""


@dataclass(frozen=True)
class PreparedTexts:
    """Texts in sentences.

    Args:
        documents: one for each text.
        sentences: of all, in order, each with its number of source tokens.
    """

    documents: tuple[Document, ...]
    sentences: tuple[tuple[str, int], ...]

    def answers(self, found: Sequence[TranslatedSentence]) -> list[TranslatedText]:
        """The texts with the translations of all sentences, in order."""
        answers, start = [], 0
        for document in self.documents:
            end = start + len(document.sentences)
            answers.append(TranslatedText.of(document, tuple(found[start:end])))
            start = end
        return answers


def prepared_texts(model: LoadedModel, texts: Sequence[str], wish: TranslationWish) -> PreparedTexts:
    """The texts in sentences, as the wish has it.

    Raises:
        ConfigError: the wish contradicts itself, asks for more than the model or its engine has, or has a prefix of
            more tokens than the model reads at a time: each takes a step of the search.
    """
    model.line_translator(wish)
    if wish.align:
        model.decoder("alignments")
    num_prefix = _num_tokens(model, [wish.prefix])[0] if wish.prefix else 0
    documents = tuple(split_document(text, model.languages.source) if wish.splits else _whole(text) for text in texts)
    if not (wish.prefix or wish.require):  # of which there is no translation, then
        documents = tuple(subdivided(document, partial(_in_turns, model)) for document in documents)
    sentences = [sentence for document in documents for sentence in document.sentences]
    lengths = [length + num_prefix for length in _num_tokens(model, sentences)]
    return PreparedTexts(documents, tuple(zip(sentences, lengths, strict=True)))


def prepared_pairs(model: LoadedModel, pairs: Sequence[tuple[str, str]]) -> tuple[tuple[tuple[str, str], int], ...]:
    """Each pair with the number of tokens of its longer side."""
    sources, targets = (_num_tokens(model, [pair[side] for pair in pairs]) for side in (0, 1))
    return tuple(zip(pairs, map(max, sources, targets), strict=True))


def _in_turns(model: LoadedModel, sentence: str) -> list[str]:
    """The sentence, in parts that the model reads as wholes if they are very many."""
    most = MOST_PARTS * model.languages.max_pieces
    tokenizer = model.translator.tokenizer
    is_short = len(sentence.encode("utf-8", "replace")) <= most  # a token stands for at least a byte
    if is_short or tokenizer.split_language(sentence)[0] or _num_tokens(model, [sentence])[0] <= most:
        return [sentence]
    return segments(sentence, model.languages.source, model.translator.fits)


def _num_tokens(model: LoadedModel, texts: Sequence[str]) -> list[int]:
    """Of each, `</s>` included."""
    return [len(ids) + 1 for ids in model.translator.tokenizer.encode_all(texts)]


def _whole(text: str) -> Document:
    """The text as one sentence, if it shows a letter or digit; space around it is kept."""
    stripped = text.strip()
    if not any(map(str.isalnum, stripped)):
        return Document((), (text,))
    start = text.index(stripped)
    return Document((stripped,), (text[:start], text[start + len(stripped) :]))
