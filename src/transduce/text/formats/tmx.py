"""Translation memories in TMX, the XML format that tools for translators exchange and OPUS offers."""

from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from transduce.errors import CorpusError
from transduce.text.corpus import Pair, ParallelCorpus
from transduce.text.formats.columns import SideSelection, list_names
from transduce.text.languages import find_codes, normalize_code
from transduce.text.lines import read_blocks

_NATIVE_CODES = {"bpt", "ept", "ph", "it", "ut"}
"""Elements of a segment whose contents are codes of the program that the text comes from."""

_MAX_LANGUAGES = 1000
_MAX_DEPTH = 100
_MAX_BYTES = 1 << 22
"""Limits on what has to be held in memory: languages of a file, elements within each other, bytes of a unit."""


def open_tmx(path: Path, selection: SideSelection) -> ParallelCorpus:
    """The corpus in a translation memory of version 1.4 or earlier, in any encoding of XML.

    A unit gives a pair if it has both languages; other units are left out, and `describe_omissions` counts them. Of
    several variants in one language, the first is read. The text of a segment is its characters without spaces around
    them and without native codes (`<bpt>`, `<ept>`, `<ph>`, `<it>`, `<ut>`, and the `<sub>` within); that of `<hi>`
    belongs to it (TMX 1.4b, content markup).

    Languages are found by their codes (`find_codes`) among all of the file, so that it is read once before the first
    pair. Nothing that the file refers to is read, and no entity is expanded but those of XML itself.

    Raises (while it is read):
        CorpusError: the file is not TMX, is damaged, or declares entities; source and target are unknown, or not
            exactly one language of the file fits each; or a unit is too large to be text. See also `read_blocks`.
    """
    survey = cache(partial(_survey, path, selection))
    return ParallelCorpus(
        str(path),
        (path,),
        lambda: _read_pairs(path, survey()),
        lambda: survey().describe_omissions(),
        is_by_language=True,
    )


class _Survey(NamedTuple):
    """The languages of a file, and the numbers of its translation units and of the pairs they give."""

    languages: tuple[str, str] | None
    """The languages of source and target as the file has them; None if it has no text at all."""
    num_units: int = 0
    num_pairs: int = 0

    def describe_omissions(self) -> str:
        if self.languages is None or self.num_pairs == self.num_units:
            return ""
        source, target = self.languages
        return (
            f"{self.num_units - self.num_pairs:,} of its {self.num_units:,} translation units do not have both "
            f"{source!r} and {target!r} and are left out"
        )


def _survey(path: Path, selection: SideSelection) -> _Survey:
    asked = selection.columns or selection.languages
    is_asked: dict[str, bool] = {}
    """For every language of the file, whether it may be the source or the target language."""
    units = Counter[frozenset[str]]()
    """Numbers of units, by their sets of languages that may be the source or the target language."""
    for unit in _read_units(path):
        for language in unit.keys() - is_asked.keys():
            is_asked[language] = any(find_codes(code, [language]) for code in asked if code)
        if len(is_asked) > _MAX_LANGUAGES:
            raise CorpusError(f"{path}: has more than {_MAX_LANGUAGES:,} languages: it is not a translation memory")
        units[frozenset(language for language in unit if is_asked[language])] += 1
    if not is_asked:
        return _Survey(None)
    if selection.columns is None and not selection.has_languages:
        raise CorpusError(
            f"{path}: has the languages {list_names(sorted(is_asked))}, and the source is unknown: {selection.remedy}"
        )
    source, target = (_choose_language(code, sorted(is_asked), path, selection) for code in asked)
    if source == target:
        raise CorpusError(f"{path}: source and target are both {source!r}: give two languages by {selection.setting}")
    num_pairs = sum(count for languages, count in units.items() if {source, target} <= languages)
    return _Survey((source, target), units.total(), num_pairs)


