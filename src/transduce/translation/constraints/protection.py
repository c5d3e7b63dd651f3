"""Translations that are guaranteed to keep addresses, tags and placeholders, and to use the terms of a glossary.

The search is constrained to what must be kept, and its translations are verified. If none passes, only the text between
protected spans is translated, part by part, and a part for which none passes is copied. The last resort is the source
with its terms replaced, which always passes.
"""

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Literal, NamedTuple

from transduce.text import (
    USUAL_KINDS,
    Glossary,
    ProtectedSpan,
    SpanCheck,
    SpanKind,
    count_phrase,
    find_fitting_spans,
    find_kept_spans,
    find_protected_spans,
    pair_tags,
    restore_spacing,
    split_tagged_sentences,
)
from transduce.translation.options import ProtectionMethod
from transduce.translation.translator import Translation

_BRACKETS = {**dict.fromkeys("([{（［", 1), **dict.fromkeys(")]}）］", -1)}
"""What each bracket adds to the depth of brackets."""


class RequiredTerm(NamedTuple):
    """A term of a glossary in a sentence: its words there, and those that the translation must contain for them."""

    source: str
    target: str


@dataclass(frozen=True)
class ConstrainedText:
    """A text to be translated, and what its translation must contain.

    Args:
        text: as in the line, spans and terms included.
        spans: parts of the text that the translation contains unchanged, in the text's order; tags keep their order.
        terms: terms of the text, in its order; the translation contains the target of each exactly as often as it is
            listed.
    """

    text: str
    spans: tuple[ProtectedSpan, ...] = ()
    terms: tuple[RequiredTerm, ...] = ()


class TextRange(NamedTuple):
    """The characters of a sentence from `start` up to, but without, `end`."""

    start: int
    end: int


class ProtectedItem(NamedTuple):
    """A span or term that is kept: the translation contains `text` for the characters at `place` of the source."""

    place: TextRange
    text: str
    kind: SpanKind | Literal["element", "term"]


