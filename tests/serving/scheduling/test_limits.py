from dataclasses import fields
from pathlib import Path

import pytest

from transduce.errors import ConfigError, TooLongError
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.scheduling import Limits
from transduce.translation import TranslationOptions

MAY_BE_NOTHING = {"max_delay_milliseconds", "max_alternatives"}


@pytest.mark.parametrize("name", [field.name for field in fields(Limits)])
def test_no_limit_is_below_what_it_may_be(name: str) -> None:
    kind = type(getattr(Limits(), name))
    with pytest.raises(ConfigError, match=f"{name} = -1.*: must be"):
        Limits(**{name: kind(-1)})
    if name in MAY_BE_NOTHING:
        assert getattr(Limits(**{name: kind(0)}), name) == 0
    else:
        with pytest.raises(ConfigError, match=f"{name} = 0.*: must be above 0"):
            Limits(**{name: kind(0)})


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_limits_are_finite(value: str) -> None:
    names = [field.name for field in fields(Limits) if isinstance(field.default, float)]
    for name in names:
        with pytest.raises(ConfigError, match=f"{name} = {value}: must be a finite number"):
            Limits(**{name: float(value)})
    assert len(names) == 6


def test_the_longest_request_fits_into_an_empty_queue_and_its_body() -> None:
    limits = Limits()
    assert limits.max_characters / 4 <= limits.max_queue_tokens / 2
    assert limits.max_body_bytes >= 4 * limits.max_characters


def test_limits_are_named() -> None:
    limits = Limits(max_alternatives=3, max_beam=6, max_terms=2)
    limits.check_options(TranslationOptions(num_best=4, beam=6, require=["a", "b"]))
    for options, name in (
        (TranslationOptions(num_best=5), "num_best = 5"),
        (TranslationOptions(beam=7), "beam = 7"),
        (TranslationOptions(num_samples=7), "num_samples = 7"),
    ):
        with pytest.raises(ConfigError, match=f"{name}: this service allows at most"):
            limits.check_options(options)
    with pytest.raises(ConfigError, match="num_best = 4: this service allows at most 2"):
        Limits(max_beam=2).check_options(TranslationOptions(num_best=4))  # each is a hypothesis
    with pytest.raises(TooLongError, match="3 phrases and terms"):
        limits.check_options(TranslationOptions(require=["a"], forbid=["b"], glossary={"c": "d"}))


@pytest.mark.parametrize("given", [{}, {"beam": 1}, {"beam": 4}, {"num_best": 5}])
def test_a_guard_searches_with_no_more_than_a_request_may_ask_for(given: dict[str, int], bundle: Path) -> None:
    """It tries again with more hypotheses than are asked for."""
    model = LoadedModel.load(bundle, ModelSettings(device="cpu"))
    options, guarding = TranslationOptions(**given), TranslationOptions(**given, guard=True)
    beam = model.make_line_translator(guarding)._safer.search.beam
    search = model.translator.search
    Limits(max_beam=beam - 1).check_options(options, search)
    Limits(max_beam=beam).check_options(guarding, search)
    with pytest.raises(ConfigError, match=f"guard = true: retries with a beam of {beam}, and this service allows"):
        Limits(max_beam=beam - 1).check_options(guarding, search)
