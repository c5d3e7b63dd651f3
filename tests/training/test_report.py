import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from transduce.config import load_run_config
from transduce.training import learning_curve, write_report

HOSTILE = "<script>alert(1)</script> & \"'"
CONFIG = load_run_config(None, arguments={"preset": "tiny", "data.source_language": "en"})[0]
SCORES = [
    {"metric": "BLEU", "value": 12.345, "signature": "nrefs:1|tok:13a"},
    {"metric": "chrF", "value": 34.5, "signature": "nrefs:1|nc:6"},
]


def lines() -> list[dict[str, Any]]:
    training = [
        {
            "kind": "training",
            "update": update,
            "cross_entropy": 8.0 / update,
            "learning_rate": 1e-3,
            "tokens_per_second": 5000.0,
            "seconds": update * 0.1,
        }
        for update in range(50, 201, 50)
    ]
    sample = {"source": HOSTILE, "translation": "eins", "reference": "zwei"}
    validation = {
        "kind": "validation",
        "update": 200,
        "loss": 2.0,
        "perplexity": 7.39,
        "is_best": True,
        "scores": SCORES,
        "samples": [sample],
        "seconds": 20.0,
    }
    cleaning = {"blank": 3, "kept": 97}
    data = {"kind": "data", "update": 0, "num_pairs": 97, "num_parameters": 1234567, "cleaning": cleaning}
    return [data, *training, validation]


class Balance(HTMLParser):
    """Fails at a tag that is closed without being open."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opened and closed at once, as in <rect/>."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("amount", range(7))
def test_the_page_is_whole_however_far_the_run_has_come(tmp_path: Path, amount: int) -> None:
    write_report(tmp_path / "report.html", CONFIG, lines()[:amount])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_page_tells_the_figures_and_asks_nobody_else(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", CONFIG, lines())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for figure in ("12.35", "34.50", "7.39", "1,234,567", "nrefs:1|tok:13a", "blank"):
        assert figure in page
    assert not re.search(r"""(src|href)=|url\(|@import""", page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "Best model: the one after update 200." in page


def test_cleaning_is_told_corpus_by_corpus_where_there_are_several(tmp_path: Path) -> None:
    def told(*counts: tuple[int, int]) -> str:
        corpora = [
            {"name": f"<{number}>", "weight": 0.5, "cleaning": {"blank": blank, "kept": kept}}
            for number, (blank, kept) in enumerate(counts)
        ]
        write_report(tmp_path / "report.html", CONFIG, [{**lines()[0], "corpora": corpora}])
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        Balance().feed(page)
        return page[page.index("<h2>Cleaning") : page.index("<h2>Settings")]

    several = told((1, 56), (2, 41))
    assert re.findall(r">([^<>]+)</th>", several) == ["all corpora", "&lt;0&gt; (weight 0.5)", "&lt;1&gt; (weight 0.5)"]
    assert re.findall(r">(\d+)<", several) == ["3", "1", "2", "97", "56", "41"]
    assert re.findall(r">(\d+)<", told((3, 97))) == ["3", "97"]


def test_an_average_that_is_best_is_named_and_stands_in_the_table(tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", CONFIG, [*lines(), {**lines()[-1], "kind": "average", "loss": 1.875}])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Best model: the average of checkpoints after update 200." in page
    table = page[page.index("Validations as a table") : page.index("<h2>Samples")]
    for cell in (">200<", ">2.000<", ">200 (average)<", ">1.875<", ">12.35<", ">34.50<"):
        assert cell in table


@pytest.mark.parametrize("kind", ["data", "training", "validation", "average"])
def test_a_line_may_lack_every_figure(tmp_path: Path, kind: str) -> None:
    write_report(tmp_path / "report.html", CONFIG, [{"kind": kind, "update": 7, "is_best": True}])
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_figure_that_is_not_finite_does_not_end_the_run(tmp_path: Path, value: float) -> None:
    scores = [{**score, "value": value} for score in SCORES]
    broken = {**lines()[-1], "update": 250, "loss": value, "perplexity": value, "scores": scores}
    training = {**lines()[1], "update": 250, "cross_entropy": value, "learning_rate": value}
    write_report(tmp_path / "report.html", CONFIG, [*lines(), training, broken])
    for picture in re.findall(r"<svg.*?</svg>", (tmp_path / "report.html").read_text(encoding="utf-8"), re.DOTALL):
        assert not re.search(r"\b(nan|inf)\b", picture)
        ET.fromstring(picture)


def test_the_curve_is_a_picture_of_its_own() -> None:
    assert ET.fromstring(learning_curve(lines())).tag == "{http://www.w3.org/2000/svg}svg"
    assert ET.fromstring(learning_curve([])).tag == "{http://www.w3.org/2000/svg}svg"
