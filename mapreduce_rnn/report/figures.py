"""The report's figures, as matplotlib objects without pyplot.

pyplot picks a window system from the environment and keeps every figure open; a Figure with an
Agg canvas of its own does neither, so a plot works on any machine and goes when it is dropped.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from PIL import Image

from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.style import Theme
from mapreduce_rnn.text import percent

_LOG_FROM = 10.0  # ratio of largest to smallest loss above which the axis is logarithmic
_COLOURS = 128
_MARKED = 60  # points up to which each has a marker


@dataclass(frozen=True)
class Format:
    """Size of a picture: inches of width decide how large its text appears on the page."""

    width: float
    dpi: int
    narrow: bool  # one column of panels


WIDE = Format(width=10.0, dpi=150, narrow=False)
NARROW = Format(width=3.7, dpi=220, narrow=True)


def png(figure: Figure, format: Format) -> bytes:
    """The figure as a PNG file of few colours, a third of the size; equal runs, equal bytes."""
    figure.set_dpi(format.dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    image = Image.fromarray(pixels[..., :3])
    file = io.BytesIO()
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, "png")
    return file.getvalue()


def training(run: Run, theme: Theme, format: Format) -> Figure:
    """Loss and label error (rows) against training time and epochs (columns), rows share y."""
    with style.context(["default", theme.rc()]):
        figure, axes = _panels(format, 4, height=3.1 if not format.narrow else 2.3)
        loss_time, loss_epoch, error_time, error_epoch = axes
        unit, seconds = _time_unit([r.elapsed for r in run.rounds])
        time = {r.number: r.elapsed / seconds for r in run.rounds}
        epoch = {r.number: float(r.epoch) for r in run.rounds}
        for axis, where in ((loss_time, time), (loss_epoch, epoch)):
            _losses(axis, run, where, theme)
        for axis, where in ((error_time, time), (error_epoch, epoch)):
            _errors(axis, run, where, theme)
        for axis in (loss_time, error_time):
            axis.set_xlabel(f"training time ({unit}), validation and start-up apart")
        for axis in (loss_epoch, error_epoch):
            axis.set_xlabel("epochs")
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        _finish(axes, format)
        return figure


def _panels(format: Format, count: int, height: float) -> tuple[Figure, list[Axes]]:
    columns = 1 if format.narrow else 2
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(format.width, rows * height), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1, w_pad=0.08)  # type: ignore[union-attr, call-arg]
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _losses(axis: Axes, run: Run, where: dict[int, float], theme: Theme) -> None:
    scored = [(where[r.number], r.validation.loss) for r in run.rounds if r.validation]
    trained = [(where[r.number], r.train_loss) for r in run.rounds]
    _line(axis, trained, theme.second, "training loss", dashed=True)
    _line(axis, scored, theme.accent, "validation loss")
    _loss_scale(axis, [y for _, y in trained + scored])
    if run.best is not None and run.best.validation is not None:
        _ring(axis, where[run.best.number], run.best.validation.loss, theme, "best round")


def _errors(axis: Axes, run: Run, where: dict[int, float], theme: Theme) -> None:
    scored = [(where[r.number], 100 * r.validation.label_error) for r in run.rounds if r.validation]
    _line(axis, scored, theme.accent, "label error, validation")
    constant = 100 * run.plan.constant_label_error
    if math.isfinite(constant):
        axis.axhline(constant, color=theme.warning, linestyle=(0, (5, 3)), linewidth=1.4,
                     label=f"best constant output, {percent(constant / 100)}")  # fmt: skip
    if run.best is not None and run.best.validation is not None:
        _ring(axis, where[run.best.number], 100 * run.best.validation.label_error, theme)
    axis.set_ylabel("label error (%)")
    axis.set_ylim(0, 1.08 * max([100.0, *finite(y for _, y in scored), *finite([constant])]))


def _line(
    axis: Axes, points: Sequence[tuple[float, float]], colour: str, label: str, dashed: bool = False
) -> None:
    """A line with a gap at every NaN; a point alone between gaps keeps a marker."""
    x, y = [p[0] for p in points], [p[1] for p in points]
    seen = [math.isfinite(a) and math.isfinite(b) for a, b in points]
    marked = list(range(len(seen))) if len(seen) <= _MARKED else alone(seen)
    if any(seen):
        axis.plot(x, y, color=colour, label=label, marker="o", markersize=3.2, markevery=marked,
                  linewidth=1.3 if dashed else 1.9, linestyle="--" if dashed else "-")  # fmt: skip


def alone(seen: Sequence[bool]) -> list[int]:
    """Positions of true values without a true neighbour."""
    around = [False, *seen, False]
    return [i for i, here in enumerate(seen) if here and not (around[i] or around[i + 2])]


def _ring(axis: Axes, x: float, y: float, theme: Theme, label: str | None = None) -> None:
    axis.plot([x], [y], marker="o", markersize=9, markerfacecolor="none", linestyle="none",
              markeredgecolor=theme.accent, markeredgewidth=1.4, label=label)  # fmt: skip


def _loss_scale(axis: Axes, losses: Sequence[float]) -> None:
    positive = [y for y in finite(losses) if y > 0]
    if positive and max(positive) > _LOG_FROM * min(positive):
        axis.set_yscale("log")
        _plain_log_ticks(axis.yaxis)
        axis.set_ylabel("nats per sequence (log)")
    else:
        axis.set_ylim(bottom=0)
        axis.set_ylabel("nats per sequence")


def _legend_above(axis: Axes, columns: int) -> None:
    """A legend over the panel that may be wider than it; the layout gives it a title's height."""
    entries = len(axis.get_legend_handles_labels()[0])
    axis.set_title("\n" * (math.ceil(entries / columns) - 1) + " ")
    legend = axis.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=columns,
                         handlelength=1.8, columnspacing=1.4, borderaxespad=0.2)  # fmt: skip
    legend.set_in_layout(False)


