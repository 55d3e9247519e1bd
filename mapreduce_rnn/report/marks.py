"""What is put into a plot: curves with gaps, level lines, the best point, headings, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from mapreduce_rnn.report.style import LIGHT

Point = tuple[float, float]

_MARKED = 60  # points up to which each has a marker


def curve(
    axis: Axes, points: Sequence[Point], colour: str, label: str, dashed: bool = False
) -> None:
    """A line with a gap at every NaN; a point alone between gaps keeps a marker."""
    x, y = [p[0] for p in points], [p[1] for p in points]
    seen = [math.isfinite(a) and math.isfinite(b) for a, b in points]
    marked = list(range(len(seen))) if len(seen) <= _MARKED else alone(seen)
    if any(seen):
        axis.plot(x, y, color=colour, label=label, marker="o", markersize=3.6, markevery=marked,
                  linewidth=1.4 if dashed else 2.0, linestyle="--" if dashed else "-")  # fmt: skip


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


def heading(axis: Axes, title: str, left: float) -> None:
    """A title and below it, outside the plot and so never on a curve, a row of the labels.

    Args:
        left: where both begin, in inches left of the plot.
    """
    width = axis.bbox.width / axis.figure.dpi
    axis.set_title(title, x=-left / width, pad=34)
    if axis.get_legend_handles_labels()[0]:
        axis.legend(loc="lower left", bbox_to_anchor=(-left / width, 1.05), ncols=4)
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


def finite(values: Iterable[float]) -> list[float]:
    """The numbers among ``values``: no NaN, no infinity."""
    return [value for value in values if math.isfinite(value)]
