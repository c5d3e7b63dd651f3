"""Reading the text of Word documents (DOCX; ECMA-376, part 1) and writing them with its translation.

The text is that of all paragraphs in the body, headers, footers and notes.

A paragraph consists of runs of one format each. The format of most of its letters is plain; runs of other formats, and
links, become an element `r` of the markup, and what is no text, such as a picture, becomes `o`. Everything else of the
file is kept as it is. A file may come from anywhere: its size when unpacked is limited, it is never unpacked to a disk,
and XML with a document type, and thus with entities, is refused.
"""

import re
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from io import BytesIO
from itertools import product
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from transduce.documents.formats import FormattedDocument, LanguageDeclaration
from transduce.documents.markup import MarkupRules, escape_text, parse_markup, unescape_text
from transduce.documents.word_scripts import complete_format, has_complex_script, set_direction
from transduce.errors import DocumentError, MissingExtraError

MAX_ENTRIES = 5_000
"""Maximum number of files in the archive."""

MAX_UNPACKED_BYTES = 64_000_000
"""Maximum size of all files of the archive together, when unpacked."""

MAX_XML_BYTES = 16_000_000
"""Maximum size of the XML that is read; in memory it takes some ten times as much."""

MAX_TAGS = 1_000_000
"""Maximum number of tags of the XML that is read; a tag takes some microseconds."""

_CONTENT_TYPES = "[Content_Types].xml"
_PREFIX = "application/vnd.openxmlformats-officedocument.wordprocessingml."
_MAIN = f"{_PREFIX}document.main+xml"
_TRANSLATED = {_MAIN, *(f"{_PREFIX}{kind}+xml" for kind in ("header", "footer", "footnotes", "endnotes"))}
_STYLES = f"{_PREFIX}styles+xml"
_NAMESPACES = {
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
}
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Names of elements; lists of words are easier to read than lists of strings.
_CONTAINERS = frozenset("bdo customXml dir hyperlink ins moveTo sdt sdtContent smartTag".split())  # noqa: SIM905
_SPLITTING = frozenset("br cr ptab tab".split())  # noqa: SIM905
_INVISIBLE = frozenset(
    "bookmarkEnd bookmarkStart commentRangeEnd commentRangeStart del lastRenderedPageBreak moveFrom moveFromRangeEnd "  # noqa: SIM905
    "moveFromRangeStart moveToRangeEnd moveToRangeStart pPr permEnd permStart proofErr rPr sdtEndPr sdtPr".split()
)
_INVISIBLE_FORMAT = frozenset({"lang", "noProof"})
_HYPHENS = {"noBreakHyphen": "-", "softHyphen": ""}
"""Elements within words, and what is translated in place of each: a hyphen that models know, or nothing."""

_TRANSLATED_FIELDS = frozenset(
    "AUTOTEXT GREETINGLINE HYPERLINK IF INCLUDETEXT INDEX QUOTE REF STYLEREF TOC".split()  # noqa: SIM905
)
"""Fields (17.16.5) whose result is text as an author has written it. Results of others are computed, as a page number
or a date, or data, as a name in a form letter."""

_FIELD_NAME = re.compile(r"\s*([A-Z]+)")
"""The first word of an instruction, in upper case."""

_NUMBER_SWITCH = re.compile(r"\\[NRSW]\b")
"""A switch of REF or STYLEREF that makes the result a paragraph's number instead of its text; in upper case."""

_MAX_INSTRUCTION = 500
"""Number of characters of an instruction that are read; longer ones have long texts behind their switches."""

_STORIES = ("{*}txbxContent", "{*}footnote", "{*}endnote")
"""Elements with text apart from that around them: no field goes on from one to the other."""

_RULES = MarkupRules(is_xml=True, splitting=frozenset({"p"}), detects_outline=False)


_UNBROKEN = "\0"
"""A non-breaking hyphen within text: a character that XML does not have."""

_WORD = re.compile(rf"[\w{_UNBROKEN}-]++")


