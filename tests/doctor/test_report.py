import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transduce.config import CorpusConfig, DataConfig, TextConfig
from transduce.doctor import (
    REPORT_FILE,
    Examination,
    examine_corpus,
    format_summary,
    list_lines,
    make_json,
    render_page,
)

Pairs = list[tuple[str, str]]


@pytest.fixture
def examination(tmp_path: Path, invented: Callable[..., Pairs]) -> Examination:
    """Of a text with a shift, mojibake, markup that must be escaped, and leakage."""
    pairs = invented(1500)
    pairs[7] = f"<b>{pairs[7][0]}</b> \x1b[31m", f"{pairs[7][1]} über".encode().decode("cp1252")
    sources, targets = map(list, zip(*pairs, strict=True))
    del targets[1000], sources[-1]
    for name, sides in (
        ("train", (sources, targets)),
        ("test", zip(*invented(1000, seed=2)[:900] + pairs[20:120], strict=True)),
    ):
        for side, lines in zip(("source", "target"), sides, strict=True):
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), source="train.source", target="train.target", source_language="en")
    test = CorpusConfig(source="test.source", target="test.target")
    return examine_corpus(data, TextConfig(vocabulary="fitted"), test, report=lambda _: None)


class Page(HTMLParser):
    """What a browser sees of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.marked: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        assert not {"src", "href"} & {name for name, value in attrs if not (value or "").startswith("#")}

    def handle_endtag(self, tag: str) -> None:
        while self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] == "mark":
            self.marked.append(data)


def test_the_page_shows_findings_samples_and_charts(examination: Examination) -> None:
    page = Page(render_page(examination))
    text = "".join(page.texts)
    for finding in examination.findings:
        assert f"{finding.summary}." in text
        assert f"{finding.advice}." in text
        for sample in finding.shown_samples:
            for reference in sample:
                assert str(reference) in text
    assert "Ã¼" in page.marked
    assert page.tags.count("svg") == 3 * len(examination.figures)
    assert "script" not in page.tags
    assert "<b>" in text
    assert "b" not in [tag for tag in page.tags if page.tags.count(tag) == 1]
    assert "with the shifts found" in text


def test_json_says_the_same(examination: Examination) -> None:
    found = json.loads(json.dumps(make_json(examination)))
    assert found["is_serious"] is True
    assert [one["name"] for one in found["findings"]] == [finding.name for finding in examination.findings]
    for one, finding in zip(found["findings"], examination.findings, strict=True):
        assert (one["num_pairs"], one["severity"], one["text"]) == (
            finding.num_pairs,
            finding.severity,
            finding.text.name,
        )
        assert one["share"] == pytest.approx(finding.share)
        assert 1 <= len(one["samples"]) <= 5
    shift = found["findings"][0]
    assert shift["name"] == "shifted_lines"
    assert [pair["number"] for pair in shift["samples"][0]] == [1000, 1001, 1002]
    (mojibake,) = (one for one in found["findings"] if one["name"] == "mojibake" and one["text"] == "training")
    (pair,) = mojibake["samples"][0]
    assert [pair["target"][start:end] for start, end in pair["target_marks"]] == ["Ã¼"]
    training = found["texts"]["training"]
    assert [segment["shift"] for segment in training["segments"]] == [0, -1]
    assert training["segments"][1]["number"] == 1001
    assert training["num_pairs"] == 1499
    assert found["texts"]["test"]["leakage"]["training"]["pairs"] == 100


def test_the_table_lists_every_pair_of_a_finding(examination: Examination) -> None:
    header, *rows = list_lines(examination)
    assert header == "finding\ttext\tcorpus\tunit\tnumber\n"
    assert len(rows) == sum(len(finding.rows) for finding in examination.findings)
    assert "mojibake\ttraining\ttrain.source train.target\tline\t8\n" in rows
    assert "shifted_lines\ttraining\ttrain.source train.target\tline\t1001\n" in rows


@pytest.mark.parametrize("width", [40, 100])
def test_the_summary_fits_the_terminal(examination: Examination, width: int) -> None:
    summary = format_summary(examination, width)
    assert all(len(line) <= width for line in summary.split("\n") if not line.startswith(("1,499", "note:")))
    assert "\x1b" not in summary
    assert "1,499 training pairs, 1,000 test pairs: 2 serious findings" in summary
    assert "serious: shifted lines, training text" in summary


def test_reports_are_recognised(examination: Examination, tmp_path: Path) -> None:
    reports = {
        "a.html": render_page(examination),
        "a.json": json.dumps(make_json(examination)),
        "a.tsv": "".join(list_lines(examination)),
    }
    for name, content in reports.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert REPORT_FILE.contains(tmp_path / name)
    (tmp_path / "other").write_text("finding nothing", encoding="utf-8")
    assert not REPORT_FILE.contains(tmp_path / "other")


def test_a_text_without_findings_has_a_page(tmp_path: Path, invented: Callable[..., Pairs]) -> None:
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in invented(800)), encoding="utf-8")
    data = DataConfig(folder=str(tmp_path), pairs="text.tsv")
    examination = examine_corpus(data, TextConfig(vocabulary="fitted"), report=lambda _: None)
    assert "Nothing was found." in render_page(examination)
    assert format_summary(examination, 80).startswith("800 training pairs: 0 serious findings, 0 minor")
