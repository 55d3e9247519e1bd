"""The figure of examples: validation sequences as they were written.

No text from the data is drawn but the attribution: the font that comes with matplotlib lacks
Chinese and Japanese characters. The page has the labels beside the strokes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mapreduce_rnn.report.canvas import TILE, Drawing, Tile
from mapreduce_rnn.report.fields import finite
from mapreduce_rnn.report.marks import alone
from mapreduce_rnn.report.run import Example, Run
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import counted

# Inches.
_WIDTH = 2 * TILE
_STROKE_HEIGHT = 1.3  # of the tallest
_MARGIN, _GAP, _FOOT = 0.06, 0.6, 0.55
_TITLE, _TITLE_WIDTH = 0.4, 1.75


def examples(run: Run) -> Drawing:
    """Pen strokes of the run's examples at one scale, with their edits; a tile is one's strokes.

    Raises:
        ValueError: the run has no strokes.
    """
    tiles, scale = place([_extent(example) for example in run.drawn])
    height = max(tile.top + tile.height for tile in tiles) + _FOOT
    figure = Figure(figsize=(_WIDTH, height))
    for number, (tile, example) in enumerate(zip(tiles, run.drawn, strict=True), 1):
        inner = tile.inside(_MARGIN, _MARGIN, _MARGIN, _MARGIN)
        axis = figure.add_axes(inner.within(_WIDTH, height))
        _strokes(axis, example, inner, scale)
        labels = counted(len(example.reference), "label")
        title = f"{number}:  {counted(example.edits, 'edit')} / {labels}"
        figure.text(inner.left / _WIDTH, 1 - (tile.top - 0.05) / height, title)
    figure.text(_MARGIN / _WIDTH, 0.12 / height, _drawable(run.attribution), fontsize=9,
                color=LIGHT.muted, parse_math=False, wrap=True)  # fmt: skip
    return Drawing(figure, tuple(tiles))


def place(extents: Sequence[tuple[float, float]]) -> tuple[list[Tile], float]:
    """Rooms for strokes at one scale in rows, as words in lines; each with its title above.

    Args:
        extents: width and height of each example's strokes, in the units of the data.

    Returns:
        The rooms, margins included, and the inches per unit.
    """
    widest, tallest = (max(e[i] for e in extents) or 1.0 for i in (0, 1))
    scale = min(_STROKE_HEIGHT / tallest, (_WIDTH - 4 * _MARGIN) / widest)
    tiles: list[Tile] = []
    left, top, below = 0.0, _TITLE, _TITLE
    for extent in extents:
        width, height = (max(side * scale, 0.1) + 2 * _MARGIN for side in extent)
        if left > 0 and left + max(width, _TITLE_WIDTH) > _WIDTH:
            left, top = 0.0, below + _TITLE
        tiles.append(Tile(left, top, width, height))
        left += max(width, _TITLE_WIDTH) + _GAP
        below = max(tile.top + tile.height for tile in tiles)
    return tiles, scale


def _extent(example: Example) -> tuple[float, float]:
    """Width and height of the strokes."""
    spans = [finite(point[i] for point in example.points) or [0.0] for i in (0, 1)]
    width, height = (max(values) - min(values) for values in spans)
    return width, height


def _strokes(axis: Axes, example: Example, room: Tile, scale: float) -> None:
    """A line from point to point, none to a point that begins after a pen-up jump."""
    x: list[float] = []
    y: list[float] = []
    for here_x, here_y, jump in example.points:
        x += [math.nan, here_x] if jump else [here_x]
        y += [math.nan, here_y] if jump else [here_y]
    dots = alone([math.isfinite(value) for value in x])  # strokes of one point
    axis.plot(x, y, color=LIGHT.ink, linewidth=1.6, marker="o", markersize=2.8,
              markeredgewidth=0, markevery=dots, clip_on=False)  # fmt: skip
    left, top = min(finite(x), default=0.0), max(finite(y), default=0.0)
    axis.set_xlim(left, left + room.width / scale)
    axis.set_ylim(top - room.height / scale, top)
    axis.set_axis_off()


def _drawable(text: str) -> str:
    """What the font has of ``text``."""
    return "".join(c if c.isprintable() else " " for c in text).encode(
        "latin-1", "replace").decode("latin-1")  # fmt: skip
