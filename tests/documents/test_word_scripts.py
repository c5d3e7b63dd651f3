"""Direction of writing and format of complex scripts, as python-docx reads them, and the order of their elements."""

import io
import re
import zipfile
from typing import Any

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.shared import Pt

from transduce.documents import LanguageDeclaration, read_formatted_document, word
from transduce.documents.markup import Direction


def turn(document: Any, direction: Direction | None, translation: str = "شمس") -> Any:
    """The document as it is written in a language of this direction, where every text is this one."""
    file = io.BytesIO()
    document.save(file)
    read = read_formatted_document(file.getvalue(), ".docx")
    translated = re.sub(r"[^<>]+(?=<)", translation, read.text)
    return docx.Document(io.BytesIO(read.write(translated, LanguageDeclaration("ar", lambda _: True, direction))))


def names_of(properties: Any) -> list[str]:
    return [child.tag.rpartition("}")[2] for child in properties]


def test_runs_and_paragraphs_turn_to_the_right() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The sun ")
    paragraph.paragraph_format.space_before = Pt(3)
    paragraph.paragraph_format.keep_with_next = True
    paragraph.add_run("and moon").bold = True
    document.add_paragraph("12")  # is not translated
    document.sections[0].header.paragraphs[0].text = "river"
    turned = turn(document, "rtl")
    first, number = turned.paragraphs
    assert first.text == "شمسشمس"
    assert [run.font.rtl for run in first.runs] == [True, True]
    assert names_of(first._p.pPr) == ["keepNext", "bidi", "spacing"]
    assert [run.font.rtl for run in number.runs] == [None]
    assert names_of(number._p.pPr) == ["bidi"]
    assert turned.sections[0].header.paragraphs[0].runs[0].font.rtl is True


def test_text_that_is_still_latin_is_written_as_it_was() -> None:
    document = docx.Document()
    document.add_paragraph("pip install").runs[0].bold = True
    (paragraph,) = turn(document, "rtl", "C++ (x86)").paragraphs
    assert names_of(paragraph._p.pPr) == ["bidi"]
    assert names_of(paragraph.runs[0]._r.rPr) == ["b"]


def test_bold_italic_and_size_are_kept() -> None:
    document = docx.Document()
    run = document.add_paragraph().add_run("The sun")
    run.bold, run.italic, run.font.size, run.font.underline = True, False, Pt(14), True
    ((found,),) = ([*paragraph.runs] for paragraph in turn(document, "rtl").paragraphs)
    assert names_of(found._r.rPr) == ["b", "bCs", "i", "iCs", "sz", "szCs", "u", "rtl"]
    assert (found.font.cs_bold, found.font.cs_italic) == (True, False)
    assert found._r.rPr.find(qn("w:szCs")).get(qn("w:val")) == "28"
    run.font.cs_bold = False
    ((found,),) = ([*paragraph.runs] for paragraph in turn(document, "rtl").paragraphs)
    assert found.font.cs_bold is False


def test_styles_keep_bold_and_size() -> None:
    document = docx.Document()
    document.styles["Normal"].font.size = Pt(20)
    document.styles.add_style("Warning", WD_STYLE_TYPE.PARAGRAPH).font.bold = True
    document.add_paragraph("sun", "Warning")
    styles = turn(document, "rtl").styles
    assert styles["Warning"].font.cs_bold is True
    assert styles["Normal"].element.rPr.find(qn("w:szCs")).get(qn("w:val")) == "40"
    assert turn(document, None, "sol").styles["Warning"].font.cs_bold is None


@pytest.mark.parametrize("translation", ["सूरज", "ดวงอาทิตย์", "C++ सूरज"])
def test_complex_scripts_from_the_left_keep_bold_and_size(translation: str) -> None:
    document = docx.Document()
    run = document.add_heading("Sun", 1).add_run(" and moon")
    run.bold, run.font.size = True, Pt(14)
    document.styles["Normal"].font.size = Pt(20)
    turned = turn(document, None, translation)
    plain, bold = turned.paragraphs[0].runs
    assert (plain.text, plain._r.rPr) == (translation, None)
    assert names_of(bold._r.rPr) == ["b", "bCs", "sz", "szCs"]
    assert turned.styles["Normal"].element.rPr.find(qn("w:szCs")).get(qn("w:val")) == "40"
    back = turn(document, None, "太陽")
    assert names_of(back.paragraphs[0].runs[1]._r.rPr) == ["b", "sz"]


def test_only_text_whose_script_changes_gets_another_format() -> None:
    document = docx.Document()
    run = document.add_paragraph().add_run("सूरज")
    run.font.cs_bold = True
    document.add_paragraph().add_run("12").bold = True
    assert [names_of(one.runs[0]._r.rPr) for one in turn(document, None, "ดวง").paragraphs] == [["bCs"], ["b"]]
    assert [names_of(one.runs[0]._r.rPr) for one in turn(document, None, "sun").paragraphs] == [["b", "bCs"], ["b"]]
    assert [names_of(one.runs[0]._r.rPr) for one in turn(document, None, ".").paragraphs] == [["bCs"], ["b"]]


