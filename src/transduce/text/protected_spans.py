"""Protected spans, which a translation must keep: URLs, e-mail addresses, handles, hashtags, tags, placeholders,
numbers.
"""

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Literal

SpanKind = Literal["url", "email", "handle", "hashtag", "tag", "entity", "placeholder", "number"]
"""The kinds of protected spans."""

USUAL_KINDS: tuple[SpanKind, ...] = ("url", "email", "handle", "hashtag", "tag", "entity", "placeholder")
"""All kinds but numbers, which a translation may have to change, as languages write them differently."""

# A letter, digit or "_" of a script that puts spaces between words: others may touch an address on both sides.
_LETTER = r"[^\W\u2e80-\U0003ffff]"
_LABEL = rf"{_LETTER}++(?:-++{_LETTER}++)*+"  # of a domain: its parts between full stops
# Of a handle or a hashtag; vowel signs of Indian scripts are marks, which no class of letters holds.
_OF_NAME = rf"(?:{_LETTER}|[\u0300-\u036f\u0900-\u0dff])"
_FRACTIONS = "\u00bc-\u00be\u2150-\u215e\u2189"  # ½ and the like, each a single character that is no digit
_LINE_ENDS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE_WRAP = r"\r?\n(?!\s*\n)"  # a line end with something in the next line

_WORD_BEHIND = rf"[-‐‑'’/%°]?{_LETTER}"  # of a number that is part of a word to be translated, as in 20-year-old

# Searching takes time linear in the text: repetitions are possessive (*+, ++), and a match is tried only where a run of
# its characters begins, or ends at the latest where the next one could begin.
_PATTERNS: dict[SpanKind, str] = {
    # https://a.b/c_(d)?e, www.a.b, mailto:a@b.c; with brackets in pairs, without the sentence's punctuation after it.
    "url": r"""(?<![A-Za-z0-9]) (?: [A-Za-z][A-Za-z0-9+]{1,15}+:// | (?i:www\.|mailto:)(?=\w) )
            (?: [^\s<>"“”„‟«»`()\[\]、。，；：！？「」『』（）【】《》]
              | \( [^\s<>"()]*+ \)
              | \[ [^\s<>"\[\]]*+ \]
            )+
            (?<![.,;:!?'’*_~…|\\])""",
    "email": rf"""(?<!{_LETTER}) (?<!{_LETTER}[.+%'-])
            {_LETTER} (?:{_LETTER}|[.+%'-]){{0,63}}+ (?<!\.) @ {_LABEL} (?:\.{_LABEL})++""",
    # @name, @first.last, @name@server.org; not after a letter, as in an address.
    "handle": rf"""(?<![\w@.+%'/-]) @ {_OF_NAME}++ (?:\.{_OF_NAME}++)*+ (?: @ {_LABEL} (?:\.{_LABEL})++ )?+""",
    # #name, with a letter somewhere: #1 is a number.
    "hashtag": rf"""(?<![\w#&/]) \# (?=\d*+[^\W\d]) {_OF_NAME}++""",
    # <a href="x">, </a>, <br/>, <!-- x -->, <!DOCTYPE x>, <?x y?>. None has another "<" inside, nor an empty line:
    # an unclosed one does not swallow the page.
    "tag": rf"""<!-- (?: [^<{_LINE_ENDS}] | <(?!!--) | {_LINE_WRAP} )*? -->
          | < (?: /? [A-Za-z_][\w.-]*+ (?: :[\w.-]++ )? (?=[\s/>]) | [!?][A-Za-z] )
              (?: [^<>"'{_LINE_ENDS}] | {_LINE_WRAP}
                | " (?: [^<"{_LINE_ENDS}] | {_LINE_WRAP} )*+ "
                | ' (?: [^<'{_LINE_ENDS}] | {_LINE_WRAP} )*+ '
              )*+ >""",
    # &nbsp; &#39; &#x2019;
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    # {{ name }}, {% if name %}, ${name}, #{name}, %{name}, with spaces anywhere; {name}, {0:.2f}, {}, with one at each
    # end; %s, %5.2f, %1$s, %(name)s, but not directly after a digit, as in "5%discount".
    "placeholder": rf"""\{{{{2,3}}+ [^{{}}{_LINE_ENDS}]*+ \}}{{2,3}}
          | \{{% [^{{}}{_LINE_ENDS}]*+ (?<=%)\}}
          | [$#%]\{{ [^{{}}{_LINE_ENDS}]*+ \}}
          | \{{[ ]? (?: [^\s{{}}]++ [ ]? )? \}}
          | (?<![\d%]) % (?: \(\w++\) | \d{{1,2}}\$ )?
            [-+0\#]{{0,3}} \d{{0,3}} (?: \.\d{{0,3}} )? l{{0,2}} [sdifgeuxXc@]""",
    # 7, -3.5, 1,000.00, 1 000, 2024-01-31, 12:30, 1/2, ½, 4x4: digits with single signs between them; spaces only
    # between thousands, and so not after a year. With currency, unit or other letters right beside it: $5, 20%, 5km,
    # 36km/h, 3D, 2nd, 80's. Numbers within words are matched as well, and skipped as a whole, in linear time.
    "number": rf"""(?<!{_LETTER}) (?<!{_LETTER}[-‐‑'’]) (?<!\d[.,:/–x×]) [-+−]?+ (?: [A-Z]{{0,3}}+[$€£¥₹] )?+
            (?: \d++ [{_FRACTIONS}]?+ | [{_FRACTIONS}] )
            (?: [.,:/\u2044'’\u00a0\u2009\u202f–x×-]\d++ | (?<!\d{{4}})[ ]\d{{3}}(?!\d) )*+
            (?: (?: (?: [ \u00a0\u202f](?=\S{{1,2}}(?:[\s.,;:!?)]|$)) )? (?:[%‰€£¥₹]|°[CF]?)
                | [$] | {_LETTER}++(?:/{_LETTER}{{1,2}})? | ['’]s ) (?!{_WORD_BEHIND})
              | (?P<word>{_WORD_BEHIND}) )?""",
}
"""Verbose patterns, in which white space is ignored; see `_compile_pattern`."""