class _Group:
    """Text of one format, in elements `w:t` and hyphens of adjacent runs; `key` is the number of the format."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.elements: list[Any] = []
        self.translation: list[str] = []

    @property
    def text(self) -> str:
        return "".join(_HYPHENS.get(_get_name(element), element.text or "") for element in self.elements)

    def find_new_script(self) -> bool | None:
        """Whether the translation is in a complex script where the text was not, or the other way round (False).

        None if both are of one kind, or the translation has no letters.
        """
        translation = "".join(self.translation)
        is_complex = has_complex_script(translation)
        is_new = is_complex != has_complex_script(self.text) and any(map(str.isalpha, translation))
        return is_complex if is_new else None

    def write(self) -> None:
        pieces = self._mark_unbroken(_NO_XML.sub("", "".join(self.translation))).split(_UNBROKEN)
        others = self.elements
        if _get_name(others[0]) in _HYPHENS:
            last = _make_sibling(others[0], "t")
            others[0].addprevious(last)
        else:
            last, *others = others
        _set_text(last, pieces[0])
        for element in others:
            if _get_name(element) in _HYPHENS:
                element.getparent().remove(element)
            else:
                element.text = ""
        for piece in pieces[1:]:
            hyphen, text = _make_sibling(last, "noBreakHyphen"), _make_sibling(last, "t")
            _set_text(text, piece)
            last.addnext(hyphen)
            hyphen.addnext(text)
            last = text

    def _mark_unbroken(self, translation: str) -> str:
        """Mark the hyphens of each word of a translation that has non-breaking ones in the original, too."""
        original = "".join(
            _UNBROKEN if _get_name(element) == "noBreakHyphen" else element.text or "" for element in self.elements
        )
        hyphenated = [found for found in _WORD.findall(original) if _UNBROKEN in found]
        words = {found.replace(_UNBROKEN, "-").casefold() for found in hyphenated}

        def mark(found: re.Match[str]) -> str:
            return found[0].replace("-", _UNBROKEN) if found[0].casefold() in words else found[0]

        return _WORD.sub(mark, translation) if words else translation


def _get_name(element: Any) -> str:  # noqa: ANN401 - a library without types
    return str(element.tag.rpartition("}")[2])


def _make_sibling(element: Any, name: str) -> Any:  # noqa: ANN401 - a library without types
    return element.makeelement(element.tag.removesuffix(_get_name(element)) + name)


def _set_text(element: Any, text: str) -> None:  # noqa: ANN401 - a library without types
    element.text = text
    element.set(_SPACE, "preserve")


_Item = _Group | str  # a string is "split", as a tab, or "object", as a picture


def read_word(content: bytes) -> FormattedDocument:
    """Read a Word document.

    Raises:
        DocumentError: it is damaged, too large when unpacked, or no Word document.
        MissingExtraError: lxml is not installed.
    """
    _, markup, _ = _read_parts(content)
    # The trees, which take much more memory than the file, do not wait for the translation.
    return FormattedDocument("".join(markup.pieces), _RULES, partial(_write, content))


def _read_parts(content: bytes) -> tuple[dict[str, Any], "_Markup", Any]:
    """Read the trees of all parts with text by name, and their markup; also returns the module lxml.etree."""
    try:
        etree = import_module("lxml.etree")
    except ImportError:
        raise MissingExtraError("lxml", "documents", "reading Word documents") from None
    try:
        with ZipFile(BytesIO(content)) as archive:
            _check_archive(archive)
            names = _find_translated_parts(archive, etree)
            contents = {name: _read_entry(archive, archive.getinfo(name)) for name in names}
        num_tags = sum(part.count(b"<") for part in contents.values())
        if num_tags > MAX_TAGS:
            raise DocumentError(f"the text has {num_tags:,} tags of XML, at most {MAX_TAGS:,} are read: divide it")  # noqa: TRY301
        trees = {name: _parse_xml(part, etree) for name, part in contents.items()}
    except DocumentError:  # which is a ValueError
        raise
    except (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zlib.error, struct.error):
        raise DocumentError("the document is damaged, or no Word document (.docx): save it again in Word") from None
    markup = _Markup()
    for tree in trees.values():
        namespace = etree.QName(tree).namespace
        if namespace not in _NAMESPACES:
            raise DocumentError(f"a part of the document has the namespace {str(namespace)[:100]!r}: save it as .docx")
        ended = _find_ended_fields(tree)
        open_fields: dict[Any, list[_Field]] = defaultdict(list)
        for paragraph in tree.iter(f"{{{namespace}}}p"):
            items = _find_items(paragraph, open_fields[_find_story(paragraph)], ended)
            for segment in _split_segments(_merge_runs(items)):
                markup.add(segment)
    return trees, markup, etree


def _check_archive(archive: ZipFile) -> None:
    entries = archive.infolist()
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_ENTRIES or size > MAX_UNPACKED_BYTES:
        raise DocumentError(
            f"the document has {len(entries):,} parts with {size:,} bytes when unpacked: at most {MAX_ENTRIES:,} parts "
            f"with {MAX_UNPACKED_BYTES:,} bytes are read; make its pictures smaller"
        )
    if len({entry.filename for entry in entries}) < len(entries):
        raise BadZipFile("two parts of one name")
    for entry in entries:
        if entry.compress_type not in {ZIP_STORED, ZIP_DEFLATED} or entry.flag_bits & 1:  # the latter: encrypted
            raise BadZipFile("not a compression of Office Open XML")


def _read_entry(archive: ZipFile, entry: ZipInfo) -> bytes:
    """Read a file of the archive, and no more of it than its declared size: `ZipFile.read` unpacks all there is."""
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def _list_parts(archive: ZipFile, etree: Any) -> Iterator[tuple[ZipInfo, str]]:  # noqa: ANN401 - a library without types
    """Yield the files that the archive lists in `[Content_Types].xml`, each with its content type."""
    entries = {entry.filename.lower(): entry for entry in archive.infolist()}
    listed = entries.get(_CONTENT_TYPES.lower())
    if listed is None or listed.file_size > MAX_XML_BYTES:
        raise BadZipFile("no list of parts")
    for element in _parse_xml(_read_entry(archive, listed), etree):
        name = str(element.get("PartName", "")).lstrip("/").lower()
        if name in entries:
            yield entries[name], str(element.get("ContentType", ""))


def _read_styles(archive: ZipFile, etree: Any) -> dict[str, Any]:  # noqa: ANN401 - a library without types
    """Read the trees of the parts with styles by name; what is too large to be read is left out."""
    parts = [entry for entry, kind in _list_parts(archive, etree) if kind == _STYLES]
    contents = {entry.filename: _read_entry(archive, entry) for entry in parts if entry.file_size <= MAX_XML_BYTES}
    return {name: _parse_xml(part, etree) for name, part in contents.items() if part.count(b"<") <= MAX_TAGS}


def _find_translated_parts(archive: ZipFile, etree: Any) -> list[str]:  # noqa: ANN401 - a library without types
    """Find the names of the parts with text: the document itself comes first."""
    kinds = {entry: kind for entry, kind in _list_parts(archive, etree) if kind in _TRANSLATED}
    if _MAIN not in kinds.values():
        raise DocumentError("the archive is no Word document (.docx): save it as .docx in Word")
    size = sum(entry.file_size for entry in kinds)
    if size > MAX_XML_BYTES:
        raise DocumentError(f"the text takes {size:,} bytes of XML, at most {MAX_XML_BYTES:,} are read: divide it")
    return [entry.filename for entry in sorted(kinds, key=lambda entry: kinds[entry] != _MAIN)]


def _parse_xml(content: bytes, etree: Any) -> Any:  # noqa: ANN401 - a library without types
    refusal = DocumentError("the XML of the document has a document type or entities, which are refused")
    if b"<!DOCTYPE" in content:
        raise refusal
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError:
        raise BadZipFile("not XML") from None
    if root.getroottree().docinfo.internalDTD is not None:  # in another encoding
        raise refusal
    return root


class _Field:
    """An open field: an instruction, and behind a separator its result, which may be several paragraphs.

    Args:
        outer: the field around it, if there is one.
        instruction: the instruction of a field that is a single element; it has no separator.
    """

    def __init__(self, outer: "_Field | None", instruction: str | None = None) -> None:
        self.is_translated = False
        """Whether what comes next is its result, and that is text, as are those of the fields around it."""
        self._is_within_text = outer is None or outer.is_translated
        self._instruction = (instruction or "").upper()
        if instruction is not None:
            self.separate()

    def read(self, instruction: str) -> None:
        """Read more of the instruction, whose case means nothing."""
        self._instruction = (self._instruction + instruction.upper()).lstrip()[:_MAX_INSTRUCTION]

    def separate(self) -> None:
        """Go on from the instruction to the result."""
        found = _FIELD_NAME.match(self._instruction)
        name = found[1] if found else ""
        is_number = name in {"REF", "STYLEREF"} and _NUMBER_SWITCH.search(self._instruction) is not None
        self.is_translated = self._is_within_text and name in _TRANSLATED_FIELDS and not is_number


def _find_items(parent: Any, fields: list[_Field], ended: set[Any]) -> Iterator[tuple[Any, str]]:  # noqa: ANN401 - a library without types
    """Yield each element of a paragraph that is seen, and what it is: "text", "split" or "object".

    `fields` has each open field, the innermost last; `ended` is from `_find_ended_fields`.
    """
    for element in parent.iterchildren("{*}*"):
        name = _get_name(element)
        if name in _INVISIBLE:
            continue
        if name == "r" or name in _CONTAINERS:
            yield from _find_items(element, fields, ended)
            continue
        if name == "fldSimple":
            num_open = len(fields)
            fields.append(_Field(fields[-1] if fields else None, _get_attribute(element, "instr")))
            yield from _find_items(element, fields, ended)
            del fields[num_open:]
            continue
        if name == "fldChar":
            _read_field_character(element, fields, ended)
        elif name == "instrText" and fields:
            fields[-1].read(element.text or "")
        if (name == "t" or name in _HYPHENS) and (not fields or fields[-1].is_translated):
            yield element, "text"
        else:
            yield element, "split" if name in _SPLITTING else "object"


def _read_field_character(element: Any, fields: list[_Field], ended: set[Any]) -> None:  # noqa: ANN401 - a library without types
    kind = _get_attribute(element, "fldCharType")
    if kind == "begin" and element in ended:
        fields.append(_Field(fields[-1] if fields else None))
    elif kind == "separate" and fields:
        fields[-1].separate()
    elif kind == "end" and fields:
        fields.pop()


def _find_ended_fields(tree: Any) -> set[Any]:  # noqa: ANN401 - a library without types
    """Find the elements that begin a field which ends: one that does not would hide all text up to the end."""
    begun: dict[Any, list[Any]] = defaultdict(list)
    ended = set()
    for element in tree.iter("{*}fldChar"):
        if next(element.iterancestors("{*}del", "{*}moveFrom"), None) is not None:
            continue
        kind, own = _get_attribute(element, "fldCharType"), begun[_find_story(element)]
        if kind == "begin":
            own.append(element)
        elif kind == "end" and own:
            ended.add(own.pop())
    return ended


def _find_story(element: Any) -> Any:  # noqa: ANN401 - a library without types
    """Find the text box or note that an element is in; None if it is in neither."""
    return next(element.iterancestors(*_STORIES), None)


def _get_attribute(element: Any, name: str) -> str:  # noqa: ANN401 - a library without types
    return next((str(value) for key, value in element.attrib.items() if key.endswith("}" + name)), "")


def _merge_runs(items: Iterator[tuple[Any, str]]) -> list[_Item]:
    """Merge adjacent texts of one format, and adjacent objects.

    Spaces and hyphens take on the format of the text before them.
    """
    merged: list[_Item] = []
    keys: dict[Any, int] = {}  # of runs
    formats: dict[tuple[Any, ...], int] = {}
    for element, kind in items:
        before = merged[-1] if merged else None
        if kind != "text":
            if kind == "split" or before != kind:
                merged.append(kind)
            continue
        run = element.getparent()
        if run not in keys:  # finding a format, and comparing it, takes time in proportion to the run
            keys[run] = formats.setdefault(_get_format(run), len(formats))
        key = keys[run]
        is_of_any_format = not (element.text or "").strip()
        if isinstance(before, _Group) and (is_of_any_format or before.key == key):
            before.elements.append(element)
        else:
            merged.append(group := _Group(key))
            group.elements.append(element)
    return merged


def _get_format(run: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a library without types
    """Return what runs of one format have in common: the container, such as a link, and the properties."""
    properties = run.find("{*}rPr")
    found = (
        []
        if properties is None
        else [
            (element.tag, tuple(sorted(element.attrib.items())))
            for element in properties.iter("{*}*")
            if element is not properties and _get_name(element) not in _INVISIBLE_FORMAT
        ]
    )
    return run.getparent(), *found


def _split_segments(items: list[_Item]) -> Iterator[list[_Item]]:
    """Yield the items between tabs and line breaks, without objects at either end, if they have any letters."""
    segment: list[_Item] = []
    for item in [*items, "split"]:
        if item != "split":
            segment.append(item)
            continue
        places = [place for place, one in enumerate(segment) if isinstance(one, _Group)]
        if any(letter.isalpha() for place in places for letter in getattr(segment[place], "text", "")):
            yield segment[places[0] : places[-1] + 1]
        segment = []


class _Markup:
    """The markup of all paragraphs, and for each of its tags the group to which text after the tag belongs."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.owners: list[_Group] = []

    def add(self, segment: list[_Item]) -> None:
        """Add a segment, which begins and ends with text."""
        groups = [item for item in segment if isinstance(item, _Group)]
        sizes: Counter[int] = Counter()
        for group in groups:
            sizes[group.key] += len(group.text)
        plain = sizes.most_common(1)[0][0]
        self._open("<p>", groups[0])
        last, num_read = groups[0], 0
        for item in segment:
            if not isinstance(item, _Group):
                self._open("<o/>", groups[num_read])  # the next one
                continue
            last, num_read = item, num_read + 1
            if last.key == plain:
                self.owners[-1] = last
                self.pieces.append(escape_text(last.text))
            else:
                self._open("<r>", last)
                self.pieces.append(escape_text(last.text))
                self._open("</r>", last)
        self._open("</p>", last)

    def _open(self, tag: str, owner: _Group) -> None:
        self.pieces.append(tag)
        self.owners.append(owner)

    def set_translation(self, translation: str) -> set[bool]:
        """Write a translation of this markup into the document: what is between its tags, to the groups of the tags.

        Returns the kinds of script that are new in some group: True for complex scripts, False for others; or neither.
        """
        place = -1
        for part in parse_markup(translation, is_xml=True):
            if part.shape == "text":
                self.owners[place].translation.append(unescape_text(part.raw))
            else:
                place += 1
        groups = list(dict.fromkeys(self.owners))
        found = {(group.elements[0].getparent(), group.find_new_script()) for group in groups}  # a run has many groups
        changed = [(run, script) for run, script in found if script is not None]
        for run, script in changed:
            for properties in run.findall("{*}rPr"):
                complete_format(properties, for_complex_script=script)
        for group in groups:
            group.write()
        return {script for _, script in changed}


