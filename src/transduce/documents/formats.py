"""Formats of documents, by the ending of the file name, and those that are plain text or HTML."""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module

from transduce.documents.markup import Direction, MarkupRules, declare_language
from transduce.errors import DocumentError


@dataclass(frozen=True)
class LanguageDeclaration:
    """What a translated document declares of its language.

    Args:
        code: language code.
        replaces: whether a code that the document has is that of the language it is translated from.
        direction: the direction of writing, if the translation changes it.
    """

    code: str
    replaces: Callable[[str], bool]
    direction: Direction | None


@dataclass(frozen=True)
class FormattedDocument:
    """The text of a document, and how the document is written again.

    Args:
        text: all text that is to be translated, as plain text or markup.
        rules: rules for the markup; None for plain text.
        writer: makes the file; see `write`.
    """

    text: str
    rules: MarkupRules | None
    writer: Callable[[str, LanguageDeclaration | None], bytes]

    def write(self, translation: str, language: LanguageDeclaration | None = None) -> bytes:
        """Make the file of the translated document.

        The translation is that of `text`, with all tags in their order. If its new language is given, HTML declares it,
        and HTML and Word documents are written in its direction.
        """
        return self.writer(translation, language)


_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([A-Za-z0-9_-]+)""", re.IGNORECASE)
_DECLARATION_BYTES = 1_024  # where browsers look for it
_ASCII = "".join(map(chr, range(0x20, 0x7F)))
_SUPERSETS = {
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "l1"), "windows-1252"),
    **dict.fromkeys(("iso-8859-9", "latin5", "l5"), "windows-1254"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987"), "cp949"),
}
"""Declared encodings that browsers read as a larger encoding, in which such files mostly are (Encoding Living Standard,
4.2)."""


@dataclass(frozen=True)
class DecodedText:
    """The text of a file, and how it was written.

    Args:
        text: the text with its line ends, without a byte order mark.
        mark: the byte order mark, or nothing.
        encoding: name of the encoding.
    """

    text: str
    mark: bytes
    encoding: str

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """Encode another text in the same way."""
        return self.mark + text.encode(self.encoding, errors)


def decode_text(content: bytes, declared: str | None = None) -> DecodedText:
    """Decode a text file: by its byte order mark, as UTF-8, or else in the encoding that it declares.

    Raises:
        DocumentError: it is not text in any of these.
    """
    mark = next((one for one in _BYTE_ORDER_MARKS if content.startswith(one)), b"")
    choices = [_BYTE_ORDER_MARKS[mark]] if mark else ["utf-8"]
    if declared and not mark:
        choices += [_SUPERSETS.get(declared.lower(), declared), declared]
    for encoding in choices:
        try:
            text = content[len(mark) :].decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
        if "\0" in text:
            raise DocumentError("the document has a NUL character, which text has not: remove it, or save it as UTF-8")
        return DecodedText(text, mark, encoding)
    raise DocumentError("the document is not text in UTF-8: save it as UTF-8")


def read_plain_text(content: bytes) -> FormattedDocument:
    """Read plain text.

    Raises:
        DocumentError: it is not UTF-8, nor UTF-16 with a byte order mark.
    """
    decoded = decode_text(content)
    return FormattedDocument(decoded.text, None, lambda translation, _: decoded.encode(translation))


def read_html(content: bytes) -> FormattedDocument:
    """Read HTML; characters that its encoding does not have are written as references.

    A page of ASCII characters alone is written in the encoding that it declares, as a browser will read it in that.

    Raises:
        DocumentError: it is neither UTF-8 nor in the encoding that it declares.
    """
    found = _DECLARED.search(content[:_DECLARATION_BYTES])
    name = found[1].decode("ascii") if found else None
    declared = name if name is not None and _is_text_encoding(name) else None
    decoded = decode_text(content, declared)
    if name is not None and content.isascii():
        decoded = replace(decoded, encoding=_choose_encoding_of_ascii(content, declared))

    def write(translation: str, language: LanguageDeclaration | None) -> bytes:
        if language is not None:
            translation = declare_language(
                translation, language.code, replaces=language.replaces, direction=language.direction
            )
        return decoded.encode(translation, "xmlcharrefreplace")

    return FormattedDocument(decoded.text, MarkupRules(), write)


def _choose_encoding_of_ascii(content: bytes, declared: str | None) -> str:
    """Choose the encoding to write a page of ASCII characters in; `declared` is None if its own is unknown.

    If the declared encoding is unknown, or these bytes are not the same text in it (as in UTF-16), the page is written
    in ASCII, with a reference for each other character: every browser reads that alike.
    """
    if declared is None:
        return "ascii"
    encoding = _SUPERSETS.get(declared.lower(), declared)
    try:
        is_superset = content.decode(encoding) == content.decode("ascii")
    except UnicodeDecodeError:
        is_superset = False
    return encoding if is_superset else "ascii"


def _is_text_encoding(name: str) -> bool:
    """Return whether an encoding is one in which a page can declare it: each character of ASCII is the same byte."""
    try:
        return _ASCII.encode(name) == _ASCII.encode()
    except (LookupError, ValueError):  # unknown, or one of Python's that is no encoding of text
        return False


FORMATS = {
    ".txt": ("transduce.documents.formats", "read_plain_text"),
    ".html": ("transduce.documents.formats", "read_html"),
    ".htm": ("transduce.documents.formats", "read_html"),
    ".srt": ("transduce.documents.subtitles", "read_subrip"),
    ".vtt": ("transduce.documents.subtitles", "read_webvtt"),
    ".docx": ("transduce.documents.word", "read_word"),
}
"""For each ending: module and name of the reader, which is imported when needed."""


def find_document_ending(name: str) -> str:
    """Find the format of a file: the ending of its name, in lower case, as in ".docx".

    Raises:
        DocumentError: documents with this ending are not translated.
    """
    ending = "." + name.rpartition(".")[2].lower()
    if "." not in name or ending not in FORMATS:
        raise DocumentError(f"{name[-50:]!r}: the name of a document must end in one of {', '.join(FORMATS)}")
    return ending


def read_formatted_document(content: bytes, ending: str) -> FormattedDocument:
    """Read a document; `ending` is its format, one of `FORMATS`.

    Raises:
        DocumentError: the document is damaged, or of another format.
        MissingExtraError: the package that reads the format is not installed.
    """
    module, name = FORMATS[ending]
    read: Callable[[bytes], FormattedDocument] = getattr(import_module(module), name)
    return read(content)
