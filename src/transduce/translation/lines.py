"""Lines of a stream to translations, with everything that can be asked of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from transduce.config import SearchConfig
from transduce.text import ProtectedSpan, pair_spans
from transduce.translation.alignment import AlignmentHead
from transduce.translation.alternatives import Alternative, Translation
from transduce.translation.guard import GuardReport, guarded
from transduce.translation.line_options import LineOptions
from transduce.translation.minimum_bayes_risk import choose
from transduce.translation.projection import without_spans
from transduce.translation.protection import How, ProtectedTranslation, translate_protected
from transduce.translation.span_keeper import SpanKeeper
from transduce.translation.text_constraints import TextConstraints
from transduce.translation.translator import Translator

_MOST_ATTEMPTS = 8
"""Searches for a translation without forbidden phrases, each of which knows more spellings of them."""


@dataclass(frozen=True)
class Line:
    """A line and its translation.

    Args:
        source: the line.
        translation: of it. Where spans or terms are kept, score and pieces of its one alternative are those of the
            search for the text without spans: none of what was put together of parts of sentences.
        how: how what was to be kept was kept, if something was.
        spans: that are kept, in the source and in the translation.
        is_given_up: whether no translation keeps what it must, so that the line is the source with its terms replaced.
    """

    source: str
    translation: Translation
    how: How | None = None
    spans: tuple[tuple[ProtectedSpan, ProtectedSpan], ...] = ()
    is_given_up: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether no translation has what was asked for; then the line is blank."""
        return self.translation.alternatives[0].score == -math.inf

    @property
    def has_score(self) -> bool:
        """Whether the score of the translation is known."""
        return not self.has_failed and (self.how is None or bool(self.translation.alternatives[0].pieces))

    @cached_property
    def bare(self) -> tuple[str, str]:
        """Source and translation without the spans, as the model has seen them."""
        if not self.spans:
            return self.source, self.translation.text
        of_source, of_target = self.spans_in_order
        return without_spans(self.source, of_source)[0], without_spans(self.translation.text, of_target)[0]

    @property
    def spans_in_order(self) -> tuple[list[ProtectedSpan], list[ProtectedSpan]]:
        """Those of the source and those of the translation, each from left to right."""
        sides = zip(*self.spans, strict=True)
        of_source, of_target = (sorted(side, key=lambda span: span.start) for side in sides)
        return of_source, of_target


_FAILED = Translation((Alternative("", -math.inf),))


def safer_settings(search: SearchConfig) -> dict[str, int]:
    """Settings with which a translation that has a problem is tried again; none is less strict than before."""
    return {
        "no_repeat_ngram": min(3, search.no_repeat_ngram or 3),
        "min_length": max(2, search.min_length),
        "beam": 2 * max(2, search.beam),
    }


