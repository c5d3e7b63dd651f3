"""Where a text that is too long for a model is divided: never within what must stay together."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from transduce.text.segmentation import segments, sentences

Place = tuple[int, int]


def fitting_places(
    text: str, hidden: Sequence[Place], whole: Sequence[Place], language: str, fits: Callable[[str], bool]
) -> list[Place]:
    """Where each part of a text that fits begins and ends, without space around it: the text, or else its sentences.

    A sentence that does not fit is divided as `segments` divides it, and what must stay together is a part that may be
    too long.

    Args:
        text: anything.
        hidden: the characters that the model does not get to see, by where they begin and end.
        whole: what must stay together likewise, from left to right.
        language: see `sentences`.
        fits: whether the model can read a part; it is given spaces for hidden characters.
    """
    shown = list(text)
    for start, end in hidden:
        shown[start:end] = " " * (end - start)
    divided = _Divided(text, "".join(shown), whole, language, fits)
    if fits(divided.shown):
        return divided.between([0, len(text)])
    cuts = outside([0, *accumulate(map(len, sentences(text, language)))], whole)
    return [part for place in divided.between(cuts) for part in divided.fitting(place)]


def outside(cuts: Sequence[int], whole: Sequence[Place]) -> list[int]:
    """The cuts, with those that are within something whole moved in front of it, or behind it at the least."""
    moved = [cuts[0]]
    for cut in cuts[1:]:
        before = bisect_right(whole, cut, key=lambda one: one[0]) - 1
        start, end = whole[before] if before >= 0 else (cut, cut)
        chosen = cut if not start < cut < end else start if start > moved[-1] else end
        if chosen > moved[-1]:
            moved.append(chosen)
    return moved


@dataclass(frozen=True)
class _Divided:
    """See `fitting_places`; `shown` is the text with spaces for hidden characters."""

    text: str
    shown: str
    whole: Sequence[Place]
    language: str
    fits: Callable[[str], bool]

    def fitting(self, place: Place) -> list[Place]:
        """The parts of a place."""
        start, end = place
        part = self.shown[start:end]
        if self.fits(part):
            return [place]
        ends = accumulate(map(len, segments(part, self.language, self.fits)))
        places = self.between(outside([start, *(start + length for length in ends)], self.whole))
        # A part that begins earlier than it was to begin may be too long.
        return [one for other in places for one in self.fitting(other)] if len(places) > 1 else places

    def between(self, cuts: Sequence[int]) -> list[Place]:
        """What is between cuts, without space at its ends; nothing where there is only space."""
        places = []
        for start, end in pairwise(cuts):
            part = self.text[start:end]
            if shown := part.strip():
                first = start + part.index(shown)
                places.append((first, first + len(shown)))
        return places