def _choose_language(code: str, available: list[str], path: Path, selection: SideSelection) -> str:
    found = find_codes(code, available)
    if len(found) == 1:
        return found[0]
    problem = (
        f"{code!r} may be any of {list_names(found)}" if found else f"has no {code!r}, but {list_names(available)}"
    )
    raise CorpusError(f"{path}: {problem}: give the languages as they are in the file by {selection.setting}")


def _read_pairs(path: Path, survey: _Survey) -> Iterator[Pair]:
    if survey.languages is not None:
        source, target = survey.languages
        for unit in _read_units(path):
            if source in unit and target in unit:
                yield unit[source], unit[target]


def _read_units(path: Path) -> Iterator[dict[str, str]]:
    """The units of the file: for each, its texts by language, in lower case as in "en-us"."""
    units = _UnitParser(path)
    for block in read_blocks(path):
        yield from units.parse(block)
    yield from units.parse(b"")


class _UnitParser:
    """Turns the bytes of a translation memory into units, block by block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        # Without these two, Expat expands entities, and passes over unknown ones where a DTD is named. It opens no
        # other file.
        self._parser.EntityDeclHandler = self._refuse_entity_declaration
        self._parser.SkippedEntityHandler = self._refuse_unknown_entity
        self._num_bytes = 0
        """Bytes since the end of the last unit."""
        self._depth = 0
        self._num_codes = 0
        """Native codes that are open."""
        self._language = ""
        self._text: list[str] = []
        """The characters of the segment that is open, or was the last one."""
        self._unit: dict[str, str] = {}
        self._units: list[dict[str, str]] = []

    def parse(self, block: bytes) -> list[dict[str, str]]:
        """The units that end in the next block of the file; an empty block ends the file."""
        self._num_bytes += len(block)
        self._units = []
        try:
            self._parser.Parse(block, not block)
        except CorpusError:
            raise
        except (expat.ExpatError, LookupError, ValueError) as error:
            # The latter two are raised for an encoding that Expat cannot read.
            place = f"{self._path}, line {self._parser.ErrorLineNumber}"
            message = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
            raise CorpusError(f"{place}: is not XML ({message}): download or create the file again") from None
        if self._num_bytes > _MAX_BYTES:
            raise self._error("no unit ends in more than 4 MiB", "correct the file: no text of that length is used")
        return self._units

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if name == "seg":
            self._text = []
            self._parser.CharacterDataHandler = self._text.append
        elif name == "tuv":
            # Versions before 1.4 have "lang".
            self._language = normalize_code(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "tu":
            self._unit = {}
        elif name in _NATIVE_CODES:
            self._num_codes += 1
            self._parser.CharacterDataHandler = None
        if self._depth == 1 and name != "tmx":
            raise self._error(f"is not TMX: its root element is <{name[:40]}>, not <tmx>", "give a file of that format")
        if self._depth > _MAX_DEPTH:
            raise self._error(f"more than {_MAX_DEPTH} elements are within each other", "give a file of TMX")

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name == "seg":
            self._parser.CharacterDataHandler = None
            if self._language:
                self._unit.setdefault(self._language, "".join(self._text).strip(" \t\r\n"))
        elif name == "tu":
            self._units.append(self._unit)
            self._num_bytes = 0
        elif name in _NATIVE_CODES:
            self._num_codes -= 1
            if not self._num_codes:
                self._parser.CharacterDataHandler = self._text.append

    def _refuse_entity_declaration(self, name: str, *_: object) -> None:
        raise self._error(
            f"declares the entity {name[:40]!r}, which is refused", "give a file without entities of its own"
        )

    def _refuse_unknown_entity(self, name: str, *_: object) -> None:
        raise self._error(
            f"the entity {name[:40]!r} is not one of XML's own", "use the character itself, or its number"
        )

    def _error(self, problem: str, remedy: str) -> CorpusError:
        return CorpusError(f"{self._path}, line {self._parser.CurrentLineNumber}: {problem}: {remedy}")
