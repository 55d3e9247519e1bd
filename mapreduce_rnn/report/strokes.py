"""The figure of examples: validation sequences as they were written.

No text from the data is drawn but the attribution: the font that comes with matplotlib lacks
Chinese and Japanese characters. The page beside the figure has the labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mapreduce_rnn.report.figures import Format, alone, finite
from mapreduce_rnn.report.run import Example, Run
from mapreduce_rnn.report.style import Theme
from mapreduce_rnn.text import counted

# Inches.
_STROKE_HEIGHT = 1.1  # of the tallest
_MARGIN, _GAP, _FOOT = 0.15, 0.7, 0.4
_TITLE, _TITLE_WIDTH = 0.35, 1.6


def examples(run: Run, theme: Theme, format: Format) -> Figure:
    """Pen strokes of up to six sequences at one scale, numbered as in the page, with their edits.

    Raises ValueError for a run without strokes.
    """
    panels = place([_extent(example) for example in run.drawn], format.width)
    height = max(panel.top + panel.height for panel in panels) + _FOOT
    with style.context(["default", theme.rc()]):
        figure = Figure(figsize=(format.width, height))
        for number, (panel, example) in enumerate(zip(panels, run.drawn, strict=True), 1):
            bottom = height - panel.top - panel.height
            axis = figure.add_axes((
                panel.left / format.width, bottom / height,
                panel.width / format.width, panel.height / height,
            ))  # fmt: skip
            _strokes(axis, example, theme, panel)
            labels = counted(len(example.reference), "label")
            axis.set_title(f"{number}:  {counted(example.edits, 'edit')} / {labels}")
        figure.text(_MARGIN / format.width, 0.1 / height, _drawable(run.attribution), fontsize=7,
                    color=theme.muted, parse_math=False, wrap=True)  # fmt: skip
        return figure


@dataclass(frozen=True)
class Panel:
    """Where an example is drawn, in inches from the figure's upper left corner."""

    left: float
    top: float
    width: float
    height: float
    scale: float  # inches per unit of the data


def place(extents: Sequence[tuple[float, float]], width: float) -> list[Panel]:
    """Panels at one scale in rows, as words in lines; each has room for its title above."""
    widest, tallest = (max(e[i] for e in extents) or 1.0 for i in (0, 1))
    scale = min(_STROKE_HEIGHT / tallest, (width - 2 * _MARGIN) / widest)
    panels: list[Panel] = []
    left, top, below = _MARGIN, _TITLE, _TITLE
    for w, h in extents:
        if left > _MARGIN and left + max(w * scale, _TITLE_WIDTH) > width - _MARGIN:
            left, top = _MARGIN, below + _TITLE
        panels.append(Panel(left, top, max(w * scale, 0.1), max(h * scale, 0.1), scale))
        left += max(w * scale, _TITLE_WIDTH) + _GAP
        below = max(panel.top + panel.height for panel in panels)
    return panels


def _extent(example: Example) -> tuple[float, float]:
    """Width and height of the strokes."""
    spans = [finite(point[i] for point in example.points) or [0.0] for i in (0, 1)]
    width, height = (max(values) - min(values) for values in spans)
    return width, height


def _strokes(axis: Axes, example: Example, theme: Theme, panel: Panel) -> None:
    """A line from point to point, none to a point that begins after a pen-up jump."""
    x: list[float] = []
    y: list[float] = []
    for here_x, here_y, jump in example.points:
        x += [math.nan, here_x] if jump else [here_x]
        y += [math.nan, here_y] if jump else [here_y]
    dots = alone([math.isfinite(value) for value in x])  # strokes of one point
    axis.plot(x, y, color=theme.ink, linewidth=1.4, marker="o", markersize=2.8,
              markeredgewidth=0, markevery=dots, clip_on=False)  # fmt: skip
    left, top = min(finite(x), default=0.0), max(finite(y), default=0.0)
    axis.set_xlim(left, left + panel.width / panel.scale)
    axis.set_ylim(top - panel.height / panel.scale, top)
    axis.set_axis_off()


def _drawable(text: str) -> str:
    """What the font has of ``text``."""
    return "".join(c if c.isprintable() else " " for c in text).encode(
        "latin-1", "replace").decode("latin-1")  # fmt: skip
