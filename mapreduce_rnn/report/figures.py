"""The plots of how training went."""

from __future__ import annotations

from matplotlib.axes import Axes

from mapreduce_rnn.report import axes, marks
from mapreduce_rnn.report.axes import Ruler
from mapreduce_rnn.report.canvas import INDENT, Drawing, panels
from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.text import number, percent

_TRAINING = marks.Pen(LIGHT.second, "--", width=1.4)
_VALIDATION = marks.Pen(LIGHT.accent)


def training(run: Run) -> Drawing:
    """Loss and label error (rows) against training time and epochs (columns)."""
    drawing = panels(count=4, columns=2)
    plots = drawing.figure.axes
    simulated = "" if run.simulated is None else "simulated"
    rulers = (axes.time_ruler(run.rounds, simulated), axes.epoch_ruler(run.rounds))
    for axis, ruler in zip(plots, rulers * 2, strict=True):
        axes.horizontal(axis, ruler)
    for axis, ruler in zip(plots[:2], rulers, strict=True):
        _losses(axis, run, ruler)
    for axis, ruler in zip(plots[2:], rulers, strict=True):
        _errors(axis, run, ruler)
    return drawing


def _losses(axis: Axes, run: Run, ruler: Ruler) -> None:
    trained = [(ruler.place(r), r.train_loss) for r in run.rounds]
    scored = [(ruler.place(r), r.validation.loss) for r in run.rounds if r.validation]
    marks.curve(axis, trained, _TRAINING, "training")
    marks.curve(axis, scored, _VALIDATION, "validation")
    if run.best is not None and run.best.validation is not None:
        at = (ruler.place(run.best), run.best.validation.loss)
        marks.best(axis, at, f"best round {run.best.number}: {number(at[1])}")
    scale = axes.vertical(axis, [y for _, y in trained + scored])
    marks.heading(axis, f"Loss (nats per sequence{scale})", INDENT)


def _errors(axis: Axes, run: Run, ruler: Ruler) -> None:
    scored = [(ruler.place(r), r.validation.label_error) for r in run.rounds if r.validation]
    constant = run.plan.constant_label_error
    marks.level(axis, constant, f"best constant output {percent(constant)}")
    marks.curve(axis, scored, _VALIDATION, "")
    if run.best is not None and run.best.validation is not None:
        at = (ruler.place(run.best), run.best.validation.label_error)
        marks.best(axis, at, f"best round {run.best.number}: {percent(at[1])}")
    axes.error_axis(axis, [*(y for _, y in scored), constant])
    marks.heading(axis, "Label error on validation (%)", INDENT)