@cache
def _compile_pattern(kind: SpanKind) -> re.Pattern[str]:
    """The pattern of a kind, compiled on first use: all together take 0.1 s."""
    return re.compile(_PATTERNS[kind], re.VERBOSE)


_MAX_RUN_LENGTH = 64  # characters that are compared, as scripts without spaces have runs of thousands

_TAG_NAME = re.compile(r"</?([\w.:-]+)")


@dataclass(frozen=True)
class ProtectedSpan:
    """The characters from `start` up to, but without, `end` of a text.

    The kind "element" is that of parts with several tags, or none, that are kept together; see `find_kept_spans`.
    """

    start: int
    end: int
    kind: SpanKind | Literal["element"]


def find_protected_spans(text: str, kinds: Collection[SpanKind] = USUAL_KINDS) -> list[ProtectedSpan]:
    """The spans of these kinds, from left to right; of several that overlap the leftmost, then the longest.

    Takes time linear in the text, for any text. No span contains an empty line.
    """
    spans: list[ProtectedSpan] = []
    ahead = {kind: _search(kind, text, 0) for kind in kinds}
    while found := [(match.start(), -match.end(), kind) for kind, match in ahead.items() if match]:
        start, negative_end, kind = min(found)
        end = -negative_end
        spans.append(ProtectedSpan(start, end, kind))
        for other, match in ahead.items():
            if match and match.start() < end:
                ahead[other] = _search(other, text, end)
    return spans


def _search(kind: SpanKind, text: str, start: int) -> re.Match[str] | None:
    return next((match for match in _compile_pattern(kind).finditer(text, start) if match.lastgroup != "word"), None)


def has_letters(text: str) -> bool:
    """Whether a text has a letter of any script outside of its tags; other text, such as a number, need not be
    translated.
    """
    if "<" not in text or not any(map(str.isalpha, text)):
        return any(map(str.isalpha, text))
    tags = find_protected_spans(text, ["tag"])
    starts, ends = [0, *(tag.end for tag in tags)], [*(tag.start for tag in tags), len(text)]
    return any(any(map(str.isalpha, text[start:end])) for start, end in zip(starts, ends, strict=True))


