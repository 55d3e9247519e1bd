"""The figure of where the time went: a row per device, a bar for each thing that it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from mapreduce_rnn.report import marks
from mapreduce_rnn.report.canvas import INDENT, STEPS, Drawing, panels
from mapreduce_rnn.report.roundtimes import RoundTimes
from mapreduce_rnn.report.style import LIGHT
from mapreduce_rnn.report.timeline import KINDS, spans
from mapreduce_rnn.text import time_unit

_COLOURS = {
    "map": LIGHT.accent,
    "transfer": LIGHT.transfer,
    "waiting": LIGHT.rule,
    "reduce": LIGHT.ink,
    "validation": LIGHT.good,
    "checkpoint": LIGHT.second,
}
_COLUMNS = 3  # of the legend
_ROWS = -(-len(KINDS) // _COLUMNS)
_NUMBERED = 10  # devices up to which each has its number
_BAR = 0.8  # of the room of a row


@dataclass(frozen=True)
class Shown:
    """A round of a timeline."""

    title: str
    times: RoundTimes  # all known


def timelines(rounds: Sequence[Shown]) -> Drawing:
    """A panel per round, all at one scale; one or more."""
    drawing = panels(len(rounds), min(2, len(rounds)), _ROWS)
    longest = max(span.end for shown in rounds for span in spans(shown.times))
    unit, seconds = time_unit(longest)
    for axis, shown in zip(drawing.figure.axes, rounds, strict=True):
        _bars(axis, shown.times, seconds)
        axis.set_xlim(0, 1.02 * longest / seconds)
        axis.set_xlabel(f"time since the round began ({unit}{_simulated(shown.times)})")
        marks.heading(axis, shown.title, INDENT, _COLUMNS)
    return drawing


def _simulated(times: RoundTimes) -> str:
    return ", simulated" if times.simulated else ""


def _bars(axis: Axes, times: RoundTimes, seconds: float) -> None:
    for kind in KINDS:
        alike = [span for span in spans(times) if span.kind == kind]
        axis.barh(
            [span.device + 1 for span in alike],
            [(span.end - span.start) / seconds for span in alike],
            left=[span.start / seconds for span in alike],
            height=_BAR, color=_COLOURS[kind], label=kind, linewidth=0,
        )  # fmt: skip
    axis.set(ylim=(times.devices + 0.6, 0.4), ylabel="device")
    few = times.devices <= _NUMBERED
    ticks = FixedLocator(range(1, times.devices + 1)) if few else MaxNLocator(6, steps=STEPS)
    axis.yaxis.set_major_locator(ticks)
    axis.grid(visible=False)
