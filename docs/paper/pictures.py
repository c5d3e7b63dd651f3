# ruff: noqa: INP001 - a folder of pages, no package
"""The pictures of these pages: matrices as heat maps, drawn on white so that they can be read in dark mode, too."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor

plt.rcParams.update(
    {
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "figure.dpi": 90,
        "figure.constrained_layout.use": True,
        "axes.titlesize": "medium",
        "font.size": 10,
    }
)


def draw_matrices(  # noqa: PLR0913 - options of a picture, all with defaults
    matrices: Mapping[str, Tensor],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    numbers: bool = False,
    shades: str = "Blues",
    limits: tuple[float, float] | None = (0.0, 1.0),
    per_line: int = 4,
    xlabel: str = "",
    ylabel: str = "",
) -> None:
    """Draw matrices with the same rows and columns side by side, each under its title.

    Args:
        matrices: the matrices by their titles.
        rows: a label for each row.
        columns: a label for each column.
        numbers: write every number into its cell.
        shades: name of a colour map of matplotlib.
        limits: the numbers with the first and the last shade; None: the least and the greatest of each matrix.
        per_line: maximum number of matrices side by side.
        xlabel: what the columns are.
        ylabel: what the rows are.
    """
    width = min(len(matrices), per_line)
    height = -(-len(matrices) // width)
    cell = 0.45 if numbers else 0.22
    wide = min(cell, 8 / (width * len(columns)))  # no picture is wider than a page
    size = width * (wide * len(columns) + 0.9), height * (cell * len(rows) + 1.0)
    figure, grid = plt.subplots(height, width, figsize=size, squeeze=False, sharex=True, sharey=True)
    for axes, (title, matrix) in zip(grid.flat, matrices.items(), strict=False):
        draw_matrix(axes, matrix, rows, columns, numbers=numbers, shades=shades, limits=limits)
        axes.set_title(title)
    for axes in grid.flat[len(matrices) :]:
        axes.set_visible(False)
    figure.supxlabel(xlabel, fontsize="medium")
    figure.supylabel(ylabel, fontsize="medium")


def draw_matrix(
    axes: Axes,
    matrix: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    numbers: bool = False,
    shades: str = "Blues",
    limits: tuple[float, float] | None = (0.0, 1.0),
) -> None:
    """Draw one matrix; the arguments are those of `draw_matrices`."""
    values = matrix.detach().float()
    lowest, highest = limits or (float(values.min()), float(values.max()))
    axes.imshow(values.numpy(), cmap=shades, vmin=lowest, vmax=highest, aspect="auto", interpolation="nearest")
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    if numbers:
        for row, line in enumerate(values.tolist()):
            for column, value in enumerate(line):
                colour = "white" if value > (lowest + 2 * highest) / 3 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
