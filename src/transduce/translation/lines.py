"""Translation of lines with all options, and what is known of a translated line: alignment, confidence, tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from transduce.bundle import Bundle
from transduce.config import SearchConfig
from transduce.errors import ConfigError
from transduce.text import Glossary, ProtectedSpan, pair_spans
from transduce.translation.confidence.alignment import Alignment, AlignmentHead, Link, align_pairs
from transduce.translation.confidence.calibration import Confidence
from transduce.translation.confidence.guard import GuardReport, retry_suspects
from transduce.translation.confidence.scoring import ForcedDecoder
from transduce.translation.constraints.protection import ProtectedTranslation, ProtectionMethod, translate_protected
from transduce.translation.constraints.span_search import SpanSearch, find_removed_places, remove_spans
from transduce.translation.constraints.text_constraints import TextConstraints
from transduce.translation.engines.engine import NativeEngine
from transduce.translation.minimum_bayes_risk import rank_candidates
from transduce.translation.options import TranslationOptions
from transduce.translation.translator import Alternative, EncodedText, Translation, Translator

_MOST_ATTEMPTS = 8
"""Searches for a translation without forbidden phrases, each of which knows more spellings of them."""


@dataclass(frozen=True)
class Line:
    """A line and its translation.

    Args:
        source: the line.
        translation: of the line. Where spans or terms are kept, score and pieces of its one alternative are those of
            the text without spans; there are none if it was put together of parts of sentences.
        how: how spans and terms were kept; None if none were to be kept.
        spans: pairs of the same kept span in the source and in the translation.
        is_given_up: whether no translation keeps what it must, so that the line is the source with its terms replaced.
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


_FAILED = Translation((Alternative("", -math.inf),))


