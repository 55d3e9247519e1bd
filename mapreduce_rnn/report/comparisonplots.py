"""The plots of a comparison: curves of several groups of runs, and times by buckets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes

from mapreduce_rnn.report import axes, marks, measures
from mapreduce_rnn.report.axes import Ruler
from mapreduce_rnn.report.canvas import INDENT, Drawing, panels
from mapreduce_rnn.report.comparison import Comparison, Group
from mapreduce_rnn.report.measures import Measure, Spread
from mapreduce_rnn.report.run import Round
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import time_unit

_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_MARKERS = "os^Dv*PX"
_MARKED = 8  # points of a curve that have a marker, about
_COLUMNS = {"devices": 2, "buckets": 4}  # of the legend

Measured = Callable[[Round], float]

Names = dict[str, Group]
"""Groups by what the legend calls them."""


def by_devices(groups: Sequence[Group]) -> Drawing:
    """Loss and label error (rows) against training time and epochs (columns), a curve a group."""
    named = {group.devices: group for group in groups}
    drawing = panels(count=4, columns=2, legend_rows=_rows(named, "devices"))
    plots = drawing.figure.axes
    for axis, ruler in zip(plots, _rulers(groups) * 2, strict=True):
        axes.horizontal(axis, ruler)
        if axis in plots[:2]:
            _losses(axis, named, ruler, "devices")
        else:
            _errors(axis, named, ruler)
    return drawing


def by_buckets(comparison: Comparison, groups: Sequence[Group], loss: float | None) -> Drawing:
    """Time per epoch and to a loss by buckets, for all devices; below, curves of ``groups``.

    Args:
        groups: those of one number of devices.
        loss: None leaves the second plot empty.
    """
    named = {group.setting.buckets: group for group in groups}
    by_count = _by_devices(comparison)
    rows = max(_rows(named, "buckets"), _rows(by_count, "devices"))
    drawing = panels(count=4, columns=2, legend_rows=rows)
    per_epoch, to_loss, *curves = drawing.figure.axes
    _bucket_times(per_epoch, by_count, measures.epoch_seconds, "Time per epoch")
    reached = measures.seconds_to(math.nan if loss is None else loss)
    aim = "the loss" if loss is None else f"validation loss {loss:g}"
    _bucket_times(to_loss, by_count, reached, f"Time to {aim}")
    for axis, ruler in zip(curves, _rulers(groups), strict=True):
        axes.horizontal(axis, ruler)
        _losses(axis, named, ruler, "buckets")
    return drawing


def _rows(named: Mapping[str, object], by: str) -> int:
    return -(-len(named) // _COLUMNS[by])


def _by_devices(comparison: Comparison) -> dict[str, tuple[Group, ...]]:
    """The groups of each number of devices, by what the legend calls these."""
    devices = {(g.setting.kind, g.setting.count): g for g in comparison.groups}
    alike = [comparison.with_devices(group.setting) for group in devices.values()]
    return {max((g.devices for g in groups), key=len): groups for groups in alike}


def _rulers(groups: Sequence[Group]) -> tuple[Ruler, Ruler]:
    rounds = [r for group in groups for cell in group.cells for r in cell.run.rounds]
    simulated = {cell.run.simulated is not None for group in groups for cell in group.cells}
    words = {frozenset({True}): "simulated", frozenset({False}): ""}
    said = words.get(frozenset(simulated), "partly simulated")
    return axes.time_ruler(rounds, said), axes.epoch_ruler(rounds)


def _losses(axis: Axes, named: Names, ruler: Ruler, by: str) -> None:
    _curves(axis, named, ruler, _loss)
    scale = axes.vertical(axis, _values(named, _loss))
    marks.heading(axis, f"Validation loss (nats per sequence{scale})", INDENT, _COLUMNS[by])


def _errors(axis: Axes, named: Names, ruler: Ruler) -> None:
    _curves(axis, named, ruler, _label_error)
    axes.error_axis(axis, _values(named, _label_error))
    marks.heading(axis, "Label error on validation (%)", INDENT, _COLUMNS["devices"])


def _loss(round: Round) -> float:
    return round.validation.loss if round.validation else math.nan


def _label_error(round: Round) -> float:
    return round.validation.label_error if round.validation else math.nan


def _values(named: Names, measure: Measured) -> list[float]:
    return [measure(r) for group in named.values() for c in group.cells for r in c.run.validated]


def _curves(axis: Axes, named: Names, ruler: Ruler, measure: Measured) -> None:
    """A curve per run; those of one group, its seeds, look alike and are named once."""
    for number, (name, group) in enumerate(named.items()):
        for seed, cell in enumerate(group.cells):
            points = [(ruler.place(r), measure(r)) for r in cell.run.validated]
            pen = _pen(number, len(points), len(group.cells))
            marks.curve(axis, points, pen, name if seed == 0 else f"_{name}")


def _pen(number: int, points: int, seeds: int = 1) -> marks.Pen:
    """Colour, dashes and marker of the curve ``number``."""
    return marks.Pen(
        colour=LIGHT.curves[number % len(LIGHT.curves)],
        dash=_DASHES[number % len(_DASHES)],
        marker=_MARKERS[number % len(_MARKERS)],
        width=1.8 if seeds == 1 else 1.1,
        every=max(1, points // _MARKED),
    )


def _bucket_times(
    axis: Axes, by_count: dict[str, tuple[Group, ...]], measure: Measure, title: str
) -> None:
    """A time by buckets, a curve per number of devices, with least and most over the seeds."""
    every = {g.setting.buckets: g.setting.order[2] for groups in by_count.values() for g in groups}
    labels = sorted(every, key=lambda buckets: every[buckets])
    spreads = {
        name: {labels.index(g.setting.buckets): measures.over_seeds(g, measure) for g in groups}
        for name, groups in by_count.items()
    }
    unit, seconds = time_unit(
        max((s.most for known in spreads.values() for s in known.values() if s.count), default=0.0)
    )
    for number, (name, known) in enumerate(spreads.items()):
        _with_bars(axis, {x: known[x] for x in sorted(known)}, seconds, number, name)
    values = [s.median / seconds for known in spreads.values() for s in known.values()]
    scale = axes.vertical(axis, values)
    axis.set(xlabel="buckets", xlim=(-0.5, len(labels) - 0.5))
    axis.set_xticks(range(len(labels)), labels)
    marks.heading(axis, f"{title} ({unit}{scale})", INDENT, _COLUMNS["devices"])


def _with_bars(
    axis: Axes, known: dict[int, Spread], seconds: float, number: int, name: str
) -> None:
    points = [(float(x), s.median / seconds) for x, s in known.items()]
    pen = _pen(number, len(points))
    marks.curve(axis, points, pen, name)
    for x, s in known.items():
        if s.count > 1:
            axis.vlines(x, s.least / seconds, s.most / seconds, color=pen.colour, linewidth=1.2)
