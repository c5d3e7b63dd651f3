import math
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.training.chart import Series, line_chart, ticks

NUMBERS = st.floats(-1e9, 1e9, allow_subnormal=False).filter(lambda number: number == 0 or abs(number) > 1e-9)


def parsed(*series: Series, title: str = "t") -> ET.Element:
    return ET.fromstring(line_chart(title, series, "updates", "nats"))


@given(NUMBERS, NUMBERS)
def test_ticks_cover_the_values_and_are_round(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
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
    assert all(0 < x < 720 and 0 < y < 260 for x, y in places)


def test_names_are_escaped_and_do_not_overlap() -> None:
    picture = parsed(Series("<a>", [(0.0, 1.0), (1.0, 1.0)]), Series("&b", [(0.0, 1.0), (1.0, 1.001)]), title="<t>")
    texts = {node.text: float(node.attrib["y"]) for node in picture.iter() if node.tag.endswith("text")}
    assert "<t>" in texts
    assert abs(texts["<a>"] - texts["&b"]) >= 14
