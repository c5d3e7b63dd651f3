"""Translation of lines with all options, and tokens, confidence and alignment of a translated line."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, starmap
from typing import TYPE_CHECKING

from transduce.config import SearchConfig
from transduce.text import Glossary, ProtectedSpan, pair_kept_spans
from transduce.translation.confidence.guard import GuardReport, add_reports, find_problems, retry_suspects
from transduce.translation.constraints import TextConstraints
from transduce.translation.constraints.protection import ProtectedTranslation, translate_protected
from transduce.translation.constraints.span_search import SpanSearch, find_removed_ranges, remove_spans
from transduce.translation.options import (
    ProtectionMethod,
    ScoredText,
    Token,
    TranslatedSentence,
    TranslationOptions,
    Word,
)
from transduce.translation.translator import (
    FAILED_TRANSLATION,
    EncodedText,
    Translation,
    TranslationAlternative,
    Translator,
)

if TYPE_CHECKING:
    from transduce.translation.confidence.alignment import Alignment, AlignmentHead
    from transduce.translation.confidence.calibration import Confidence
    from transduce.translation.confidence.scoring import ForcedDecoder


@dataclass(frozen=True)
class TranslatedLine:
    """A line and its translation.

    Args:
        source: the line.
        translation: its translation. If spans or terms are kept, score and pieces of its one alternative are those of
            the text without spans; there are none if it was put together of parts of sentences.
        how: how spans and terms were kept; None if none were to be kept.
        spans: pairs of the same kept span in the source and in the translation.
        is_given_up: whether no translation keeps its spans and terms, so that the result is the source with its terms
            replaced.
    """

    source: str
    translation: Translation
    how: ProtectionMethod | None = None
    spans: tuple[tuple[ProtectedSpan, ProtectedSpan], ...] = ()
    is_given_up: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether no translation keeps the constraints; then the line is blank."""
        return self.translation.alternatives[0].score == -math.inf

    @property
    def has_score(self) -> bool:
        """Whether the score of the translation is known."""
        return not self.has_failed and (self.how is None or bool(self.translation.alternatives[0].pieces))

    @cached_property
    def bare_texts(self) -> tuple[str, str]:
        """Source and translation without the spans, as the model reads and writes them."""
        if not self.spans:
            return self.source, self.translation.text
        of_source, of_target = self.spans_in_order
        return remove_spans(self.source, of_source)[0], remove_spans(self.translation.text, of_target)[0]

    @property
    def spans_in_order(self) -> tuple[list[ProtectedSpan], list[ProtectedSpan]]:
        """The spans of the source and those of the translation, each from left to right."""
        sides = zip(*self.spans, strict=True)
        of_source, of_target = (sorted(side, key=lambda span: span.start) for side in sides)
        return of_source, of_target