class SpanCheck:
    """Checks that translations contain the spans of their original equally often, with tags in the same order.

    Numbers may be added. An element, such as <b>…</b>, that contains letters or digits must not become empty: a search
    that is forced to place two tags tends to put them side by side.
    """

    def __init__(self, original: str, kinds: Collection[SpanKind]) -> None:
        self._kinds = kinds
        spans = find_protected_spans(original, kinds)
        tags = [span for span in spans if span.kind == "tag"]
        has_words = [any(map(str.isalnum, original[tag.end : following.start])) for tag, following in pairwise(tags)]
        num_full = list(accumulate(has_words, initial=0))  # gaps between tags that have words, before each tag
        self._tags = [original[tag.start : tag.end] for tag in tags]
        self._full_elements = {pair for pair in pair_tags(self._tags) if num_full[pair[0]] < num_full[pair[1]]}
        self._numbers = Counter(original[span.start : span.end] for span in spans if span.kind == "number")
        self._others = Counter(original[span.start : span.end] for span in spans if span.kind not in {"tag", "number"})

    def passes(self, text: str) -> bool:
        """Whether `text` has the spans of the original."""
        found = SpanCheck(text, self._kinds)
        return (
            found._tags == self._tags
            and found._others == self._others
            and all(found._numbers[number] == times for number, times in self._numbers.items())
            and found._full_elements >= self._full_elements
        )


def restore_spacing(text: str, original: str, kinds: Collection[SpanKind] = USUAL_KINDS) -> str:
    """Remove spaces beside the spans of a translation that the original does not have.

    Tokenizers put spaces in front of words: "<b>old</b> (%s)" may become "<b> alt </b> ( %s)". A space is removed if
    the original has none between the span and the same word or sign, or on the inner side of a tag.
    """
    dropped = set()
    for there, span in pair_spans(original, text, kinds):
        is_end = text.startswith("</", span.start)
        before, behind = find_run_before(original, there.start), find_run_behind(original, there.end)
        if text.endswith(" ", 0, span.start) and before and (is_end or find_run_before(text, span.start - 1) == before):
            dropped.add(span.start - 1)
        is_begin = span.kind == "tag" and not is_end
        if text.startswith(" ", span.end) and behind and (is_begin or find_run_behind(text, span.end + 1) == behind):
            dropped.add(span.end)
    return "".join(character for index, character in enumerate(text) if index not in dropped)


def pair_spans(
    original: str, text: str, kinds: Collection[SpanKind] = USUAL_KINDS
) -> list[tuple[ProtectedSpan, ProtectedSpan]]:
    """Pairs of a span of `original` and the same span in `text`; equal spans are paired in order."""
    originals: dict[str, deque[ProtectedSpan]] = defaultdict(deque)
    for span in find_protected_spans(original, kinds):
        originals[original[span.start : span.end]].append(span)
    spans = find_protected_spans(text, kinds)
    same = ((originals[text[span.start : span.end]], span) for span in spans)
    return [(waiting.popleft(), span) for waiting, span in same if waiting]


def find_run_before(text: str, place: int) -> str:
    """The letters and digits, or one other sign, right before `place`; "" for a space or the start."""
    start = place
    while max(0, place - _MAX_RUN_LENGTH) < start and _is_of_run(text[start - 1]):
        start -= 1
    return text[start:place] or text[max(0, place - 1) : place].strip()


def find_run_behind(text: str, place: int) -> str:
    """The letters and digits, or one other sign, right after `place`; "" for a space or the end."""
    end = place
    while end < min(len(text), place + _MAX_RUN_LENGTH) and _is_of_run(text[end]):
        end += 1
    return text[place:end] or text[place : place + 1].strip()


def _is_of_run(character: str) -> bool:
    return character.isalnum() or character == "_"


def pair_tags(tags: Sequence[str]) -> list[tuple[int, int]]:
    """The indices in `tags`, given in their order, where an element begins and where it ends, as <b> and its </b> do.

    A tag without its other half, such as <br>, is in none.
    """
    pairs = []
    waiting: list[tuple[int, str]] = []  # index and name of the tags that are still open, outermost first
    num_waiting: Counter[str] = Counter()
    for index, tag in enumerate(tags):
        match = _TAG_NAME.match(tag)
        if not match or tag.endswith("/>"):
            continue
        name = match[1].lower()
        if not tag.startswith("</"):
            waiting.append((index, name))
            num_waiting[name] += 1
        elif num_waiting[name]:
            opened = -1, ""
            while opened[1] != name:
                opened = waiting.pop()
                num_waiting[opened[1]] -= 1
            pairs.append((opened[0], index))
    return pairs
