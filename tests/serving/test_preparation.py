from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.errors import ConfigError
from transduce.serving.answers import ScoredText, TranslatedSentence
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.preparation import prepared_pairs, prepared_texts
from transduce.serving.wishes import TranslationWish

TEXTS = ["Sun moon. River!\n", " \n ", "🙂", "", "\tBird\n"]


@pytest.fixture(scope="module")
def model(bundle: Path) -> LoadedModel:
    return LoadedModel.load(bundle, ModelSettings(device="cpu"))


@pytest.mark.parametrize(
    "wish", [TranslationWish(), TranslationWish(split_sentences=False), TranslationWish(prefix="x")]
)
def test_texts_are_whole_again_when_their_sentences_are(model: LoadedModel, wish: TranslationWish) -> None:
    prepared = prepared_texts(model, TEXTS, wish)
    sources = [sentence for sentence, _ in prepared.sentences]
    assert sources == (["Sun moon.", "River!", "Bird"] if wish.splits else ["Sun moon. River!", "Bird"])
    answers = prepared.answers([TranslatedSentence(source, (ScoredText(source, -1.0),)) for source in sources])
    assert [answer.text for answer in answers] == TEXTS
    assert [len(answer.sentences) for answer in answers] == [2 if wish.splits else 1, 0, 0, 0, 1]


def test_lengths_are_tokens_with_the_end(model: LoadedModel, make_sentences: Callable[..., list[str]]) -> None:
    texts = make_sentences(20)
    encode = model.translator.tokenizer.encode
    prepared = prepared_texts(model, texts, TranslationWish(split_sentences=False))
    assert prepared.sentences == tuple((text, len(encode(text)) + 1) for text in texts)
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert prepared_pairs(model, pairs) == tuple((pair, max(len(encode(text)) + 1 for text in pair)) for pair in pairs)


def test_what_cannot_be_granted_never_waits(model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="repetition_penalty"):
        prepared_texts(model, TEXTS, TranslationWish(repetition_penalty=0.5))


def test_a_prefix_is_no_longer_than_a_sentence_and_counts_for_each(model: LoadedModel) -> None:
    """Each of its tokens takes a step of the search."""
    ((_, alone),) = prepared_texts(model, ["Sun."], TranslationWish(split_sentences=False)).sentences
    ((_, length),) = prepared_texts(model, ["Sun."], TranslationWish(prefix="Moon")).sentences
    assert length == alone + len(model.translator.tokenizer.encode("Moon")) + 1
    with pytest.raises(ConfigError, match="at most 40"):
        prepared_texts(model, ["Sun."], TranslationWish(prefix="Moon " * 40))
