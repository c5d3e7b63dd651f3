"""The search for translations that keep protected spans and terms of a glossary.

A model that was never trained on addresses, tags and placeholders translates badly around them. So spans are removed,
the rest is translated as if they were not there, and they are inserted again by word alignment. Terms are required
phrases of the search, or replace words of a translation without them (see `substitution`).
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from transduce.text import (
    ProtectedSpan,
    find_phrase,
    find_protected_spans,
    find_run_before,
    find_run_behind,
    pair_tags,
)
from transduce.translation.constraints import TextConstraints, spell
from transduce.translation.constraints.protection import ConstrainedText, RequiredTerm, TextRange, replace_places
from transduce.translation.constraints.substitution import Substitution, find_words, substitute_terms
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
        role: "start" and "end" for tags of an element with text, which belong to its words; "element" for any other
            tag, an element without words and a list mark; "word" for all else.
        is_opening: whether it belongs to the word after it rather than to the one before.
        left: the word or sign directly before it, without a space; "" if none.
        right: the word or sign directly after it, without a space.
        sign: the punctuation mark directly after it and the spans that touch it; "" if none.
        start: for the end tag of an element with words, the place of the start tag among the removed spans.
        has_space: whether an element begins or ends with a space, which then separates the words on both sides of it.
    """

    text: str
    letters: int
    role: Literal["start", "end", "element", "word"]
    is_opening: bool
    left: str
    right: str
    sign: str
    start: int | None
    has_space: bool


def remove_spans(text: str, spans: Sequence[ProtectedSpan]) -> tuple[str, list[RemovedSpan]]:
    """Remove spans, given in the order of the text; returns the rest, and what `insert_spans` needs."""
    bare, removed, done, letters = "", list[RemovedSpan](), 0, 0
    ranges = find_removed_ranges(text, spans)
    signs = _find_signs_behind(text, ranges)
    partners, starts = _pair_tags(text, spans)
    for number, (span, (start, end)) in enumerate(zip(spans, ranges, strict=True)):
        bare = _append_rest(bare, text[done:start])
        letters += len("".join(text[done:start].split()))
        done = end
        written = text[start:end]
        left, right = find_run_before(text, start), find_run_behind(text, end)
        is_opening = bool(right) and not left and right not in _PUNCTUATION
        role: Literal["start", "end", "element", "word"] = "element" if span.kind in {"tag", "element"} else "word"
        if span.kind == "tag" and (number in partners or written.startswith("</")):
            role = "end" if written.startswith("</") else "start"
            is_opening = role == "start"
        has_space = span.kind == "element" and _has_space_at_edge(written)
        if has_space:
            bare = _append_rest(bare, " ")
        removed.append(
            RemovedSpan(written, letters, role, is_opening, left, right, signs[number], starts.get(number), has_space)
        )
    return _append_rest(bare, text[done:]).strip(), removed


def find_removed_ranges(text: str, spans: Sequence[ProtectedSpan]) -> list[tuple[int, int]]:
    """Start and end of each removed part: a span, with the brackets or quotation marks that enclose nothing else."""
    ranges, done = [], 0
    for span in spans:
        start, end = span.start, span.end
        while span.kind != "tag" and done < start and text[start - 1] + text[end : end + 1] in _AROUND:
            start, end = start - 1, end + 1
        ranges.append((start, end))
        done = end
    return ranges


def _find_signs_behind(text: str, ranges: Sequence[tuple[int, int]]) -> list[str]:
    """For each removed part, the punctuation mark directly after it, or after those that follow without a space."""
    signs: list[str] = []
    next_start = -1
    for start, end in reversed(ranges):
        run = find_run_behind(text, end)
        signs.append(signs[-1] if end == next_start else run if run in _PUNCTUATION else "")
        next_start = start
    return signs[::-1]


