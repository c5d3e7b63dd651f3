import re
from typing import Any

from transduce.training.samples import MOST_CHARACTERS, MOST_OUTPUTS, samples


def validation(update: int, translation: str, reference: str = "eins zwei", source: str = "one two") -> dict[str, Any]:
    sample = {"source": source, "translation": translation, "reference": reference}
    return {"kind": "validation", "update": update, "samples": [sample]}


def rows(page: str) -> list[tuple[str, str]]:
    return re.findall(r'<tr><th scope="row" class="number">(.*?)</th><td dir="auto".*?>(.*?)</td></tr>', page)


def test_an_output_stands_there_for_as_long_as_it_is_the_same() -> None:
    outputs = ["drei", "eins drei", "eins drei", "eins zwei"]
    page = samples([validation(100 * number, text) for number, text in enumerate(outputs, 1)], "en", "de")
    assert [update for update, _ in rows(page)] == ["100", "200 to 300", "400"]
    assert page.count("one two") == 1
    assert 'lang="de"' in page


def test_what_the_reference_has_too_stands_out() -> None:
    [(_, words)] = rows(samples([validation(1, "eins oder drei")], "", ""))
    assert words == "<b>eins </b>oder drei"
    [(_, letters)] = rows(samples([validation(1, "猫が好き", reference="犬が好き")], "", ""))
    assert letters == "猫<b>が好き</b>"


def test_every_text_is_escaped_and_none_is_endless() -> None:
    page = samples([validation(1, "<i>" * 500, "<b> & <u>" * 500, '"<script>"' * 500)], '"><script>', "")
    assert "<script" not in page
    assert "<i>" not in page
    assert "<u>" not in page
    assert len(page) < 3 * MOST_CHARACTERS * 6 + 1000


def test_of_many_outputs_a_few_are_shown() -> None:
    page = samples([validation(update, f"eins {update}") for update in range(1, 101)], "", "")
    shown = [update for update, _ in rows(page)]
    assert len(shown) == MOST_OUTPUTS
    assert (shown[0], shown[-1]) == ("1", "100")


def test_there_may_be_none() -> None:
    assert "The first validation" in samples([], "", "")
    assert "The first validation" in samples([{"kind": "validation", "update": 3}], "", "")
