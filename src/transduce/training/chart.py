"""Line charts as SVG text: no script, no font, nothing from elsewhere; readable in light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 110, 34, 40
COLORS = ("#3b7dee", "#d9692b", "#3a9d68")

STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#444}.title{font-size:14px;font-weight:600;fill:#222}"
    ".grid{stroke:#ddd}.line{fill:none;stroke-width:2;stroke-linejoin:round}.paper{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}.title{fill:#eee}.grid{stroke:#3a3d42}.paper{fill:#16181c}}"
    "</style>"
)


@dataclass(frozen=True)
class Series:
    """One line: its name, and its points from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(title: str, series: Sequence[Series], x_label: str, y_label: str) -> str:
    """An `<svg>` element that also stands as a file of its own; series without points are left out."""
    shown = [one for one in series if one.points]
    description = f"{title}: {', '.join(one.name for one in shown) or 'nothing yet'} over {x_label}"
    body = _plot(shown, x_label, y_label) if shown else f'<text x="{LEFT}" y="{HEIGHT / 2}">nothing to show yet</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(description)}</title>{STYLE}"
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>{body}</svg>'
    )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers, from at most `low` to at least `high`."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / count))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _plot(series: Sequence[Series], x_label: str, y_label: str) -> str:
    x_ticks = ticks(min(x for one in series for x, _ in one.points), max(x for one in series for x, _ in one.points))
    y_ticks = ticks(min(y for one in series for _, y in one.points), max(y for one in series for _, y in one.points))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x: float) -> float:
        return LEFT + (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (right - LEFT)

    def down(y: float) -> float:
        return bottom - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (bottom - TOP)

    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{down(y):.1f}" y2="{down(y):.1f}"/>'
        f'<text x="{LEFT - 8}" y="{down(y) + 4:.1f}" text-anchor="end">{_number(y)}</text>'
        for y in y_ticks
    ]
    parts += [f'<text x="{across(x):.1f}" y="{bottom + 17}" text-anchor="middle">{_number(x)}</text>' for x in x_ticks]
    parts.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{TOP - 10}" text-anchor="end">{escape(y_label)}</text>')
    names = _apart([down(one.points[-1][1]) for one in series])
    for one, color, name_y in zip(series, COLORS, names, strict=False):
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in one.points)
        end_x, end_y = across(one.points[-1][0]), down(one.points[-1][1])
        parts.append(f'<polyline class="line" stroke="{color}" points="{path}"/>')
        parts.append(f'<circle cx="{end_x:.1f}" cy="{end_y:.1f}" r="3" fill="{color}"/>')
        parts.append(f'<text x="{end_x + 8:.1f}" y="{name_y + 4:.1f}" style="fill:{color}">{escape(one.name)}</text>')
    return "".join(parts)


def _apart(heights: Sequence[float], least: float = 15.0) -> list[float]:
    """The same heights, moved down where two names would overlap."""
    placed: dict[int, float] = {}
    lowest = -math.inf
    for index in sorted(range(len(heights)), key=lambda index: heights[index]):
        placed[index] = lowest = max(heights[index], lowest + least)
    return [placed[index] for index in range(len(heights))]


def _number(value: float) -> str:
    if value and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:,.10g}" if abs(value) >= 1 else f"{value:.3g}"
