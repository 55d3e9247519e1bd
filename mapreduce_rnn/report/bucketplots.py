"""Plots of length buckets: what is fed, what other numbers of buckets cost, what lengths there are.

Apart from the one of a run they take plain numbers: ``mapreduce-rnn buckets`` draws them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from mapreduce_rnn.report import marks
from mapreduce_rnn.report.canvas import INDENT, STEPS, Drawing, panels, png, settings
from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import counted, percent

_BARS = 40
_LONG_TAIL = 10.0  # longest by median length above which their axis is logarithmic
_LOG_FROM = 2.0  # largest by least cost above which theirs is


def of_run(run: Run) -> Drawing:
    """Frames fed by length; beside it the planned cost, where the run has it."""
    planned = run.plan.planned_cost
    drawing = panels(count=2 if planned else 1, columns=2 if planned else 1)
    _fed(drawing.figure.axes[0], run.plan.boundaries)
    if planned:
        _costs(drawing.figure.axes[1], planned, len(run.plan.boundaries))
    return drawing


def lengths(values: NDArray[np.int64], boundaries: Sequence[float]) -> Drawing:
    """How many sequences have which length, and where the buckets end.

    Args:
        values: (n,) lengths of the sequences, frames.
        boundaries: (Q,) inclusive upper lengths, ascending; the last one is the longest.
    """
    drawing = panels(count=1, columns=1)
    _lengths(drawing.figure.axes[0], values, boundaries)
    return drawing


def costs(planned: Sequence[float], chosen: int) -> Drawing:
    """Planned cost of an epoch by number of buckets, in units of the least.

    Args:
        planned: of 1, 2, .. buckets, 0 or more; at least one.
        chosen: the number that is used; it may lie beyond those planned.
    """
    drawing = panels(count=1, columns=1)
    _costs(drawing.figure.axes[0], planned, chosen)
    return drawing


def write(
    folder: Path, values: NDArray[np.int64], boundaries: Sequence[float], planned: Sequence[float]
) -> list[Path]:
    """Draw :func:`lengths` and :func:`costs` into a folder, made if need be; returns the files.

    Raises:
        OSError: they can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with settings():
        for name, drawing in (
            ("lengths", lengths(values, boundaries)),
            ("planned-cost", costs(planned, len(boundaries))),
        ):
            files.append(folder / f"{name}.png")
            files[-1].write_bytes(png(drawing.figure))
    return files


def _fed(axis: Axes, bounds: Sequence[float]) -> None:
    """Frames fed at most for a sequence of each length: stairs over the sequence's own frames."""
    length = [edge for pair in zip((0, *bounds[:-1]), bounds, strict=True) for edge in pair]
    fed = [bound for bound in bounds for _ in range(2)]
    axis.fill_between(length, length, fed, color=LIGHT.rule, linewidth=0, label="padding")
    axis.plot(length, fed, color=LIGHT.accent, label="frames fed at most")
    axis.plot(length, length, color=LIGHT.muted, linewidth=1.0, label="own frames")
    axis.set(xlim=(0, bounds[-1]), ylim=(0, 1.04 * bounds[-1]), xlabel="length (frames)")
    for side in (axis.xaxis, axis.yaxis):
        _whole(side)
    marks.heading(axis, "Frames fed per sequence", INDENT)


def _lengths(axis: Axes, values: NDArray[np.int64], boundaries: Sequence[float]) -> None:
    long_tail = bool(values.max() > _LONG_TAIL * np.median(values))
    edges = _edges(int(values.min()), int(values.max()), long_tail)
    axis.hist(values, edges, color=LIGHT.second, alpha=0.5, label="sequences")
    heights = axis.get_ylim()
    axis.vlines(boundaries, *heights, color=LIGHT.accent, linewidth=1.0, label="bucket boundaries")
    axis.set(xlim=(edges[0], edges[-1]), ylim=heights, xlabel="length (frames)")
    _whole(axis.xaxis)
    _whole(axis.yaxis)
    if long_tail:
        axis.set(xscale="log", xlabel="length (frames, log scale)")
        marks.plain_log_ticks(axis.xaxis, (1, 3))
    marks.heading(axis, "Sequences by length", INDENT)


def _edges(low: int, high: int, long_tail: bool) -> list[float]:
    """Edges of the bars, between whole numbers; of equal width, or growing with the length."""
    growth = (high / low) ** (1 / _BARS) - 1
    equal = -(-(high - low + 1) // _BARS)
    edges = [low]
    while edges[-1] <= high:
        edges.append(edges[-1] + (max(1, round(growth * edges[-1])) if long_tail else equal))
    return [edge - 0.5 for edge in edges]


def _costs(axis: Axes, planned: Sequence[float], chosen: int) -> None:
    least = min(planned) or 1.0  # nothing costs anything, if the cost model says so
    ratios = [cost / least for cost in planned]
    marks.curve(axis, list(enumerate(ratios, 1)), marks.Pen(LIGHT.accent), "planned")
    if chosen <= len(ratios):
        ratio = ratios[chosen - 1]
        above = f"{counted(chosen, 'bucket')}: {percent(ratio - 1)} above the least"
        marks.best(axis, (chosen, ratio), above)
    axis.set(xscale="log", xlim=(0.9, 1.1 * len(ratios)), xlabel="number of buckets")
    marks.plain_log_ticks(axis.xaxis, (1,), base=2)
    scale = ""
    if max(ratios) > _LOG_FROM:
        scale = ", log scale"
        axis.set(yscale="log")
        marks.plain_log_ticks(axis.yaxis, (1, 2, 3, 5))
    marks.heading(axis, f"Planned cost of an epoch (least = 1{scale})", INDENT)


def _whole(side: Axis) -> None:
    side.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
