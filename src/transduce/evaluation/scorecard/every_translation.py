"""Behaviours that every translation of a sentence shows: it is a translation, without loops, of its own source.

Copies of the source and loops (oscillations) are the mistakes of translation models that rules find best: Ott et al.
(2018) trace copies to the training text, Raunak et al. (2021) loops and sentences that are detached from their source.
"""

from transduce.evaluation.scorecard.behaviour import (
    Behaviour,
    Case,
    Judgement,
    SourceText,
    Translations,
    find_same_translation,
)
from transduce.evaluation.scorecard.options import GUARD
from transduce.text import find_protected_spans
from transduce.translation import PROBLEMS


def remove_protected_spans(text: str) -> str:
    """The text without addresses, tags, placeholders and the like, which a translation copies."""
    for span in reversed(find_protected_spans(text)):
        text = f"{text[: span.start]} {text[span.end :]}"
    return text


def is_copied(source: str, translation: str) -> bool:
    """Whether the translation has most of the words of the source, by the guard's rule."""
    return PROBLEMS["copied_source"](*map(remove_protected_spans, (source, translation)))


def _make_copyable(text: SourceText) -> list[Case]:
    """The inputs whose copy the rule notices, which are those of at least four words."""
    languages = text.translator.source_language, text.translator.target_language
    if languages[0] and languages[0] == languages[1]:
        return []
    return [Case(source) for source in text.inputs if is_copied(source, source)]


def _judge_copied(case: Case, translations: Translations) -> Judgement:
    problem = "most words are those of the source" if is_copied(case.text, translations[case.text]) else ""
    return Judgement(0.0 if problem else 1.0, problem)


def _judge_loops(case: Case, translations: Translations) -> Judgement:
    problem = "the translation repeats itself" if PROBLEMS["repetition"](case.text, translations[case.text]) else ""
    return Judgement(0.0 if problem else 1.0, problem)


def _make_own(text: SourceText) -> list[Case]:
    sources = tuple(sentence.source for sentence in text.sentences)
    return [Case(source, others=sources) for source in sources] if len(sources) > 1 else []


def _judge_own(case: Case, translations: Translations) -> Judgement:
    other = find_same_translation(case.text, case.others, translations)
    return Judgement(1.0) if other is None else Judgement(0.0, f"also the translation of: {other}")


EVERY_TRANSLATION = (
    Behaviour(
        "translated",
        "A sentence is translated, not copied: less than 70 % of its words are in the translation.",
        _make_copyable,
        _judge_copied,
        absence="source and target language are the same, or no sentence has four words",
        option=GUARD,
    ),
    Behaviour(
        "no loops",
        "A translation does not repeat the same words or characters more often than its source.",
        lambda text: [*map(Case, text.inputs)],
        _judge_loops,
        option=GUARD,
    ),
    Behaviour(
        "own translation",
        "Different sentences have different translations.",
        _make_own,
        _judge_own,
        absence="the text has only one sentence",
    ),
)
"""Behaviours that every translation shows; made after all other inputs."""
