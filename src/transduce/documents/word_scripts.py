"""What the script of a translation changes in a Word document: direction of writing, and format of complex scripts.

Paragraphs, the columns of tables and runs have a direction (ECMA-376, part 1, 17.3.1.6, 17.4.1 and 17.3.2.30). Word has
bold, italic and size twice: for letters such as Latin ones, and for those of complex scripts, such as Arabic, Hindi and
Thai.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from transduce.documents.markup import Direction

# For each kind of element its kind of properties, the property of direction, and the properties that follow that one.
# Lists of words are easier to read than lists of strings.
_PROPERTIES = {
    "r": ("rPr", "rtl", frozenset("cs em lang eastAsianLayout specVanish oMath rPrChange".split())),  # noqa: SIM905
    "p": (
        "pPr",
        "bidi",
        frozenset(
            "adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc textDirection "  # noqa: SIM905
            "textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange".split()
        ),
    ),
    "tbl": (
        "tblPr",
        "bidiVisual",
        frozenset(
            "tblStyleRowBandSize tblStyleColBandSize tblW jc tblCellSpacing tblInd tblBorders shd tblLayout tblCellMar "  # noqa: SIM905
            "tblLook tblCaption tblDescription tblPrChange".split()
        ),
    ),
}
_FORMATS = {"b": "bCs", "i": "iCs", "sz": "szCs"}
"""Bold, italic and size, and the properties that say the same of letters of complex scripts."""

_COMPLEX = re.compile(
    "[\u0590-\u109f\u1780-\u17ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
"""Matches a character of a complex script: one written from right to left, or one of India or South-East Asia."""


def has_complex_script(text: str) -> bool:
    """Whether Word shows some of a text with the format of complex scripts."""
    return _COMPLEX.search(text) is not None


def complete_format(properties: Any, *, for_complex_script: bool) -> None:  # noqa: ANN401 - a library without types
    """Let letters of complex scripts have the bold, italic and size of other letters, or the other way round.

    Args:
        properties: properties of a run or style, whose text had letters of the one kind and has some of the other.
        for_complex_script: whether the new letters are of a complex script. A format that they have already stays.
    """
    prefix = _get_prefix(properties)
    for plain, of_complex in _FORMATS.items():
        before, after = (plain, of_complex) if for_complex_script else (of_complex, plain)
        found = properties.find(prefix + before)
        if found is None or properties.find(prefix + after) is not None:
            continue
        copy = properties.makeelement(prefix + after)
        copy.attrib.update(found.attrib)
        if for_complex_script:  # in this order they have to be
            found.addnext(copy)
        else:
            found.addprevious(copy)


def set_direction(texts: Iterable[Any], direction: Direction) -> None:
    """Set the direction of all paragraphs and tables, and of runs with letters that are written in it.

    What a style says of direction does not matter then.

    Args:
        texts: the trees of parts with text, which is translated already.
        direction: the new direction.
    """
    for root in texts:
        prefix = _get_prefix(root)
        for kind in ("p", "tbl"):
            for element in root.iter(prefix + kind):
                _set_property(element, kind, is_on=direction == "rtl")
        for run in root.iter(f"{prefix}r"):
            letters = "".join(text.text or "" for text in run.iterchildren(f"{prefix}t"))
            if direction in map(_find_direction, letters):
                _set_property(run, "r", is_on=direction == "rtl")


def _get_prefix(element: Any) -> str:  # noqa: ANN401 - a library without types
    """Return the namespace of an element in lxml's notation, `{http://...}`."""
    namespace, bracket, _ = str(element.tag).rpartition("}")
    return namespace + bracket


def _find_direction(letter: str) -> Direction | None:
    """Find the direction in which a letter is always written; figures, spaces and punctuation have none."""
    match unicodedata.bidirectional(letter):
        case "L":
            return "ltr"
        case "R" | "AL":
            return "rtl"
    return None


def _set_property(element: Any, kind: str, *, is_on: bool) -> None:  # noqa: ANN401 - a library without types
    prefix, (properties_name, name, following) = _get_prefix(element), _PROPERTIES[kind]
    properties = element.find(prefix + properties_name)
    if properties is None:
        properties = element.makeelement(prefix + properties_name)
        element.insert(0, properties)
    for old in properties.findall(prefix + name):
        properties.remove(old)
    new = properties.makeelement(prefix + name)
    if not is_on:
        new.set(f"{prefix}val", "0")
    later = {prefix + one for one in following}
    next_one = next((child for child in properties.iterchildren() if child.tag in later), None)
    if next_one is None:
        properties.append(new)
    else:
        next_one.addprevious(new)
