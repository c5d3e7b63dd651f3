"""The search for translations that keep protected spans and terms of a glossary.

A model that was never trained on addresses, tags and placeholders translates badly around them. So spans are removed,
the rest is translated as if they were not there, and they are inserted again by word alignment. Terms are required
phrases of the search, or replace words of a translation without them (see `substitution`).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from transduce.text import ProtectedSpan, find_phrase, find_protected_spans, find_run_before, find_run_behind
from transduce.translation.constraints import TextConstraints, spell
from transduce.translation.constraints.protection import ConstrainedText, TextRange, replace_places
from transduce.translation.constraints.substitution import RequiredTerm, Substitution, substitute_terms
from transduce.translation.translator import EncodedText, Translation, TranslationAlternative, Translator

if TYPE_CHECKING:
    from transduce.translation.confidence.alignment import Alignment, AlignmentHead
    from transduce.translation.confidence.scoring import PairScore

_PUNCTUATION = frozenset(".,;:!?)]}»”…。、，！？")
"""Signs that follow a span without a space."""

_SAME_SIGNS = dict(zip(".,;:!?。，；：！？", "。，；：！？.,;:!?", strict=True))
"""For each punctuation mark, the one that Chinese and Japanese have for it, and the other way round."""

_AROUND = frozenset({"()", "[]", "{}", '""', "''", "“”", "„“", "«»", "»«", "‘’"})
"""Brackets and quotation marks that are removed together with the span that they enclose."""


@dataclass(frozen=True)
class RemovedSpan:
    """A span that was removed from a text.

    Args:
        text: the span, with brackets or quotation marks around it.
        letters: number of characters of the bare text before it, without spaces.
        is_opening: whether it belongs to the word after it rather than to the one before.
        is_tag: whether it is a tag, which may touch other words than in the source, but only those of its own element.
        left: the word or sign directly before it, without a space; "" if none.
        right: the word or sign directly after it, without a space.
    """

    text: str
    letters: int
    is_opening: bool
    is_tag: bool
    left: str
    right: str


def remove_spans(text: str, spans: Sequence[ProtectedSpan]) -> tuple[str, list[RemovedSpan]]:
    """Remove spans, given in the order of the text; returns the rest, and what `insert_spans` needs."""
    bare, removed, done, letters = "", [], 0, 0
    for span, (start, end) in zip(spans, find_removed_places(text, spans), strict=True):
        bare = _append_rest(bare, text[done:start])
        letters += len("".join(text[done:start].split()))
        done = end
        written, is_tag = text[start:end], span.kind == "tag"
        left, right = find_run_before(text, start), find_run_behind(text, end)
        is_opening = bool(right) and not left and right not in _PUNCTUATION
        is_begin = is_tag and not written.endswith("/>")
        is_opening = not (is_tag and written.startswith("</")) and (is_opening or is_begin)
        removed.append(RemovedSpan(written, letters, is_opening, is_tag, left, right))
    return _append_rest(bare, text[done:]).strip(), removed


def find_removed_places(text: str, spans: Sequence[ProtectedSpan]) -> list[tuple[int, int]]:
    """Start and end of each removed part: a span, with the brackets or quotation marks that enclose nothing else."""
    places, done = [], 0
    for span in spans:
        start, end = span.start, span.end
        while span.kind != "tag" and done < start and text[start - 1] + text[end : end + 1] in _AROUND:
            start, end = start - 1, end + 1
        places.append((start, end))
        done = end
    return places


def _append_rest(bare: str, rest: str) -> str:
    """Join the texts on both sides of a span: with one space between, and none before punctuation."""
    if bare.endswith(" ") and rest[:1] in _PUNCTUATION:
        return bare.rstrip() + rest
    return bare + (rest.lstrip() if bare.endswith(" ") or not bare else rest)


def insert_spans(translation: str, removed: Sequence[RemovedSpan], alignment: "Alignment") -> str:
    """Insert the removed spans into the translation of the text without them, in their order.

    No space separates a span from a word or sign that it touches in the source, nor a tag from the words of its
    element; elsewhere there are spaces. Within a run of characters without spaces, a tag touches both sides, and any
    other span neither. `alignment` is that of the text without spans and the translation; its words may be parts of
    such a run.
    """
    words, is_spaced = alignment.target, _find_spaces(translation, alignment.target)
    find_place = _PlaceFinder(alignment)
    text, done = "", 0
    last: RemovedSpan | None = None  # the span that the text ends with

    def append_words(end: int) -> None:
        nonlocal text, last
        for number in range(done, end):
            is_glued = _touches(last, words[number]) or (not is_spaced[number] and (last is None or last.is_tag))
            text, last = _join_word(text, words[number], is_glued=is_glued), None

    for span in removed:
        place = max(done, min(len(words), find_place(span)))
        if span.text.startswith("</") and place == done < len(words) and text:
            place += 1  # place at least one word inside the element before its closing tag
        append_words(place)
        done = place
        behind = _find_sign_behind(text, span) if last is None else ""
        text = text.removesuffix(behind)
        is_end = span.is_tag and span.text.startswith("</")
        following = place - bool(behind)
        is_within = span.is_tag and last is None and following < len(words) and not is_spaced[following]
        is_glued = is_within or (bool(span.left) and (is_end or find_run_before(text, len(text)) == span.left))
        text = _join_word(text, span.text, is_glued=is_glued) + behind
        last = None if behind else span
    append_words(len(words))
    return text


def _find_spaces(text: str, words: Sequence[str]) -> list[bool]:
    """For each word of the text, whether there is a space before it; True for the first word."""
    found: list[bool] = []
    end = 0
    for word in words:
        start = text.index(word, end)
        found.append(not found or start > end)
        end = start + len(word)
    return found


def _find_sign_behind(text: str, span: RemovedSpan) -> str:
    """The punctuation mark at the end of the text that directly follows the span in the source; "" if there is none.

    A mark of Chinese and Japanese counts as the same as its counterpart, as in "。" for ".".
    """
    signs = (span.right, _SAME_SIGNS.get(span.right, span.right)) if span.right in _PUNCTUATION else ()
    return next((sign for sign in signs if text.endswith(sign)), "")


def _touches(span: RemovedSpan | None, word: str) -> bool:
    if span is None or not span.right:
        return False
    return (span.is_tag and span.is_opening) or find_run_behind(word, 0) == span.right


def _join_word(text: str, rest: str, *, is_glued: bool) -> str:
    return text + rest if is_glued or not text else f"{text} {rest}"


class _PlaceFinder:
    """Finds the place of a span in the translation by word alignment: how many words of the translation precede it."""

    def __init__(self, alignment: "Alignment") -> None:
        self._starts = list(accumulate(map(len, alignment.source), initial=0))
        self._first: dict[int, int] = {}  # by source word, the first target word linked with it; next, the last one
        self._last: dict[int, int] = {}
        for link in alignment.links:
            self._first[link.source] = min(link.target, self._first.get(link.source, link.target))
            self._last[link.source] = max(link.target, self._last.get(link.source, link.target))
        self._num_source, self._num_target = len(alignment.source), len(alignment.target)

    def __call__(self, span: RemovedSpan) -> int:
        # A span may be within a word. The whole word then comes after an opening span, and before any other span.
        if span.is_opening and span.right[:1].isalnum():
            word = bisect_right(self._starts, span.letters) - 1
        else:
            word = bisect_left(self._starts, span.letters)
        if word == 0:
            return 0
        if word == self._num_source:
            return self._num_target
        if span.is_opening:
            linked = (self._first[word] for word in range(word, self._num_source) if word in self._first)
            return next(linked, self._num_target)
        return next((self._last[word] + 1 for word in range(word - 1, -1, -1) if word in self._last), 0)


BEAM = 8
"""Minimum beam if terms are required: hypotheses with different numbers of required tokens share it."""


class SpanSearch:
    """The search of `protection.translate_protected`: inserts spans by alignment, and requires terms of beam search.

    Args:
        translator: the model and its tokenizer.
        head: the attention head that aligns spans; default: the mean of the last layer.
        encoded: texts that need not be tokenised again.

    Raises:
        ConfigError: the engine is not the native one: the decoder's attention is read.
    """

    def __init__(
        self, translator: Translator, head: "AlignmentHead | None" = None, encoded: Sequence[EncodedText] = ()
    ) -> None:
        self._translator, self._head = translator, head
        self._decoder = translator.make_forced_decoder("protected spans or a glossary")
        self._encoded = {one.text: one for one in encoded}

    def fits(self, text: str) -> bool:
        """Whether the model reads a text, whose spans may be spaces, as a whole; a `protection.Fits`."""
        text = " ".join(text.split())
        return self._encoded[text].is_whole if text in self._encoded else self._translator.fits(text)

    def search(self, requests: Sequence[ConstrainedText]) -> list[list[Translation]]:
        """Translations of each text, best first, that are likely to meet the constraints; a `protection.Search`."""
        divided = [remove_spans(request.text, request.spans) for request in requests]
        found = self._find_translations([bare for bare, _ in divided], requests)
        candidates = [
            (place, best)
            for place, translation in enumerate(found)
            for best in translation.alternatives
            if best.score > -math.inf
        ]
        pairs = [(divided[place][0], best.text) for place, best in candidates if divided[place][1]]
        alignments = iter(self._align(pairs))
        proposals: list[list[Translation]] = [[] for _ in requests]
        for place, best in candidates:
            text, removed = best.text, divided[place][1]
            if removed:
                alignment = next(alignments)
                if alignment.is_long:
                    continue
                text = insert_spans(text, removed, alignment)
            text = self._spell_as_glossary(text, requests[place])
            proposals[place].append(replace(found[place], alternatives=(replace(best, text=text),)))
        return proposals

    def _align(self, pairs: Sequence[tuple[str, str]]) -> "list[Alignment]":
        from transduce.translation.confidence.alignment import (  # noqa: PLC0415 - loads PyTorch
            align_divided_pairs,
            divide_lines_by_pieces,
        )

        tokenizer = self._translator.tokenizer
        sources = divide_lines_by_pieces(tokenizer, tokenizer.encode_all, [source for source, _ in pairs])
        targets = divide_lines_by_pieces(tokenizer, tokenizer.encode_targets, [target for _, target in pairs])
        return align_divided_pairs(self._decoder, sources, targets, self._head)

    def _spell_as_glossary(self, text: str, request: ConstrainedText) -> str:
        waiting: dict[str, list[str]] = {}
        for _, term in request.terms:
            spelling = spell(self._translator.tokenizer, term)
            if spelling is not None and spelling != term:
                waiting.setdefault(spelling, []).append(term)
        for spelling, terms in waiting.items():
            spans = find_protected_spans(text, {span.kind for span in request.spans})
            places = [TextRange(start, start + len(spelling)) for start in find_phrase(text, spelling)]
            free = [
                place
                for place in places
                if not any(span.start < place.end and place.start < span.end for span in spans)
            ]
            text = replace_places(text, dict(zip(free, terms, strict=False)))
        return text

    def _find_translations(self, texts: Sequence[str], requests: Sequence[ConstrainedText]) -> list[Translation]:
        """The best translation of each text; for a text with requirements, as many as the beam holds.

        Terms are not required at first, as they often occur anyway. Constraints are not possible for a text that is too
        long to be read as a whole.
        """
        translator, tokenizer = self._translator, self._translator.tokenizer
        encoded = translator.encode([self._encoded.get(text, text) for text in texts])
        found: dict[int, Translation] = {}
        for keeps, num_best in ((False, 1), (True, translator.search.beam)):
            places = [place for place, one in enumerate(requests) if bool(one.spans or one.terms) == keeps]
            results = translator.find_translations([encoded[place] for place in places], num_best=num_best)
            found.update(zip(places, results, strict=True))
        constraints = [
            TextConstraints(required=tuple(term.target for term in request.terms)).as_written(tokenizer)
            for request in requests
        ]
        lacking = [
            place
            for place, text in enumerate(encoded)
            if text.is_whole and not constraints[place].are_met_by(found[place].text)
        ]
        wide = translator.with_search({"beam": max(BEAM, translator.search.beam)})
        results = wide.find_translations(
            [encoded[place] for place in lacking],
            num_best=wide.search.beam,
            constraints=[constraints[place] for place in lacking],
        )
        replaced = self._replace_words(
            [texts[place] for place in lacking],
            [found[place].text for place in lacking],
            [requests[place].terms for place in lacking],
        )
        for place, result, other in zip(lacking, results, replaced, strict=True):
            found[place] = result
            if other is not None:
                is_first = (
                    other[0].is_better_than(result.text, texts[place]) or result.alternatives[0].score == -math.inf
                )
                alternatives = (other[1], *result.alternatives) if is_first else (*result.alternatives, other[1])
                found[place] = replace(result, alternatives=alternatives)
        return [found[place] for place in range(len(texts))]

    def _replace_words(
        self, sources: Sequence[str], translations: Sequence[str], terms: Sequence[Sequence[RequiredTerm]]
    ) -> list[tuple[Substitution, TranslationAlternative] | None]:
        """The terms in each translation in the place of words, with score and pieces of the result, where possible."""
        from transduce.translation.confidence.scoring import score_pairs  # noqa: PLC0415 - loads PyTorch

        pairs = list(zip(sources, translations, strict=True))
        found = [
            None if alignment.is_long else substitute_terms(*pair, alignment, own, self._translator.tokenizer)
            for pair, alignment, own in zip(pairs, self._align(pairs), terms, strict=True)
        ]
        known = [(source, one) for source, one in zip(sources, found, strict=True) if one is not None]
        scores = iter(score_pairs(self._decoder, [(source, one.text) for source, one in known]))
        return [None if one is None else (one, _make_alternative(one.text, next(scores))) for one in found]


def _make_alternative(text: str, score: "PairScore") -> TranslationAlternative:
    return TranslationAlternative(
        text,
        score.score,
        tuple(token.piece for token in score.tokens),
        tuple(token.log_probability for token in score.tokens),
    )
