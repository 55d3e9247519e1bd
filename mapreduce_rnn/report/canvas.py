"""What the figures share: sizes, and the two files that are made of one drawing.

pyplot picks a window system from the environment and keeps every figure open; a Figure with a
canvas of its own does neither, so a plot works on any machine and goes when it is dropped.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from mapreduce_rnn.report.style import on_page, rc

TILE = 4.8
"""Inches of width of a panel: its text has the size of a page's on a telephone and on a desk."""

INDENT = 0.55
"""Inches from the plot of a panel to the left, where its heading begins."""

STEPS = (1, 2, 5, 10)
"""Between ticks, times a power of ten."""

LEGEND_ROW = 0.21
"""Inches that a row of labels above a plot takes."""

_HEIGHT = 3.36  # inches of a panel
_MARGINS = (0.62, 0.77, 0.16, 0.72)  # inches left of, above, right of, below its plot
_DPI = 150
_COLOURS = 64


@dataclass(frozen=True)
class Tile:
    """A part of a figure that a page can show by itself.

    All in inches, ``left`` and ``top`` from the figure's upper left corner.
    """

    left: float
    top: float
    width: float
    height: float

    def within(self, width: float, height: float) -> tuple[float, float, float, float]:
        """As matplotlib takes it: left, bottom, width, height in parts of the figure's size."""
        bottom = height - self.top - self.height
        return self.left / width, bottom / height, self.width / width, self.height / height

    def inside(self, left: float, top: float, right: float, bottom: float) -> Tile:
        """What four margins leave of it."""
        return Tile(
            self.left + left, self.top + top,
            self.width - left - right, self.height - top - bottom,
        )  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """A figure, and the parts that a page puts side by side or below each other."""

    figure: Figure
    tiles: tuple[Tile, ...]


@contextmanager
def settings() -> Iterator[None]:
    """Within it matplotlib draws our way, whatever the user's own settings, and says nothing."""
    logger = logging.getLogger("matplotlib")  # tells users about its font cache and folders
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # A backend that the user has chosen is left alone. (Any: some versions type the names.)
        defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if "backend" not in k}
        ours: Any = defaults | rc()
        with matplotlib.rc_context(ours):
            yield
    finally:
        logger.setLevel(level)


def png(figure: Figure) -> bytes:
    """The figure as a PNG file of few colours, a third of the size; equal runs, equal bytes."""
    figure.set_dpi(_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    image = Image.fromarray(pixels[..., :3])
    file = io.BytesIO()
    image.quantize(_COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(file, "png")
    return file.getvalue()


def svg(figure: Figure) -> str:
    """The figure as SVG elements for a page: one unit a point, colours and font the page's.

    Equal runs give equal text.
    """
    file = io.StringIO()
    figure.savefig(file, format="svg")
    text = file.getvalue()
    body = text[text.index('<g id="figure_1"') : text.rindex("</svg>")]
    return on_page(body)


def panels(count: int, columns: int, legend_rows: int = 1) -> Drawing:
    """A drawing of ``count`` empty plots, row by row, in the order of ``figure.axes``.

    Args:
        legend_rows: of labels for which each panel gets room above its plot.
    """
    more = LEGEND_ROW * (legend_rows - 1)
    width, panel, height = columns * TILE, _HEIGHT + more, -(-count // columns) * (_HEIGHT + more)
    left, top, right, bottom = _MARGINS
    tiles = tuple(Tile(i % columns * TILE, i // columns * panel, TILE, panel) for i in range(count))
    figure = Figure(figsize=(width, height))
    for tile in tiles:
        figure.add_axes(tile.inside(left, top + more, right, bottom).within(width, height))
    return Drawing(figure, tiles)
