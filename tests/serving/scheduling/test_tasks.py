from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import pytest

from transduce.bundle import Bundle
from transduce.errors import ConfigError, DeadlineExceededError, TooLongError, UnsatisfiableError
from transduce.inspection import InspectionRequest
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.scheduling.tasks import (
    MAX_PARTS,
    MAX_SCORED_TOKENS,
    InspectionTask,
    ScoringTask,
    TranslatedText,
    TranslationTask,
    prepare_pairs,
    prepare_texts,
)
from transduce.text import Tokenizer, rebuild_document, split_document
from transduce.translation import (
    AlignmentHead,
    ForcedDecoder,
    ScoredText,
    TranslatedSentence,
    TranslationOptions,
    align_pairs,
    score_pairs,
)

DOCUMENT = split_document("One two.  Three!\n", "en")


def sentence(source: str, *translations: tuple[str, float | None]) -> TranslatedSentence:
    scored = tuple(ScoredText(*one, None) for one in translations)
    return TranslatedSentence(source, scored, (), 1, None, None, (), None)


def test_the_kth_alternative_is_made_of_the_kth_of_each_sentence() -> None:
    sentences = (
        sentence("One two.", ("Eins zwei.", -1.0), ("Ein zwei.", -2.0), ("Eine.", -3.0)),
        sentence("Three!", ("Drei!", -0.5), ("Dritte!", -0.75)),
    )
    found = TranslatedText.join(DOCUMENT, sentences, "en")
    assert (found.text, found.score) == ("Eins zwei.  Drei!\n", -1.5)
    assert found.alternatives == (ScoredText("Ein zwei.  Dritte!\n", -2.75, None),)
    assert found.sentences == sentences


def test_a_score_that_one_sentence_does_not_have_the_text_does_not_have() -> None:
    found = TranslatedText.join(
        DOCUMENT, (sentence("One two.", ("Eins.", None)), sentence("Three!", ("Drei!", -1.0))), "en"
    )
    assert found.score is None


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_what_has_no_sentence_is_its_own_translation(text: str) -> None:
    assert TranslatedText.join(split_document(text, "en"), (), "en") == TranslatedText(text, 0.0, (), (), "en", 1.0)


TEXTS = ["Sun moon. River!\n", " \n ", "🙂", "", "\tBird\n"]


@pytest.fixture(scope="module")
def model(bundle: Path) -> LoadedModel:
    return LoadedModel.load(bundle, ModelSettings(device="cpu"))


@pytest.mark.parametrize(
    "options", [TranslationOptions(), TranslationOptions(split_sentences=False), TranslationOptions(prefix="x")]
)
def test_texts_are_whole_again_when_their_sentences_are(model: LoadedModel, options: TranslationOptions) -> None:
    prepared = prepare_texts(model, TEXTS, options)
    sources = [sentence.text for sentence, _ in prepared.sentences]
    assert sources == (["Sun moon.", "River!", "Bird"] if options.should_split_texts else ["Sun moon. River!", "Bird"])
    answers = prepared.join_translations([sentence(source, (source, -1.0)) for source in sources], "en")
    assert [answer.text for answer in answers] == TEXTS
    assert [len(answer.sentences) for answer in answers] == [2 if options.should_split_texts else 1, 0, 0, 0, 1]


def test_lengths_are_tokens_with_the_end(model: LoadedModel, make_sentences: Callable[..., list[str]]) -> None:
    texts = make_sentences(20)
    encode = model.translator.tokenizer.encode
    prepared = prepare_texts(model, texts, TranslationOptions(split_sentences=False))
    assert [(one.text, length) for one, length in prepared.sentences] == [
        (text, len(encode(text)) + 1) for text in texts
    ]
    pairs = list(zip(texts, reversed(texts), strict=True))
    prepared_pairs = prepare_pairs(model, pairs)
    assert [length for _, length in prepared_pairs] == [max(len(encode(text)) + 1 for text in pair) for pair in pairs]
    found = ScoringTask(model).compute([one for one, _ in prepared_pairs])
    assert found == score_pairs(model.translator.make_forced_decoder("scores"), pairs)


