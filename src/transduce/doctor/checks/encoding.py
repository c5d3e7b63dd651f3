"""Characters that show a wrong encoding, and other characters that no reader of the text wants to see."""

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from re import Pattern

import numpy as np

from transduce.doctor.checks.languages import RARE_SCRIPT, share_scripts
from transduce.doctor.checks.mojibake import MOJIBAKE
from transduce.doctor.corpus.reading import LineSearch
from transduce.doctor.corpus.texts import Side, Text
from transduce.doctor.corpus.vocabulary import Vocabulary
from transduce.doctor.findings import SCORES_AS_WRONG, Finding, format_pairs, grade, mark_nothing, mark_pattern
from transduce.pages import format_count
from transduce.text import CONTROL_CHARACTER

WRONG_CODE_PAGE = re.compile(
    "[▀▄³÷±¾ÚÞÛŽŸ‰¸ˆ](?:"
    # The first character comes before all alternatives, so that a search skips all others at once.
    r"(?<=[a-zA-Z][▀▄])(?=[a-z])|(?<=[a-zA-Z]{2}[▀▄])\b|(?<=[A-Za-ln-z]³)(?=[a-z]{2})|(?<=[a-zA-Z]÷)(?=[a-z]{2})"
    r"|(?<=[a-zA-Z]{2}[±¾])(?=[a-z])|(?<=[a-z]{2}[ÚÞÛŽŸ])(?=[a-z])|(?<=[a-zA-Z][‰¸ˆ])(?=[a-z]))"
)
"""A character within a word that stands for a letter in CP1252 which a program read as if it were in CP850 or MacRoman,
or for one in MacRoman which it read as if it were in CP1252.

As in "B³sche" and "B¸sche" for "Büsche". Others, such as "õ" for "ä", are letters of other languages.
"""

INVISIBLE = "\u00ad\u200b\u2060\ufeff"
"""Soft hyphen, space without width, word joiner and byte order mark."""