class LineTranslator:
    """Translates blocks of lines with options; `guard_report` counts what the guard has found so far.

    Args:
        translator: the model and its tokenizer.
        options: options of all lines.
        head: the attention head by which spans are placed; default: the mean of the last layer's.

    Raises:
        ConfigError: options exclude each other, or ask for what cannot be (see `Translator.check`); or spans are to be
            kept, and the engine is not the native one: the decoder's attention is read.
        UserError: spans are to be kept, and the model is no Transformer.
    """

    def __init__(
        self, translator: Translator, options: TranslationOptions, head: "AlignmentHead | None" = None
    ) -> None:
        options.check()
        self.translator = translator = translator.with_search(options.search)
        self.options = options
        self.guard_report: GuardReport | None = None
        constraints = options.constraints
        translator.check(num_best=options.num_best, constraints=constraints, num_samples=options.num_samples)
        self._constraints = None if constraints is None else constraints.as_written(translator.tokenizer)
        self._safer = translator.with_search(make_safer_settings(translator.search)) if options.guard else translator
        self._glossary, self._head = Glossary(options.glossary, translator.source_language), head
        if options.has_protected_text:
            SpanSearch(translator, head)  # which checks the engine

    def translate(
        self, sources: Sequence[str | EncodedText], constraints: Sequence[TextConstraints | None] | None = None
    ) -> list[TranslatedLine]:
        """The translation of each line, encoded or not; each may have constraints besides those of every line.

        Raises:
            ConfigError: the constraints of a line cannot be combined with the options; see `check`.
        """
        own = constraints if constraints is not None else [None] * len(sources)
        combined = [self._combine_constraints(one) for one in own]
        # Encoded once for all searches; a search that keeps spans encodes texts without them.
        texts = sources if self.options.has_protected_text else self.translator.encode(sources)
        first = self._translate_once(self.translator, texts, combined)
        if not self.options.guard:
            return first
        languages = self.translator.source_language, self.translator.target_language
        is_same_language = bool(languages[0]) and languages[0] == languages[1]

        def find_line_problems(place: int, line: TranslatedLine) -> list[str]:
            source, translation = first[place].bare_texts[0], line.bare_texts[1]
            source = self.translator.tokenizer.split_tag(source)[1]
            return find_problems(source, translation, is_same_language=is_same_language)

        def retry(places: list[int]) -> list[TranslatedLine]:
            again = [texts[place] for place in places], [combined[place] for place in places]
            lines = self._translate_once(self._safer, *again)
            # Constraints come first: an attempt that does not keep them is none.
            return [first[place] if line.has_failed else line for place, line in zip(places, lines, strict=True)]

        best, report = retry_suspects(first, find_line_problems, retry)
        self.guard_report = add_reports(self.guard_report, report)
        return best

    def check(self, own: TextConstraints) -> None:
        """Check that a line may have these constraints besides those of every line.

        Raises:
            ConfigError: they cannot be combined with the options, or the engine does not have them.
        """
        if self._constraints is None:
            given = {"prefix": own.prefix, "require": own.required, "forbid": own.forbidden}
            self.options.model_copy(update=given).check()
        self.translator.engine.check(self.translator.search, own.as_ids(self.translator.tokenizer))

    def _combine_constraints(self, own: TextConstraints | None) -> TextConstraints | None:
        if own is None:
            return self._constraints
        self.check(own)
        own = own.as_written(self.translator.tokenizer)
        return own if self._constraints is None else self._constraints.combine(own)

    def _translate_once(
        self, translator: Translator, texts: Sequence[str | EncodedText], constraints: Sequence[TextConstraints | None]
    ) -> list[TranslatedLine]:
        """Translate lines without the guard; they are encoded unless spans are kept."""
        options = self.options
        sources = [text if isinstance(text, str) else text.text for text in texts]
        if options.has_protected_text:
            encoded = [text for text in texts if isinstance(text, EncodedText)]
            return self._translate_with_spans(translator, encoded, sources)
        encoded = translator.encode(texts)
        if options.num_samples:
            found = translator.draw_samples(encoded, options.num_samples, sampling=options.sampling, seed=options.seed)
            if options.minimum_bayes_risk:
                found = list(map(_rank_by_risk, found))
            found = [replace(one, alternatives=one.alternatives[: options.num_best]) for one in found]
        else:
            found = self._search(translator, encoded, constraints)
        return list(map(TranslatedLine, sources, found))

    def _search(
        self, translator: Translator, texts: Sequence[EncodedText], constraints: Sequence[TextConstraints | None]
    ) -> list[Translation]:
        """Translate by search, at first without constraints other than the prefix, as they are often kept anyway.

        A text that is too long to be read as a whole cannot be held to constraints, and fails unless it keeps them.
        """
        num_best = self.options.num_best
        free = [place for place, one in enumerate(constraints) if one is None or not one.prefix]
        results = translator.find_translations([texts[place] for place in free], num_best=num_best)
        found = dict(zip(free, results, strict=True))
        begun = {
            place: TextConstraints(one.prefix)
            for place, one in enumerate(constraints)
            if one is not None and one.prefix and texts[place].is_whole
        }
        results = translator.find_translations(
            [texts[place] for place in begun], num_best=num_best, constraints=list(begun.values())
        )
        found.update(zip(begun, results, strict=True))
        waiting = {
            place: own
            for place, own in enumerate(constraints)
            if own is not None and not (place in found and _are_met(own, found[place]))
        }
        found.update(dict.fromkeys(waiting, FAILED_TRANSLATION))
        waiting = {place: own for place, own in waiting.items() if texts[place].is_whole}
        results = translator.find_translations(
            [texts[place] for place in waiting], num_best=num_best, constraints=list(waiting.values())
        )
        pairs = zip(waiting, results, strict=True)
        found |= {place: result for place, result in pairs if result.alternatives[0].score > -math.inf}
        return [found[place] for place in range(len(texts))]

    def _translate_with_spans(
        self, translator: Translator, encoded: Sequence[EncodedText], sources: Sequence[str]
    ) -> list[TranslatedLine]:
        split = [translator.tokenizer.split_tag(source) for source in sources]
        lines: dict[int, TranslatedLine] = {}
        for tag in dict.fromkeys(tag for tag, _ in split):
            places = [place for place, (own, _) in enumerate(split) if own == tag]
            search = SpanSearch(translator, self._head, encoded, tag)
            found = self._translate_with_tag(search, tag, [split[place][1] for place in places])
            lines.update(zip(places, found, strict=True))
        return [lines[place] for place in range(len(sources))]

    def _translate_with_tag(self, search: SpanSearch, tag: str, texts: Sequence[str]) -> list[TranslatedLine]:
        """Translate lines with the same language tag (usually none), given without it."""
        kinds, language = self.options.protect, self.translator.source_language
        kept = translate_protected(
            texts, search.search, kinds=kinds, glossary=self._glossary, language=language, fits=search.fits
        )
        return [
            TranslatedLine(
                tag + text,
                _make_translation(one),
                one.how,
                tuple(
                    (replace(span, start=len(tag) + span.start, end=len(tag) + span.end), other)
                    for span, other in pair_kept_spans(text, one.text, kinds, language)
                ),
                one.is_given_up,
            )
            for text, one in zip(texts, kept, strict=True)
        ]


