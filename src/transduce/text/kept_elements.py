"""Elements and list marks that a translation keeps as they are, as they have no words: footnote marks, anchors, icons.

A model that reads them without their tags translates them as part of the word beside them.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

from transduce.text.protected_spans import ProtectedSpan, SpanKind, find_protected_spans, pair_tags
from transduce.text.segmentation import LIST_MARK, find_list_mark

_SENTENCE_SIGNS = frozenset(".,;:!?…。、，！？")
"""Signs that belong to the sentence around them: a model that does not read them writes some of its own."""

_MAX_MARK_LENGTH = 8  # characters of an element that may be a list mark with a letter, as <b>(a)</b>


def find_kept_spans(text: str, spans: Sequence[ProtectedSpan], language: str) -> list[ProtectedSpan]:
    """The spans of a sentence, of which those of elements without words are joined to one of the kind "element".

    An element has no words if no letter is outside of its spans, and it is not just a sign of the sentence; or if it is
    the list mark that begins the sentence, as in "<b>a)</b> A man runs.". Such a mark behind tags is kept as well, as
    in "<b>1. A man runs.</b>": it is a further span of the kind "element". Takes time linear in the text.

    Args:
        text: any text.
        spans: the spans that `find_protected_spans` finds in it.
        language: see `split_sentences`.
    """
    if not any(span.kind == "tag" for span in spans):
        return list(spans)
    gaps = [text[span.end : behind.start] for span, behind in zip(spans, [*spans[1:], None], strict=True) if behind]
    # For each span, what is before it: letters; signs of sentences; other characters but spaces, and other spans.
    num_letters = list(accumulate((sum(map(str.isalpha, gap)) for gap in gaps), initial=0))
    num_signs = list(accumulate((sum(one in _SENTENCE_SIGNS for one in gap) for gap in gaps), initial=0))
    num_shown = list(accumulate((len("".join(gap.split())) for gap in gaps), initial=0))
    num_others = list(accumulate((span.kind != "tag" for span in spans), initial=0))

    def has_no_words(first: int, last: int, *, is_at_start: bool) -> bool:
        signs, shown = num_signs[last] - num_signs[first], num_shown[last] - num_shown[first]
        if num_letters[last] == num_letters[first]:
            return not signs or shown > signs or num_others[last] > num_others[first]
        is_short = is_at_start and shown <= _MAX_MARK_LENGTH
        return is_short and bool(LIST_MARK.fullmatch("".join(gaps[first:last]).strip()))

    tags = [place for place, span in enumerate(spans) if span.kind == "tag"]
    ends = {
        tags[first]: tags[last] for first, last in pair_tags([text[spans[tag].start : spans[tag].end] for tag in tags])
    }
    found: list[ProtectedSpan] = []
    place, start = 0, 0  # the sentence has begun with nothing but tags and elements up to `start`
    is_at_start = True
    while place < len(spans):
        span, last = spans[place], ends.get(place, place)
        is_at_start = is_at_start and not text[start : span.start].strip() and span.kind == "tag"
        if last > place and has_no_words(place, last, is_at_start=is_at_start):
            span = ProtectedSpan(span.start, spans[last].end, "element")
            place = last
        found.append(span)
        place += 1
        start = span.end if is_at_start else start
    if start:
        end = next((span.start for span in found if span.start >= start), len(text))
        # Tags would confuse the decision whether the sentence goes on behind a number.
        bare = "".join(gap + " " * width for gap, width in _divide(text, spans))
        first, last = find_list_mark(bare, start, language)
        mark = text[first : min(last, end)].rstrip()
        found += [ProtectedSpan(first, first + len(mark), "element")] if mark else []
    return sorted(found, key=lambda span: span.start)


def _divide(text: str, spans: Sequence[ProtectedSpan]) -> Iterator[tuple[str, int]]:
    """Yield the text before each span with the length of the span, and what is behind the last one."""
    done = 0
    for span in spans:
        yield text[done : span.start], span.end - span.start
        done = span.end
    yield text[done:], 0


def pair_kept_spans(
    original: str, text: str, kinds: Collection[SpanKind], language: str
) -> list[tuple[ProtectedSpan, ProtectedSpan]]:
    """Pairs of a span of `original`, or an element without words, and the same in its translation `text`.

    Equal ones are paired in order.
    """
    waiting: dict[str, deque[ProtectedSpan]] = defaultdict(deque)
    first_tags: dict[str, dict[str, None]] = defaultdict(dict)  # the elements that begin with a tag
    spans = find_protected_spans(original, kinds)
    texts = {span.start: original[span.start : span.end] for span in spans}
    for kept in find_kept_spans(original, spans, language):
        written = original[kept.start : kept.end]
        waiting[written].append(kept)
        if kept.kind == "element" and kept.start in texts:
            first_tags[texts[kept.start]][written] = None
    pairs, done = [], 0
    for span in find_protected_spans(text, kinds):
        if span.start < done:
            continue
        written = text[span.start : span.end]
        elements = (one for one in first_tags.get(written, ()) if waiting[one] and text.startswith(one, span.start))
        written = next(elements, written)
        if waiting[written]:
            there = waiting[written].popleft()
            done = span.start + len(written)
            pairs.append((there, ProtectedSpan(span.start, done, there.kind)))
    return pairs
