"""Which figures a report shows, their words, and their PNG files for each width and theme."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.style import DARK, LIGHT, Theme
from mapreduce_rnn.report.tables import CPU_NOTE
from mapreduce_rnn.text import counted, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mapreduce_rnn.report.figures import Format

    Draw = Callable[[Run, Theme, Format], Figure]


@dataclass(frozen=True)
class Picture:
    """A figure as PNG files, of which a page shows the fitting one; ``light`` is kept as a file."""

    name: str
    title: str
    caption: str
    light: bytes
    dark: bytes
    narrow_light: bytes
    narrow_dark: bytes


def draw(run: Run) -> tuple[Picture, ...]:
    """Every figure for which the run has data."""
    with _quiet_matplotlib():
        from mapreduce_rnn.report import figures, strokes

        pictures = []
        if run.rounds:
            pictures.append(_picture("training", "Training", _training(run), run, figures.training))
        if run.plan.boundaries:
            pictures.append(_picture("buckets", "Buckets", _buckets(run), run, figures.buckets))
        if run.drawn:
            pictures.append(_picture("examples", "Examples", _examples(run), run, strokes.examples))
        return tuple(pictures)


@contextmanager
def _quiet_matplotlib() -> Iterator[None]:
    """Keep matplotlib from telling users about its font cache and folders."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _picture(name: str, title: str, caption: str, run: Run, figure: Draw) -> Picture:
    from mapreduce_rnn.report.figures import NARROW, WIDE, png

    return Picture(
        name,
        title,
        caption,
        light=png(figure(run, LIGHT, WIDE), WIDE),
        dark=png(figure(run, DARK, WIDE), WIDE),
        narrow_light=png(figure(run, LIGHT, NARROW), NARROW),
        narrow_dark=png(figure(run, DARK, NARROW), NARROW),
    )


def _training(run: Run) -> str:
    note = f" {CPU_NOTE}." if run.plan.device == "cpu" else ""
    return (
        "Mean CTC loss per sequence and label error rate against training time (map, transfer,"
        " reduce and checkpoint; validation and start-up apart) and against epochs. Level dashed"
        f" line: what the best constant output scores on the validation labels.{note}"
    )


def _buckets(run: Run) -> str:
    bounds = ", ".join(f"{bound:,}" for bound in run.plan.boundaries)
    return (
        f"{counted(len(run.plan.boundaries), 'bucket')} per shard; a sequence is fed at most as"
        f" many frames as its bucket's longest. Longest of each: {bounds}. Padding expected:"
        f" {percent(run.plan.expected_padding)} of the frames fed."
    )


def _examples(run: Run) -> str:
    note = f" Data: {run.attribution}" if run.attribution else ""
    return (
        "Validation sequences, never trained on, as they were written, numbered as below. Edits:"
        f" labels to insert, delete or replace in the output to get the reference.{note}"
    )
