"""The direction of writing in Word documents, as python-docx reads it, and the order of its elements."""

import io
from typing import Any

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn
from docx.shared import Pt

from transduce.documents import NewLanguage, read_formatted_document
from transduce.documents.markup import Direction


def turn(document: Any, direction: Direction | None) -> Any:
    """The document, as it is written in a language of this direction."""
    file = io.BytesIO()
    document.save(file)
    read = read_formatted_document(file.getvalue(), ".docx")
    return docx.Document(io.BytesIO(read.write(read.text, NewLanguage("ar", lambda _: True, direction))))


def names_of(properties: Any) -> list[str]:
    return [child.tag.rpartition("}")[2] for child in properties]


def test_runs_and_paragraphs_turn_to_the_right() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("The sun ")
    paragraph.paragraph_format.space_before = Pt(3)
    paragraph.paragraph_format.keep_with_next = True
    paragraph.add_run("and moon").bold = True
    document.add_paragraph("12")  # is not translated
    section = document.sections[0]
    section.header.paragraphs[0].text = "river"
    turned = turn(document, "rtl")
    first, number = turned.paragraphs
    assert first.text == "The sun and moon"
    assert [run.font.rtl for run in first.runs] == [True, True]
    assert names_of(first._p.pPr) == ["keepNext", "bidi", "spacing"]
    assert [run.font.rtl for run in number.runs] == [None]
    assert number._p.pPr is None
    assert turned.sections[0].header.paragraphs[0].runs[0].font.rtl is True


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


def test_columns_of_tables_turn_too() -> None:
    document = docx.Document()
    table = document.add_table(1, 1, style="Table Grid")
    inner = table.cell(0, 0).add_table(1, 1)
    inner.cell(0, 0).text = "sun"
    document.add_table(1, 1).cell(0, 0).text = "12"
    first, numbers = turn(document, "rtl").tables
    assert names_of(first._tbl.tblPr)[:2] == ["tblStyle", "bidiVisual"]
    assert names_of(first.cell(0, 0).tables[0]._tbl.tblPr)[0] == "bidiVisual"
    assert "bidiVisual" not in names_of(numbers._tbl.tblPr)


def test_what_was_from_the_right_turns_to_the_left() -> None:
    document = docx.Document()
    run = document.add_paragraph().add_run("شمس")
    run.font.rtl = True
    run._r.getparent().get_or_add_pPr().append(parse_xml(f"<w:bidi {nsdecls('w')}/>"))
    (paragraph,) = turn(document, "ltr").paragraphs
    assert [run.font.rtl for run in paragraph.runs] == [False]
    assert [(bidi.tag, dict(bidi.attrib)) for bidi in paragraph._p.pPr] == [(qn("w:bidi"), {qn("w:val"): "0"})]
    assert names_of(paragraph.runs[0]._r.rPr) == ["rtl"]


@pytest.mark.parametrize("direction", ["rtl", "ltr"])
def test_text_in_no_run_does_not_matter(direction: Direction) -> None:
    document = docx.Document()
    document.add_paragraph("sun")._p.append(parse_xml(f"<w:t {nsdecls('w')}>moon</w:t>"))
    (paragraph,) = turn(document, direction).paragraphs
    assert [run.font.rtl for run in paragraph.runs] == [direction == "rtl"]


def test_without_another_direction_nothing_is_turned() -> None:
    document = docx.Document()
    document.add_paragraph("sun")
    (paragraph,) = turn(document, None).paragraphs
    assert (paragraph._p.pPr, paragraph.runs[0]._r.rPr) == (None, None)