def _plain_log_ticks(axis: Axis) -> None:
    """1, 2, 5, 10, ... instead of powers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _finish(axes: Sequence[Axes], format: Format) -> None:
    """Legends above the left panel of each row, equal y in a row, x from 0."""
    for left, right in zip(axes[::2], axes[1::2], strict=True):
        right.sharey(left)
        if not format.narrow:
            right.set_ylabel("")
            right.tick_params(labelleft=False)
        if left.get_legend_handles_labels()[0]:
            _legend_above(left, 1 if format.narrow else 3)
            right.set_title(" ")  # as high as the legend, or the panels differ in height
    for axis in axes:
        axis.set_xlim(left=0)
        if not any(len(line.get_xdata()) and finite(line.get_xdata()) for line in axis.lines):  # type: ignore[arg-type]
            axis.text(0.5, 0.5, "no figures in this run", transform=axis.transAxes, ha="center")


def _time_unit(elapsed: Iterable[float]) -> tuple[str, float]:
    longest = max(finite(elapsed), default=0.0)
    if longest < 180:
        return "s", 1.0
    return ("min", 60.0) if longest < 3 * 3600 else ("h", 3600.0)


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def buckets(run: Run, theme: Theme, format: Format) -> Figure:
    """Frames fed at most for a sequence of each length: stairs over the sequence's own frames."""
    bounds = run.plan.boundaries
    low = bounds[0] / 3  # lengths spread over decades, so the axes are logarithmic
    lengths = [edge for pair in zip((low, *bounds[:-1]), bounds, strict=True) for edge in pair]
    fed = [bound for bound in bounds for _ in range(2)]
    with style.context(["default", theme.rc()]):
        height = 2.8 if format.narrow else 3.3
        figure = Figure(figsize=(format.width, height), layout="constrained")
        axis = figure.subplots()
        axis.fill_between(lengths, lengths, fed, color=theme.rule, linewidth=0, label="padding")
        axis.plot(lengths, fed, color=theme.accent, label="frames fed at most")
        ends = (low, bounds[-1])
        axis.plot(ends, ends, color=theme.muted, linewidth=1.0, label="own frames")
        axis.set(xscale="log", yscale="log", xlim=ends, ylim=(low, bounds[-1] * 1.25),
                 xlabel="length of the sequence (frames, log scale)", ylabel="frames (log scale)",
                 )  # fmt: skip
        _plain_log_ticks(axis.xaxis)
        _plain_log_ticks(axis.yaxis)
        axis.legend(loc="upper left")
        return figure