DIRECTION_MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Invisible characters that set the direction of writing, from left to right or from right to left."""

# A letter that is written from right to left.
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)

RIGHT_TO_LEFT_SCRIPTS = {"Arabic", "Hebrew", "Syriac", "Thaana", "Nko", "Adlam", "Samaritan", "Mandaic"}

_ENTITY = re.compile(r"&(?:#\d{2,6}|#[xX][0-9a-fA-F]{2,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
_DECOMPOSED = re.compile(r"\w[\u0300-\u036f]+")


@dataclass(frozen=True)
class _Problem:
    """Characters that should not be in a text, and what is said about them."""

    pattern: Pattern[str]
    description: str
    advice: str
    min_minor_share: float
    """Minimum share of affected pairs for a minor finding."""
    min_serious_share: float
    in_training: str = ""
    """What it does in training text, said before the advice."""
    elsewhere: str = ""
    """What it does in other text."""
    condition: Callable[[str], bool] = lambda _: True
    usual_in: AbstractSet[str] = frozenset()
    """Scripts of sides that have such characters for good reasons."""


_QUESTION_MARK_IN_WORD = re.compile(r"[^\W\d_]\?([^\W\d_])")
_ADDRESS_CHARACTERS = re.compile(r"[/=@&.]")


def _has_lost_letter(line: str) -> bool:
    """Whether a line has the replacement character, or a question mark before a small letter of a word.

    A question mark in an address is none of these, nor is one before a capital, where a space is missing.
    """
    if "\ufffd" in line:
        return True
    words = (word.strip(".,;:!?()\"'“”„«»") for word in line.split())
    return any(
        match[1].islower()
        for word in words
        if not _ADDRESS_CHARACTERS.search(word)
        for match in _QUESTION_MARK_IN_WORD.finditer(word)
    )


_PROBLEMS: Mapping[str, _Problem] = {
    "mojibake": _Problem(
        MOJIBAKE,
        "have letters in UTF-8 that were read in another encoding, as “Ã¤” or “√§” for “ä”, or “â€™” for “’”",
        "export the text again as UTF-8, or repair these lines (in Python, after "
        "import transduce.doctor: transduce.doctor.repair_encoding(line), which leaves alone what it cannot repair), "
        "or leave them out",
        min_minor_share=0.0001,
        min_serious_share=0.01,
        in_training="the model would learn to write so",
        elsewhere=SCORES_AS_WRONG,
    ),
    "wrong_code_page": _Problem(
        WRONG_CODE_PAGE,
        "have letters that were read in another code page, as “³” or “¸” for “ü” within a word",
        "convert the original file again with the right encoding, as in: "
        "iconv -f cp1252 -t utf-8; or leave these lines out",
        min_minor_share=0.001,
        min_serious_share=0.01,
        in_training="the model would learn to write so",
        elsewhere=SCORES_AS_WRONG,
    ),
    "replacement_characters": _Problem(
        # Begun with the characters, it is searched for four times as fast as begun by looking back.
        re.compile(r"[\ufffd?](?:(?<=\ufffd)|(?<=[^\W\d_]\?)(?=[^\W\d_]))"),
        "have the character “\ufffd”, or “?” within a word, which stands where a program could not read or write one",
        "the letters are lost: convert the original file again with the right encoding, or leave these lines out",
        min_minor_share=0.0001,
        min_serious_share=0.01,
        condition=_has_lost_letter,
    ),
    "control_characters": _Problem(
        CONTROL_CHARACTER,
        "have control characters, such as line ends within a text",
        "remove the characters if the pairs are good",
        min_minor_share=0.0005,
        min_serious_share=0.05,
        in_training="training leaves these pairs out",
        elsewhere="a translation never has them",
    ),
    "invisible_characters": _Problem(
        re.compile(f"[{INVISIBLE}]"),
        "have invisible characters: soft hyphens, spaces without width or byte order marks",
        "Transduce's own tokenizer ignores most of them, but words with them are not found again as duplicates, and "
        "score as wrong in references: remove them",
        min_minor_share=0.001,
        min_serious_share=math.inf,
    ),
    "direction_marks": _Problem(
        re.compile(f"[{DIRECTION_MARKS}]"),
        "have invisible marks of the direction of writing, but no letter that is written from right to left",
        "words with them are not found again as duplicates, and score as wrong in references: remove them",
        min_minor_share=0.001,
        min_serious_share=math.inf,
        condition=lambda line: _RIGHT_TO_LEFT.search(line) is None,
        usual_in=RIGHT_TO_LEFT_SCRIPTS,
    ),
    "unusual_spaces": _Problem(
        re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f]"),
        "have spaces of another kind, such as no-break spaces",
        "Transduce's own tokenizer reads them as plain spaces; replace them in test text, where they would score as "
        "wrong",
        min_minor_share=0.02,
        min_serious_share=math.inf,
    ),
    "html_entities": _Problem(
        _ENTITY,
        'have codes of HTML instead of characters, as “&quot;” for “"”',
        "replace them (in Python: html.unescape(line))",
        min_minor_share=0.0005,
        min_serious_share=0.02,
        in_training="the model would learn to write them",
        elsewhere=SCORES_AS_WRONG,
        condition=lambda line: any(html.unescape(code) != code for code in _ENTITY.findall(line)),
    ),
}

MIN_CARRIAGE_RETURNS = 2
"""Number of carriage returns from which a line is taken for several lines that end in one instead of a line feed."""

MIN_QUOTED_SHARE = 0.9
"""Share of the lines of both sides in quotation marks from which a program is taken to have added them."""

MIN_QUOTED_LINES = 20
"""Number of such lines from which they are no chance."""

LINE_SEARCHES = {name: LineSearch(problem.pattern, problem.condition) for name, problem in _PROBLEMS.items()} | {
    "carriage_returns": LineSearch(
        re.compile("\r"), lambda line: line.rstrip("\r").count("\r") >= MIN_CARRIAGE_RETURNS
    ),
    "quoted_lines": LineSearch(re.compile('"'), lambda line: len(line) > 1 and line[0] == '"' == line[-1]),
}


def find_carriage_returns(text: Text) -> Iterator[Finding]:
    """Find files of one side whose lines end in a carriage return alone, so that they are read as one."""
    for part in text.parts:
        if len(part.corpus.files) != 2 or part.unit != "line":
            continue
        for number, (name, side) in enumerate(text.sides.items()):
            found = side.found["carriage_returns"]
            num_found = int(((found >= part.start) & (found < part.end)).sum())
            if 2 * num_found >= part.num_lines[number] > 0:
                yield Finding(
                    name="carriage_returns",
                    severity="serious",
                    text=text,
                    summary=f"{part.name}: the lines of the {name} end in a carriage return (CR) alone, as old "
                    f"spreadsheets write them, so that they are read as {format_count(part.num_lines[number], 'line')}",
                    advice="convert the file, as in: tr '\\r' '\\n' < FILE > NEW; and check again",
                    rows=np.arange(part.start, part.end),
                )


def find_quoted_lines(text: Text) -> Iterator[Finding]:
    """Find corpora of which nearly all lines of both sides stand in quotation marks, as spreadsheets write columns."""
    for part in text.parts:
        found = [side.found["quoted_lines"] for side in text.sides.values()]
        own = [rows[(rows >= part.start) & (rows < part.end)] for rows in found]
        least = min(map(len, own))
        if least >= MIN_QUOTED_LINES and least > MIN_QUOTED_SHARE * (part.end - part.start):
            rows = np.union1d(*own)
            share = len(rows) / len(text)
            yield Finding(
                name="quoted_lines",
                severity="serious",
                text=text,
                summary=f"{part.name}: {format_pairs(len(rows), share)} begin and end with a quotation mark, as some "
                "programs write each column",
                advice="a file of lines, or with tabs between columns, is read as it is: save the table as CSV, or "
                "remove the quotation marks at both ends, and write each doubled one once",
                rows=rows,
            )


def find_unwanted_characters(text: Text, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find characters that should not be there, with a finding for each kind."""
    for name, problem in _PROBLEMS.items():
        found = {
            side: lines.found[name]
            for side, lines in text.sides.items()
            if not (len(lines.found[name]) and problem.usual_in and _has_script(lines, problem.usual_in, vocabulary))
        }
        rows = np.unique(np.concatenate([np.zeros(0, np.int64), *found.values()]))
        share = len(rows) / len(text)
        if not len(rows):
            continue
        consequence = problem.in_training if text.is_training else problem.elsewhere
        sides = " and ".join(format_count(len(lines), side) for side, lines in found.items() if len(lines))
        yield Finding(
            name=name,
            severity=grade(share, problem.min_minor_share, problem.min_serious_share),
            text=text,
            summary=f"{format_pairs(len(rows), share)}, {sides}, {problem.description}",
            advice=f"{consequence}: {problem.advice}" if consequence else problem.advice,
            rows=rows,
            mark=mark_pattern(problem.pattern),
        )