def _are_met(constraints: TextConstraints, translation: Translation) -> bool:
    return all(one.score > -math.inf and constraints.are_met_by(one.text) for one in translation.alternatives)


def make_safer_settings(search: SearchConfig) -> dict[str, int]:
    """Settings with which a translation that has a problem is tried again; none is less strict than before."""
    return {
        "no_repeat_ngram": min(3, search.no_repeat_ngram or 3),
        "min_length": max(2, search.min_length),
        "beam": 2 * max(2, search.beam),
    }


def _make_translation(kept: ProtectedTranslation) -> Translation:
    """The translation, with score and pieces of the sentences that were translated as wholes."""
    found = [one.alternatives[0] for one in kept.searched] if kept.how in {"free", "constrained"} else []
    best = TranslationAlternative(
        kept.text,
        float(sum(one.score for one in found)),
        tuple(piece for one in found for piece in one.pieces),
        tuple(score for one in found for score in one.token_scores),
    )
    return Translation((best,), kept.num_parts + sum(one.num_parts - 1 for one in kept.searched))


def _rank_by_risk(translation: Translation) -> Translation:
    """The different samples, the one of least risk first, with their expected chrF as utility."""
    from transduce.translation.minimum_bayes_risk import rank_candidates  # noqa: PLC0415 - loads sacreBLEU

    of_text = {alternative.text: alternative for alternative in reversed(translation.alternatives)}
    ranking = rank_candidates([alternative.text for alternative in translation.alternatives])
    ranked = (replace(of_text[text], utility=utility) for text, utility in ranking.items())
    return replace(translation, alternatives=tuple(ranked))


def align_lines(
    decoder: "ForcedDecoder", lines: Sequence[TranslatedLine], head: "AlignmentHead | None"
) -> "list[Alignment | None]":
    """The alignment of each line with its translation, between words as they stand there; see `align_pairs`.

    Words are linked as `align_pairs` links them in the texts without protected spans, which the model never reads;
    words of a span are linked with those of the same span. A word that is partly a span is linked by its other letters.
    A line that has failed, or is not read as a whole, has no alignment.
    """
    from transduce.translation.confidence.alignment import align_pairs  # noqa: PLC0415 - loads PyTorch

    aligned = iter(align_pairs(decoder, [line.bare_texts for line in lines if not line.has_failed], head))
    return [
        None if line.has_failed or (alignment := next(aligned)).is_long else _add_span_links(line, alignment)
        for line in lines
    ]


