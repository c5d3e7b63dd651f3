"""Translations that keep addresses, tags and placeholders, and use the terms of a glossary, whatever the model does.

Whoever translates is asked for what must be kept, and what comes back is verified. Where nothing passes, only the text
between what is kept is translated, part by part, and a part for which nothing passes stays as it is. The worst that can
come out of this is the source with its terms replaced, which keeps everything: so something that does is always found.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from transduce.text import USUAL_KINDS, Glossary, Kind, SpanCheck, count_whole, elements, find_protected_spans, respaced

How = Literal["free", "constrained", "in parts", "copied"]


@dataclass(frozen=True)
class ConstrainedText:
    """A text to be translated.

    Args:
        text: what the model reads, in which what is to be kept stands like any other word.
        required: what the translation has to contain, each exactly as often as it is listed; in the text's order.
        ordered: whether it has to contain them in this order.
    """

    text: str
    required: tuple[str, ...]
    ordered: bool


Search = Callable[[Sequence[ConstrainedText]], list[list[str]]]
"""Gives translations of each text, best first. There may be none, and any of them may lack what is required."""


@dataclass(frozen=True)
class ProtectedTranslation:
    """A translation that keeps what it must, and how it was reached.

    - "free": there was nothing to keep.
    - "constrained": the sentence was translated as a whole.
    - "in parts": only the text between what is kept was translated, and perhaps not all of it.
    - "copied": nothing was translated, as there is no word to translate, or no translation that will do.
    """

    text: str
    how: How


def translate_protected(
    sentences: Sequence[str],
    search: Search,
    *,
    kinds: Collection[Kind] = USUAL_KINDS,
    glossary: Glossary | None = None,
) -> list[ProtectedTranslation]:
    """A translation of each sentence that keeps its protected spans and uses the glossary.

    Each span is there as often as in the source, and no other one, except numbers; tags are in the same order, and
    elements that have words keep some. Each term's target is there in whole words as often as the term, more often only
    where the source has these words, too. Where a span and a term overlap, the longer one counts.

    Args:
        sentences: one text each; a blank one gives "".
        search: translates; called at most twice, each time with all that is to be translated.
        kinds: of spans that are kept; all but numbers unless given.
        glossary: the terms; none unless given.
    """
    sources = [_Source(sentence, kinds, glossary or Glossary({})) for sentence in sentences]
    results = [source.copied() for source in sources]

    with_words = [index for index, source in enumerate(sources) if source.has_words(source.body)]
    requests = [sources[index].request(sources[index].body) for index in with_words]
    failed: dict[int, dict[_Place, list[str]]] = {}  # sentences, and translations of their parts
    for index, found in zip(with_words, search(requests) if requests else [], strict=True):
        translation = sources[index].whole(found)
        if translation:
            results[index] = translation
        else:
            failed[index] = {}

    parts = [(index, part) for index in failed for part in sources[index].parts()]
    requests = [sources[index].request(part) for index, part in parts]
    for (index, part), found in zip(parts, search(requests) if requests else [], strict=True):
        failed[index][part] = found
    for index, translations in failed.items():
        results[index] = sources[index].in_parts(translations)
    return results


class _Place(NamedTuple):
    """The characters from `start` up to, but without, `end` of a sentence."""

    start: int
    end: int


class _Kept(NamedTuple):
    """A span or term: `text` must be in the translation for what is at `place` in the source."""

    place: _Place
    text: str
    kind: Kind | Literal["term"]


class _Source:
    """A sentence, what is kept of it, and what will do as its translation."""

    def __init__(self, text: str, kinds: Collection[Kind], glossary: Glossary) -> None:
        self.text = text
        self.kept = _find_kept(text, kinds, glossary)
        self._copy = _replaced(text, {kept.place: kept.text for kept in self.kept})
        self.body = _without_outer_tags(text, self.kept)
        self._is_kept = bytearray(len(text))
        for kept in self.kept:
            self._is_kept[slice(*kept.place)] = b"\1" * (kept.place.end - kept.place.start)
        self._kinds = kinds
        self._will_do = _Requirements(self._copy, self.kept, kinds).are_met_by

    def has_words(self, place: _Place) -> bool:
        """Whether there is a letter or digit outside of what is kept."""
        return any(self.text[index].isalnum() and not self._is_kept[index] for index in range(*place))

    def request(self, place: _Place) -> ConstrainedText:
        """What the search is asked for a part of the sentence."""
        first, last = (bisect_left(self.kept, index, key=lambda kept: kept.place.start) for index in place)
        kept = self.kept[first:last]
        num_tags = sum(item.kind == "tag" for item in kept)
        return ConstrainedText(self.text[place.start : place.end], tuple(item.text for item in kept), num_tags > 1)

    def copied(self) -> ProtectedTranslation:
        """The sentence with its terms replaced."""
        return ProtectedTranslation(self._copy if self.text.strip() else "", "copied")

    def whole(self, translations: Sequence[str]) -> ProtectedTranslation | None:
        """The sentence with the first translation of its body that will do."""
        for translation in translations:
            if not self.kept:
                return ProtectedTranslation(translation, "free")
            text = _replaced(self.text, {self.body: translation})
            if self._will_do(text):
                closer = respaced(text, self.text, self._kinds)
                return ProtectedTranslation(closer if self._will_do(closer) else text, "constrained")
        return None

    def parts(self) -> list[_Place]:
        """What can be translated for itself: first the text between spans, then that between spans and terms."""
        spans = [kept for kept in self.kept if kept.kind != "term"]
        places = dict.fromkeys([*self._between(spans), *self._between(self.kept)])
        return [place for place in places if place != self.body and self.has_words(place)]

    def in_parts(self, translations: Mapping[_Place, Sequence[str]]) -> ProtectedTranslation:
        """The sentence with as many of its parts translated as will do."""
        texts = {
            part: [_as_part(text, self.text[part.end - 1]) for text in found if text.strip()]
            for part, found in translations.items()
        }
        kept = {item.place: item.text for item in self.kept}
        pieces = self._filled(kept, [part for part in texts if texts[part]], texts)
        return ProtectedTranslation(_replaced(self.text, pieces), "in parts") if pieces != kept else self.copied()

    def _filled(
        self, pieces: dict[_Place, str], parts: Sequence[_Place], texts: Mapping[_Place, Sequence[str]]
    ) -> dict[_Place, str]:
        """`pieces`, which will do, and translations of those `parts` with which they still do.

        All at once if possible, else each half for itself: a sentence may have thousands of parts. One inside of
        another that is translated adds nothing.
        """
        if len(parts) > 1:
            trial = pieces | {part: texts[part][0] for part in parts}
            if self._will_do(_replaced(self.text, trial)):
                return trial
            middle = len(parts) // 2
            return self._filled(self._filled(pieces, parts[:middle], texts), parts[middle:], texts)
        trials = (pieces | {part: text} for part in parts for text in texts[part])
        return next((trial for trial in trials if self._will_do(_replaced(self.text, trial))), pieces)

    def _between(self, dividing: Sequence[_Kept]) -> list[_Place]:
        """What is between these in the body. Signs beside them are left out: no translation can drop or move them."""
        inside = [kept.place for kept in dividing if self.body.start <= kept.place.start < self.body.end]
        starts = [self.body.start, *(place.end for place in inside)]
        ends = [*(place.start for place in inside), self.body.end]
        places = []
        for gap in map(_Place, starts, ends):
            indices = range(*gap)
            start = next((index for index in indices if self._is_edge(index, gap.start > self.body.start)), gap.end)
            end = next((index + 1 for index in indices[::-1] if self._is_edge(index, gap.end < self.body.end)), start)
            places.append(_Place(start, end))
        return places

    def _is_edge(self, index: int, is_divided: bool) -> bool:
        """Whether a part may begin or end with this character; `is_divided`: on the side of what divides the parts."""
        character = self.text[index]
        return character.isalnum() or bool(self._is_kept[index]) if is_divided else not character.isspace()


class _Requirements:
    """What a translation is measured by: the copy, which is the source with its terms replaced.

    Args:
        copy: it meets all of them itself.
        kept: all that is kept, in the order of the source.
        kinds: of spans that are looked for.
    """

    def __init__(self, copy: str, kept: Sequence[_Kept], kinds: Collection[Kind]) -> None:
        self._spans = SpanCheck(copy, kinds)
        self._times = {item.text: copy.count(item.text) for item in kept if item.kind != "term"}
        # A target that is also in another text that is kept must be there besides; the source may have it elsewhere.
        together = "\n".join(item.text for item in kept)
        self._most = {item.text: count_whole(copy, item.text) for item in kept if item.kind == "term"}
        self._least = {target: min(count_whole(together, target), most) for target, most in self._most.items()}

    def are_met_by(self, text: str) -> bool:
        """Whether `text` keeps every span and has every target."""
        return (
            all(text.count(span) == times for span, times in self._times.items())
            and all(self._least[target] <= count_whole(text, target) <= most for target, most in self._most.items())
            and self._spans.passes(text)
        )


def _find_kept(text: str, kinds: Collection[Kind], glossary: Glossary) -> list[_Kept]:
    """The spans and terms of a text in order; of those that overlap the longest, and spans before terms."""
    spans = find_protected_spans(text, kinds)
    kept = [_Kept(_Place(span.start, span.end), text[span.start : span.end], span.kind) for span in spans]
    kept += [_Kept(_Place(term.start, term.end), term.target, "term") for term in glossary.matches(text)]
    chosen: list[_Kept] = []
    is_taken = bytearray(len(text))
    for item in sorted(kept, key=lambda item: item.place.start - item.place.end):
        place = slice(*item.place)
        if not any(is_taken[place]):
            is_taken[place] = b"\1" * len(is_taken[place])
            chosen.append(item)
    return sorted(chosen)


def _without_outer_tags(text: str, kept: Sequence[_Kept]) -> _Place:
    """Where the text is without the tags around it: their places are sure, and the rest is easier to translate.

    Of an element, both tags are taken off or none.
    """
    places = [item.place for item in kept if item.kind == "tag"]
    partners: dict[_Place, _Place] = {}
    for first, last in elements([text[slice(*place)] for place in places]):
        partners |= {places[first]: places[last], places[last]: places[first]}
    tags = deque(places)
    start, end = 0, len(text)
    while tags:
        is_at_start = not text[start : tags[0].start].strip()
        is_at_end = not text[tags[-1].end : end].strip()
        if is_at_start and tags[0] not in partners:
            start = tags.popleft().end
        elif is_at_end and tags[-1] not in partners:
            end = tags.pop().start
        elif is_at_start and is_at_end and partners[tags[0]] == tags[-1]:
            start, end = tags.popleft().end, tags.pop().start
        else:
            break
    while 0 < start < end and text[start].isspace():
        start += 1
    while start < end < len(text) and text[end - 1].isspace():
        end -= 1
    return _Place(start, end)


def _replaced(text: str, pieces: Mapping[_Place, str]) -> str:
    """`text` with each of `pieces` in its place; one whose place is inside of another's is left out."""
    parts = []
    done = 0
    for place in sorted(pieces, key=lambda place: (place.start, -place.end)):
        if place.start >= done:
            parts += [text[done : place.start], pieces[place]]
            done = place.end
    return "".join([*parts, text[done:]])


def _as_part(translation: str, last: str) -> str:
    """The translation of a part of a sentence that ends in the character `last`: models like to add a full stop."""
    stripped = translation.strip()
    return stripped[:-1] if last.isalnum() and stripped.endswith((".", "。")) else stripped
