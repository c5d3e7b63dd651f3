from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transduce.evaluation import (
    SCORECARD_PAGE,
    PageHeading,
    Scorecard,
    Sentence,
    measure_scorecard,
    render_scorecard_page,
)
from transduce.pages.templates import MAX_CHARACTERS
from transduce.translation import Translator

ODD = "<script>alert(1)</script> & \"quoted\" 'text'"


class Elements(HTMLParser):
    """All elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def card(make_translator: Callable[..., Translator], make_sentences: Callable[..., list[Sentence]]) -> Scorecard:
    return measure_scorecard(make_translator(lambda _: ODD), make_sentences(12, end=" everywhere"))


def test_the_page_shows_every_behaviour_with_its_examples(card: Scorecard) -> None:
    page = Elements(render_scorecard_page(card, PageHeading("mine", "test.en", "en", "de")))
    assert [tag for tag, _ in page.found].count("details") == len(card.results)
    for result in card.results:
        assert result.figures.description in page.text
        assert f"{result.figures.score:.1f}" in page.text
        assert all(example.text[:MAX_CHARACTERS] in page.text for example in result.examples)
    assert card.skipped
    assert all(reason in page.text for reason in card.skipped.values())
    assert {"en", "de"} <= {attributes.get("lang") for _, attributes in page.found}


def test_the_page_stands_alone_and_runs_nothing(card: Scorecard) -> None:
    page = Elements(render_scorecard_page(card, PageHeading(ODD, ODD)))
    assert ODD in page.text
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.found}
    assert not [name for _, attributes in page.found for name in attributes if name in {"src", "href", "onclick"}]


def test_bars_are_as_long_as_scores(card: Scorecard) -> None:
    page = Elements(render_scorecard_page(card, PageHeading("mine", "test.en")))
    widths = [attributes["style"] for _, attributes in page.found if attributes.get("class") == "bar"]
    assert widths == [f"width:{result.figures.score:.1f}%" for result in card.results]


def test_own_pages_are_recognised(card: Scorecard, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_scorecard_page(card, PageHeading("mine", "test.en")), encoding="utf-8")
    assert SCORECARD_PAGE.contains(path)
    path.write_text("<!doctype html><p>Mine.</p>", encoding="utf-8")
    assert not SCORECARD_PAGE.contains(path)
