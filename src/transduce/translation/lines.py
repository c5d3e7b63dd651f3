"""Lines of a stream to translations, with everything that can be asked of them."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.search import Sampling
from transduce.text import Glossary, Kind
from transduce.translation.alignment import AlignmentHead
from transduce.translation.guard import GuardReport, guarded
from transduce.translation.minimum_bayes_risk import choose
from transduce.translation.protection import How, translate_protected
from transduce.translation.span_keeper import SpanKeeper
from transduce.translation.text_constraints import TextConstraints
from transduce.translation.translator import Alternative, Translation, Translator


@dataclass(frozen=True)
class LineOptions:
    """What is asked of the translation of every line.

    Args:
        num_best: alternatives for each line.
        constraints: what each translation must and must not contain; None: anything.
        protected: kinds of spans that are kept as they are, or None.
        glossary: terms that must be translated so, or None.
        num_samples: instead of searching, draw so many translations of each line; 0: search.
        sampling: what they are drawn from.
        seed: of what is drawn.
        minimum_bayes_risk: whether samples are ranked by what they have in common (Eikema & Aziz 2020).
        guard: whether translations with a problem (see `guard.PROBLEMS`) are tried once more.

    Raises:
        ConfigError: some of them exclude each other.
    """

    num_best: int = 1
    constraints: TextConstraints | None = None
    protected: Collection[Kind] | None = None
    glossary: Glossary | None = None
    num_samples: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 1
    minimum_bayes_risk: bool = False
    guard: bool = False

    def __post_init__(self) -> None:
        ways = {
            "samples": self.num_samples > 0,
            "protected spans or a glossary": self.keeps,
            "required words, forbidden words or a prefix": self.constraints is not None,
        }
        chosen = [name for name, is_chosen in ways.items() if is_chosen]
        if len(chosen) > 1:
            raise ConfigError(f"{chosen[0]} cannot be combined with {chosen[1]}: ask for one of them")
        if self.keeps and self.num_best > 1:
            raise ConfigError(
                f"num_best = {self.num_best}: with protected spans or a glossary there is one translation"
            )
        if self.minimum_bayes_risk and not self.num_samples:
            raise ConfigError("minimum-Bayes-risk chooses among samples: say how many to draw")
        if self.num_samples < 0:
            raise ConfigError(f"samples = {self.num_samples}: must be at least 1, or 0 to search")
        if self.seed < 0:
            raise ConfigError(f"seed = {self.seed}: must not be negative")
        if self.num_samples and self.guard:
            raise ConfigError("the guard searches again, and samples are not searched for: ask for one of them")
        if self.num_samples and not 1 <= self.num_best <= self.num_samples:
            raise ConfigError(
                f"num_best = {self.num_best}: must be from 1 to the number of samples, {self.num_samples}"
            )

    @property
    def keeps(self) -> bool:
        """Whether something of the source is to be kept."""
        return self.protected is not None or self.glossary is not None


@dataclass(frozen=True)
class Line:
    """A line and its translation; `how` says how what was to be kept was kept, if something was."""

    source: str
    translation: Translation
    how: How | None = None

    @property
    def has_failed(self) -> bool:
        """Whether no translation has what was asked for; then the line is blank."""
        return self.translation.alternatives[0].score == -math.inf


_FAILED = Translation((Alternative("", -math.inf),))


def _safer(search: SearchConfig) -> dict[str, int]:
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
        ConfigError: something is to be kept, and the engine is not the native one, whose attention is read.
    """

    def __init__(self, translator: Translator, options: LineOptions, head: AlignmentHead | None = None) -> None:
        self.translator = translator
        self.options = options
        self.guard_report: GuardReport | None = None
        self._safer = translator.with_search(_safer(translator.search)) if options.guard else translator
        self._keeper = SpanKeeper(translator, head) if options.keeps else None

    def translate(self, sources: Sequence[str]) -> list[Line]:
        """The translation of each line of a block."""
        first = self._once(self.translator, sources)
        if not self.options.guard:
            return first
        before = dict(zip(sources, first, strict=True))
        again: dict[str, Line] = {}

        def retry(suspects: list[str]) -> list[str]:
            # What was asked for comes first: an attempt that does not have it is none.
            attempts = zip(suspects, self._once(self._safer, suspects), strict=True)
            again.update((source, before[source] if line.has_failed else line) for source, line in attempts)
            return [again[source].translation.text for source in suspects]

        translator = self.translator
        same = bool(translator.source_language) and translator.source_language == translator.target_language
        texts, report = guarded(sources, [line.translation.text for line in first], retry, same_language=same)
        self.guard_report = report if self.guard_report is None else self.guard_report + report
        return [
            line if line.translation.text == text else again[line.source]
            for line, text in zip(first, texts, strict=True)
        ]

    def _once(self, translator: Translator, sources: Sequence[str]) -> list[Line]:
        options = self.options
        if self._keeper is not None:
            return self._kept(self._keeper.using(translator), sources)
        if options.num_samples:
            found = translator.samples(sources, options.num_samples, sampling=options.sampling, seed=options.seed)
            if options.minimum_bayes_risk:
                found = list(map(_by_risk, found))
            found = [replace(one, alternatives=one.alternatives[: options.num_best]) for one in found]
        else:
            found = self._searched(translator, sources)
        return [Line(source, translation) for source, translation in zip(sources, found, strict=True)]

    def _searched(self, translator: Translator, sources: Sequence[str]) -> list[Translation]:
        """By search; what is too long to be read as a whole cannot be held to constraints, and fails."""
        options = self.options
        if options.constraints is None:
            return translator.translations(sources, num_best=options.num_best)
        places = [place for place, source in enumerate(sources) if translator.fits(source)]
        results = translator.translations(
            [sources[place] for place in places],
            num_best=options.num_best,
            constraints=[options.constraints] * len(places),
        )
        found = [_FAILED] * len(sources)
        for place, result in zip(places, results, strict=True):
            if result.alternatives[0].score > -math.inf:
                found[place] = result
        return found

    def _kept(self, keeper: SpanKeeper, sources: Sequence[str]) -> list[Line]:
        kinds = self.options.protected if self.options.protected is not None else ()
        kept = translate_protected(sources, keeper.search, kinds=kinds, glossary=self.options.glossary)
        return [
            Line(source, Translation((Alternative(one.text, 0.0),)), one.how)
            for source, one in zip(sources, kept, strict=True)
        ]


def _by_risk(translation: Translation) -> Translation:
    """The different samples, the one of least risk first, scored by their expected chrF."""
    of_text = {alternative.text: alternative for alternative in reversed(translation.alternatives)}
    ranking = choose([alternative.text for alternative in translation.alternatives])
    return replace(
        translation,
        alternatives=tuple(replace(of_text[candidate.text], score=candidate.utility) for candidate in ranking),
    )
