"""The axes that the plots of a run and of a comparison have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mapreduce_rnn.report import marks
from mapreduce_rnn.report.canvas import STEPS
from mapreduce_rnn.report.fields import finite
from mapreduce_rnn.report.run import Round
from mapreduce_rnn.text import time_unit

_LOG_FROM = 10.0  # ratio of largest to smallest value above which an axis is logarithmic


@dataclass(frozen=True)
class Ruler:
    """An x axis: its name and the place of every round on it."""

    name: str
    place: Callable[[Round], float]  # NaN if unknown
    longest: float  # place of the last round
    whole: bool = False  # ticks at integers only


def time_ruler(rounds: Iterable[Round], simulated: str) -> Ruler:
    """Training time in the unit that suits the longest.

    Args:
        simulated: How much of it is, as the axis says it: "", "simulated", "partly simulated".
    """
    longest = max(finite(round.elapsed for round in rounds), default=0.0)
    unit, seconds = time_unit(longest)
    name = f"{simulated} training time ({unit})".strip()
    parts = "map + transfer + reduce + checkpoint"
    return Ruler(f"{name}:\n{parts}", lambda round: round.elapsed / seconds, longest / seconds)


def epoch_ruler(rounds: Iterable[Round]) -> Ruler:
    """Epochs done."""
    longest = max(finite(round.epoch for round in rounds), default=0.0)
    return Ruler("epoch", lambda round: round.epoch, longest, whole=True)


def horizontal(axis: Axes, ruler: Ruler) -> None:
    """Make a ruler the x axis of a plot."""
    axis.set_xlim(0, 1.04 * (ruler.longest or 1.0))
    axis.set_xlabel(ruler.name)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=ruler.whole, steps=STEPS))


def vertical(axis: Axes, values: Sequence[float]) -> str:
    """A y axis from 0, or logarithmic where values span more than a decade.

    Returns what a title says of it.
    """
    positive = [y for y in finite(values) if y > 0]
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


def error_axis(axis: Axes, errors: Iterable[float]) -> None:
    """A y axis of label error rates in percent, up to 100 or the largest."""
    axis.set_ylim(0, 1.05 * max([1.0, *finite(errors)]))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
