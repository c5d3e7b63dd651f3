"""Word documents as python-docx makes and reads them."""

import io
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import given
from hypothesis import strategies as st

from transduce.documents import word
from transduce.documents.formats import FormattedDocument, LanguageDeclaration, read_formatted_document
from transduce.errors import DocumentError

TYPES = "[Content_Types].xml"
MAIN = "word/document.xml"


def save(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def read(content: bytes) -> FormattedDocument:
    return read_formatted_document(content, ".docx")


def write(document: FormattedDocument, change: Callable[[str], str]) -> Any:
    """The document with every text between tags changed, as python-docx reads it."""
    translation = re.sub(r"[^<>]+(?=<)", lambda found: change(found[0]), document.text)
    return docx.Document(io.BytesIO(document.write(translation)))


def replace_parts(content: bytes, **changes: Any) -> bytes:
    """The archive with some of its files changed by functions, or with more files."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        for entry in archive.infolist():
            found = archive.read(entry)
            written.writestr(entry, changes.pop(entry.filename)(found) if entry.filename in changes else found)
        for name, added in changes.items():
            written.writestr(name, added)
    return file.getvalue()


@pytest.fixture
def plain() -> bytes:
    document = docx.Document()
    document.add_paragraph("The sun.")
    return save(document)


def test_runs_keep_their_format() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The sun ")
    paragraph.add_run("and ").italic = False  # another format than none
    paragraph.add_run("moon").bold = True
    paragraph.add_run(" & the < ri")
    paragraph.add_run("ver.")  # Word divides words for reasons of its own
    found = read(save(document))
    assert found.text == "<p>The sun <r>and </r><r>moon</r> &amp; the &lt; river.</p>"
    (changed,) = write(found, str.upper).paragraphs
    assert changed.text == "THE SUN AND MOON & THE < RIVER."
    assert [(run.text, run.bold, run.italic) for run in changed.runs] == [
        ("THE SUN ", None, None),
        ("AND ", None, False),
        ("MOON", True, None),
        (" & THE < RIVER.", None, None),
        ("", None, None),
    ]


def test_text_where_there_was_none_goes_to_its_neighbour() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("")
    paragraph.add_run("Sun").bold = True
    paragraph.add_run("moon and river")
    paragraph.add_run("stone").italic = True
    found = read(save(document))
    assert found.text == "<p><r>Sun</r>moon and river<r>stone</r></p>"
    content = found.write("<p>Die <r>Sonne</r> Mond <r>Stein</r>.</p>")
    (changed,) = docx.Document(io.BytesIO(content)).paragraphs
    assert [(run.text, run.bold, run.italic) for run in changed.runs] == [
        ("Die Sonne", True, None),
        (" Mond ", None, None),
        ("Stein.", None, True),
    ]


def test_a_paragraph_without_letters_is_not_read() -> None:
    document = docx.Document()
    for text in ("12,345", "Sun", "•", "€ 5\tmoon 5"):
        document.add_paragraph(text)
    assert read(save(document)).text == "<p>Sun</p><p>moon 5</p>"


RUNS = st.lists(st.tuples(st.text("ab <&;\t\n", max_size=4), st.sampled_from([None, "bold", "italic"])), max_size=8)


@given(st.lists(RUNS, max_size=3))
def test_a_document_is_rebuilt_from_its_own_text(paragraphs: list[list[tuple[str, str | None]]]) -> None:
    document = docx.Document()
    for runs in paragraphs:
        paragraph = document.add_paragraph()
        for text, style in runs:
            run = paragraph.add_run(text)
            if style is not None:
                setattr(run, style, True)

    def read_letters(document: Any) -> list[list[tuple[str, bool | None, bool | None]]]:
        """Each letter with its format; spaces may have taken on the format before them."""
        return [
            [
                (letter, *((None, None) if letter.isspace() else (run.bold, run.italic)))
                for run in paragraph.runs
                for letter in run.text
            ]
            for paragraph in document.paragraphs
        ]

    assert read_letters(write(read(save(document)), str)) == read_letters(document)


def test_tables_headers_and_footers() -> None:
    document = docx.Document()
    document.add_heading("Sun", 1)
    document.add_paragraph("moon", style="List Bullet")
    table = document.add_table(2, 2, style="Table Grid")
    table.cell(0, 0).text, table.cell(1, 1).text = "river", "stone"
    table.cell(1, 1).add_table(1, 1).cell(0, 0).text = "bird"
    section = document.sections[0]
    section.header.paragraphs[0].text, section.footer.paragraphs[0].text = "tree", "wind"
    changed = write(read(save(document)), str.upper)
    heading, item, *_ = changed.paragraphs
    assert (heading.text, heading.style.name, item.text, item.style.name) == ("SUN", "Heading 1", "MOON", "List Bullet")
    (table,) = changed.tables
    assert (table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 1).paragraphs[0].text) == ("RIVER", "", "STONE")
    assert table.cell(1, 1).tables[0].cell(0, 0).text == "BIRD"
    section = changed.sections[0]
    assert (section.header.paragraphs[0].text, section.footer.paragraphs[0].text) == ("TREE", "WIND")


def test_links_fields_tabs_and_pictures() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Name:\tsun and ")
    link = parse_xml(f'<w:hyperlink {nsdecls("w")} w:anchor="x"><w:r><w:t>moon</w:t></w:r></w:hyperlink>')
    paragraph._p.append(link)
    paragraph.add_run(" on page ")
    for kind in ("begin", "", "separate", "7", "end"):
        inner = {"": "<w:instrText> PAGE </w:instrText>", "7": "<w:t>7</w:t>"}.get(
            kind, f'<w:fldChar w:fldCharType="{kind}"/>'
        )
        paragraph._p.append(parse_xml(f"<w:r {nsdecls('w')}>{inner}</w:r>"))
    paragraph.add_run(" at the river.")
    found = read(save(document))
    assert found.text == "<p>Name:</p><p>sun and <r>moon</r> on page <o/> at the river.</p>"
    (changed,) = write(found, str.upper).paragraphs
    assert changed.text == "NAME:\tSUN AND MOON ON PAGE 7 AT THE RIVER."
    assert changed.hyperlinks[0].text == "MOON"


HYPHEN, SOFT_HYPHEN = "<w:noBreakHyphen/>", "<w:softHyphen/>"


def add_text(content: str, plain: bytes) -> bytes:
    """The document with another paragraph, whose runs are given as XML."""
    paragraph = f"<w:p>{content}</w:p><w:sectPr".encode()
    return replace_parts(plain, **{MAIN: lambda found: found.replace(b"<w:sectPr", paragraph)})


def read_xml(content: bytes) -> str:
    """The runs of the last paragraph without attributes, and without elements of no text."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = archive.read(MAIN).decode().rpartition("<w:p>")[2].partition("</w:p>")[0]
    without_text = "<w:t></w:t>|<w:t/>"
    return re.sub(f"<w:r>({without_text})*</w:r>|<w:r/>|{without_text}", "", found.replace(' xml:space="preserve"', ""))


@pytest.mark.parametrize("between", ["", "</w:r><w:r>"])
def test_hyphens_are_part_of_their_words(plain: bytes, between: str) -> None:
    pieces = ["<w:r><w:t>T</w:t>", HYPHEN, "<w:t>shirts grow-</w:t>", SOFT_HYPHEN, "<w:t>ing.</w:t></w:r>"]
    found = read(add_text(between.join(pieces), plain))
    assert found.text == "<p>The sun.</p><p>T-shirts grow-ing.</p>"
    changed = read_xml(found.write("<p>The sun.</p><p>well-known t-Shirts and T-shirts</p>"))
    assert changed == (f"<w:r><w:t>well-known t</w:t>{HYPHEN}<w:t>Shirts and T</w:t>{HYPHEN}<w:t>shirts</w:t></w:r>")
    assert read(found.write("<p>The sun.</p><p>T-shirts</p>")).text == "<p>The sun.</p><p>T-shirts</p>"


def test_a_hyphen_has_the_format_of_the_text_before_it(plain: bytes) -> None:
    bold = "<w:rPr><w:b/></w:rPr>"
    found = read(add_text(f"<w:r>{bold}<w:t>T</w:t></w:r><w:r>{HYPHEN}<w:t>shirts grow.</w:t></w:r>", plain))
    assert found.text.endswith("<p><r>T-</r>shirts grow.</p>")
    assert read_xml(found.write(found.text)) == (
        f"<w:r>{bold}<w:t>T</w:t>{HYPHEN}</w:r><w:r><w:t>shirts grow.</w:t></w:r>"
    )


def test_text_may_begin_with_a_hyphen(plain: bytes) -> None:
    found = read(add_text(f"<w:r>{SOFT_HYPHEN}{HYPHEN}<w:t>5 suns</w:t></w:r><w:r>{HYPHEN}</w:r>", plain))
    assert found.text.endswith("<p>-5 suns-</p>")
    assert read_xml(found.write("<p>The sun.</p><p>-5 and suns-</p>")) == (
        f"<w:r>{HYPHEN}<w:t>5 and suns</w:t>{HYPHEN}</w:r>"
    )


def test_footnotes(plain: bytes) -> None:
    note = (
        f'<w:footnotes {nsdecls("w")}><w:footnote w:id="2"><w:p><w:r><w:footnoteRef/></w:r>'
        "<w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    )
    kind = f"{word._PREFIX}footnotes+xml"
    override = f'<Override PartName="/word/notes.xml" ContentType="{kind}"/></Types>'.encode()
    parts = {TYPES: lambda found: found.replace(b"</Types>", override), "word/notes.xml": note}
    found = read(replace_parts(plain, **parts))
    assert found.text == "<p>The sun.</p><p>A note.</p>"
    with zipfile.ZipFile(io.BytesIO(found.write(found.text.upper().replace("P>", "p>")))) as archive:
        assert b'<w:footnoteRef/></w:r><w:r><w:t xml:space="preserve">A NOTE.' in archive.read("word/notes.xml")


def test_all_other_parts_are_the_same(plain: bytes) -> None:
    found = read(plain)
    with zipfile.ZipFile(io.BytesIO(plain)) as before, zipfile.ZipFile(io.BytesIO(found.write(found.text))) as after:
        assert before.namelist() == after.namelist()
        changed = [name for name in before.namelist() if before.read(name) != after.read(name)]
        assert changed == [MAIN]
        assert b"The sun." in after.read(MAIN)


def test_characters_that_xml_has_not_are_left_out(plain: bytes) -> None:
    content = read(plain).write("<p>a\x00b\x1b\ufffe</p>")
    assert docx.Document(io.BytesIO(content)).paragraphs[0].text == "ab"


def test_no_document_is_refused(plain: bytes) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("x.txt", "The sun.")
    for content in (b"", b"PK\3\4", b"The sun.", plain[:-40], plain[: len(plain) // 2], archive.getvalue()):
        with pytest.raises(DocumentError, match="damaged, or no Word document"):
            read(content)
    workbook = replace_parts(plain, **{TYPES: lambda found: found.replace(b"wordprocessingml.document", b"sheet")})
    with pytest.raises(DocumentError, match="no Word document"):
        read(workbook)


def test_damage_is_noticed(plain: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(plain)) as archive:
        begin = archive.getinfo(MAIN).header_offset + 60
    damaged = plain[:begin] + bytes(byte ^ 255 for byte in plain[begin : begin + 40]) + plain[begin + 40 :]
    with pytest.raises(DocumentError, match="damaged"):
        read(damaged)
    with pytest.raises(DocumentError, match="damaged"):
        read(replace_parts(plain, **{MAIN: lambda found: found.replace(b"</w:p>", b"", 1)}))


@pytest.mark.parametrize(
    "make",
    [
        lambda size: "<w:t>a</w:t><w:sym/>" * size,
        lambda size: "<w:t>a</w:t><w:ins><w:t>b</w:t></w:ins>" * size,
        lambda size: f"<w:rPr>{'<w:b/>' * size}</w:rPr>" + "<w:t>a</w:t><w:sym/>" * size,
        lambda size: (
            '<w:fldChar w:fldCharType="begin"/><w:instrText>IF</w:instrText>' * size
            + "<w:t>a</w:t>" * size
            + '<w:fldChar w:fldCharType="end"/>' * size
        ),
        lambda size: f"<w:t>{'ab' * size}</w:t>",
    ],
    ids=["objects", "insertions", "properties", "fields", "a long word"],
)
def test_a_long_run_takes_linear_time(
    make: Callable[[int], str], plain: bytes, time_growth: Callable[..., float]
) -> None:
    def prepare(size: int) -> bytes:
        run = f"<w:p><w:r>{make(size)}</w:r></w:p></w:body>".encode()
        return replace_parts(plain, **{MAIN: lambda found: found.replace(b"</w:body>", run)})

    def work(content: bytes) -> bytes:
        document = read(content)
        translation = re.sub("[ab](?=[^<>]*<)", "ش", document.text)
        return document.write(translation, LanguageDeclaration("ar", lambda _: True, "rtl"))

    assert time_growth(work, prepare(400), prepare(3_200)) < 24  # 8 times the text; squares would be 64


def begin_field(instruction: str) -> str:
    """The runs in front of a field's result."""
    halves = "".join(f"<w:instrText>{half}</w:instrText>" for half in (instruction[:4], instruction[4:]))
    return f'<w:r><w:fldChar w:fldCharType="begin"/>{halves}<w:fldChar w:fldCharType="separate"/></w:r>'


END_FIELD = '<w:r><w:fldChar w:fldCharType="end"/></w:r>'


def add_paragraphs(content: bytes, *paragraphs: list[str]) -> bytes:
    """The document with more paragraphs of texts, each of which becomes a run, and elements as XML."""
    joined = "".join(
        f"<w:p>{''.join(one if one.startswith('<') else f'<w:r><w:t>{one}</w:t></w:r>' for one in pieces)}</w:p>"
        for pieces in paragraphs
    )
    return replace_parts(content, **{MAIN: lambda found: found.replace(b"<w:sectPr", joined.encode() + b"<w:sectPr")})


def test_fields_within_fields_show_text_if_all_of_them_do(plain: bytes) -> None:
    inner = [begin_field("PAGE"), "c", begin_field("HYPERLINK"), "d", END_FIELD, END_FIELD]
    toc = [begin_field("  TOC x"), "b", *inner, begin_field(" Hyperlink"), "e", END_FIELD, END_FIELD]
    found = read(add_paragraphs(plain, ["a", *toc, "f"]))
    assert re.sub("<[^>]*>", "", found.text) == "The sun.abef"


def test_a_field_goes_on_in_the_next_paragraphs(plain: bytes) -> None:
    content = add_paragraphs(
        plain,
        *(["one", begin_field("IF 1 = 1"), "two"], ["three"], ["four", END_FIELD, "five"]),
        *([begin_field("MERGEFIELD address"), "Road"], ["Town"], ["Land", END_FIELD, "six"]),
    )
    _, *changed = write(read(content), str.upper).paragraphs
    assert [one.text for one in changed] == ["ONETWO", "THREE", "FOURFIVE", "Road", "Town", "LandSIX"]


def test_a_result_in_an_instruction_is_no_text(plain: bytes) -> None:
    condition = '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText>IF </w:instrText></w:r>'
    separate = '<w:r><w:instrText> = 1</w:instrText><w:fldChar w:fldCharType="separate"/></w:r>'
    field = [condition, begin_field("REF x"), "no", END_FIELD, separate, "yes", END_FIELD]
    assert re.sub("<[^>]*>", "", read(add_paragraphs(plain, field)).text) == "The sun.yes"


@pytest.mark.parametrize("unseen", ["<w:r/>", f"<w:del>{END_FIELD}</w:del>"], ids=["no end", "a deleted end"])
def test_a_field_that_does_not_end_hides_nothing(plain: bytes, unseen: str) -> None:
    found = read(add_paragraphs(plain, ["one", begin_field("PAGE"), "two", unseen], ["three"]))
    assert found.text == "<p>The sun.</p><p>one<o/>two</p><p>three</p>"


def test_a_text_box_is_not_in_the_field_around_it(plain: bytes) -> None:
    box = "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>two</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
    found = read(add_paragraphs(plain, ["one", begin_field("DATE"), box], ["Monday", END_FIELD, "three"]))
    assert found.text == "<p>The sun.</p><p>one</p><p>two</p><p>three</p>"


@pytest.mark.parametrize(
    ("instruction", "is_text"),
    [
        (" HYPERLINK 'https://example.org' ", True),
        ("HYPERLINK\\l x", True),
        ("if 1 = 1 one two", True),
        (" REF _Ref1 \\h ", True),
        (" REF _Ref1 \\r \\h ", False),
        ("STYLEREF 1", True),
        ("STYLEREF 1 \\N", False),
        (" MERGEFIELD name ", False),
        ("DATE \\@ MMMM", False),
        ("PAGE", False),
        ("REFERENCE", False),
        ("", False),
    ],
)
def test_the_instruction_decides_whether_a_field_is_text(plain: bytes, instruction: str, *, is_text: bool) -> None:
    simple = f'<w:fldSimple w:instr="{instruction}"><w:r><w:t>moon</w:t></w:r></w:fldSimple>'
    content = add_paragraphs(plain, ["sun", simple, "sea"], ["sun", begin_field(instruction), "moon", END_FIELD, "sea"])
    _, *changed = write(read(content), str.upper).paragraphs
    texts = ["".join(text.text or "" for text in one._p.xpath(".//w:t")) for one in changed]
    assert texts == ["SUNMOONSEA" if is_text else "SUNmoonSEA"] * 2


def test_entities_are_refused(plain: bytes) -> None:
    laughs = "".join(f'<!ENTITY l{place} "{f"&l{place - 1};" * 10}">' for place in range(1, 10))
    for declared in (f'<!ENTITY l0 "ha">{laughs}', '<!ENTITY l9 SYSTEM "file:///etc/hostname">', ""):

        def insert(found: bytes, declared: str = declared) -> bytes:
            root = found.index(b"<w:document")
            text = found[root:].replace(b"The sun.", b"&l9;" if declared else b"The sun.")
            return found[:root] + f"<!DOCTYPE d [{declared}]>".encode() + text

        with pytest.raises(DocumentError, match="entities, which are refused"):
            read(replace_parts(plain, **{MAIN: insert}))


def test_an_archive_that_grows_is_refused(plain: bytes) -> None:
    bomb = replace_parts(plain, **{"word/media/picture.png": bytes(word.MAX_UNPACKED_BYTES)})
    assert len(bomb) < 200_000
    with pytest.raises(DocumentError, match="bytes when unpacked"):
        read(bomb)
    long = replace_parts(plain, **{MAIN: lambda found: found + b" " * word.MAX_XML_BYTES})
    with pytest.raises(DocumentError, match="bytes of XML"):
        read(long)
    empty = b"<w:p/>" * word.MAX_TAGS
    tags = replace_parts(plain, **{MAIN: lambda found: found.replace(b"</w:body>", empty + b"</w:body>")})
    with pytest.raises(DocumentError, match="tags of XML"):
        read(tags)
    many = replace_parts(plain, **{f"x/{number}": b"" for number in range(word.MAX_ENTRIES)})
    with pytest.raises(DocumentError, match="parts"):
        read(many)


def test_a_size_that_is_a_lie_is_noticed(plain: bytes) -> None:
    """The directory says ten bytes where there are many more."""
    bomb = bytearray(replace_parts(plain, **{MAIN: lambda found: found + b" " * 1_000_000}))
    place = bomb.index(MAIN.encode(), bomb.index(b"PK\1\2")) - 46
    bomb[place + 24 : place + 28] = (10).to_bytes(4, "little")
    with pytest.raises(DocumentError, match="damaged"):
        read(bytes(bomb))


@pytest.mark.parametrize("name", [TYPES, MAIN, "word/media/picture.png"])
def test_no_more_is_unpacked_than_the_declared_size(plain: bytes, name: str) -> None:
    with_picture = replace_parts(plain, **{"word/media/picture.png": b"x"})
    bomb = bytearray(replace_parts(with_picture, **{name: lambda _: bytes(50_000_000)}))
    place = bomb.index(name.encode(), bomb.index(b"PK\1\2")) - 46
    bomb[place + 24 : place + 28] = (10).to_bytes(4, "little")

    def rebuild(content: bytes) -> bytes:
        found = read(content)
        return found.write(found.text)

    tracemalloc.start()
    try:
        with pytest.raises(DocumentError, match="damaged"):
            rebuild(bytes(bomb))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_two_parts_of_one_name_are_refused(plain: bytes) -> None:
    file = io.BytesIO(plain)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(MAIN, "<x/>")
    with pytest.raises(DocumentError, match="damaged"):
        read(file.getvalue())


def test_names_are_no_paths(plain: bytes, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read(replace_parts(plain, **{"../../outside": b"x", "/etc/outside": b"x"}))
    found.write(found.text)
    assert list(tmp_path.iterdir()) == []
