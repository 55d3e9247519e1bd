"""The plots of how training went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mapreduce_rnn.report import marks
from mapreduce_rnn.report.canvas import INDENT, STEPS, Drawing, panels
from mapreduce_rnn.report.marks import finite
from mapreduce_rnn.report.run import Round, Run
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import number, percent

_LOG_FROM = 10.0  # ratio of largest to smallest loss above which the axis is logarithmic


@dataclass(frozen=True)
class _Ruler:
    """An x axis: its name and the place of every round on it."""

    name: str
    of: dict[int, float]  # by round number; NaN if unknown
    whole: bool = False  # ticks at integers only


def training(run: Run) -> Drawing:
    """Loss and label error (rows) against training time and epochs (columns)."""
    drawing = panels(count=4, columns=2)
    axes = drawing.figure.axes
    rulers = (_time(run.rounds), _epochs(run.rounds))
    for axis, ruler in zip(axes, rulers * 2, strict=True):
        _horizontal(axis, ruler)
    for axis, ruler in zip(axes[:2], rulers, strict=True):
        _losses(axis, run, ruler)
    for axis, ruler in zip(axes[2:], rulers, strict=True):
        _errors(axis, run, ruler)
    return drawing


def _time(rounds: Iterable[Round]) -> _Ruler:
    elapsed = {round.number: round.elapsed for round in rounds}
    longest = max(finite(elapsed.values()), default=0.0)
    unit, seconds = ("s", 1.0) if longest < 180 else ("min", 60.0)
    if longest >= 3 * 3600:
        unit, seconds = "h", 3600.0
    return _Ruler(f"training time ({unit})", {n: s / seconds for n, s in elapsed.items()})


def _epochs(rounds: Iterable[Round]) -> _Ruler:
    return _Ruler("epoch", {round.number: round.epoch for round in rounds}, whole=True)


def _horizontal(axis: Axes, ruler: _Ruler) -> None:
    axis.set_xlim(0, 1.04 * (max(finite(ruler.of.values()), default=0.0) or 1.0))
    axis.set_xlabel(ruler.name)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=ruler.whole, steps=STEPS))


def _losses(axis: Axes, run: Run, ruler: _Ruler) -> None:
    trained = [(ruler.of[r.number], r.train_loss) for r in run.rounds]
    scored = [(ruler.of[r.number], r.validation.loss) for r in run.rounds if r.validation]
    marks.curve(axis, trained, LIGHT.second, "training", dashed=True)
    marks.curve(axis, scored, LIGHT.accent, "validation")
    if run.best is not None and run.best.validation is not None:
        at = (ruler.of[run.best.number], run.best.validation.loss)
        marks.best(axis, at, f"best round {run.best.number}: {number(at[1])}")
    scale = _loss_scale(axis, [y for _, y in trained + scored])
    marks.heading(axis, f"Loss (nats per sequence{scale})", INDENT)


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
    marks.heading(axis, "Label error on validation (%)", INDENT)
