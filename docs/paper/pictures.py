# ruff: noqa: INP001 - a folder of pages, no package
"""The pictures of these pages: the parts of the model, and matrices as heat maps.

They are drawn on white, so that they can be read in dark mode, too.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

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


def draw_side_by_side(matrices: Mapping[str, Tensor], rows: Sequence[str]) -> None:
    """Draw matrices with the same rows in one line, each as wide as it has columns; positive numbers are blue.

    Args:
        matrices: the matrices by their titles.
        rows: a label for each row, written at the left.
    """
    widths = [matrix.size(1) for matrix in matrices.values()]
    _, line = plt.subplots(1, len(matrices), figsize=(9, 0.22 * len(rows) + 0.6), width_ratios=widths, sharey=True)
    for axes, (title, matrix) in zip(line, matrices.items(), strict=True):
        limit = 3 * float(matrix.std())
        draw_matrix(axes, matrix, rows, [], shades="RdBu", limits=(-limit, limit))
        axes.set_title(title, fontsize=9)


_BOXES = (
    # column, height, text, colour
    (0, 0.0, "source tokens", "white"),
    (0, 1.0, "embedding · √d + positions", "#f3e3c9"),
    (0, 2.4, "self-attention", "#cfe3f5"),
    (0, 3.2, "add, normalise", "#eeeeee"),
    (0, 4.2, "feed-forward", "#d7ecd4"),
    (0, 5.0, "add, normalise", "#eeeeee"),
    (0, 8.2, "memory", "white"),
    (1, 0.0, "target tokens, shifted right", "white"),
    (1, 1.0, "embedding · √d + positions", "#f3e3c9"),
    (1, 2.4, "self-attention, causal mask", "#cfe3f5"),
    (1, 3.2, "add, normalise", "#eeeeee"),
    (1, 4.2, "encoder-decoder attention", "#cfe3f5"),
    (1, 5.0, "add, normalise", "#eeeeee"),
    (1, 6.0, "feed-forward", "#d7ecd4"),
    (1, 6.8, "add, normalise", "#eeeeee"),
    (1, 8.2, "linear (the embedding matrix)", "#f3e3c9"),
    (1, 9.2, "softmax: a probability for each token", "white"),
)
"""The parts of the model from the bottom to the top: encoder (column 0) and decoder (column 1)."""

_SUBLAYERS = ((0, 2.4, 3.2), (0, 4.2, 5.0), (1, 2.4, 3.2), (1, 4.2, 5.0), (1, 6.0, 6.8))
"""Column, height of a sub-layer, height of the addition above it: what a residual connection leads around."""

_LAYERS = ((0, 1.85, 5.55, "encoder layer, N times"), (1, 1.85, 7.35, "decoder layer, N times"))
"""Column, lower and upper edge, name: what is there N times."""


def draw_model() -> None:
    """Draw the encoder, the decoder, and what goes from one to the other (the paper's Figure 1)."""
    plt.figure(figsize=(8.5, 6.2))
    axes = plt.gca()
    axes.set(xlim=(-1.1, 5.9), ylim=(-0.5, 9.7))
    axes.axis("off")
    middle = {0: 0.5, 1: 4.3}
    arrow = {"arrowstyle": "-|>", "color": "#555555", "shrinkA": 0, "shrinkB": 0}
    for column, bottom, top, name in _LAYERS:
        axes.add_patch(
            plt.Rectangle((middle[column] - 1.5, bottom), 3.0, top - bottom, fill=False, ls="--", ec="#888888")
        )
        axes.text(middle[column] + 1.45, top + 0.08, name, ha="right", va="bottom", fontsize=9, color="#555555")
    for column in (0, 1):
        own = [box for box in _BOXES if box[0] == column]
        for (_, height, *_), (_, above, *_) in pairwise(own):
            axes.annotate("", (middle[column], above - 0.3), (middle[column], height + 0.3), arrowprops=arrow)
    for column, height, text, colour in _BOXES:
        box = plt.Rectangle(
            (middle[column] - 1.2, height - 0.3), 2.4, 0.6, fc=colour, ec="#555555" if colour != "white" else "white"
        )
        axes.add_patch(box)
        axes.text(middle[column], height, text, ha="center", va="center", fontsize=9)
    for column, height, addition in _SUBLAYERS:
        x = middle[column] - 1.2
        axes.plot([middle[column], x - 0.15, x - 0.15], [height - 0.45, height - 0.45, addition], color="#555555", lw=1)
        axes.annotate("", (x, addition), (x - 0.15, addition), arrowprops=arrow)
    axes.plot([middle[0] + 0.5, 2.4, 2.4], [8.2, 8.2, 4.2], color="#2a6fb0", lw=1.5)
    axes.annotate("", (middle[1] - 1.2, 4.2), (2.4, 4.2), arrowprops={**arrow, "color": "#2a6fb0"})
    axes.text(2.3, 6.2, "keys and values\nfor every layer", fontsize=9, color="#2a6fb0", ha="right", va="center")
