from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from transduce.errors import ConfigError
from transduce.serving.answers import ScoredText, TranslatedSentence
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.preparation import MOST_PARTS, prepared_pairs, prepared_texts
from transduce.serving.refusals import DeadlineExceeded
from transduce.text import rebuild_document
from transduce.translation import TranslationOptions

TEXTS = ["Sun moon. River!\n", " \n ", "🙂", "", "\tBird\n"]


@pytest.fixture(scope="module")
def model(bundle: Path) -> LoadedModel:
    return LoadedModel.load(bundle, ModelSettings(device="cpu"))


@pytest.mark.parametrize(
    "wish", [TranslationOptions(), TranslationOptions(split_sentences=False), TranslationOptions(prefix="x")]
)
def test_texts_are_whole_again_when_their_sentences_are(model: LoadedModel, wish: TranslationOptions) -> None:
    prepared = prepared_texts(model, TEXTS, wish)
    sources = [sentence for sentence, _ in prepared.sentences]
    assert sources == (["Sun moon.", "River!", "Bird"] if wish.splits_texts else ["Sun moon. River!", "Bird"])
    answers = prepared.answers([TranslatedSentence(source, (ScoredText(source, -1.0),)) for source in sources])
    assert [answer.text for answer in answers] == TEXTS
    assert [len(answer.sentences) for answer in answers] == [2 if wish.splits_texts else 1, 0, 0, 0, 1]


def test_lengths_are_tokens_with_the_end(model: LoadedModel, make_sentences: Callable[..., list[str]]) -> None:
    texts = make_sentences(20)
    encode = model.translator.tokenizer.encode
    prepared = prepared_texts(model, texts, TranslationOptions(split_sentences=False))
    assert prepared.sentences == tuple((text, len(encode(text)) + 1) for text in texts)
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert prepared_pairs(model, pairs) == tuple((pair, max(len(encode(text)) + 1 for text in pair)) for pair in pairs)


def test_what_cannot_be_granted_never_waits(model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="repetition_penalty"):
        prepared_texts(model, TEXTS, TranslationOptions(repetition_penalty=0.5))


def test_a_prefix_is_no_longer_than_a_sentence_and_counts_for_each(model: LoadedModel) -> None:
    """Each of its tokens takes a step of the search."""
    ((_, alone),) = prepared_texts(model, ["Sun."], TranslationOptions(split_sentences=False)).sentences
    ((_, length),) = prepared_texts(model, ["Sun."], TranslationOptions(prefix="Moon")).sentences
    assert length == alone + len(model.translator.tokenizer.encode("Moon")) + 1
    with pytest.raises(ConfigError, match="at most 40"):
        prepared_texts(model, ["Sun."], TranslationOptions(prefix="Moon " * 40))


def test_a_sentence_of_very_many_parts_waits_in_turns(model: LoadedModel) -> None:
    """Unless something is asked of it as a whole: then it fails, whatever it waits for."""
    text = " Sun  moon,\triver" * 200 + " https://example.org/" + "a" * 100 + "\n"
    prepared = prepared_texts(model, [text], TranslationOptions())
    (document,) = prepared.documents
    assert rebuild_document(document, document.sentences) == text
    *short, with_address = (length for _, length in prepared.sentences)
    assert len(short) > MOST_PARTS
    assert all(length <= model.languages.max_pieces + 1 for length in short)
    assert with_address > model.languages.max_pieces + 1  # and is not cut
    for wish in (TranslationOptions(prefix="Sun"), TranslationOptions(require=("sun",))):
        assert len(prepared_texts(model, [text], wish).sentences) == 1
    assert len(prepared_texts(model, ["Sun moon, " * 30], TranslationOptions()).sentences) == 1


@pytest.mark.parametrize(
    "long",
    [
        "http://a.b/c?d=" * 2000,
        "<img src='data:image/png;base64," + "iVBORw0KGgo" * 2000 + "'>",
        "{{ " + "moon river " * 2000 + "}}",
        "<emphasis>" * 2000 + "sun" + "</emphasis>" * 2000,
        "sun_moon-" * 2000,
    ],
)
@pytest.mark.parametrize("wish", [TranslationOptions(), TranslationOptions(protect=("url",), split_sentences=False)])
def test_no_payload_is_longer_than_some_parts(model: LoadedModel, long: str, wish: TranslationOptions) -> None:
    """Whoever comes next waits for it; an address that is longer than that is kept as it is."""
    text = f"Sun and moon {long} river. Stone."
    prepared = prepared_texts(model, [text], wish)
    (document,) = prepared.documents
    assert rebuild_document(document, document.sentences) == text
    assert max(length for _, length in prepared.sentences) <= (MOST_PARTS + 1) * model.languages.max_pieces
    assert document.sentences[0].startswith("Sun and moon")


def test_nothing_is_done_for_nobody(model: LoadedModel) -> None:
    """Whoever prepares stops amidst a sentence."""

    class Soon(Event):
        """Set when it has been looked at ten times."""

        asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked >= 10

    is_over = Soon()
    with pytest.raises(DeadlineExceeded):
        prepared_texts(model, ["a " * 30_000], TranslationOptions(), is_over)
    assert is_over.asked == 10


def test_what_waits_in_turns_is_translated_as_its_parts(model: LoadedModel) -> None:
    text = "Sun moon river " * 150
    prepared = prepared_texts(model, [text], TranslationOptions())
    sources = [sentence for sentence, _ in prepared.sentences]
    (line,) = model.line_translator(TranslationOptions()).translate([text.strip()])
    assert line.translation.num_parts == len(sources)
    texts = [one.translation.text for one in model.line_translator(TranslationOptions()).translate(sources)]
    assert " ".join(filter(None, texts)) == line.translation.text
