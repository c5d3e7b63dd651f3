"""The direction of writing in Word documents: of runs, of their paragraphs, and of the columns of tables around them
(ECMA-376, part 1, 17.3.2.30, 17.3.1.6 and 17.4.1).
"""

from collections.abc import Iterable
from typing import Any

from transduce.documents.markup import Direction

# For each kind of properties the property of direction, and those that have to follow it; lists of words are easier to
# read than lists of strings.
_PROPERTIES = {
    "rPr": ("rtl", frozenset("cs em lang eastAsianLayout specVanish oMath rPrChange".split())),  # noqa: SIM905
    "pPr": (
        "bidi",
        frozenset(
            "adjustRightInd snapToGrid spacing ind contextualSpacing mirrorIndents suppressOverlap jc textDirection "  # noqa: SIM905
            "textAlignment textboxTightWrap outlineLvl divId cnfStyle rPr sectPr pPrChange".split()
        ),
    ),
    "tblPr": (
        "bidiVisual",
        frozenset(
            "tblStyleRowBandSize tblStyleColBandSize tblW jc tblCellSpacing tblInd tblBorders shd tblLayout tblCellMar "  # noqa: SIM905
            "tblLook tblCaption tblDescription tblPrChange".split()
        ),
    ),
}
_COMPLEX = {"b": "bCs", "i": "iCs", "sz": "szCs"}
"""Bold, italic and size, and the properties that say the same of letters written from right to left."""


def set_direction(runs: Iterable[Any], direction: Direction) -> None:
    """Set the direction of runs, elements `w:r`, of the paragraphs that they are in, and of the tables around these.

    A direction that a style has does not matter then. Runs that turn to the right keep bold, italic and size.
    """
    runs = list(runs)
    paragraphs = dict.fromkeys(next(run.iterancestors("{*}p")) for run in runs)
    tables = dict.fromkeys(table for paragraph in paragraphs for table in paragraph.iterancestors("{*}tbl"))
    for kind, elements in (("rPr", runs), ("pPr", paragraphs), ("tblPr", tables)):
        for element in elements:
            properties = _find_or_add_properties(element, kind)
            _set_property(properties, *_PROPERTIES[kind], is_on=direction == "rtl")
            if kind == "rPr" and direction == "rtl":
                _copy_format(properties)


def _find_or_add_properties(element: Any, kind: str) -> Any:  # noqa: ANN401 - a library without types
    properties = element.find(f"{{*}}{kind}")
    if properties is None:
        properties = _make(element, kind)
        element.insert(0, properties)
    return properties


def _set_property(properties: Any, name: str, following: frozenset[str], *, is_on: bool) -> None:  # noqa: ANN401
    for old in properties.findall(f"{{*}}{name}"):
        properties.remove(old)
    new = _make(properties, name)
    if not is_on:
        new.set(new.tag.removesuffix(name) + "val", "0")
    children = list(properties.iterchildren("{*}*"))
    next_one = next((child for child in children if child.tag.rpartition("}")[2] in following), None)
    if next_one is None:
        properties.append(new)
    else:
        next_one.addprevious(new)


def _copy_format(properties: Any) -> None:  # noqa: ANN401 - a library without types
    for name, complex_name in _COMPLEX.items():
        found = properties.find(f"{{*}}{name}")
        if found is not None and properties.find(f"{{*}}{complex_name}") is None:
            copy = _make(properties, complex_name)
            copy.attrib.update(found.attrib)
            found.addnext(copy)


def _make(beside: Any, name: str) -> Any:  # noqa: ANN401 - a library without types
    """Make an element of the same namespace."""
    return beside.makeelement(beside.tag[: beside.tag.index("}") + 1] + name)
