"""Plain text and HTML as files: encodings and line ends, and names of formats."""

import pytest

from transduce.documents import FORMATS, find_document_ending, read_formatted_document
from transduce.errors import DocumentError


@pytest.mark.parametrize(
    "content",
    [
        b"Sun.\n\nMoon.\n",
        "Sun.\r\nMöön.\r\n".encode(),
        "\ufeffSun.\r\n".encode(),
        b"Sun.\r\rMoon.\r",
        b"Sun.\nMoon.\r\nStone.\rRiver.",
        b"\xff\xfe" + "Sön.\r\n".encode("utf-16-le"),
        b"\xfe\xff" + "Sön.\n".encode("utf-16-be"),
        b"",
    ],
)
def test_plain_text_is_written_as_it_was(content: bytes) -> None:
    document = read_formatted_document(content, ".txt")
    assert document.rules is None
    assert "\ufeff" not in document.text
    assert document.write(document.text) == content


@pytest.mark.parametrize("content", [b"S\xf6n.", b"\xff\xfes", b"PK\3\4\0\0", "Sun.".encode("utf-16-le")])
def test_what_is_no_text_is_refused(content: bytes) -> None:
    with pytest.raises(DocumentError, match="save it as UTF-8"):
        read_formatted_document(content, ".txt")


def test_a_character_that_text_has_not_is_named() -> None:
    with pytest.raises(DocumentError, match="has a NUL character"):
        read_formatted_document(b"A dog\0 runs.", ".txt")


def test_html_keeps_its_line_ends() -> None:
    content = b"<p>Sun\r\nand moon.</p>\n<pre>Stone\r\nRiver</pre>\r\n"
    document = read_formatted_document(content, ".html")
    assert document.write(document.text) == content


def test_html_keeps_its_encoding() -> None:
    content = '<html><head><meta charset="iso-8859-1"></head><p>S\xf6n</p></html>'.encode("iso-8859-1")
    document = read_formatted_document(content, ".html")
    assert "Sön" in document.text
    assert document.write(document.text) == content
    assert document.write("<p>ö и</p>") == "<p>ö &#1080;</p>".encode("iso-8859-1")


@pytest.mark.parametrize(
    ("name", "encoding", "text"),
    [
        ("ISO-8859-1", "windows-1252", "“Sön” – 5 €"),
        ("ISO-8859-9", "windows-1254", "“Güneş”"),
        ("gb2312", "gbk", "镕"),
        ("Shift_JIS", "cp932", "①"),
        ("euc-kr", "cp949", "똠"),
    ],
)
def test_html_is_read_in_the_larger_encoding_that_browsers_take(name: str, encoding: str, text: str) -> None:
    content = f'<meta charset="{name}"><p>{text}</p>'.encode(encoding)
    document = read_formatted_document(content, ".html")
    assert text in document.text
    assert document.write(document.text) == content


def test_html_has_bytes_that_the_larger_encoding_does_not_have() -> None:
    content = b'<meta charset="latin1"><p>S\xf6n\x81</p>'
    document = read_formatted_document(content, ".html")
    assert "Sön\x81" in document.text
    assert document.write(document.text) == content


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("windows-1252", b"\xf6 \x80 &#1080;"),
        ("ISO-8859-1", b"\xf6 \x80 &#1080;"),
        ("koi8-r", b"&#246; &#8364; \xc9"),
        ("utf-8", "ö € и".encode()),
        ("foo-99", b"&#246; &#8364; &#1080;"),
        ("utf-16", b"&#246; &#8364; &#1080;"),
        ("hex", b"&#246; &#8364; &#1080;"),
        ("idna", b"&#246; &#8364; &#1080;"),
        ("punycode", b"&#246; &#8364; &#1080;"),
        ("unicode_escape", b"&#246; &#8364; &#1080;"),
        ("utf-7", b"&#246; &#8364; &#1080;"),
        ("utf_8_sig", b"&#246; &#8364; &#1080;"),
    ],
)
def test_a_page_of_ascii_is_written_in_the_encoding_that_it_declares(name: str, written: bytes) -> None:
    page = f'<meta charset="{name}"><p>Sun</p>'.encode()
    document = read_formatted_document(page, ".html")
    assert document.write(document.text) == page
    assert document.write(document.text.replace("Sun", "ö € и")) == page.replace(b"Sun", written)


def test_a_page_of_ascii_that_declares_nothing_is_written_in_utf_8() -> None:
    assert read_formatted_document(b"<p>Sun</p>", ".html").write("<p>ö</p>") == "<p>ö</p>".encode()


@pytest.mark.parametrize("name", ["hex", "rot13", "nothing", "idna", "unicode_escape", "utf-16"])
def test_html_declares_encodings_of_text_only(name: str) -> None:
    with pytest.raises(DocumentError):
        read_formatted_document(f'<meta charset="{name}">'.encode() + b"\xff", ".html")


def test_names_of_formats() -> None:
    assert find_document_ending("a.b.DOCX") == ".docx"
    assert {find_document_ending(f"x{ending}") for ending in FORMATS} == set(FORMATS)
    for name in ("docx", "", "x.doc", "x.docx/", "x."):
        with pytest.raises(DocumentError, match=r"must end in one of \.txt"):
            find_document_ending(name)