class LineTranslator:
    """Translates blocks of lines with options; `guard_report` counts what the guard has found so far.

    Args:
        translator: the model and its tokenizer.
        options: those of every line.
        head: whose attention says where spans belong; the mean of the last layer's unless given.

    Raises:
        ConfigError: options exclude each other, or ask for what cannot be (see `Translator.check`); or spans are to be
            kept, and the engine is not the native one, whose attention is read.
    """

    def __init__(self, translator: Translator, options: TranslationOptions, head: AlignmentHead | None = None) -> None:
        options.check()
        self.translator = translator = translator.with_search(options.search)
        self.options = options
        constraints = options.constraints
        translator.check(num_best=options.num_best, constraints=constraints, num_samples=options.num_samples)
        self._constraints = None if constraints is None else constraints.as_written(translator.tokenizer)
        self.guard_report: GuardReport | None = None
        self._safer = translator.with_search(make_safer_settings(translator.search)) if options.guard else translator
        self._glossary = Glossary(options.glossary)
        self._span_search = SpanSearch(translator, head) if options.keeps_spans else None

    def translate(
        self, sources: Sequence[str], constraints: Sequence[TextConstraints | None] | None = None
    ) -> list[Line]:
        """The translation of each line of a block.

        Args:
            sources: the lines.
            constraints: those of each line, besides those of every line.

        Raises:
            ConfigError: the constraints of a line cannot be combined with the options; see `check`.
        """
        own = constraints if constraints is not None else [None] * len(sources)
        asked = [self._combine_constraints(one) for one in own]
        # Encoded once for all searches; a search that keeps spans encodes texts without them.
        encoded = self.translator.encode(sources) if self._span_search is None else []
        first = self._translate_once(self.translator, range(len(sources)), sources, encoded, asked)
        if not self.options.guard:
            return first
        again: dict[int, Line] = {}

        def retry(suspects: list[int]) -> list[str]:
            # Constraints come first: an attempt that does not keep them is none.
            lines = self._translate_once(self._safer, suspects, sources, encoded, asked)
            for place, line in zip(suspects, lines, strict=True):
                again[place] = first[place] if line.has_failed else line
            return [again[place].bare_texts[1] for place in suspects]

        translator = self.translator
        same = bool(translator.source_language) and translator.source_language == translator.target_language
        bare_sources, bare_texts = ([line.bare_texts[side] for line in first] for side in (0, 1))
        texts, report = retry_suspects(bare_sources, bare_texts, retry, same_language=same)
        self.guard_report = report if self.guard_report is None else self.guard_report + report
        return [
            line if line.bare_texts[1] == text else again[place]
            for place, (line, text) in enumerate(zip(first, texts, strict=True))
        ]

    def check(self, own: TextConstraints) -> None:
        """Check that a line may have these constraints besides those of every line.

        Raises:
            ConfigError: they cannot be combined with the options, or the engine does not have them.
        """
        if self._constraints is None:
            asked = {"prefix": own.prefix, "require": own.required, "forbid": own.forbidden}
            self.options.model_copy(update=asked).check()
        self.translator.engine.check(self.translator.search, own.as_ids(self.translator.tokenizer))

    def _combine_constraints(self, own: TextConstraints | None) -> TextConstraints | None:
        if own is None:
            return self._constraints
        self.check(own)
        own = own.as_written(self.translator.tokenizer)
        return own if self._constraints is None else self._constraints.combine(own)

    def _translate_once(
        self,
        translator: Translator,
        places: Sequence[int],
        sources: Sequence[str],
        encoded: Sequence[EncodedText],
        asked: Sequence[TextConstraints | None],
    ) -> list[Line]:
        """Translate the lines in some places of a block, without the guard."""
        options, chosen = self.options, [sources[place] for place in places]
        if self._span_search is not None:
            return self._translate_with_spans(self._span_search.with_translator(translator), chosen)
        texts = [encoded[place] for place in places]
        if options.num_samples:
            found = translator.draw_samples(texts, options.num_samples, sampling=options.sampling, seed=options.seed)
            if options.minimum_bayes_risk:
                found = list(map(_rank_by_risk, found))
            found = [replace(one, alternatives=one.alternatives[: options.num_best]) for one in found]
        else:
            found = self._search(translator, texts, [asked[place] for place in places])
        return [Line(source, translation) for source, translation in zip(chosen, found, strict=True)]

    def _search(
        self, translator: Translator, texts: Sequence[EncodedText], asked: Sequence[TextConstraints | None]
    ) -> list[Translation]:
        """Translate by search, at first without constraints where nothing is required, as they may well be kept anyway.

        A text that is too long to be read as a whole cannot be held to constraints, and fails.
        """
        num_best = self.options.num_best
        free = [place for place, one in enumerate(asked) if one is None or not (one.prefix or one.required)]
        results = translator.find_translations([texts[place] for place in free], num_best=num_best)
        found = [_FAILED] * len(texts)
        for place, result in zip(free, results, strict=True):
            constraints = asked[place]
            if constraints is None or all(constraints.are_met_by(one.text) for one in result.alternatives):
                found[place] = result
        waiting = {
            place: constraints
            for place, constraints in enumerate(asked)
            if constraints is not None and found[place] is _FAILED and texts[place].is_whole
        }
        for _ in range(_MOST_ATTEMPTS):
            if not waiting:
                break
            chosen, held = [texts[place] for place in waiting], list(waiting.values())
            results = translator.find_translations(chosen, num_best=num_best, constraints=held)
            again: dict[int, TextConstraints] = {}
            for (place, constraints), result in zip(waiting.items(), results, strict=True):
                best = result.alternatives[0]
                if best.score > -math.inf:
                    found[place] = result
                elif (stricter := constraints.learn_spellings(translator.tokenizer, best.pieces)) != constraints:
                    again[place] = stricter
            waiting = again
        return found

    def _translate_with_spans(self, span_search: SpanSearch, sources: Sequence[str]) -> list[Line]:
        kinds, language = self.options.protect, self.translator.source_language
        kept = translate_protected(
            sources,
            span_search.search,
            kinds=kinds,
            glossary=self._glossary,
            language=language,
            fits=span_search.fits,
        )
        return [
            Line(source, _make_translation(one), one.how, tuple(pair_spans(source, one.text, kinds)), one.is_given_up)
            for source, one in zip(sources, kept, strict=True)
        ]


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
    best = Alternative(
        kept.text,
        float(sum(one.score for one in found)),
        tuple(piece for one in found for piece in one.pieces),
        tuple(score for one in found for score in one.token_scores),
    )
    return Translation((best,), kept.num_parts + sum(one.num_parts - 1 for one in kept.searched))


def _rank_by_risk(translation: Translation) -> Translation:
    """The different samples, the one of least risk first, with their expected chrF as utility."""
    of_text = {alternative.text: alternative for alternative in reversed(translation.alternatives)}
    ranking = rank_candidates([alternative.text for alternative in translation.alternatives])
    return replace(
        translation,
        alternatives=tuple(replace(of_text[candidate.text], utility=candidate.utility) for candidate in ranking),
    )