def _has_script(side: Side, some: AbstractSet[str], vocabulary: Vocabulary) -> bool:
    """Whether one of the scripts `some` has a share of at least `RARE_SCRIPT` of the words of a side."""
    shares = share_scripts(side, vocabulary)
    return any(
        share >= RARE_SCRIPT and script in some for script, share in zip(vocabulary.scripts, shares, strict=True)
    )


MIN_MIXED = 0.001
"""Share of the lines of a side that has to be in each of two normal forms for them to count as mixed."""


def find_mixed_normal_forms(texts: list[Text], vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find sides on which accented letters are written in both ways that Unicode has, within a text or between two."""
    is_composed, is_decomposed = vocabulary.is_composed, vocabulary.is_decomposed
    for side in ("source", "target"):
        counts = {
            text.name: (text.sides[side].sum_over_words(is_composed), text.sides[side].sum_over_words(is_decomposed))
            for text in texts
        }
        mostly_composed = sum(int((composed > 0).sum()) for composed, _ in counts.values()) >= sum(
            int((decomposed > 0).sum()) for _, decomposed in counts.values()
        )
        for text in texts:
            rows = np.flatnonzero(counts[text.name][1 if mostly_composed else 0])
            others = sum(int((numbers[0 if mostly_composed else 1] > 0).sum()) for numbers in counts.values())
            share = len(rows) / len(text)
            if share < MIN_MIXED or others < MIN_MIXED * sum(map(len, texts)):
                continue
            forms = ("NFD, a letter and its accent are two characters", "NFC, they are one")
            here, there = forms if mostly_composed else forms[::-1]
            yield Finding(
                name="mixed_normal_forms",
                severity="minor",
                text=text,
                summary=f"{format_pairs(len(rows), share)} have {side}s with accented letters in Unicode's form "
                f"{here}; others have them in {there}, which looks the same",
                advice="Transduce's own tokenizer makes them equal, but scores, duplicates and glossaries tell them "
                "apart: bring all files into one form (in Python: unicodedata.normalize('NFC', line))",
                rows=rows,
                mark=mark_pattern(_DECOMPOSED) if mostly_composed else mark_nothing,
            )