def _write(content: bytes, translation: str, language: LanguageDeclaration | None) -> bytes:
    trees, markup, etree = _read_parts(content)
    scripts = markup.set_translation(translation)
    file = BytesIO()
    try:
        with ZipFile(BytesIO(content)) as archive, ZipFile(file, "w", ZIP_DEFLATED) as written:
            if language is not None and language.direction is not None:
                set_direction(trees.values(), language.direction)
            if scripts:
                styles = _read_styles(archive, etree)
                for style, script in product(styles.values(), scripts):
                    for properties in style.iter("{*}rPr"):
                        complete_format(properties, for_complex_script=script)
                trees |= styles
            for entry in archive.infolist():
                is_changed = entry.filename in trees
                found = (
                    etree.tostring(trees[entry.filename], encoding="UTF-8", xml_declaration=True, standalone=True)
                    if is_changed
                    else _read_entry(archive, entry)
                )
                copy = ZipInfo(entry.filename, entry.date_time)
                copy.compress_type, copy.external_attr = entry.compress_type, entry.external_attr
                written.writestr(copy, found)
    except (BadZipFile, EOFError, OSError, RuntimeError, ValueError, zlib.error, struct.error):
        raise DocumentError("a part of the document is damaged: save it again in Word") from None
    return file.getvalue()
