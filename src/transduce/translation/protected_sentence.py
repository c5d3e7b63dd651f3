"""A sentence, what must be kept of it, and what will do as its translation."""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from transduce.text import (
    Glossary,
    Kind,
    ProtectedSpan,
    SpanCheck,
    count_whole,
    find_protected_spans,
    pair_tags,
    restore_spacing,
)
from transduce.translation.alternatives import Translation


@dataclass(frozen=True)
class ConstrainedText:
    """A text to be translated.

    Args:
        text: as it stands in the line, with what is to be kept.
        spans: what the translation has to contain as it is, in the text's order; of several tags it keeps the order.
        terms: what it has to contain besides, each exactly as often as it is listed; in the text's order.
    """

    text: str
    spans: tuple[ProtectedSpan, ...] = ()
    terms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A translation of a `ConstrainedText`, and what was searched for to get it, if that is known.

    `searched` is a translation of the text without its spans, which were put in afterwards.
    """

    text: str
    searched: Translation | None = None


class Place(NamedTuple):
    """The characters from `start` up to, but without, `end` of a sentence."""

    start: int
    end: int


class Kept(NamedTuple):
    """A span or term: `text` must be in the translation for what is at `place` in the source."""

    place: Place
    text: str
    kind: Kind | Literal["term"]


class ProtectedSentence:
    """A sentence, what is kept of it, and what will do as its translation."""

    def __init__(self, text: str, kinds: Collection[Kind], glossary: Glossary) -> None:
        self.text = text
        self.kept = _find_kept(text, kinds, glossary)
        copy = replaced(text, {kept.place: kept.text for kept in self.kept})
        self.copy = copy if text.strip() else ""
        self.body = _without_outer_tags(text, self.kept)
        self._is_kept = bytearray(len(text))
        for kept in self.kept:
            self._is_kept[slice(*kept.place)] = b"\1" * (kept.place.end - kept.place.start)
        self._kinds = kinds
        self.will_do = _Requirements(copy, self.kept, kinds).are_met_by

    @property
    def tags(self) -> list[ProtectedSpan]:
        """Those that are kept, in order."""
        return [ProtectedSpan(*kept.place, "tag") for kept in self.kept if kept.kind == "tag"]

    def has_words(self, place: Place) -> bool:
        """Whether there is a letter or digit outside of what is kept."""
        return any(self.text[index].isalnum() and not self._is_kept[index] for index in range(*place))

    def request(self, place: Place) -> ConstrainedText:
        """What the search is asked for a part of the sentence."""
        first, last = (bisect_left(self.kept, index, key=lambda kept: kept.place.start) for index in place)
        kept = self.kept[first:last]
        spans = [
            ProtectedSpan(item.place.start - place.start, item.place.end - place.start, item.kind)
            for item in kept
            if item.kind != "term"
        ]
        terms = [item.text for item in kept if item.kind == "term"]
        return ConstrainedText(self.text[slice(*place)], tuple(spans), tuple(terms))

    def whole(self, proposals: Sequence[Proposal]) -> Proposal | None:
        """The sentence with the first translation of its body that will do."""
        for proposal in proposals:
            if not self.kept:
                return proposal
            text = replaced(self.text, {self.body: proposal.text})
            if self.will_do(text):
                closer = restore_spacing(text, self.text, self._kinds)
                return Proposal(closer if self.will_do(closer) else text, proposal.searched)
        return None

    def parts(self) -> list[Place]:
        """What can be translated for itself: first the text between spans, then that between spans and terms."""
        spans = [kept for kept in self.kept if kept.kind != "term"]
        places = dict.fromkeys([*self._between(spans), *self._between(self.kept)])
        return [place for place in places if place != self.body and self.has_words(place)]

    def in_parts(self, translations: Mapping[Place, Sequence[Proposal]]) -> tuple[str, list[Translation]] | None:
        """The sentence with as many of its parts translated as will do, and what was searched for; None if none will.

        Args:
            translations: of parts.
        """
        searched = {
            part: {_as_part(one.text, self.text[part.end - 1]): one.searched for one in found[::-1] if one.text.strip()}
            for part, found in translations.items()
        }
        texts = {part: list(of_text)[::-1] for part, of_text in searched.items() if of_text}
        kept = {item.place: item.text for item in self.kept}
        pieces = self._filled(kept, list(texts), texts)
        if pieces == kept:
            return None
        used = [searched[part][text] for part, text in pieces.items() if part in texts]
        return replaced(self.text, pieces), [one for one in used if one is not None]

    def _filled(
        self, pieces: dict[Place, str], parts: Sequence[Place], texts: Mapping[Place, Sequence[str]]
    ) -> dict[Place, str]:
        """`pieces`, which will do, and translations of those `parts` with which they still do.

        All at once if possible, else each half for itself: a sentence may have thousands of parts. One inside of
        another that is translated adds nothing.
        """
        if len(parts) > 1:
            trial = pieces | {part: texts[part][0] for part in parts}
            if self.will_do(replaced(self.text, trial)):
                return trial
            middle = len(parts) // 2
            return self._filled(self._filled(pieces, parts[:middle], texts), parts[middle:], texts)
        trials = (pieces | {part: text} for part in parts for text in texts[part])
        return next((trial for trial in trials if self.will_do(replaced(self.text, trial))), pieces)

    def _between(self, dividing: Sequence[Kept]) -> list[Place]:
        """What is between these in the body. Signs beside them are left out: no translation can drop or move them."""
        inside = [kept.place for kept in dividing if self.body.start <= kept.place.start < self.body.end]
        starts = [self.body.start, *(place.end for place in inside)]
        ends = [*(place.start for place in inside), self.body.end]
        places = []
        for gap in map(Place, starts, ends):
            indices = range(*gap)
            start = next((index for index in indices if self._is_edge(index, gap.start > self.body.start)), gap.end)
            end = next((index + 1 for index in indices[::-1] if self._is_edge(index, gap.end < self.body.end)), start)
            places.append(Place(start, end))
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

    def __init__(self, copy: str, kept: Sequence[Kept], kinds: Collection[Kind]) -> None:
        self._spans = SpanCheck(copy, kinds)
        # Numbers are only counted as such: 2nd may become zweiter.
        self._times = {item.text: copy.count(item.text) for item in kept if item.kind not in {"term", "number"}}
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


def _find_kept(text: str, kinds: Collection[Kind], glossary: Glossary) -> list[Kept]:
    """The spans and terms of a text in order; of those that overlap the longest, and spans before terms."""
    spans = find_protected_spans(text, kinds)
    kept = [Kept(Place(span.start, span.end), text[span.start : span.end], span.kind) for span in spans]
    kept += [Kept(Place(term.start, term.end), term.target, "term") for term in glossary.matches(text)]
    chosen: list[Kept] = []
    is_taken = bytearray(len(text))
    for item in sorted(kept, key=lambda item: item.place.start - item.place.end):
        place = slice(*item.place)
        if not any(is_taken[place]):
            is_taken[place] = b"\1" * len(is_taken[place])
            chosen.append(item)
    return sorted(chosen)


def _without_outer_tags(text: str, kept: Sequence[Kept]) -> Place:
    """Where the text is without the tags around it: their places are sure, and the rest is easier to translate.

    Of an element, both tags are taken off or none.
    """
    places = [item.place for item in kept if item.kind == "tag"]
    partners: dict[Place, Place] = {}
    for first, last in pair_tags([text[slice(*place)] for place in places]):
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
    return Place(start, end)


def replaced(text: str, pieces: Mapping[Place, str]) -> str:
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