def _pair_tags(text: str, spans: Sequence[ProtectedSpan]) -> tuple[set[int], dict[int, int]]:
    """The numbers of the spans that are tags in pairs, and the start tag of each end tag of an element with words."""
    gaps = [text[span.end : behind.start] for span, behind in pairwise(spans)]
    num_full = list(accumulate((any(map(str.isalnum, gap)) for gap in gaps), initial=0))  # gaps with words before each
    tags = [number for number, span in enumerate(spans) if span.kind == "tag"]
    pairs = [(tags[a], tags[b]) for a, b in pair_tags([text[spans[tag].start : spans[tag].end] for tag in tags])]
    starts = {last: first for first, last in pairs if num_full[first] < num_full[last]}
    return {number for pair in pairs for number in pair}, starts


def _has_space_at_edge(element: str) -> bool:
    tags = find_protected_spans(element, ["tag"])
    inner = "".join(element[tag.end : behind.start] for tag, behind in pairwise(tags))
    return inner != inner.strip()


def _append_rest(bare: str, rest: str) -> str:
    """Join the texts on both sides of a span: with one space between, and none before punctuation."""
    if bare.endswith(" ") and rest[:1] in _PUNCTUATION:
        return bare.rstrip() + rest
    return bare + (rest.lstrip() if bare.endswith(" ") or not bare else rest)


def insert_spans(translation: str, removed: Sequence[RemovedSpan], alignment: "Alignment") -> str:
    """Insert the removed spans into the translation of the text without them, in their order.

    A span touches the same words and signs as in the source, an element without words any word, and a tag the words of
    its element. Where there is a space between two words of the translation, there is one space with tags between them,
    on that side of the tags where the source has it. Within a run of characters without spaces, tags and elements touch
    both sides. The alignment is that between the text without spans and the translation, whose words may be parts of
    such a run.
    """
    words, is_spaced = alignment.target, _find_spaces(translation, alignment.target)
    find_place = _PlaceFinder(alignment)
    num_letters = sum(map(len, alignment.source))
    last_sign = find_run_before(alignment.source[-1], len(alignment.source[-1])) if alignment.source else ""
    last_sign = last_sign if last_sign in _PUNCTUATION else ""
    text = _TextWithSpans(num_letters)
    done = 0
    positions: list[int] = []  # of the removed spans: how many words precede each
    for span in removed:
        position = max(done, min(len(words), find_place(span)))
        if span.start is not None and positions[span.start] == position < len(words):
            position += 1  # put at least one word inside the element before its closing tag
        for number in range(done, position):
            text.add_word(words[number], is_spaced=is_spaced[number])
        positions.append(position)
        done = position
        is_before_end = span.letters < num_letters and span.role in {"end", "element"} and not span.sign
        placed = replace(span, sign=last_sign) if is_before_end and position == len(words) else span
        text.add_span(placed, is_spaced=done == len(words) or is_spaced[done])
    for number in range(done, len(words)):
        text.add_word(words[number], is_spaced=is_spaced[number])
    return text.finish()


def _find_spaces(text: str, words: Sequence[str]) -> list[bool]:
    """For each word of the text, whether there is a space before it; True for the first word."""
    ranges = find_words(text, words)
    return [True, *(before.end < behind.start for before, behind in pairwise(ranges))][: len(ranges)]


