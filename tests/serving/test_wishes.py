from dataclasses import replace
from pathlib import Path

import pytest

from transduce.config import SearchConfig
from transduce.errors import ConfigError, UserError
from transduce.serving.errors import TooLong
from transduce.serving.limits import Limits
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.wishes import TranslationWish


def test_equal_wishes_are_one() -> None:
    wishes = {TranslationWish(glossary=(("sun", "Sonne"),), protect=("url",)) for _ in range(2)}
    assert wishes == {TranslationWish(glossary=(("sun", "Sonne"),), protect=("url",))}
    assert TranslationWish(beam=2) not in wishes


def test_the_beam_holds_the_alternatives() -> None:
    assert TranslationWish(num_best=5).settings(SearchConfig(beam=2))["beam"] == 5
    assert TranslationWish(num_best=2).settings(SearchConfig(beam=4))["beam"] == 4
    assert TranslationWish(num_best=2, beam=3, diversity=0.5).settings(SearchConfig()) == {"beam": 3, "diversity": 0.5}
    assert TranslationWish(num_best=3, num_samples=5).settings(SearchConfig()) == {}


def test_everything_asked_is_in_the_options() -> None:
    options = TranslationWish(require=("sun",), forbid=("moon",), prefix="The").options(SearchConfig())
    assert options.constraints is not None
    assert (options.constraints.prefix, options.constraints.required, options.constraints.forbidden) == (
        "The",
        ("sun",),
        ("moon",),
    )
    kept = TranslationWish(protect=("url",), glossary=(("sun", "Sonne"),)).options(SearchConfig())
    assert kept.protected == ("url",)
    assert kept.glossary is not None
    assert kept.glossary.targets == {"sun": "Sonne"}
    wish = TranslationWish(num_samples=4, num_best=2, temperature=0.5, top_k=3, top_p=0.9, seed=7, max_length=9)
    drawn = wish.options(SearchConfig())
    assert drawn.search == {"max_length": 9}
    assert (drawn.num_samples, drawn.sampling.top_k, drawn.sampling.top_p, drawn.seed) == (4, 3, 0.9, 7)
    assert TranslationWish().options(SearchConfig()).constraints is None
    assert TranslationWish().options(SearchConfig()).keeps is False


@pytest.mark.parametrize(
    "wish",
    [
        TranslationWish(protect=("url",), require=("x",)),
        TranslationWish(minimum_bayes_risk=True),
        TranslationWish(num_samples=1, temperature=0.0),
        TranslationWish(num_samples=2, beam=4),
        TranslationWish(num_samples=2, diversity=0.5),
        TranslationWish(glossary=(("", "x"),)),
    ],
)
def test_what_contradicts_itself_is_refused(wish: TranslationWish) -> None:
    with pytest.raises(UserError):
        wish.options(SearchConfig())


def test_what_concerns_a_whole_text_leaves_it_whole() -> None:
    assert TranslationWish().splits
    assert TranslationWish(forbid=("x",)).splits
    assert not TranslationWish(split_sentences=False).splits
    assert not TranslationWish(prefix="The").splits
    assert not TranslationWish(require=("x",)).splits


def test_limits_are_named() -> None:
    limits = Limits(max_alternatives=3, max_beam=6, max_terms=2)
    TranslationWish(num_best=4, beam=6, require=("a", "b")).check(limits)
    for wish, name in (
        (TranslationWish(num_best=5), "num_best = 5"),
        (TranslationWish(beam=7), "beam = 7"),
        (TranslationWish(num_samples=7), "num_samples = 7"),
    ):
        with pytest.raises(ConfigError, match=f"{name}: this service allows up to"):
            wish.check(limits)
    with pytest.raises(ConfigError, match="num_best = 4: this service allows up to 2"):
        TranslationWish(num_best=4).check(Limits(max_beam=2))  # each is a hypothesis
    with pytest.raises(TooLong, match="3 phrases and terms"):
        TranslationWish(require=("a",), forbid=("b",), glossary=(("c", "d"),)).check(limits)


def test_characters_of_a_wish_are_counted() -> None:
    assert TranslationWish(prefix="ab", require=("c",), forbid=("de",), glossary=(("f", "gh"),)).num_characters == 8


@pytest.mark.parametrize(
    "wish", [TranslationWish(), TranslationWish(beam=1), TranslationWish(beam=4), TranslationWish(num_best=5)]
)
def test_a_guard_searches_with_no_more_than_a_request_may_ask_for(wish: TranslationWish, bundle: Path) -> None:
    """It tries again with more hypotheses than are asked for."""
    model = LoadedModel.load(bundle, ModelSettings(device="cpu"))
    guarding = replace(wish, guard=True)
    beam = model.make_line_translator(guarding)._safer.search.beam
    search = model.translator.search
    wish.check(Limits(max_beam=beam - 1), search)
    guarding.check(Limits(max_beam=beam), search)
    with pytest.raises(ConfigError, match=f"guard = true: tries again with a beam of {beam}, and this service allows"):
        guarding.check(Limits(max_beam=beam - 1), search)