def align_lines(decoder: ForcedDecoder, lines: Sequence[Line], head: AlignmentHead) -> list[Alignment | None]:
    """The alignment of each line with its translation, between words as they stand there.

    Words are linked as `align_pairs` links them in the texts without protected spans, which the model never reads;
    words of a span are linked with those of the same span. A word that is partly a span is linked by its other letters.

    Args:
        decoder: the model.
        lines: translated. The alignment of a line that has failed, or is not read as a whole, is None.
        head: whose attention is read.

    Raises:
        ConfigError: the model has no such head.
    """
    pairs = [line.bare_texts for line in lines]
    places = [place for place, line in enumerate(lines) if not line.has_failed and decoder.fits(*pairs[place])]
    aligned = align_pairs(decoder, [pairs[place] for place in places], head)
    found: list[Alignment | None] = [None] * len(lines)
    for place, alignment in zip(places, aligned, strict=True):
        found[place] = _add_span_links(lines[place], alignment)
    return found


def _add_span_links(line: Line, bare: Alignment) -> Alignment:
    """The alignment of a line, made from the alignment of its texts without spans."""
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
    """The number of the word of each character; None for a space."""
    words: list[int | None] = []
    number = -1
    for place, character in enumerate(text):
        if character.isspace():
            words.append(None)
            continue
        if place == 0 or words[-1] is None:
            number += 1
        words.append(number)
    return words


def _map_words(text: str, spans: Sequence[ProtectedSpan], bare: Sequence[str]) -> list[int]:
    """For each word of the same text without its spans (`bare`), the number of its word in `text`."""
    words = _number_words(text)
    for start, end in find_removed_places(text, spans):
        words[start:end] = [None] * (end - start)
    rest = [number for number in words if number is not None]
    found, start = [], 0
    for word in bare:
        found.append(rest[start])
        start += len(word)
    return found


class LineDetails:
    """Describes translated lines: tokens, scores, alternatives; of calibrated bundles also alignment and confidence.

    Raises:
        BundleError: the bundle's calibration is damaged.
        ConfigError: the engine is not the native one, whose attention is read.
    """

    def __init__(self, bundle: Bundle, translator: Translator) -> None:
        self._confidence = Confidence.load(bundle)
        self._head = AlignmentHead.load(bundle)
        if not isinstance(translator.engine, NativeEngine):
            raise ConfigError("details are known of translations by the native engine alone")
        self._decoder = ForcedDecoder(translator.engine.model, translator.tokenizer, translator.search)

    def describe(self, lines: Sequence[Line]) -> list[dict[str, Any]]:
        """Each line as a JSON object.

        Where protected spans are kept, score, tokens and confidence are those of the translation without them; there
        are none where it was put together of parts of sentences. The alignment is that of the line as it stands.
        Alignment and confidence are unknown of a line that was too long to be read as a whole.
        """
        alignments: list[Alignment | None] = [None] * len(lines)
        if self._head is not None:
            alignments = align_lines(self._decoder, lines, self._head)
        return [self._describe_line(line, alignment) for line, alignment in zip(lines, alignments, strict=True)]

    def _describe_line(self, line: Line, alignment: Alignment | None) -> dict[str, Any]:
        best = line.translation.alternatives[0]
        found: dict[str, Any] = {
            "source": line.source,
            "translation": best.text,
            "score": best.score if line.has_score else None,
            **_utility(best),
            "parts": line.translation.num_parts,
            "tokens": _tokens(best),
            "alternatives": [
                {"translation": other.text, "score": other.score, **_utility(other)}
                for other in line.translation.alternatives[1:]
            ],
        }
        if line.how is not None:
            found["kept"] = line.how
        if alignment is not None:
            found["alignment"] = str(alignment)
        is_measured = best.pieces and not line.has_failed and line.translation.num_parts == 1
        if self._confidence is not None and is_measured:
            words = self._confidence.words(best.pieces, best.token_scores)
            found["confidence"] = self._confidence.sentence(best.token_scores)
            found["words"] = [{"word": word, "confidence": confidence} for word, confidence in words]
        return found


def _utility(alternative: Alternative) -> dict[str, float]:
    return {} if alternative.utility is None else {"utility": alternative.utility}


def _tokens(alternative: Alternative) -> list[dict[str, Any]]:
    pairs = zip(alternative.pieces, alternative.token_scores, strict=True)
    return [{"piece": piece, "log_probability": score} for piece, score in pairs]
