"""Behaviours on input changed in form: a sentence in capitals or with typing errors is translated like the original.

Such tests are the invariance tests of CheckList (Ribeiro et al. 2020). Niu et al. (2020) measure two things for
translation: how much a change of the input changes the translation, and how much worse it becomes. Here these are chrF
(Popović 2015) between the two translations, and the loss of chrF against human translations. A model that writes the
same for every input would be consistent, too; so the score is 0 where the unchanged sentence has the same translation
as another sentence.
"""

import random
import re
from collections.abc import Callable, Sequence
from functools import partial

from sacrebleu.metrics.chrf import CHRF

from transduce.evaluation.scorecard.behaviour import (
    Behaviour,
    Case,
    Judgement,
    SourceText,
    Translations,
    find_same_translation,
)
from transduce.evaluation.scores import score_corpus
from transduce.text import WITHOUT_SPACES, find_protected_spans
from transduce.text.letter_case import fold_case, to_lower_case, to_upper_case
from transduce.translation import PROBLEMS

CONSISTENT = 0.5
"""chrF, divided by 100, below which a translation counts as another one than that of the unchanged sentence."""

ERROR_SHARE = 0.2
"""Share of the words of a sentence that have typing errors; every sentence has at least one."""

# A typing error leaves the first and the last letter, so that people can read the word.
_WORD = re.compile(r"[^\W\d_]{4,}")
_FULL_STOP = re.compile(r"(?<![.。])[.。।۔։።]\s*$")
_CHRF = CHRF()


def compute_chrf(hypothesis: str, reference: str) -> float:
    """The chrF of one translation, divided by 100: from 0 to 1."""
    if hypothesis == reference:
        return 1.0
    return min(1.0, float(_CHRF.sentence_score(hypothesis, [reference]).score) / 100)  # rounding may go beyond


def make_typing_errors(text: str, seed: int) -> str:
    """The text with errors in some of its words: two neighbouring letters are swapped, or one is dropped.

    The errors are those of swapped letters by Belinkov & Bisk (2018), the first and the last letter excepted, and of
    dropped ones. Words of fewer than four letters, of scripts without spaces, and in addresses, tags and placeholders
    stay as they are; if there is no other, so does the text. A text has the same errors whenever the seed is the same.
    """
    chance = random.Random(f"{seed} {text}")  # noqa: S311 - nothing here is secret
    spans = find_protected_spans(text)
    words = [
        word
        for word in _WORD.finditer(text)
        if not WITHOUT_SPACES.search(word[0])
        and not any(span.start < word.end() and word.start() < span.end for span in spans)
    ]
    chosen = chance.sample(words, max(1, round(ERROR_SHARE * len(words)))) if words else []
    for word in sorted(chosen, key=re.Match.start, reverse=True):
        text = text[: word.start()] + _make_error(word[0], chance) + text[word.end() :]
    return text


def _make_error(word: str, chance: random.Random) -> str:
    place = chance.randrange(1, len(word) - 2)
    first, second = word[place], word[place + 1]
    is_swapped = first != second and chance.random() < 0.5
    return word[:place] + (second + first if is_swapped else second) + word[place + 2 :]


def remove_full_stop(text: str) -> str:
    """The text without the full stop at its end, if it has one."""
    return _FULL_STOP.sub("", text)


Change = Callable[[str, SourceText], str]
Normalize = Callable[[str, str], str]


def _make_cases(change: Change, text: SourceText) -> list[Case]:
    """A case for each sentence that the change alters."""
    sources = tuple(sentence.source for sentence in text.sentences)
    changed = [(sentence, change(sentence.source, text)) for sentence in text.sentences]
    return [
        Case(
            altered,
            (sentence.source,),
            others=sources,
            reference=sentence.reference,
            language=text.translator.target_language,
        )
        for sentence, altered in changed
        if altered.strip() and altered != sentence.source
    ]


def _judge_consistency(normalize: Normalize, case: Case, translations: Translations) -> Judgement:
    (source,) = case.related
    found, expected = translations[case.text], translations[source]
    if PROBLEMS["empty"](case.text, found):
        return Judgement(0.0, "the translation is blank", expected)
    if (other := find_same_translation(source, case.others, translations)) is not None:
        return Judgement(0.0, f"unchanged, its translation is also that of: {other}", expected)
    score = compute_chrf(normalize(found, case.language), normalize(expected, case.language))
    problem = "" if score >= CONSISTENT else f"chrF {100 * score:.0f} with the translation of the unchanged sentence"
    return Judgement(score, problem, expected)


def measure_lost_chrf(behaviour: Behaviour, cases: Sequence[Case], translations: Translations) -> float | None:
    """How much lower the chrF of the changed sentences is than that of the unchanged ones, from -100 to 100.

    Both are corpus scores against human translations, after `behaviour.normalize`; None if a case has no human
    translation.
    """
    normalize = behaviour.normalize
    references = [case.reference for case in cases if case.reference is not None]
    if normalize is None or not cases or len(references) < len(cases):
        return None
    languages = [case.language for case in cases]
    expected = list(map(normalize, references, languages))
    before, after = (
        score_corpus(list(map(normalize, [translations[text] for text in texts], languages)), expected, ["chrf"])[0]
        for texts in ([case.related[0] for case in cases], [case.text for case in cases])
    )
    return before.value - after.value


def _make_behaviour(name: str, description: str, absence: str, change: Change, normalize: Normalize) -> Behaviour:
    return Behaviour(
        name,
        description,
        partial(_make_cases, change),
        partial(_judge_consistency, normalize),
        absence=absence,
        normalize=normalize,
    )


CHANGED_INPUT = (
    _make_behaviour(
        "all caps",
        "Sentences in capital letters are translated as they are otherwise: chrF between the two translations, whose "
        "capitals do not count.",
        "the text has no small letters",
        lambda source, text: to_upper_case(source, text.translator.source_language),
        fold_case,
    ),
    _make_behaviour(
        "no capitals",
        "Sentences in small letters are translated as they are otherwise: chrF between the two translations, whose "
        "capitals do not count.",
        "the text has no capital letters",
        lambda source, text: to_lower_case(source, text.translator.source_language),
        fold_case,
    ),
    _make_behaviour(
        "typing errors",
        "Sentences with swapped or dropped letters in every fifth word are translated as they are without: chrF "
        "between the two translations.",
        "the text has no words of four letters and more, with spaces between them",
        lambda source, text: make_typing_errors(source, text.seed),
        lambda translation, _: translation,
    ),
    _make_behaviour(
        "no full stop",
        "Sentences without their full stop are translated as they are with it: chrF between the two translations, "
        "whose full stops do not count.",
        "no sentence of the text ends in a full stop",
        lambda source, _: remove_full_stop(source),
        lambda translation, _: remove_full_stop(translation),
    ),
)
"""Behaviours on changed input."""
