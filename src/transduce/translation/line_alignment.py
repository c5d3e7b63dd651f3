"""Which words of a line and of its translation belong together, protected spans included."""

from collections.abc import Sequence

from transduce.text import ProtectedSpan
from transduce.translation.alignment import Alignment, AlignmentHead, Link, align_pairs
from transduce.translation.forced_decoding import ForcedDecoder
from transduce.translation.lines import Line
from transduce.translation.projection import removed_places


def align_lines(decoder: ForcedDecoder, lines: Sequence[Line], head: AlignmentHead) -> list[Alignment | None]:
    """The alignment of each line and its translation, in words as they stand there.

    Words are linked as `align_pairs` links those of both texts without their protected spans, which the model has never
    seen; words of a span are linked with those of the same span. A word with both in it is linked by its own letters.

    Args:
        decoder: the model.
        lines: translated. None is the alignment of one that has failed, or that the model does not read as a whole.
        head: whose attention it is.

    Raises:
        ConfigError: the model has no such head.
    """
    pairs = [line.bare for line in lines]
    places = [place for place, line in enumerate(lines) if not line.has_failed and decoder.fits(*pairs[place])]
    aligned = align_pairs(decoder, [pairs[place] for place in places], head)
    found: list[Alignment | None] = [None] * len(lines)
    for place, alignment in zip(places, aligned, strict=True):
        found[place] = _with_spans(lines[place], alignment)
    return found


def _with_spans(line: Line, bare: Alignment) -> Alignment:
    """The alignment of a line, from that of its bare texts."""
    source, target = line.source, line.translation.text
    source_spans, target_spans = line.spans_in_order if line.spans else ([], [])
    of_source, of_target = _words_of(source), _words_of(target)
    links: dict[int, Link] = {}
    for span, other in line.spans:
        ours, theirs = (
            dict.fromkeys(word for word in words[one.start : one.end] if word is not None)
            for words, one in ((of_source, span), (of_target, other))
        )
        links |= {word: Link(here, word, 1.0) for here, word in zip(ours, theirs, strict=True)}
    sources = _in_full(source, source_spans, bare.source)
    targets = _in_full(target, target_spans, bare.target)
    for link in bare.links:
        word = targets[link.target]
        links[word] = Link(sources[link.source], word, link.weight)
    return Alignment(tuple(source.split()), tuple(target.split()), tuple(links[word] for word in sorted(links)))


def _words_of(text: str) -> list[int | None]:
    """Of each character, the number of its word; None of a space."""
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


def _in_full(text: str, spans: Sequence[ProtectedSpan], bare: Sequence[str]) -> list[int]:
    """The words of `text` that the words `bare` of the same text without its spans are, by number."""
    words = _words_of(text)
    for start, end in removed_places(text, spans):
        words[start:end] = [None] * (end - start)
    rest = [number for number in words if number is not None]
    found, start = [], 0
    for word in bare:
        found.append(rest[start])
        start += len(word)
    return found