class _TextWithSpans:
    """A text that words and removed spans are added to, with spaces between them.

    Args:
        num_letters: number of characters of the whole text without spans from which they were removed, without spaces.
    """

    def __init__(self, num_letters: int) -> None:
        self._num_letters = num_letters
        self._text = ""
        self._last: RemovedSpan | None = None  # the span, other than tags of elements, that the text ends with
        self._tags: list[RemovedSpan] = []  # those of elements after the text
        self._sign = ""  # follows the text and the tags

    def add_word(self, word: str, *, is_spaced: bool) -> None:
        """Add a word; `is_spaced`: whether a space may come before it."""
        self._add_sign()
        needs_space = is_spaced if self._last is None else not self._touches_word(self._last, word, is_spaced=is_spaced)
        self._append(word, None, needs_space=needs_space)

    def add_span(self, span: RemovedSpan, *, is_spaced: bool) -> None:
        """Add a span; `is_spaced`: whether a space may come before the next word."""
        signs = (span.sign, _SAME_SIGNS.get(span.sign, span.sign)) if span.sign else ()
        if self._sign not in signs:
            self._add_sign()
        if not self._sign and self._last is None and not self._tags:
            self._sign = next((sign for sign in signs if self._text.endswith(sign)), "")
            self._text = self._text.removesuffix(self._sign)
        if self._sign:
            is_spaced = self._sign.isascii()  # the signs of Chinese and Japanese stand in a run without spaces
        if span.role in {"start", "end"}:
            self._tags.append(span)
        else:
            self._append(span.text, span, needs_space=not self._is_touched_by(span, is_spaced=is_spaced))

    def finish(self) -> str:
        """The text with all that was added."""
        self._add_sign()
        # A space at the end only where the source has it.
        ends = (place for place, tag in enumerate(self._tags) if tag.letters >= self._num_letters and not tag.left)
        self._append_tags(next(ends, None))
        return self._text

    def _add_sign(self) -> None:
        if self._sign:
            sign, self._sign = self._sign, ""
            self._append(sign, None, needs_space=False)

    def _append(self, text: str, span: RemovedSpan | None, *, needs_space: bool) -> None:
        if not self._text:  # a space at the beginning only where the source has it
            begins = (place for place, tag in enumerate(self._tags, start=1) if not tag.letters and not tag.right)
            slot = next(begins, None)
        else:
            slot = self._choose_slot() if needs_space else None
        self._append_tags(slot)
        self._text += text
        self._last = span

    def _append_tags(self, slot: int | None) -> None:
        """Append the tags, with a space before the tag number `slot`, or behind the last one."""
        texts = [tag.text for tag in self._tags]
        if slot is not None:
            texts.insert(slot, " ")
        self._text += "".join(texts)
        self._tags = []

    def _choose_slot(self) -> int:
        """The place of the space among the tags: outside of elements, or inside where the source has it only there."""
        outside = next((number for number, tag in enumerate(self._tags) if tag.role != "end"), len(self._tags))
        slots = [slot for slot in range(len(self._tags) + 1) if self._has_space(slot)]
        return min(slots, key=lambda slot: abs(slot - outside), default=outside)

    def _has_space(self, slot: int) -> bool:
        """Whether the source has a space, or its end, before the tag number `slot` or behind the tag before it."""
        return any(not tag.right for tag in self._tags[:slot][-1:]) or any(
            not tag.left for tag in self._tags[slot:][:1]
        )

    def _are_tags_joined(self) -> bool:
        return all(tag.right and behind.left for tag, behind in pairwise(self._tags))

    def _touches_word(self, last: RemovedSpan, word: str, *, is_spaced: bool) -> bool:
        """Whether the span that the text ends with touches a word behind it, with the tags between them."""
        if last.role == "element" and not is_spaced:
            return True
        span = self._tags[-1] if self._tags else last
        if not (last.right and span.right and self._are_tags_joined()):
            return False
        is_same = find_run_behind(word, 0) == span.right
        return is_same or span.has_space or (span.role in {"start", "element"} and span.is_opening)

    def _is_touched_by(self, span: RemovedSpan, *, is_spaced: bool) -> bool:
        """Whether a span touches what the text ends with, with the tags between them."""
        if span.role == "element" and self._last is None and not is_spaced:
            return True
        first = self._tags[0] if self._tags else span
        if not (span.left and first.left and self._are_tags_joined()):
            return False
        is_same = find_run_before(self._text, len(self._text)) == first.left
        is_of_word = first.left[-1].isalnum() or first.left in _PUNCTUATION
        is_behind = first.role == "end" or (first.role == "element" and not first.is_opening)
        return is_same or first.has_space or (self._last is None and is_behind and is_of_word)


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


MIN_BEAM_WITH_TERMS = 8
"""Minimum beam if terms are required: hypotheses with different numbers of required tokens share it."""


