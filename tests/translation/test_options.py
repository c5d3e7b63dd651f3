import math
import re

import pytest

from transduce.config import SearchConfig
from transduce.errors import ConfigError, CorpusError
from transduce.search import Sampling
from transduce.translation import InputLine, TextConstraints, TranslationOptions


def test_a_line_says_what_is_asked_of_it() -> None:
    line = '{"text": "A dog.", "require": ["Hund"], "forbid": ["an", "."], "prefix": "Ein"}'
    asked = InputLine.read(line, 1, "input")
    assert asked.text == "A dog."
    assert asked.constraints == TextConstraints("Ein", ("Hund",), forbidden=("an", "."))
    assert InputLine.read('{"text": ""}', 1, "input").constraints is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A dog.", "input, line 7: Invalid JSON"),
        ("", "input, line 7: Invalid JSON"),
        ("[]", "input, line 7: Input should be an object"),
        ("{}", "input, line 7: text: Field required"),
        ('{"text": 5}', "input, line 7: text: Input should be a valid string"),
        ('{"text": "a", "requires": []}', "input, line 7: requires: Input should be left out"),
        ('{"text": "a", "beam": 3}', "input, line 7: beam: Input should be left out: options are"),
        ('{"text": "a", "require": "b"}', "input, line 7: require: Input should be a valid array"),
        ('{"text": "a", "require": ["b", 1]}', "input, line 7: require.1: Input should be a valid string"),
        ('{"text": "a", "forbid": [""]}', "input, line 7: forbid '': must not be blank"),
        ('{"text": "a\\nb"}', "input, line 7: text: must not contain line ends"),
        ('{"text": "a", "require": ["b\\nc"]}', "input, line 7: require 'b\\nc': must not contain line ends"),
        ('{"text": "a", "text": "b"}', "input, line 7: has the key 'text' twice: give it once"),
        ('{"text": "\\ud800"}', "input, line 7: Invalid JSON"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=re.escape(message)):
        InputLine.read(line, 7, "input")


def test_equal_options_are_one() -> None:
    several = {TranslationOptions(glossary={"sun": "Sonne"}, protect=["url"]) for _ in range(2)}
    assert several == {TranslationOptions(glossary={"sun": "Sonne"}, protect=("url",))}
    assert TranslationOptions(beam=2) not in several


def test_the_beam_holds_the_alternatives() -> None:
    def widened(own_beam: int, **given: int) -> int | None:
        return TranslationOptions(**given).widen_beam(SearchConfig(beam=own_beam)).beam

    assert widened(2, num_best=5) == 5
    assert widened(4, num_best=2) == 4
    assert widened(4, num_best=2, beam=3) == 3
    assert widened(4, num_best=3, num_samples=5) is None


def test_a_document_is_not_the_first_of_several_samples() -> None:
    for allowed in ({}, {"num_samples": 1}, {"num_samples": 4, "minimum_bayes_risk": True}):
        TranslationOptions.parse(allowed).check_for_document()
    with pytest.raises(ConfigError, match=r"num_samples = 4: a document has one .* `minimum_bayes_risk`, or draw 1"):
        TranslationOptions(num_samples=4).check_for_document()


def test_options_become_constraints_settings_and_a_distribution() -> None:
    options = TranslationOptions(require=["sun"], forbid=["moon"], prefix="The", beam=3, diversity=0.5)
    assert options.constraints == TextConstraints("The", ("sun",), forbidden=("moon",))
    assert options.search == {"beam": 3, "diversity": 0.5}
    drawn = TranslationOptions(num_samples=4, num_best=2, temperature=0.5, top_k=3, top_p=0.9, seed=7, max_length=9)
    assert (drawn.search, drawn.sampling) == ({"max_length": 9}, Sampling(0.5, 3, 0.9))
    assert TranslationOptions().constraints is None
    assert [TranslationOptions(**given).has_protected_text for given in ({}, {"protect": ["url"]})] == [False, True]


def test_options_that_concern_a_whole_text_leave_it_whole() -> None:
    assert TranslationOptions().should_split_texts
    assert TranslationOptions(forbid=["x"]).should_split_texts
    assert not TranslationOptions(split_sentences=False).should_split_texts
    assert not TranslationOptions(prefix="The").should_split_texts
    assert not TranslationOptions(require=["x"]).should_split_texts


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_samples": -5}, "num_samples = -5: must be greater than or equal to 0"),
        ({"num_samples": 3, "seed": -1}, "seed = -1: must be greater than or equal to 0"),
        ({"num_samples": 3, "guard": True}, "the guard retries"),
        ({"num_samples": 3, "prefix": "a"}, "samples cannot be combined with required"),
        ({"num_samples": 3, "protect": ["url"]}, "samples cannot be combined with protected"),
        ({"glossary": {"a": "b"}, "prefix": "a"}, "protected spans or a glossary cannot"),
        ({"protect": ["url"], "require": ["x"]}, "protected spans or a glossary cannot"),
        ({"glossary": {"a": "b"}, "num_best": 2}, "num_best = 2: with protected spans"),
        ({"num_best": -1}, "num_best = -1: must be greater than or equal to 1"),
        ({"length_penalty": 11.0}, "length_penalty = 11.0: must be less than or equal to 10"),
        ({"temperature": math.inf}, "temperature = inf: must be a finite number"),
        ({"require": ["a", " "]}, "require ' ': must not be blank; give a word or phrase, or leave it out"),
        ({"minimum_bayes_risk": True}, "minimum Bayes risk ranks samples"),
        ({"num_samples": 3, "num_best": 4}, "num_best = 4: must be from 1 to the number of samples, 3"),
        ({"top_k": 3}, "`temperature`, `top_k` and `top_p` apply to sampling"),
        ({"seed": 3}, "seed = 3: applies to sampling"),
        ({"num_samples": 3, "beam": 2}, "beam = 2: applies to beam search, not to sampling"),
        ({"num_samples": 3, "diversity": 0.5}, "diversity = 0.5: applies to beam search"),
    ],
)
def test_what_is_out_of_bounds_or_excludes_another_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        TranslationOptions.parse(values).check()