class LineTranslator:
    """Translates blocks of lines; `guard_report` counts what the guard has found so far.

    Args:
        translator: the model.
        options: what is asked of every line.
        head: whose attention says where spans belong; the mean of the last layer's unless given.

    Raises:
        ConfigError: something is to be kept, and the engine is not the native one, whose attention is read; or what is
            asked for cannot be (see `Translator.check`).
    """

    def __init__(self, translator: Translator, options: LineOptions, head: AlignmentHead | None = None) -> None:
        self.translator = translator = translator.with_search(options.search)
        self.options = options
        every = options.constraints
        translator.check(num_best=options.num_best, constraints=every, num_samples=options.num_samples)
        self._every = None if every is None else every.as_written(translator.tokenizer)
        self.guard_report: GuardReport | None = None
        self._safer = translator.with_search(safer_settings(translator.search)) if options.guard else translator
        self._keeper = SpanKeeper(translator, head) if options.keeps else None

    def translate(
        self, sources: Sequence[str], constraints: Sequence[TextConstraints | None] | None = None
    ) -> list[Line]:
        """The translation of each line of a block.

        Args:
            sources: the lines.
            constraints: of each line, what is asked of it besides what is asked of every line.

        Raises:
            ConfigError: something is asked of a line that cannot be combined with the options; see `check`.
        """
        own = constraints if constraints is not None else [None] * len(sources)
        asked = [self._together(one) for one in own]
        first = self._once(self.translator, sources, asked)
        if not self.options.guard:
            return first
        again: dict[int, Line] = {}

        def retry(suspects: list[int]) -> list[str]:
            # What was asked for comes first: an attempt that does not have it is none.
            chosen = [sources[place] for place in suspects], [asked[place] for place in suspects]
            for place, line in zip(suspects, self._once(self._safer, *chosen), strict=True):
                again[place] = first[place] if line.has_failed else line
            return [again[place].bare[1] for place in suspects]

        translator = self.translator
        same = bool(translator.source_language) and translator.source_language == translator.target_language
        bare_sources, bare_texts = [line.bare[0] for line in first], [line.bare[1] for line in first]
        texts, report = guarded(bare_sources, bare_texts, retry, same_language=same)
        self.guard_report = report if self.guard_report is None else self.guard_report + report
        return [
            line if line.bare[1] == text else again[place]
            for place, (line, text) in enumerate(zip(first, texts, strict=True))
        ]

    def check(self, own: TextConstraints) -> None:
        """That this can be asked of a line besides what is asked of every line; whether it can be had, nobody knows.

        Raises:
            ConfigError: it cannot be combined with the options, or the engine does not have it.
        """
        if self._every is None:
            replace(self.options, constraints=own)  # refuses what cannot be combined
        self.translator.engine.check(self.translator.search, own.as_ids(self.translator.tokenizer))

    def _together(self, own: TextConstraints | None) -> TextConstraints | None:
        """What is asked of a line, and of every line."""
        if own is None:
            return self._every
        self.check(own)
        own = own.as_written(self.translator.tokenizer)
        return own if self._every is None else self._every.and_also(own)

    def _once(
        self, translator: Translator, sources: Sequence[str], asked: Sequence[TextConstraints | None]
    ) -> list[Line]:
        options = self.options
        if self._keeper is not None:
            return self._kept(self._keeper.using(translator), sources)
        if options.num_samples:
            seed = 1 if options.seed is None else options.seed
            found = translator.samples(sources, options.num_samples, sampling=options.sampling, seed=seed)
            if options.minimum_bayes_risk:
                found = list(map(_by_risk, found))
            found = [replace(one, alternatives=one.alternatives[: options.num_best]) for one in found]
        else:
            found = self._searched(translator, sources, asked)
        return [Line(source, translation) for source, translation in zip(sources, found, strict=True)]

    def _searched(
        self, translator: Translator, sources: Sequence[str], asked: Sequence[TextConstraints | None]
    ) -> list[Translation]:
        """By search, at first of all that may well be found without constraints: nothing is required of it.

        What is too long to be read as a whole cannot be held to constraints, and fails.
        """
        free = [place for place, wish in enumerate(asked) if wish is None or not (wish.prefix or wish.required)]
        results = translator.translations([sources[place] for place in free], num_best=self.options.num_best)
        found = [_FAILED] * len(sources)
        for place, result in zip(free, results, strict=True):
            wish = asked[place]
            if wish is None or all(wish.are_met_by(one.text) for one in result.alternatives):
                found[place] = result
        held = {
            place: wish
            for place, wish in enumerate(asked)
            if wish is not None and found[place] is _FAILED and translator.fits(sources[place])
        }
        return self._held(translator, sources, held, found)

    def _held(
        self,
        translator: Translator,
        sources: Sequence[str],
        held: Mapping[int, TextConstraints],
        found: list[Translation],
    ) -> list[Translation]:
        """`found` with translations of the lines `held` to something; what none is found for stays as it is."""
        for _ in range(_MOST_ATTEMPTS):
            results = translator.translations(
                [sources[place] for place in held], num_best=self.options.num_best, constraints=list(held.values())
            )
            again: dict[int, TextConstraints] = {}
            for (place, wish), result in zip(held.items(), results, strict=True):
                best = result.alternatives[0]
                if best.score > -math.inf:
                    found[place] = result
                elif (knowing := wish.learned(translator.tokenizer, best.pieces)) != wish:
                    again[place] = knowing
            held = again
        return found

    def _kept(self, keeper: SpanKeeper, sources: Sequence[str]) -> list[Line]:
        kinds = self.options.protected if self.options.protected is not None else ()
        language = self.translator.source_language
        kept = translate_protected(
            sources, keeper.search, kinds=kinds, glossary=self.options.glossary, language=language, fits=keeper.fits
        )
        return [
            Line(source, _translation(one), one.how, tuple(pair_spans(source, one.text, kinds)), one.is_given_up)
            for source, one in zip(sources, kept, strict=True)
        ]


def _translation(kept: ProtectedTranslation) -> Translation:
    """With what is known of it: score and pieces of what sentences were translated as wholes."""
    found = [one.alternatives[0] for one in kept.searched] if kept.how in {"free", "constrained"} else []
    best = Alternative(
        kept.text,
        float(sum(one.score for one in found)),
        tuple(piece for one in found for piece in one.pieces),
        tuple(score for one in found for score in one.token_scores),
    )
    return Translation((best,), kept.num_parts + sum(one.num_parts - 1 for one in kept.searched))


def _by_risk(translation: Translation) -> Translation:
    """The different samples, the one of least risk first, with their expected chrF as utility."""
    of_text = {alternative.text: alternative for alternative in reversed(translation.alternatives)}
    ranking = choose([alternative.text for alternative in translation.alternatives])
    return replace(
        translation,
        alternatives=tuple(replace(of_text[candidate.text], utility=candidate.utility) for candidate in ranking),
    )