class SpanSearch:
    """The search of `protection.translate_protected`: inserts spans by alignment, and requires terms of beam search.

    Args:
        translator: the model and its tokenizer.
        head: the attention head that aligns spans; default: the mean of the last layer.
        encoded: texts that need not be tokenised again.
        tag: the language tag that the model reads before every text, as in ">>de<< "; usually none.

    Raises:
        ConfigError: the engine is not the native one: the decoder's attention is read.
        UserError: the model is no Transformer.
    """

    def __init__(
        self,
        translator: Translator,
        head: "AlignmentHead | None" = None,
        encoded: Sequence[EncodedText] = (),
        tag: str = "",
    ) -> None:
        from transduce.model import as_transformer  # noqa: PLC0415 - loads PyTorch

        self._translator, self._head = translator, head
        self._decoder = translator.make_forced_decoder("protected spans or a glossary")
        as_transformer(self._decoder.model, "keeping protected spans or a glossary")
        self._encoded = {one.text: one for one in encoded}
        self._tag = tag

    def fits(self, text: str) -> bool:
        """Whether the model reads a text, whose spans may be spaces, as a whole; a `protection.Fits`."""
        text = self._tag + " ".join(text.split())
        return self._encoded[text].is_whole if text in self._encoded else self._translator.fits(text)

    def search(self, requests: Sequence[ConstrainedText]) -> list[list[Translation]]:
        """Translations of each text, best first, that are likely to meet the constraints; a `protection.Search`."""
        divided = [remove_spans(request.text, request.spans) for request in requests]
        found = self._find_translations([bare for bare, _ in divided], requests)
        candidates = [
            (index, best)
            for index, translation in enumerate(found)
            for best in translation.alternatives
            if best.score > -math.inf
        ]
        pairs = [(divided[index][0], best.text) for index, best in candidates if divided[index][1]]
        alignments = iter(self._align(pairs))
        proposals: list[list[Translation]] = [[] for _ in requests]
        for index, best in candidates:
            text, removed = best.text, divided[index][1]
            if removed:
                alignment = next(alignments)
                if alignment.is_long:
                    continue
                text = insert_spans(text, removed, alignment)
            text = self._spell_as_glossary(text, requests[index])
            proposals[index].append(replace(found[index], alternatives=(replace(best, text=text),)))
        return proposals

    def _align(self, pairs: Sequence[tuple[str, str]]) -> "list[Alignment]":
        from transduce.translation.confidence.alignment import (  # noqa: PLC0415 - loads PyTorch
            align_divided_pairs,
            divide_lines_by_pieces,
        )

        tokenizer = self._translator.tokenizer
        tagged = [self._tag + source for source, _ in pairs]
        sources = divide_lines_by_pieces(tokenizer, tokenizer.encode_all, tagged)
        targets = divide_lines_by_pieces(tokenizer, tokenizer.encode_targets, [target for _, target in pairs])
        alignments = align_divided_pairs(self._decoder, sources, targets, self._head)
        return list(map(_remove_first_word, alignments)) if self._tag else alignments

    def _spell_as_glossary(self, text: str, request: ConstrainedText) -> str:
        waiting: dict[str, list[str]] = {}
        for _, term in request.terms:
            spelling = spell(self._translator.tokenizer, term)
            if spelling is not None and spelling != term:
                waiting.setdefault(spelling, []).append(term)
        for spelling, terms in waiting.items():
            spans = find_protected_spans(
                text, {"tag" if span.kind == "element" else span.kind for span in request.spans}
            )
            ranges = [TextRange(start, start + len(spelling)) for start in find_phrase(text, spelling)]
            free = [one for one in ranges if not any(span.start < one.end and one.start < span.end for span in spans)]
            text = replace_places(text, dict(zip(free, terms, strict=False)))
        return text

    def _find_translations(self, texts: Sequence[str], requests: Sequence[ConstrainedText]) -> list[Translation]:
        """The best translation of each text; for a text with requirements, as many as the beam holds.

        Terms are not required at first, as they often occur anyway. Constraints are not possible for a text that is too
        long to be read as a whole.
        """
        translator, tokenizer = self._translator, self._translator.tokenizer
        tagged = [self._tag + text for text in texts]
        encoded = translator.encode([self._encoded.get(text, text) for text in tagged])
        found: dict[int, Translation] = {}
        for keeps, num_best in ((False, 1), (True, translator.search.beam)):
            indices = [index for index, one in enumerate(requests) if bool(one.spans or one.terms) == keeps]
            results = translator.find_translations([encoded[index] for index in indices], num_best=num_best)
            found.update(zip(indices, results, strict=True))
        constraints = [
            TextConstraints(required=tuple(term.target for term in request.terms)).as_written(tokenizer)
            for request in requests
        ]
        lacking = [
            index
            for index, text in enumerate(encoded)
            if text.is_whole and not constraints[index].are_met_by(found[index].text)
        ]
        wide = translator.with_search({"beam": max(MIN_BEAM_WITH_TERMS, translator.search.beam)})
        results = wide.find_translations(
            [encoded[index] for index in lacking],
            num_best=wide.search.beam,
            constraints=[constraints[index] for index in lacking],
        )
        replaced = self._replace_words(
            [texts[index] for index in lacking],
            [found[index].text for index in lacking],
            [requests[index].terms for index in lacking],
        )
        for index, result, other in zip(lacking, results, replaced, strict=True):
            found[index] = result
            if other is not None:
                is_first = (
                    other[0].is_better_than(result.text, texts[index]) or result.alternatives[0].score == -math.inf
                )
                alternatives = (other[1], *result.alternatives) if is_first else (*result.alternatives, other[1])
                found[index] = replace(result, alternatives=alternatives)
        return [found[index] for index in range(len(texts))]

    def _replace_words(
        self, sources: Sequence[str], translations: Sequence[str], terms: Sequence[Sequence[RequiredTerm]]
    ) -> list[tuple[Substitution, TranslationAlternative] | None]:
        """Put terms of a glossary into each translation, in the place of the words that are aligned with their sources.

        Returns what was replaced, and the result with score and pieces; None where no word can be replaced, or the
        result is longer than the model or `max_length` allows.
        """
        from transduce.translation.confidence.scoring import (  # noqa: PLC0415 - loads PyTorch
            encode_pairs,
            score_encoded_pairs,
        )

        tokenizer, limit = self._translator.tokenizer, self._translator.search.max_length or math.inf
        pairs = list(zip(sources, translations, strict=True))
        found = [
            None if alignment.is_long else substitute_terms(*pair, alignment, own, tokenizer)
            for pair, alignment, own in zip(pairs, self._align(pairs), terms, strict=True)
        ]
        known = {index: one for index, one in enumerate(found) if one is not None}
        encoded = encode_pairs(tokenizer, [(self._tag + sources[index], one.text) for index, one in known.items()])
        short = {
            index: ids
            for index, ids in zip(known, encoded, strict=True)
            if self._decoder.fits(*ids) and len(ids[1]) < limit  # which counts </s>, too
        }
        scores = dict(zip(short, score_encoded_pairs(self._decoder, list(short.values())), strict=True))
        return [
            (known[index], _make_alternative(known[index].text, scores[index])) if index in scores else None
            for index in range(len(found))
        ]


def _remove_first_word(alignment: "Alignment") -> "Alignment":
    """Take a language tag, the first word of the source, out of an alignment, with the links to it."""
    links = (link._replace(source=link.source - 1) for link in alignment.links if link.source)
    return replace(alignment, source=alignment.source[1:], links=tuple(links))


def _make_alternative(text: str, score: "PairScore") -> TranslationAlternative:
    return TranslationAlternative(
        text,
        score.score,
        tuple(token.piece for token in score.tokens),
        tuple(token.log_probability for token in score.tokens),
    )
