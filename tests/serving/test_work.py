from collections.abc import Callable
from pathlib import Path

import pytest

from transduce.bundle import Bundle
from transduce.inspection import InspectionRequest
from transduce.serving.answers import TranslatedSentence
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.refusals import DeadlineExceeded, Unsatisfiable
from transduce.serving.work import Inspecting, Scoring, Translating
from transduce.translation import AlignmentHead, ForcedDecoder, TranslationOptions, align_pairs


@pytest.fixture(scope="module")
def model(bundle: Path) -> LoadedModel:
    return LoadedModel.load(bundle, ModelSettings(device="cpu"))


def test_work_is_equal_where_it_can_be_computed_together(model: LoadedModel, bundle: Path) -> None:
    assert Translating(model, TranslationOptions()) == Translating(model, TranslationOptions())
    assert Translating(model, TranslationOptions()) != Translating(model, TranslationOptions(beam=3))
    assert Scoring(model) == Scoring(model)
    assert hash(Scoring(model)) == hash(Scoring(model))
    assert Scoring(model) != Inspecting(model)
    again = LoadedModel.load(bundle, ModelSettings(device="cpu"))
    assert Scoring(model) != Scoring(again)


@pytest.mark.parametrize(
    ("wish", "width"),
    [
        (TranslationOptions(), 2),
        (TranslationOptions(num_best=5), 5),
        (TranslationOptions(beam=7), 7),
        (TranslationOptions(num_samples=9), 9),
    ],
)
def test_width_is_the_number_of_hypotheses(model: LoadedModel, wish: TranslationOptions, width: int) -> None:
    assert Translating(model, wish).width == width


def test_a_sentence_that_cannot_have_what_is_asked_fails_alone(model: LoadedModel) -> None:
    work = Translating(model, TranslationOptions(require=("lamp",)))
    good, bad = work.compute(["Sun moon.", "sun moon " * 30])
    assert isinstance(good, TranslatedSentence)
    assert "lamp" in good.translation
    assert isinstance(bad, Unsatisfiable)


def test_alignments_are_those_of_the_last_layer(
    model: LoadedModel, bundle: Path, make_sentences: Callable[..., list[str]]
) -> None:
    found = Translating(model, TranslationOptions(align=True)).compute([*make_sentences(3), "sun moon " * 30])
    assert all(isinstance(one, TranslatedSentence) for one in found)
    whole = [one for one in found if isinstance(one, TranslatedSentence) and one.num_parts == 1]
    decoder = ForcedDecoder.from_bundle(Bundle.open(bundle), device="cpu")
    expected = align_pairs(decoder, [(one.source, one.translation) for one in whole], AlignmentHead(0))
    assert [one.alignment for one in whole] == list(map(str, expected))
    assert [one.alignment for one in found if isinstance(one, TranslatedSentence) and one.num_parts > 1] == [None]


def test_an_inspection_that_nobody_waits_for_ends(model: LoadedModel) -> None:
    work = Inspecting(model)
    request = InspectionRequest(text="Sun moon.", include=["search"])
    (document,) = work.compute([request])
    assert document["search"] is not None
    work.is_over.set()
    with pytest.raises(DeadlineExceeded):
        work.compute([request])
    assert work == Inspecting(model)  # they wait in one queue