def test_styles_that_are_too_large_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    document = docx.Document()
    document.styles.add_style("Warning", WD_STYLE_TYPE.PARAGRAPH).font.bold = True
    document.add_paragraph("sun", "Warning")
    monkeypatch.setattr(word, "MAX_TAGS", 300)
    turned = turn(document, "rtl")
    assert turned.styles["Warning"].font.cs_bold is None
    assert turned.paragraphs[0].runs[0].font.rtl is True


def test_columns_of_tables_turn_too() -> None:
    document = docx.Document()
    table = document.add_table(1, 1, style="Table Grid")
    table.cell(0, 0).add_table(1, 1).cell(0, 0).text = "sun"
    document.add_table(1, 1).cell(0, 0).text = "12"
    first, numbers = turn(document, "rtl").tables
    assert names_of(first._tbl.tblPr)[:2] == ["tblStyle", "bidiVisual"]
    assert names_of(first.cell(0, 0).tables[0]._tbl.tblPr)[0] == "bidiVisual"
    assert "bidiVisual" in names_of(numbers._tbl.tblPr)


def test_what_was_from_the_right_turns_to_the_left() -> None:
    document = docx.Document()
    run = document.add_paragraph().add_run("شمس")
    run.font.rtl = run.font.cs_bold = True
    run._r.getparent().get_or_add_pPr().append(parse_xml(f"<w:bidi {nsdecls('w')}/>"))
    (paragraph,) = turn(document, "ltr", "sun").paragraphs
    assert [(run.font.rtl, run.bold) for run in paragraph.runs] == [(False, True)]
    assert [(bidi.tag, dict(bidi.attrib)) for bidi in paragraph._p.pPr] == [(qn("w:bidi"), {qn("w:val"): "0"})]
    assert names_of(paragraph.runs[0]._r.rPr) == ["b", "bCs", "rtl"]


@pytest.mark.parametrize("direction", ["rtl", "ltr"])
@pytest.mark.parametrize(
    "body",
    [
        "<w:p><w:t>sun</w:t></w:p>",
        '<w:p><r xmlns=""><t>sun</t></r></w:p>',
        '<w:p><w:r><rPr xmlns=""/><w:t>sun</w:t></w:r></w:p>',
        '<w:p><pPr xmlns=""/><w:r><w:t>sun</w:t></w:r></w:p>',
        '<tbl xmlns=""><w:p><w:r><w:t>sun</w:t></w:r></w:p></tbl>',
        "<w:tbl><w:tr><w:tc><w:p><w:r><!-- sun --><w:t>sun</w:t><w:t/></w:r></w:p></w:tc></w:tr></w:tbl>",
    ],
)
def test_odd_documents_turn_as_far_as_they_can(direction: Direction, body: str) -> None:
    document = docx.Document()
    for element in parse_xml(f"<w:body {nsdecls('w')}>{body}</w:body>"):
        document.element.body.insert(0, element)
    turned = turn(document, direction)
    paragraph = next(turned.element.body.iter(qn("w:p")))
    assert len(paragraph.findall(f"{qn('w:pPr')}/{qn('w:bidi')}")) == 1


def test_documents_in_the_strict_form_turn() -> None:
    """Their elements have another namespace."""
    document = docx.Document()
    document.add_paragraph("sun").runs[0].bold = True
    file = io.BytesIO()
    document.save(file)
    transitional, strict = (
        "http://schemas.openxmlformats.org/wordprocessingml/2006",
        "http://purl.oclc.org/ooxml/wordprocessingml",
    )
    content = io.BytesIO()
    with zipfile.ZipFile(file) as archive, zipfile.ZipFile(content, "w") as written:
        for entry in archive.infolist():
            found = archive.read(entry)
            is_word = entry.filename in {"word/document.xml", "word/styles.xml"}
            written.writestr(entry, found.replace(transitional.encode(), strict.encode()) if is_word else found)
    read = read_formatted_document(content.getvalue(), ".docx")
    turned = read.write("<p>شمس</p>", LanguageDeclaration("ar", lambda _: True, "rtl"))
    with zipfile.ZipFile(io.BytesIO(turned)) as archive:
        text = archive.read("word/document.xml").decode()
    assert re.search(r"<w:pPr><w:bidi/></w:pPr><w:r><w:rPr><w:b/><w:bCs/><w:rtl/></w:rPr><w:t[^>]*>شمس", text)


def test_without_another_direction_nothing_is_turned() -> None:
    document = docx.Document()
    document.add_paragraph("sun")
    (paragraph,) = turn(document, None).paragraphs
    assert (paragraph._p.pPr, paragraph.runs[0]._r.rPr) == (None, None)
