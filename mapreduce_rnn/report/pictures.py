"""Which figures a report shows, their words, and the two forms of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.tables import CPU_NOTE
from mapreduce_rnn.text import counted, percent

if TYPE_CHECKING:
    from mapreduce_rnn.report.canvas import Drawing, Tile


@dataclass(frozen=True)
class Picture:
    """A figure as a PNG file, and as SVG elements of which a page shows the tiles."""

    name: str
    title: str
    caption: str
    png: bytes
    svg: str
    tiles: tuple[Tile, ...]


def draw(run: Run) -> tuple[Picture, ...]:
    """Every figure for which the run has data."""
    from mapreduce_rnn.report import bucketplots, canvas, figures, strokes

    pictures = []
    with canvas.settings():
        if run.rounds:
            pictures.append(_picture("training", "Training", _training(run), run, figures.training))
        if run.drawn:
            pictures.append(_picture("examples", "Examples", _examples(run), run, strokes.examples))
        if run.plan.boundaries:
            pictures.append(_picture("buckets", "Buckets", _buckets(run), run, bucketplots.of_run))
    return tuple(pictures)


def _picture(
    name: str, title: str, caption: str, run: Run, draw_it: Callable[[Run], Drawing]
) -> Picture:
    from mapreduce_rnn.report.canvas import png, svg

    drawing = draw_it(run)
    return Picture(name, title, caption, png(drawing.figure), svg(drawing.figure), drawing.tiles)


def _training(run: Run) -> str:
    note = f" {CPU_NOTE}." if run.plan.device == "cpu" else ""
    return (
        "Mean CTC loss per sequence and label error rate against training time (map, transfer,"
        " reduce and checkpoint; validation and start-up apart) and against epochs. Best constant"
        " output: the least label error of giving the same labels whatever the input. Best round:"
        f" the one of lowest validation loss.{note}"
    )


def _buckets(run: Run) -> str:
    bounds = ", ".join(f"{bound:,}" for bound in run.plan.boundaries)
    return (
        f"{counted(len(run.plan.boundaries), 'bucket')} per shard; a sequence is fed at most as"
        f" many frames as its bucket's longest. Longest of each: {bounds}. Padding expected:"
        f" {percent(run.plan.expected_padding)} of the frames fed.{_costs(run)}"
    )


def _costs(run: Run) -> str:
    reason = run.plan.bucket_choice
    shown = " Planned cost: of an epoch of one shard, by number of buckets, in units of the least."
    return "".join([
        shown if run.plan.planned_cost else "",
        f" Their number was chosen automatically: {reason}." if reason else "",
    ])  # fmt: skip


def _examples(run: Run) -> str:
    note = f" Data: {run.attribution}" if run.attribution else ""
    return (
        "Validation sequences, never trained on, as they were written. Edits: labels to insert,"
        f" delete or replace in the output to get the reference.{note}"
    )
