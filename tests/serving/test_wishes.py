from pathlib import Path

import pytest

from transduce.errors import ConfigError
from transduce.serving.limits import Limits
from transduce.serving.models import LoadedModel, ModelSettings
from transduce.serving.refusals import TooLong
from transduce.serving.wishes import check_options, count_characters
from transduce.translation import TranslationOptions


def test_limits_are_named() -> None:
    limits = Limits(max_alternatives=3, max_beam=6, max_terms=2)
    check_options(TranslationOptions(num_best=4, beam=6, require=["a", "b"]), limits)
    for options, name in (
        (TranslationOptions(num_best=5), "num_best = 5"),
        (TranslationOptions(beam=7), "beam = 7"),
        (TranslationOptions(num_samples=7), "num_samples = 7"),
    ):
        with pytest.raises(ConfigError, match=f"{name}: this service allows up to"):
            check_options(options, limits)
    with pytest.raises(ConfigError, match="num_best = 4: this service allows up to 2"):
        check_options(TranslationOptions(num_best=4), Limits(max_beam=2))  # each is a hypothesis
    with pytest.raises(TooLong, match="3 phrases and terms"):
        check_options(TranslationOptions(require=["a"], forbid=["b"], glossary={"c": "d"}), limits)


def test_characters_of_options_are_counted() -> None:
    options = TranslationOptions(prefix="ab", require=["c"], forbid=["de"], glossary={"f": "gh"})
    assert count_characters(options) == 8


@pytest.mark.parametrize("given", [{}, {"beam": 1}, {"beam": 4}, {"num_best": 5}])
def test_a_guard_searches_with_no_more_than_a_request_may_ask_for(given: dict[str, int], bundle: Path) -> None:
    """It tries again with more hypotheses than are asked for."""
    model = LoadedModel.load(bundle, ModelSettings(device="cpu"))
    options, guarding = TranslationOptions(**given), TranslationOptions(**given, guard=True)
    beam = model.line_translator(guarding)._safer.search.beam
    search = model.translator.search
    check_options(options, Limits(max_beam=beam - 1), search)
    check_options(guarding, Limits(max_beam=beam), search)
    with pytest.raises(ConfigError, match=f"guard = true: tries again with a beam of {beam}, and this service allows"):
        check_options(guarding, Limits(max_beam=beam - 1), search)
