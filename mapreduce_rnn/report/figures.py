"""The report's plots: how training went, and what the buckets cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mapreduce_rnn.report import marks
from mapreduce_rnn.report.canvas import Drawing, Tile, grid
from mapreduce_rnn.report.marks import finite
from mapreduce_rnn.report.run import Round, Run
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import number, percent

_HEIGHT = 3.2  # inches of a panel
_MARGINS = (0.62, 0.77, 0.16, 0.56)  # inches left of, above, right of, below the plot
_INDENT = 0.55  # inches from the plot to the left, where headings begin
_STEPS = (1, 2, 5, 10)  # between ticks, times a power of ten
_LOG_FROM = 10.0  # ratio of largest to smallest loss above which the axis is logarithmic


@dataclass(frozen=True)
class _Ruler:
    """An x axis: its name and the place of every round on it."""

    name: str
    of: dict[int, float]  # by round number; NaN if unknown
    whole: bool = False  # ticks at integers only


def training(run: Run) -> Drawing:
    """Loss and label error (rows) against training time and epochs (columns)."""
    figure, tiles = grid(count=4, columns=2, height=_HEIGHT)
    axes = [_axes(figure, tile) for tile in tiles]
    rulers = (_time(run.rounds), _epochs(run.rounds))
    for axis, ruler in zip(axes, rulers * 2, strict=True):
        _horizontal(axis, ruler)
    for axis, ruler in zip(axes[:2], rulers, strict=True):
        _losses(axis, run, ruler)
    for axis, ruler in zip(axes[2:], rulers, strict=True):
        _errors(axis, run, ruler)
    return Drawing(figure, tiles)


def _axes(figure: Figure, tile: Tile) -> Axes:
    width, height = figure.get_size_inches()
    return figure.add_axes(tile.inside(*_MARGINS).within(width, height))


def _time(rounds: Iterable[Round]) -> _Ruler:
    elapsed = {round.number: round.elapsed for round in rounds}
    longest = max(finite(elapsed.values()), default=0.0)
    unit, seconds = ("s", 1.0) if longest < 180 else ("min", 60.0)
    if longest >= 3 * 3600:
        unit, seconds = "h", 3600.0
    return _Ruler(f"training time ({unit})", {n: s / seconds for n, s in elapsed.items()})


def _epochs(rounds: Iterable[Round]) -> _Ruler:
    return _Ruler("epoch", {round.number: float(round.epoch) for round in rounds}, whole=True)


def _horizontal(axis: Axes, ruler: _Ruler) -> None:
    axis.set_xlim(0, 1.04 * (max(finite(ruler.of.values()), default=0.0) or 1.0))
    axis.set_xlabel(ruler.name)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=ruler.whole, steps=_STEPS))


def _losses(axis: Axes, run: Run, ruler: _Ruler) -> None:
    trained = [(ruler.of[r.number], r.train_loss) for r in run.rounds]
    scored = [(ruler.of[r.number], r.validation.loss) for r in run.rounds if r.validation]
    marks.curve(axis, trained, LIGHT.second, "training", dashed=True)
    marks.curve(axis, scored, LIGHT.accent, "validation")
    if run.best is not None and run.best.validation is not None:
        at = (ruler.of[run.best.number], run.best.validation.loss)
        marks.best(axis, at, f"best round {run.best.number}: {number(at[1])}")
    scale = _loss_scale(axis, [y for _, y in trained + scored])
    marks.heading(axis, f"Loss (nats per sequence{scale})", _INDENT)


def _loss_scale(axis: Axes, losses: Sequence[float]) -> str:
    """Logarithmic where losses span more than a decade; returns what a title says of it."""
    positive = [y for y in finite(losses) if y > 0]
    if not positive:
        return ""
    low, high = min(positive), max(positive)
    if high <= _LOG_FROM * low:
        axis.set_ylim(0, 1.05 * high)
        return ""
    room = (high / low) ** 0.05
    axis.set(yscale="log", ylim=(low / room, high * room))
    marks.plain_log_ticks(axis.yaxis)
    return ", log scale"


def _errors(axis: Axes, run: Run, ruler: _Ruler) -> None:
    scored = [(ruler.of[r.number], r.validation.label_error) for r in run.rounds if r.validation]
    constant = run.plan.constant_label_error
    marks.level(axis, constant, f"best constant output {percent(constant)}")
    marks.curve(axis, scored, LIGHT.accent, "")
    if run.best is not None and run.best.validation is not None:
        at = (ruler.of[run.best.number], run.best.validation.label_error)
        marks.best(axis, at, f"best round {run.best.number}: {percent(at[1])}")
    axis.set_ylim(0, 1.05 * max([1.0, *finite(y for _, y in scored), *finite([constant])]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
    marks.heading(axis, "Label error on validation (%)", _INDENT)


def buckets(run: Run) -> Drawing:
    """Frames fed at most for a sequence of each length: stairs over the sequence's own frames."""
    bounds = run.plan.boundaries
    lengths = [edge for pair in zip((0, *bounds[:-1]), bounds, strict=True) for edge in pair]
    fed = [bound for bound in bounds for _ in range(2)]
    figure, tiles = grid(count=1, columns=1, height=_HEIGHT)
    axis = _axes(figure, tiles[0])
    axis.fill_between(lengths, lengths, fed, color=LIGHT.rule, linewidth=0, label="padding")
    axis.plot(lengths, fed, color=LIGHT.accent, label="frames fed at most")
    axis.plot(lengths, lengths, color=LIGHT.muted, linewidth=1.0, label="own frames")
    axis.set(xlim=(0, bounds[-1]), ylim=(0, 1.04 * bounds[-1]), xlabel="length (frames)")
    for side in (axis.xaxis, axis.yaxis):
        side.set_major_locator(MaxNLocator(6, integer=True, steps=_STEPS))
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    marks.heading(axis, "Frames fed per sequence", _INDENT)
    return Drawing(figure, tiles)