def _add_span_links(line: TranslatedLine, bare: "Alignment") -> "Alignment":
    from transduce.translation.confidence.alignment import Alignment, Link  # noqa: PLC0415 - loads PyTorch

    source, target = line.source, line.translation.text
    source_spans, target_spans = line.spans_in_order if line.spans else ([], [])
    of_source, of_target = _number_words(source), _number_words(target)
    links: dict[int, Link] = {}
    for span, other in line.spans:
        ours, theirs = (
            dict.fromkeys(word for word in words[one.start : one.end] if word is not None)
            for words, one in ((of_source, span), (of_target, other))
        )
        links |= {word: Link(here, word, 1.0) for here, word in zip(ours, theirs, strict=True)}
    sources = _map_words(source, source_spans, bare.source)
    targets = _map_words(target, target_spans, bare.target)
    for link in bare.links:
        word = targets[link.target]
        links[word] = Link(sources[link.source], word, link.weight)
    return Alignment(tuple(source.split()), tuple(target.split()), tuple(links[word] for word in sorted(links)))


def _number_words(text: str) -> list[int | None]:
    """The number of the word that each character is part of; None for white space."""
    words: list[int | None] = [None] * len(text)
    for number, word in enumerate(re.finditer(r"\S+", text)):
        words[slice(*word.span())] = [number] * len(word[0])
    return words


def _map_words(text: str, spans: Sequence[ProtectedSpan], bare: Sequence[str]) -> list[int]:
    """For each word of the same text without its spans (`bare`), the number of its word in `text`."""
    words = _number_words(text)
    for start, end in find_removed_ranges(text, spans):
        words[start:end] = [None] * (end - start)
    rest = [number for number in words if number is not None]
    *starts, _ = accumulate(map(len, bare), initial=0)
    return [rest[start] for start in starts]


def describe_lines(
    lines: Sequence[TranslatedLine],
    translator: Translator,
    *,
    confidence: "Confidence | None" = None,
    head: "AlignmentHead | None" = None,
    has_alignment: bool = False,
) -> list[TranslatedSentence]:
    """Translated lines with score, tokens, confidence and alignment, as far as they are known.

    If protected spans are kept, score, tokens and confidence are those of the translation without the spans; there are
    none if it was assembled from parts of sentences. The alignment is that of the final line. A line that was too long
    to be read as a whole has no alignment and no confidence.

    Args:
        lines: the lines.
        translator: the translator of the lines.
        confidence: the confidence estimator of a calibrated model.
        head: the attention head that aligns words; default: the mean of the last layer's.
        has_alignment: whether lines are aligned.

    Raises:
        ConfigError: lines are to be aligned, and the engine is not the native one.
    """
    alignments: Sequence[Alignment | None] = [None] * len(lines)
    if has_alignment:
        alignments = align_lines(translator.make_forced_decoder("alignments"), lines, head)
    return [_describe_line(*both, confidence) for both in zip(lines, alignments, strict=True)]


def _describe_line(
    line: TranslatedLine, alignment: "Alignment | None", confidence: "Confidence | None"
) -> TranslatedSentence:
    best = line.translation.alternatives[0]
    is_joined = not best.pieces or line.translation.num_parts > 1
    known = None if is_joined or line.has_failed else confidence
    words = [] if known is None else known.estimate_words(best.pieces, best.token_scores)
    return TranslatedSentence(
        source=line.source,
        translations=tuple(
            ScoredText(one.text, one.score if line.has_score else None, one.utility)
            for one in line.translation.alternatives
        ),
        tokens=tuple(map(Token, best.pieces, best.token_scores)),
        num_parts=line.translation.num_parts,
        how=line.how,
        confidence=None if known is None else known.estimate_chrf(best.token_scores),
        words=tuple(starmap(Word, words)),
        alignment=None if alignment is None else str(alignment),
    )
