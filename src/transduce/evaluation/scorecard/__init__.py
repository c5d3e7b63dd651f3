"""The scorecard of a model: how it behaves on unusual input and in every sentence, beside its BLEU.

A behaviour is a probe in the manner of CheckList (Ribeiro et al. 2020): inputs made of the user's own sentences,
translated as `transduce translate` does, and judged by a rule that needs no other model.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transduce.bundle import RecordedBehaviour, RecordedScorecard
from transduce.bundle.manifest import record_files
from transduce.errors import ConfigError, CorpusError
from transduce.evaluation.scorecard.behaviour import (
    Behaviour,
    Case,
    Sentence,
    SourceText,
    Translations,
)
from transduce.evaluation.scorecard.changed_input import CHANGED_INPUT, measure_lost_chrf
from transduce.evaluation.scorecard.every_translation import EVERY_TRANSLATION
from transduce.evaluation.scorecard.kept_text import KEPT_TEXT
from transduce.evaluation.scorecard.options import GUARD, TranslationOption
from transduce.evaluation.scorecard.unusual_input import UNUSUAL_INPUT
from transduce.pages import Table, choose_evenly
from transduce.text.corpus import escape_surrogates
from transduce.translation import Translator
from transduce.translation.confidence.guard import find_problems

_OF_INPUT = (*CHANGED_INPUT, *KEPT_TEXT, *UNUSUAL_INPUT)

BEHAVIOURS: tuple[Behaviour, ...] = (*_OF_INPUT, *EVERY_TRANSLATION)
"""All behaviours, in the order of a scorecard."""

Translate = Callable[..., dict[str, str]]
"""Translates texts, with an option if one is given."""

NUM_SENTENCES = 100
"""Default number of sentences of which inputs are made."""

MAX_RETRIED = 50
"""Maximum number of inputs of a behaviour that are translated again with an option."""

NUM_EXAMPLES = 3
"""Examples of each behaviour, those with the lowest scores."""


@dataclass(frozen=True)
class BehaviourExample:
    """A translation that fails the rule of a behaviour.

    Args:
        text: the input.
        translation: its translation.
        problem: what is wrong, in a few words.
        expected: the text that the translation was compared with; "" if there is none.
    """

    text: str
    translation: str
    problem: str
    expected: str = ""


@dataclass(frozen=True)
class BehaviourResult:
    """The figures of one behaviour, and examples of what went wrong."""

    figures: RecordedBehaviour
    examples: tuple[BehaviourExample, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        examples = [
            {name: text for name, text in asdict(one).items() if text or name != "expected"} for one in self.examples
        ]
        return {**self.figures.model_dump(exclude_none=True), "examples": examples}


@dataclass(frozen=True)
class Scorecard:
    """How a model behaves.

    Args:
        results: of each behaviour for which there were inputs, in the order of `BEHAVIOURS`.
        skipped: the names of the other behaviours, each with the reason.
        num_sentences: number of sentences of which inputs were made.
        num_translations: number of different inputs.
        seed: of random changes of the input.
        seconds: time that all of it took.
    """

    results: tuple[BehaviourResult, ...]
    skipped: dict[str, str]
    num_sentences: int
    num_translations: int
    seed: int
    seconds: float

    def as_record(self, text: str, files: Mapping[str, Path]) -> RecordedScorecard:
        """The scorecard as the bundle keeps it, without sentences.

        Args:
            text: the name of the text; bytes that are not UTF-8 are recorded as escapes.
            files: the files of the text, by "source" and "reference"; none for the validation text.
        """
        return RecordedScorecard(
            text=escape_surrogates(text),
            data={side: record_files(path.parent, [path.name])[path.name].sha256 for side, path in files.items()},
            num_sentences=self.num_sentences,
            seed=self.seed,
            behaviours=[result.figures for result in self.results],
            skipped=self.skipped,
        )

    def as_json(self) -> dict[str, Any]:
        """The scorecard as a JSON object."""
        return {
            "sentences": self.num_sentences,
            "translations": self.num_translations,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "behaviours": [result.as_json() for result in self.results],
            "skipped": self.skipped,
        }


def tabulate_behaviours(behaviours: Sequence[RecordedBehaviour]) -> Table:
    """A row for each behaviour; cells are empty where they do not apply."""

    def show(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    heads = ["behaviour", "option that helps", "score", "with it", "cases", "chrF lost"]
    rows = [
        [
            one.name,
            one.option or "",
            show(one.score),
            show(one.score_with_option),
            f"{one.num_cases:,}",
            show(one.lost_chrf),
        ]
        for one in behaviours
    ]
    return Table("", heads, rows, num_texts=2)


def measure_scorecard(
    translator: Translator, sentences: Sequence[Sentence], *, num_sentences: int = NUM_SENTENCES, seed: int = 1
) -> Scorecard:
    """Translate inputs made of some of the sentences, all in one batch, and judge their translations.

    Where a translation is wrong and an option of `transduce translate` may help, the inputs of that behaviour are
    translated again with the option.

    Args:
        translator: the model, with the settings that are measured.
        sentences: of the text that the model is for, preferably not those that it was trained on.
        num_sentences: maximum number of sentences that are used, evenly chosen from those that the model reads as
            wholes.
        seed: of random changes of the input.

    Raises:
        CorpusError: there is no sentence that is not blank and is read as a whole.
    """
    started = time.perf_counter()
    tag, chosen = _choose_sentences(translator, sentences, num_sentences)
    text = SourceText(chosen, translator, seed)

    def translate(texts: Sequence[str], option: TranslationOption | None = None) -> dict[str, str]:
        tagged = [tag + one if one.strip() else one for one in texts]
        found = translator.translate(tagged) if option is None else option.translate(translator, tagged)
        return dict(zip(texts, found, strict=True))

    cases = {behaviour.name: behaviour.make_cases(text) for behaviour in _OF_INPUT}
    made = [case.text for behaviour in _OF_INPUT if behaviour.has_sentences for case in cases[behaviour.name]]
    text = replace(text, inputs=tuple(dict.fromkeys([*(one.source for one in chosen), *made])))
    cases |= {behaviour.name: behaviour.make_cases(text) for behaviour in EVERY_TRANSLATION}
    inputs = [one for of_one in cases.values() for case in of_one for one in (case.text, *case.related)]
    translations = translate(list(dict.fromkeys(inputs)))

    results = [
        _judge(behaviour, own, translations, translate) for behaviour in BEHAVIOURS if (own := cases[behaviour.name])
    ]
    skipped = {behaviour.name: behaviour.absence for behaviour in BEHAVIOURS if not cases[behaviour.name]}
    return Scorecard(tuple(results), skipped, len(chosen), len(translations), seed, time.perf_counter() - started)


def _choose_sentences(
    translator: Translator, sentences: Sequence[Sentence], count: int
) -> tuple[str, tuple[Sentence, ...]]:
    """The tag that sentences begin with, usually none, and different sentences that had it, without the tag.

    The tag is separated so that changes of a sentence do not touch it.
    """
    different = {one.source.strip(): one for one in sentences if one.source.strip()}
    split = [(*translator.tokenizer.split_tag(source), one) for source, one in different.items()]
    tag = split[0][0] if split else ""
    # Twice as many as needed, as some may be too long.
    candidates = choose_evenly([(rest, one) for own, rest, one in split if own == tag and rest], 2 * count)
    fitting = [Sentence(rest, one.reference) for rest, one in candidates if translator.fits(tag + rest)]
    if not fitting:
        raise CorpusError(
            f"no sentence is usable: of {len(sentences):,}, {len(candidates):,} were tried, and none has from 1 to "
            f"{translator.search.max_pieces} pieces, as many as the model reads at once: give other text"
        )
    return tag, tuple(choose_evenly(fitting, count))


def _judge(
    behaviour: Behaviour, cases: Sequence[Case], translations: Translations, translate: Translate
) -> BehaviourResult:
    judged = [behaviour.judge(case, translations) for case in cases]
    score = 100 * statistics.fmean(judgement.score for judgement in judged)
    wrong = [(judgement, case) for judgement, case in zip(judged, cases, strict=True) if judgement.problem]
    flags, better = None, None
    if behaviour.option is not None and wrong:
        found = _try_option(behaviour, behaviour.option, cases, translations, translate)
        if found is not None and round(found, 1) > round(score, 1):  # as they are shown
            flags, better = behaviour.option.flags, found
    worst = sorted(wrong, key=lambda pair: pair[0].score)[:NUM_EXAMPLES]
    figures = RecordedBehaviour(
        name=behaviour.name,
        description=behaviour.description,
        score=score,
        num_cases=len(cases),
        num_problems=len(wrong),
        lost_chrf=measure_lost_chrf(behaviour, cases, translations),
        option=flags,
        score_with_option=better,
    )
    examples = [BehaviourExample(case.text, translations[case.text], one.problem, one.expected) for one, case in worst]
    return BehaviourResult(figures, tuple(examples))


def _try_option(
    behaviour: Behaviour,
    option: TranslationOption,
    cases: Sequence[Case],
    translations: Translations,
    translate: Translate,
) -> float | None:
    """The score of a behaviour if texts are translated with an option; None if the engine does not support the option.

    At most `MAX_RETRIED` texts are translated again; others count with the mean score of these. With the guard, texts
    whose translation has no problem keep their score, as the guard does not translate them again.
    """
    affected, others = list[Case](), list[Case]()
    for case in cases:
        is_affected = option is not GUARD or find_problems(case.text, translations[case.text])
        (affected if is_affected else others).append(case)
    retried = choose_evenly(affected, MAX_RETRIED)
    try:
        again = {**translations, **translate(list(dict.fromkeys(case.text for case in retried)), option)}
    except ConfigError:
        return None
    scores = [behaviour.judge(case, again).score for case in retried]
    kept = sum(behaviour.judge(case, translations).score for case in others)
    total = kept + len(affected) * statistics.fmean(scores or [0.0])
    return min(100.0, 100 * total / len(cases))  # rounding may go beyond