class TextCounter:
    """Counts the occurrences of many texts in another text, each as `str.count` does, in time linear in the latter."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(texts)
        self._lengths: dict[str, list[int]] = {}  # by first character, the lengths of the texts that begin with it
        for first, length in sorted({(text[0], len(text)) for text in self._texts}):
            self._lengths.setdefault(first, []).append(length)
        # Without texts, a pattern that matches nothing.
        self._begins = re.compile(f"[{re.escape(''.join(self._lengths))}]" if self._lengths else "(?!)")

    def count(self, text: str) -> Counter[str]:
        """The number of occurrences in `text` of each of the texts that stand there."""
        counts, ends = Counter[str](), dict[str, int]()
        for match in self._begins.finditer(text):
            start = match.start()
            for length in self._lengths[match[0]]:
                found = text[start : start + length]
                if found in self._texts and start >= ends.get(found, 0):
                    counts[found] += 1
                    ends[found] = start + length
        return counts


class ProtectedSentence:
    """A sentence, its protected spans and terms, and the test that its translation must pass."""

    def __init__(self, text: str, kinds: Collection[SpanKind], glossary: Glossary, language: str) -> None:
        self.text = text
        spans = find_protected_spans(text, kinds)
        self.tags = [span for span in spans if span.kind == "tag"]
        self.kept = _find_protected_items(text, find_kept_spans(text, spans, language), glossary)
        copy = replace_places(text, {kept.place: kept.text for kept in self.kept})
        self.copy = copy if text.strip() else ""
        self.body = _find_body(text, self.kept)
        self._is_kept = bytearray(len(text))
        for kept in self.kept:
            self._is_kept[slice(*kept.place)] = b"\1" * (kept.place.end - kept.place.start)
        self._kinds = kinds
        # The copy is the source with its terms replaced; it always passes.
        self._spans = SpanCheck(copy, kinds)
        # Numbers are only counted as such: 2nd may become zweiter.
        self._texts = TextCounter(item.text for item in self.kept if item.kind not in {"term", "number"})
        self._times = self._texts.count(copy)
        # Minimum occurrences of a term are counted in kept items only, the maximum in the whole source copy.
        together = "\n".join(item.text for item in self.kept)
        terms = dict.fromkeys(item.text for item in self.kept if item.kind == "term")
        self._max_counts = {term: count_phrase(copy, term) for term in terms}
        self._min_counts = {
            target: min(count_phrase(together, target), max_count) for target, max_count in self._max_counts.items()
        }

    def passes(self, text: str) -> bool:
        """Whether a translation keeps every span and has the target of every term."""
        return (
            self._texts.count(text) == self._times
            and all(
                self._min_counts[target] <= count_phrase(text, target) <= max_count
                for target, max_count in self._max_counts.items()
            )
            and self._spans.passes(text)
        )

    def has_words(self, place: TextRange) -> bool:
        """Whether a place has a letter or digit outside of spans and terms."""
        return any(self.text[index].isalnum() and not self._is_kept[index] for index in range(*place))

    def make_copy(self, num_parts: int = 1) -> "ProtectedTranslation":
        """The source sentence with its terms replaced."""
        return ProtectedTranslation(self.copy, "copied", (), num_parts, is_given_up=self.has_words(self.body))

    def find_kept(self, place: TextRange) -> list[ProtectedItem]:
        """The protected items of a part of the sentence, at their places in that part."""
        first, last = (bisect_left(self.kept, index, key=lambda kept: kept.place.start) for index in place)
        return [
            item._replace(place=TextRange(item.place.start - place.start, item.place.end - place.start))
            for item in self.kept[first:last]
        ]

    def make_request(self, place: TextRange) -> ConstrainedText:
        """The request to the search for a part of the sentence."""
        kept = self.find_kept(place)
        spans = tuple(ProtectedSpan(*item.place, item.kind) for item in kept if item.kind != "term")
        text = self.text[slice(*place)]
        terms = tuple(RequiredTerm(text[slice(*item.place)], item.text) for item in kept if item.kind == "term")
        return ConstrainedText(text, spans, terms)

    def assemble_whole(self, proposals: Sequence[Translation]) -> tuple[str, Translation] | None:
        """The sentence with the first translation of its body that passes, and that translation; None if none
        passes.
        """
        # Before an element, such as a number at the end of the sentence, the model adds a full stop of its own.
        behind = next((item for item in self.kept if item.place.start >= self.body.end), None)
        is_cut = behind is not None and behind.kind == "element" and self.body.end > self.body.start
        for proposal in proposals:
            if not self.kept:
                return proposal.text, proposal
            translation = _trim_part(proposal.text, self.text[self.body.end - 1]) if is_cut else proposal.text
            text = replace_places(self.text, {self.body: translation})
            if self.passes(text):
                closer = restore_spacing(text, self.text, self._kinds)
                return closer if self.passes(closer) else text, proposal
        return None

    def find_parts(self) -> list[TextRange]:
        """Parts that can be translated separately: first the text between spans, then between spans and terms."""
        spans = [kept for kept in self.kept if kept.kind != "term"]
        places = dict.fromkeys([*self._find_gaps(spans), *self._find_gaps(self.kept)])
        return [place for place in places if place != self.body and self.has_words(place)]

    def assemble_parts(
        self, translations: Mapping[TextRange, Sequence[Translation]]
    ) -> tuple[str, list[Translation]] | None:
        """The sentence with as many parts translated as pass, and the translations used; None if no part passes."""
        searched = {
            part: {_trim_part(one.text, self.text[part.end - 1]): one for one in found[::-1] if one.text.strip()}
            for part, found in translations.items()
        }
        texts = {part: list(of_text)[::-1] for part, of_text in searched.items() if of_text}
        kept = {item.place: item.text for item in self.kept}
        pieces = self._fill_parts(kept, list(texts), texts)
        if pieces == kept:
            return None
        used = [searched[part][text] for part, text in pieces.items() if part in texts]
        return replace_places(self.text, pieces), used

    def _fill_parts(
        self, pieces: dict[TextRange, str], parts: Sequence[TextRange], texts: Mapping[TextRange, Sequence[str]]
    ) -> dict[TextRange, str]:
        """Add translations of `parts` to `pieces` as long as the sentence passes.

        All at once if possible, else each half separately, as a sentence may have thousands of parts. A part within
        another translated part is skipped.
        """
        if len(parts) > 1:
            trial = pieces | {part: texts[part][0] for part in parts}
            if self.passes(replace_places(self.text, trial)):
                return trial
            middle = len(parts) // 2
            return self._fill_parts(self._fill_parts(pieces, parts[:middle], texts), parts[middle:], texts)
        trials = (pieces | {part: text} for part in parts for text in texts[part])
        return next((trial for trial in trials if self.passes(replace_places(self.text, trial))), pieces)

    def _find_gaps(self, dividing: Sequence[ProtectedItem]) -> list[TextRange]:
        """The gaps between spans in the body, without signs beside the spans: no translation can drop or move those."""
        inside = [kept.place for kept in dividing if self.body.start <= kept.place.start < self.body.end]
        starts = [self.body.start, *(place.end for place in inside)]
        ends = [*(place.start for place in inside), self.body.end]
        places = []
        for gap in map(TextRange, starts, ends):
            indices = range(*gap)
            start = next((index for index in indices if self._is_edge(index, gap.start > self.body.start)), gap.end)
            end = next((index + 1 for index in indices[::-1] if self._is_edge(index, gap.end < self.body.end)), start)
            places.append(TextRange(start, end))
        return places

    def _is_edge(self, index: int, is_divided: bool) -> bool:
        """Whether a part may begin or end with this character; `is_divided`: on the side of a span."""
        character = self.text[index]
        return character.isalnum() or bool(self._is_kept[index]) if is_divided else not character.isspace()


def _find_protected_items(text: str, spans: Sequence[ProtectedSpan], glossary: Glossary) -> list[ProtectedItem]:
    """Spans and terms of a text in order; of those that overlap the longest, and spans before terms."""
    kept = [ProtectedItem(TextRange(span.start, span.end), text[span.start : span.end], span.kind) for span in spans]
    kept += [ProtectedItem(TextRange(term.start, term.end), term.target, "term") for term in glossary.find_terms(text)]
    found: list[ProtectedItem] = []
    is_taken = bytearray(len(text))
    for item in sorted(kept, key=lambda item: item.place.start - item.place.end):
        place = slice(*item.place)
        if not any(is_taken[place]):
            is_taken[place] = b"\1" * len(is_taken[place])
            found.append(item)
    return sorted(found)


def _find_body(text: str, kept: Sequence[ProtectedItem]) -> TextRange:
    """The place of the text inside the tags around it, whose places are certain: the rest is easier to translate.

    Of an element, either both tags are outside or neither. Elements without words are outside like tags, and so are
    brackets outside of the tags, which a model may leave out.
    """
    places = [item.place for item in kept if item.kind in {"tag", "element"}]
    tags_only = [item.place for item in kept if item.kind == "tag"]
    partners: dict[TextRange, TextRange] = {}
    for first, last in pair_tags([text[slice(*place)] for place in tags_only]):
        partners |= {tags_only[first]: tags_only[last], tags_only[last]: tags_only[first]}
    depths = list(accumulate((_BRACKETS.get(character, 0) for character in text), initial=0)) if places else []

    def is_outside(gap: str, rest: TextRange) -> bool:
        return all(map(_BRACKETS.__contains__, gap.strip())) and (
            not gap.strip() or depths[rest.start] == depths[rest.end]
        )

    tags = deque(places)
    start, end = 0, len(text)
    while tags:
        opening, closing = tags[0], tags[-1]
        before, behind = text[start : opening.start], text[closing.end : end]
        if opening not in partners and is_outside(before, TextRange(opening.end, end)):
            start = tags.popleft().end
        elif closing not in partners and is_outside(behind, TextRange(start, closing.start)):
            end = tags.pop().start
        elif partners.get(opening) == closing and is_outside(before + behind, TextRange(opening.end, closing.start)):
            start, end = tags.popleft().end, tags.pop().start
        else:
            break
    while 0 < start < end and text[start].isspace():
        start += 1
    while start < end < len(text) and text[end - 1].isspace():
        end -= 1
    return TextRange(start, end)


def replace_places(text: str, pieces: Mapping[TextRange, str]) -> str:
    """Replace each place of `text` by its piece; a place inside of another is left out."""
    parts = []
    done = 0
    for place in sorted(pieces, key=lambda place: (place.start, -place.end)):
        if place.start >= done:
            parts += [text[done : place.start], pieces[place]]
            done = place.end
    return "".join([*parts, text[done:]])


def _trim_part(translation: str, last: str) -> str:
    """Strip the full stop that models like to add, from the translation of a part that ends in the character `last`."""
    stripped = translation.strip()
    return stripped[:-1] if last.isalnum() and stripped.endswith((".", "。")) else stripped


Search = Callable[[Sequence[ConstrainedText]], list[list[Translation]]]
"""Returns translations of each text, best first; there may be none, and any may violate the constraints. Scores and
pieces are those of the search, which may see the text without its spans."""

Fits = Callable[[str], bool]
"""Whether the model reads a text without its protected spans as a whole."""


@dataclass(frozen=True)
class ProtectedTranslation:
    """A translation that keeps spans and terms.

    Args:
        text: the translation.
        how: "free": there was nothing to keep; "constrained": each sentence was translated as a whole; "in parts": only
            text between protected items was translated, possibly not all of it; "copied": nothing was translated, as
            there is no word to translate, or no translation passes.
        searched: the translations of the search that the text consists of, in order; none for copied text.
        num_parts: above 1 if the line was too long for the model and was split.
        is_given_up: whether the line was copied though it has words to translate.
    """

    text: str
    how: ProtectionMethod
    searched: tuple[Translation, ...] = ()
    num_parts: int = 1
    is_given_up: bool = False


def translate_protected(
    lines: Sequence[str],
    search: Search,
    *,
    kinds: Collection[SpanKind] = USUAL_KINDS,
    glossary: Glossary | None = None,
    language: str = "",
    fits: Fits = lambda _: True,
) -> list[ProtectedTranslation]:
    """A translation of each line that keeps its protected spans and uses the glossary.

    It has each span as often as the source, and no other one, except numbers; tags are in the same order, and elements
    with words keep some. It has each term's target in whole words as often as the source has the term, more often only
    where the source has these words, too. Of an overlapping span and term, the longer one is used.

    Sentences with tags between them are translated one by one (see `transduce.text.segmentation`), and so are those
    of a line with spans or terms that is too long for the model, as `fits` says. `search` is called at most twice, each
    time with all texts to be translated.
    """
    divided = [_Line(line, kinds, glossary or Glossary({}), language, fits) for line in lines]
    translations = iter(_translate_sentences([sentence for line in divided for sentence in line.sentences], search))
    return [line.join(list(islice(translations, len(line.sentences)))) for line in divided]


def _translate_sentences(sources: Sequence[ProtectedSentence], search: Search) -> list[ProtectedTranslation]:
    results = [source.make_copy() for source in sources]

    with_words = [index for index, source in enumerate(sources) if source.has_words(source.body)]
    requests = [sources[index].make_request(sources[index].body) for index in with_words]
    failed: dict[int, dict[TextRange, list[Translation]]] = {}  # sentences, and translations of their parts
    for index, found in zip(with_words, search(requests) if requests else [], strict=True):
        whole = sources[index].assemble_whole(found)
        if whole is None:
            failed[index] = {}
        else:
            how: ProtectionMethod = "constrained" if sources[index].kept else "free"
            text, used = whole
            results[index] = ProtectedTranslation(text, how, (used,))

    parts = [(index, part) for index in failed for part in sources[index].find_parts()]
    requests = [sources[index].make_request(part) for index, part in parts]
    for (index, part), found in zip(parts, search(requests) if requests else [], strict=True):
        failed[index][part] = found
    for index, translations in failed.items():
        in_parts = sources[index].assemble_parts(translations)
        if in_parts is not None:
            text, searched = in_parts
            results[index] = ProtectedTranslation(text, "in parts", tuple(searched))
    return results


class _Line:
    def __init__(self, text: str, kinds: Collection[SpanKind], glossary: Glossary, language: str, fits: Fits) -> None:
        self._whole = whole = ProtectedSentence(text, kinds, glossary, language)
        between_tags = [TextRange(*place) for place in split_tagged_sentences(text, whole.tags, language)]
        self._places = between_tags
        if whole.kept:  # text without protected items is split by its translator
            self._places = [part for place in between_tags for part in _divide_place(whole, place, language, fits)]
        self._num_parts = 1 + len(self._places) - len(between_tags)
        self.sentences = [whole]
        if len(self._places) > 1:
            self.sentences = [
                ProtectedSentence(text[slice(*place)], kinds, glossary, language) for place in self._places
            ]

    def join(self, translations: Sequence[ProtectedTranslation]) -> ProtectedTranslation:
        """The translation of the line, made of those of its sentences."""
        if len(translations) == 1:
            return translations[0]
        texts = [translation.text for translation in translations]
        text = replace_places(self._whole.text, dict(zip(self._places, texts, strict=True)))
        pairs = zip(self.sentences, translations, strict=True)
        ways = {translation.how for sentence, translation in pairs if sentence.has_words(sentence.body)}
        if ways <= {"copied"} or not self._whole.passes(text):
            return self._whole.make_copy(self._num_parts)
        searched = tuple(one for translation in translations for one in translation.searched)
        how: ProtectionMethod = "constrained" if ways <= {"free", "constrained"} else "in parts"
        return ProtectedTranslation(text, how, searched, self._num_parts)


def _divide_place(line: ProtectedSentence, place: TextRange, language: str, fits: Fits) -> list[TextRange]:
    """Split a place of a line into parts that the model can read as a whole, as far as possible."""
    kept = line.find_kept(place)
    hidden = [item.place for item in kept if item.kind != "term"]
    places = find_fitting_spans(line.text[slice(*place)], hidden, [item.place for item in kept], language, fits)
    return [TextRange(place.start + start, place.start + end) for start, end in places]
