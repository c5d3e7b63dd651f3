"""The curves of a run show its figures, and its tables the same in numbers."""

import math
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from transduce.training.reporting.curves import MAX_POINTS, draw_charts, draw_learning_curve
from transduce.training.reporting.report import count_not_finite, format_score, tabulate_training, tabulate_validations


def elements(picture: ET.Element, name: str) -> list[ET.Element]:
    return [node for node in picture.iter() if node.tag.endswith(name)]


def training(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"kind": "training", "update": update, "loss": 5.0 + update % 2, **changes} for update in range(1, count + 1)
    ]


def validation(update: int, value: float, **changes: Any) -> dict[str, Any]:
    score = {"metric": "BLEU", "value": value, "signature": "s", "low": value - 1, "high": value + 2}
    return {"kind": "validation", "update": update, "loss": 2.0, "scores": [score], **changes}


def loss_curve(lines: list[dict[str, Any]]) -> ET.Element:
    return ET.fromstring(draw_charts(lines)[1])


def shapes(picture: ET.Element, name: str) -> list[list[str]]:
    return [node.attrib["points"].split() for node in picture.iter() if node.tag.endswith(name)]


def test_a_short_curve_shows_every_line() -> None:
    picture = loss_curve(training(MAX_POINTS))
    assert [len(points) for points in shapes(picture, "polyline")] == [MAX_POINTS]
    assert not shapes(picture, "polygon")


@pytest.mark.parametrize("count", [MAX_POINTS + 1, 1000, 10_000])
def test_a_long_curve_shows_means_within_their_range(count: int) -> None:
    picture = loss_curve(training(count))
    [points], [band] = shapes(picture, "polyline"), shapes(picture, "polygon")
    assert MAX_POINTS / 2 < len(points) <= MAX_POINTS
    assert len(band) == 2 * len(points)
    if count == 10_000:  # of 84 lines, half have 5 and half have 6
        heights = {place.split(",")[1] for place in points[:-1]}
        assert len(heights) == 1


def test_scores_have_their_intervals_around_them() -> None:
    picture = ET.fromstring(draw_charts([validation(10, 20.0), validation(20, 30.0)])[0])
    assert len(shapes(picture, "polygon")[0]) == 4
    without = validation(30, 40.0)
    del without["scores"][0]["low"]
    assert not shapes(ET.fromstring(draw_charts([validation(10, 20.0), without])[0]), "polygon")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, None, "high"])
def test_what_has_no_place_in_a_chart_is_left_out_and_counted(value: object) -> None:
    lines = [*training(3), *training(1, loss=value)]
    assert [len(points) for points in shapes(loss_curve(lines), "polyline")] == [3]
    assert count_not_finite(lines) == 1
    assert "not finite" in tabulate_training(training(1, loss=value))[1][0]


def test_the_table_of_training_has_few_rows_with_means() -> None:
    found = tabulate_training(training(1000))
    assert len(found[1]) == 20
    assert all(row.count("5.500") == 1 for row in found[1])


def test_the_table_of_validations_tells_intervals_and_what_was_validated() -> None:
    _, _, rows = tabulate_validations([validation(1000, 20.0, is_best=True), validation(2000, 30.0, kind="average")])
    assert [rows[0][index] for index in (0, 1, -1)] == ["1,000", "best so far", "20.00 (19.00–22.00)"]
    assert [rows[1][index] for index in (0, -1)] == ["2,000 (average of checkpoints)", "30.00 (29.00–32.00)"]
    caption, _, rows = tabulate_validations([validation(update, 20.0) for update in range(1, 101)])
    assert "40 of 100" in caption
    assert len(rows) == 40


def test_the_curve_of_a_run_stands_alone() -> None:
    for lines in ([], [validation(1, 2.0)]):
        picture = ET.fromstring(draw_learning_curve(lines))
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert any(node.tag.endswith("style") for node in picture)


def test_a_score_without_interval_stands_alone() -> None:
    assert format_score({"value": 12.345}) == "12.35"


def test_a_skipped_update_is_no_validation() -> None:
    lines = [{"kind": "skipped", "update": 3, "loss": "nan"}, {"kind": "validation", "update": 4, "loss": 1.0}]
    _, _, rows = tabulate_validations(lines)
    assert [row[0] for row in rows] == ["4"]


def test_the_divergence_of_r_drop_is_shown_where_there_is_one() -> None:
    without, with_it = training(3), training(3, divergence=0.25)
    assert len(draw_charts(with_it)) == len(draw_charts(without)) + 1
    (picture,) = [chart for chart in draw_charts(with_it) if "R-Drop" in chart]
    assert [len(points) for points in shapes(ET.fromstring(picture), "polyline")] == [3]
    assert "divergence" not in tabulate_training(without)[0]
    heads, rows = tabulate_training(with_it)
    assert rows[0][heads.index("divergence")] == "0.250"
    # Lines that an earlier session wrote without it are no gap in the table.
    assert tabulate_training([*without, *with_it])[1][-1][heads.index("divergence")] == "0.250"
