"""What is put into a plot: curves with gaps, level lines, the best point, headings, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from mapreduce_rnn.report.canvas import LEGEND_ROW
from mapreduce_rnn.report.style import LIGHT

Point = tuple[float, float]

_LEGEND_GAP = 0.1  # inches between a plot and the labels above it
_MARKED = 60  # points up to which each has a marker


@dataclass(frozen=True)
class Pen:
    """How a curve is drawn; colour, dashes and marker each tell it from others."""

    colour: str
    dash: str | tuple[float, tuple[float, ...]] = "-"
    marker: str = "o"
    width: float = 2.0  # points
    every: int = 1  # of so many points one has a marker


def curve(axis: Axes, points: Sequence[Point], pen: Pen, label: str) -> None:
    """A line with a gap at every NaN; a point alone between gaps keeps a marker."""
    x, y = [p[0] for p in points], [p[1] for p in points]
    seen = [math.isfinite(a) and math.isfinite(b) for a, b in points]
    often = range(0, len(seen), pen.every) if len(seen) <= _MARKED * pen.every else ()
    if any(seen):
        axis.plot(x, y, color=pen.colour, label=label, linewidth=pen.width, linestyle=pen.dash,
                  marker=pen.marker, markersize=1.8 * pen.width,
                  markevery=sorted({*often, *alone(seen)}))  # fmt: skip


def best(axis: Axes, at: Point, label: str) -> None:
    """A ring around a point; nothing where it has a NaN."""
    if all(map(math.isfinite, at)):
        axis.plot(*([value] for value in at), label=label, marker="o", markersize=10,
                  markerfacecolor="none", markeredgecolor=LIGHT.accent, markeredgewidth=1.6,
                  color=LIGHT.accent, linestyle="none", clip_on=False)  # fmt: skip


def level(axis: Axes, y: float, label: str) -> None:
    """A dashed level line; nothing for a NaN."""
    if math.isfinite(y):
        axis.axhline(y, color=LIGHT.warning, linestyle=(0, (4, 2)), linewidth=1.6, label=label)


def heading(axis: Axes, title: str, left: float, columns: int = 4) -> None:
    """A title and below it, outside the plot and so never on a curve, the labels.

    Args:
        left: where both begin, in inches left of the plot.
        columns: of labels; their rows are those that the panel was given room for.
    """
    width, height = (side / axis.figure.dpi for side in (axis.bbox.width, axis.bbox.height))
    labels = len(axis.get_legend_handles_labels()[0])
    more = max(0, -(-labels // columns) - 1)
    axis.set_title(title, x=-left / width, pad=34 + 72 * LEGEND_ROW * more)
    if labels:
        above = 1 + _LEGEND_GAP / height
        axis.legend(loc="lower left", bbox_to_anchor=(-left / width, above), ncols=columns)
    else:
        axis.text(0.5, 0.5, "no figures in this run", transform=axis.transAxes, ha="center")


def plain_log_ticks(axis: Axis, steps: Sequence[float] = (1, 2, 5), base: float = 10) -> None:
    """1, 2, 5, 10, ... instead of powers: ``steps`` times each power of ``base``."""
    axis.set_major_locator(LogLocator(base, subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def alone(seen: Iterable[bool]) -> list[int]:
    """Positions of true values without a true neighbour: a line through them shows nothing."""
    around = [False, *seen, False]
    triples = enumerate(zip(around, around[1:], around[2:], strict=False))
    return [i for i, (before, here, after) in triples if here and not (before or after)]
