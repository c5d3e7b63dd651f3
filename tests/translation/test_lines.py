import re
from collections.abc import Callable

import pytest

from transduce.errors import ConfigError
from transduce.search import Sampling
from transduce.text import Glossary
from transduce.translation import LineOptions, LineTranslator, TextConstraints, Translator
from transduce.translation.guard import problems

Sentences = Callable[..., list[str]]


def translate(translator: Translator, sources: list[str], **options: object) -> list[str]:
    return [line.translation.text for line in LineTranslator(translator, LineOptions(**options)).translate(sources)]


def test_without_options_lines_are_translated(translator: Translator, make_sentences: Sentences) -> None:
    lines = [*make_sentences(9, seed=10), ""]
    found = LineTranslator(translator, LineOptions(num_best=2)).translate(lines)
    assert [line.source for line in found] == lines
    assert [line.translation for line in found] == translator.translations(lines, num_best=2)
    assert translate(translator, []) == []


def test_constraints_hold_for_every_line(translator: Translator, make_sentences: Sentences) -> None:
    asked = TextConstraints(prefix="lamp", required=("river",))
    for text in translate(translator, make_sentences(6, seed=3), constraints=asked):
        assert text.startswith("lamp")
        assert text.split().count("river") == 1


def test_spans_and_terms_are_kept(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(20, seed=4, most_words=4)
    spans = ["{name}", "http://a.de/b?c=1", "<b>", "me@here.org", "moon"]
    sources = [f"{line} {spans[number % 5]} sun" for number, line in enumerate(lines)]
    options = LineOptions(protected=("url", "email", "tag", "placeholder"), glossary=Glossary({"moon": "wind"}))
    found = LineTranslator(translator, options).translate(sources)
    for number, (source, line) in enumerate(zip(sources, found, strict=True)):
        kept = "wind" if spans[number % 5] == "moon" else spans[number % 5]
        if kept == "wind":
            assert line.translation.text.split().count("wind") >= source.split().count("moon")
        else:
            assert line.translation.text.count(kept) == 1
        assert line.how in {"constrained", "in parts", "copied", "free"}
    assert any(line.how == "constrained" for line in found)


def test_samples_and_their_choice(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(5, seed=5)
    drawn = LineOptions(num_samples=6, num_best=6, sampling=Sampling(temperature=1.3), seed=2)
    found = [line.translation for line in LineTranslator(translator, drawn).translate(lines)]
    assert found == translator.samples(lines, 6, sampling=Sampling(temperature=1.3), seed=2)
    chosen = LineOptions(num_samples=6, num_best=6, sampling=Sampling(temperature=1.3), seed=2, minimum_bayes_risk=True)
    for line, samples in zip(LineTranslator(translator, chosen).translate(lines), found, strict=True):
        assert {one.text for one in line.translation.alternatives} == {one.text for one in samples.alternatives}
        utilities = [one.score for one in line.translation.alternatives]
        assert utilities == sorted(utilities, reverse=True)
        assert all(0 <= utility <= 100 for utility in utilities)


def test_the_guard_tries_once_more_and_counts(translator: Translator, make_sentences: Sentences) -> None:
    lines = make_sentences(30, seed=6, most_words=9)
    plain, guarding = (LineTranslator(translator, LineOptions(guard=guard)) for guard in (False, True))
    before, after = (
        [line.translation.text for block in (lines[:15], lines[15:]) for line in one.translate(block)]
        for one in (plain, guarding)
    )
    assert plain.guard_report is None
    report = guarding.guard_report
    suspects = [number for number, text in enumerate(before) if problems(lines[number], text)]
    assert report.retried == len(suspects) > 0  # it copies, which is a problem
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= report.kept
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        if one != other:
            assert len(problems(lines[number], other)) < len(problems(lines[number], one))


def test_the_guard_never_gives_up_what_was_asked_for(translator: Translator, make_sentences: Sentences) -> None:
    lines = [*make_sentences(15, seed=6, most_words=9), " ".join(make_sentences(30, seed=1))]
    asked = TextConstraints(required=("sun sun sun sun",))
    found = LineTranslator(translator, LineOptions(constraints=asked, guard=True)).translate(lines)
    assert all(line.translation.text.count("sun sun sun sun") == 1 for line in found[:-1])
    assert [line.has_failed for line in found] == [False] * 15 + [True]  # the last is read in parts, and left blank
    assert found[-1].translation.text == ""
    strict = translator.with_search({"min_length": 8, "no_repeat_ngram": 2})
    for line in LineTranslator(strict, LineOptions(guard=True)).translate(lines[:15]):
        assert len(line.translation.alternatives[0].pieces) >= 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": -5}, "samples = -5: must be at least 1"),
        ({"num_samples": 3, "seed": -1}, "seed = -1: must not be negative"),
        ({"num_samples": 3, "guard": True}, "the guard searches again"),
        ({"num_samples": 3, "constraints": TextConstraints(prefix="a")}, "samples cannot be combined with required"),
        ({"num_samples": 3, "protected": ("url",)}, "samples cannot be combined with protected"),
        (
            {"glossary": Glossary({}), "constraints": TextConstraints(prefix="a")},
            "protected spans or a glossary cannot",
        ),
        ({"glossary": Glossary({}), "num_best": 2}, "num_best = 2: with protected spans"),
        ({"minimum_bayes_risk": True}, "minimum-Bayes-risk chooses among samples"),
        ({"num_samples": 3, "num_best": 4}, "num_best = 4: must be from 1 to the number of samples, 3"),
    ],
)
def test_what_excludes_each_other_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        LineOptions(**options)
