import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.pages import Series, draw_histogram, draw_line_chart, make_standalone, name_bin
from transduce.pages.charts import choose_log_ticks, choose_ticks

NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda number: number == 0 or abs(number) > 1e-9)


def parsed(*series: Series, title: str = "t") -> ET.Element:
    return ET.fromstring(draw_line_chart(title, series, "updates", "nats"))


@given(NUMBERS, NUMBERS)
def test_ticks_cover_the_values_and_are_round(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = choose_ticks(low, high)
    step = found[1] - found[0]
    assert found[0] <= low + 1e-6 * step
    assert found[-1] >= high - 1e-6 * step
    assert 2 <= len(found) <= 12
    if low < high and high - low > 1e-6 * abs(high):
        leading = round(step / 10 ** math.floor(math.log10(step * 1.000001)), 3)
        assert leading in {1, 2, 5, 10}


@pytest.mark.parametrize(
    "points",
    [[], [(1.0, 2.0)], [(1.0, 5.0), (2.0, 5.0)], [(0.0, -1e-5), (10.0, 3e-4)], [(0.0, 1.0), (1e6, 1e6)]],
    ids=["none", "one", "constant", "small", "large"],
)
def test_any_series_gives_well_formed_svg(points: list[tuple[float, float]]) -> None:
    assert parsed(Series("a", points)).tag.endswith("svg")


def test_points_lie_within_the_picture_and_keep_their_order() -> None:
    picture = parsed(Series("a", [(0.0, 1.0), (5.0, 9.0), (10.0, 4.0)]))
    line = next(node for node in picture.iter() if "points" in node.attrib)
    places = [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
    assert [x for x, _ in places] == sorted(x for x, _ in places)
    assert places[1][1] < places[2][1] < places[0][1]  # up is less
    assert all(0 < x < 480 and 0 < y < 260 for x, y in places)


def elements(picture: ET.Element, name: str) -> list[ET.Element]:
    return [node for node in picture.iter() if node.tag.endswith(name)]


def test_names_are_escaped_and_do_not_overlap() -> None:
    picture = parsed(Series("<a>", [(0.0, 1.0), (1.0, 1.0)]), Series("&b", [(0.0, 1.0), (1.0, 1.001)]), title="<t>")
    texts = {node.text: float(node.attrib["x"]) for node in elements(picture, "text")}
    assert "<t>" in texts
    assert texts["&b"] - texts["<a>"] >= 40


@pytest.mark.parametrize("end", ["test.txt", "a/very/long/path/" * 5 + "test.txt"])
def test_long_names_fit_into_the_legend_and_are_told_apart(end: str) -> None:
    names = [f"/home/someone/translations/of/newstest2014/{number}/{end}" for number in (1, 2)]
    picture = parsed(*(Series(name, [(0.0, 1.0), (1.0, 2.0)]) for name in names))
    title = next(node.text for node in picture if node.tag.endswith("title"))
    assert title == f"t: {', '.join(names)}"
    shown = [node for node in elements(picture, "text") if node.text and node.text.endswith("test.txt")]
    assert all(float(node.attrib["x"]) + 6.6 * len(node.text or "") < 480 for node in shown)
    assert len(shown) == 2
    assert len({node.attrib["y"] for node in shown}) == 2
    assert end != "test.txt" or len({node.text for node in shown}) == 2


def test_a_band_lies_around_its_line() -> None:
    picture = parsed(Series("a", [(0.0, 2.0), (1.0, 3.0)], band=[(1.0, 4.0), (2.0, 9.0)]))
    line, band = (
        [tuple(map(float, place.split(","))) for place in elements(picture, name)[0].attrib["points"].split()]
        for name in ("polyline", "polygon")
    )
    upper, lower = band[:2], band[:1:-1]
    assert [x for x, _ in upper] == [x for x, _ in lower] == [x for x, _ in line]
    assert all(top < y < bottom for (_, top), (_, y), (_, bottom) in zip(upper, line, lower, strict=True))


@given(st.floats(1e-29, 1e29), st.floats(1e-29, 1e29))
def test_ticks_of_factors_cover_the_values(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = choose_log_ticks(low, high)
    assert found[0] <= low * (1 + 1e-6)
    assert found[-1] >= high * (1 - 1e-6)
    assert found == sorted(set(found))
    assert 2 <= len(found) <= 12


def test_equal_factors_are_equal_steps() -> None:
    picture = ET.fromstring(
        draw_line_chart("t", [Series("a", [(1.0, 1.0), (2.0, 10.0), (3.0, 100.0)])], "", "", log=True)
    )
    heights = [float(place.split(",")[1]) for place in elements(picture, "polyline")[0].attrib["points"].split()]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


def test_what_is_not_above_zero_has_no_place_among_factors() -> None:
    series = Series("a", [(1.0, 0.0), (2.0, 1.0), (3.0, 2.0)], band=[(0.0, 0.0), (0.0, 3.0), (1.0, 3.0)])
    picture = ET.fromstring(draw_line_chart("t", [series], "", "", log=True))
    assert len(elements(picture, "polyline")[0].attrib["points"].split()) == 2
    assert "nothing to show yet" in draw_line_chart("t", [Series("a", [(1.0, 0.0)])], "", "", log=True)


def test_bars_are_as_high_as_their_counts() -> None:
    picture = ET.fromstring(draw_histogram("t", 4, {"<s>": [0, 10, 5], "t": [1, 0, 0]}, "tokens", "pairs"))
    bars = {bar[0].text: float(bar.attrib["height"]) for bar in elements(picture, "rect") if len(bar)}
    assert list(bars) == ["<s>, 4 to 7 tokens: 10", "<s>, 8 and more tokens: 5", "t, 0 to 3 tokens: 1"]
    assert list(bars.values()) == pytest.approx(
        [bars["t, 0 to 3 tokens: 1"] * factor for factor in (10, 5, 1)], abs=0.5
    )
    assert "nothing to show yet" in draw_histogram("t", 1, {"a": [0, 0]}, "", "")


def test_bins_have_names() -> None:
    assert [name_bin(index, 4, 3) for index in range(3)] == ["0 to 3", "4 to 7", "8 and more"]
    assert name_bin(2, 1, 9) == "2"


def test_a_file_of_its_own_brings_its_style() -> None:
    picture = draw_line_chart("t", [Series("a", [(1.0, 2.0)])], "", "")
    assert elements(ET.fromstring(make_standalone(picture)), "style")
    assert not elements(ET.fromstring(picture), "style")