def test_each_text_is_tokenised_once(
    model: LoadedModel, make_sentences: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its way through the server, from its arrival to its translation."""
    tokenised: list[str] = []
    encode_all = Tokenizer.encode_all

    def watched(self: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        tokenised.extend(texts)
        return encode_all(self, texts)

    monkeypatch.setattr(Tokenizer, "encode_all", watched)
    texts = [*dict.fromkeys(make_sentences(20, seed=3)), "Sun moon " * 20 + "."]
    for options in (TranslationOptions(), TranslationOptions(guard=True), TranslationOptions(protect=("url",))):
        tokenised.clear()
        prepared = prepare_texts(model, texts, options)
        TranslationTask(model, options).compute([one for one, _ in prepared.sentences])
        counts = Counter(tokenised)
        assert {counts[one.text] for one, _ in prepared.sentences} == {1}


@pytest.mark.parametrize("splits", [True, False])
def test_every_sentence_of_a_text_has_its_language_tag(tagged_bundle: Path, splits: bool) -> None:
    model = LoadedModel.load(tagged_bundle, ModelSettings(device="cpu"))
    texts, options = [">>de<< Sun. Moon.", "River.", " Bird"], TranslationOptions(split_sentences=splits)
    prepared = prepare_texts(model, texts, options, tags=["", "", ">>fr<< "])
    sources = [one.text for one, _ in prepared.sentences]
    first = [">>de<< Sun.", ">>de<< Moon."] if splits else [">>de<< Sun. Moon."]
    assert sources == [*first, "River.", ">>fr<< Bird"]
    long = prepare_texts(model, [">>de<< " + "sun moon, " * 200], options).sentences
    assert len(long) > MAX_PARTS
    assert all(one.text.startswith(">>de<< ") and length <= model.info.max_pieces + 2 for one, length in long)


def test_what_cannot_be_granted_never_waits(model: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="max_length = 1 leaves room for `</s>` only"):
        prepare_texts(model, TEXTS, TranslationOptions(max_length=1))


def test_a_prefix_is_no_longer_than_a_sentence_and_counts_for_each(model: LoadedModel) -> None:
    """Each of its tokens takes a step of the search."""
    ((_, alone),) = prepare_texts(model, ["Sun."], TranslationOptions(split_sentences=False)).sentences
    ((_, length),) = prepare_texts(model, ["Sun."], TranslationOptions(prefix="Moon")).sentences
    assert length == alone + len(model.translator.tokenizer.encode("Moon")) + 1
    with pytest.raises(ConfigError, match="at most 40"):
        prepare_texts(model, ["Sun."], TranslationOptions(prefix="Moon " * 40))


def test_a_sentence_of_very_many_parts_waits_in_turns(model: LoadedModel) -> None:
    """Unless something is asked of it as a whole: then it fails before it can hold up anybody."""
    text = " Sun  moon,\triver" * 200 + " https://example.org/" + "a" * 100 + "\n"
    prepared = prepare_texts(model, [text], TranslationOptions())
    (document,) = prepared.documents
    assert rebuild_document(document, document.sentences) == text
    *short, with_address = (length for _, length in prepared.sentences)
    assert len(short) > MAX_PARTS
    assert all(length <= model.info.max_pieces + 1 for length in short)
    assert with_address > model.info.max_pieces + 1  # and is not cut
    for options in (TranslationOptions(prefix="Sun"), TranslationOptions(require=("sun",))):
        with pytest.raises(UnsatisfiableError, match=r"tokens, of at most .* for constraints"):
            prepare_texts(model, [text], options)
    assert len(prepare_texts(model, ["Sun moon, " * 30], TranslationOptions()).sentences) == 1


@pytest.mark.exhaustive
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
@pytest.mark.parametrize("options", [TranslationOptions(), TranslationOptions(protect=("url",), split_sentences=False)])
def test_no_payload_is_longer_than_some_parts(model: LoadedModel, long: str, options: TranslationOptions) -> None:
    """Whoever comes next waits for it; an address that is longer than that is kept as it is."""
    text = f"Sun and moon {long} river. Stone."
    prepared = prepare_texts(model, [text], options)
    (document,) = prepared.documents
    assert rebuild_document(document, document.sentences) == text
    assert max(length for _, length in prepared.sentences) <= (MAX_PARTS + 1) * model.info.max_pieces
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
    with pytest.raises(DeadlineExceededError):
        prepare_texts(model, ["a " * 30_000], TranslationOptions(), is_over)
    assert is_over.asked == 10


def test_what_waits_in_turns_is_translated_as_its_parts(model: LoadedModel) -> None:
    text = "Sun moon river " * 150
    prepared = prepare_texts(model, [text], TranslationOptions())
    sources = [sentence.text for sentence, _ in prepared.sentences]
    (line,) = model.make_line_translator(TranslationOptions()).translate([text.strip()])
    assert line.translation.num_parts == len(sources)
    texts = [one.translation.text for one in model.make_line_translator(TranslationOptions()).translate(sources)]
    assert " ".join(filter(None, texts)) == line.translation.text


def test_work_is_equal_where_it_can_be_computed_together(model: LoadedModel, bundle: Path) -> None:
    assert TranslationTask(model, TranslationOptions()) == TranslationTask(model, TranslationOptions())
    assert TranslationTask(model, TranslationOptions()) != TranslationTask(model, TranslationOptions(beam=3))
    assert ScoringTask(model) == ScoringTask(model)
    assert hash(ScoringTask(model)) == hash(ScoringTask(model))
    assert ScoringTask(model) != InspectionTask(model)
    again = LoadedModel.load(bundle, ModelSettings(device="cpu"))
    assert ScoringTask(model) != ScoringTask(again)


@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_that_would_take_all_memory_is_not_scored(model: LoadedModel, side: int) -> None:
    pair = ["Sun moon.", "Sun moon."]
    pair[side] = "sun " * MAX_SCORED_TOKENS  # two tokens each
    with pytest.raises(TooLongError, match="pair 2 has 2,0"):
        prepare_pairs(model, [("Sun.", "Moon."), (pair[0], pair[1])])


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_pair_that_is_too_long_for_learned_positions_is_named(
    make_bundle: Callable[..., Path], tmp_path: Path, number: int, side: int
) -> None:
    path = make_bundle(tmp_path / "learned", positions="learned", max_positions=48)
    model = LoadedModel.load(path, ModelSettings(device="cpu"))
    pairs = [["Sun.", "Moon."] for _ in range(3)]
    pairs[number - 1][side] = "lamp " * 60
    name = ("source", "target")[side]
    with pytest.raises(TooLongError, match=rf"pair {number}: the {name} has \d+ tokens.*learned positions up to 48"):
        prepare_pairs(model, [(source, target) for source, target in pairs])


@pytest.mark.parametrize(
    ("options", "width"),
    [
        (TranslationOptions(), 2),
        (TranslationOptions(num_best=5), 5),
        (TranslationOptions(beam=7), 7),
        (TranslationOptions(num_samples=9), 9),
    ],
)
def test_width_is_the_number_of_hypotheses(model: LoadedModel, options: TranslationOptions, width: int) -> None:
    assert TranslationTask(model, options).width == width


def test_a_sentence_that_cannot_have_what_is_asked_fails_alone(model: LoadedModel) -> None:
    work = TranslationTask(model, TranslationOptions(require=("lamp",)))
    good, bad = work.compute(["Sun moon.", "sun moon " * 30])
    assert isinstance(good, TranslatedSentence)
    assert "lamp" in good.translations[0].text
    assert isinstance(bad, UnsatisfiableError)


def test_alignments_are_those_of_the_last_layer(
    model: LoadedModel, bundle: Path, make_sentences: Callable[..., list[str]]
) -> None:
    found = TranslationTask(model, TranslationOptions(align=True)).compute([*make_sentences(3), "sun moon " * 30])
    assert all(isinstance(one, TranslatedSentence) for one in found)
    whole = [one for one in found if isinstance(one, TranslatedSentence) and one.num_parts == 1]
    decoder = ForcedDecoder.from_bundle(Bundle.open(bundle), device="cpu")
    expected = align_pairs(decoder, [(one.source, one.translations[0].text) for one in whole], AlignmentHead(0))
    assert [one.alignment for one in whole] == list(map(str, expected))
    assert [one.alignment for one in found if isinstance(one, TranslatedSentence) and one.num_parts > 1] == [None]


def test_an_inspection_that_nobody_waits_for_ends(model: LoadedModel) -> None:
    work = InspectionTask(model)
    request = InspectionRequest(text="Sun moon.", include=["search"])
    (document,) = work.compute([request])
    assert document["search"] is not None
    work.is_over.set()
    with pytest.raises(DeadlineExceededError):
        work.compute([request])
    assert work == InspectionTask(model)  # they wait in one queue
