"""Which figures the report of a run shows, and their words."""

from __future__ import annotations

from mapreduce_rnn.report.picture import Picture, picture
from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.tables import CPU_NOTE
from mapreduce_rnn.report.timeline import shown
from mapreduce_rnn.text import counted, percent


def draw(run: Run) -> tuple[Picture, ...]:
    """Every figure for which the run has data."""
    from mapreduce_rnn.report import bucketplots, canvas, figures, strokes

    drawn = []
    with canvas.settings():
        if run.rounds:
            drawn.append(picture("training", "Training", _training(run), figures.training(run)))
        if shown(run.rounds):
            drawn.append(_timeline(run))
        if run.drawn:
            drawn.append(picture("examples", "Examples", _examples(run), strokes.examples(run)))
        if run.plan.boundaries:
            drawn.append(picture("buckets", "Buckets", _buckets(run), bucketplots.of_run(run)))
    return tuple(drawn)


def _timeline(run: Run) -> Picture:
    from mapreduce_rnn.report.timelineplot import Shown, timelines

    rounds = [
        Shown(f"Round {round.number}", round.times)
        for round in shown(run.rounds)
        if round.times is not None
    ]
    caption = timeline_caption(any(item.times.simulated for item in rounds))
    return picture("timeline", "Where the time went", caption, timelines(rounds))


def timeline_caption(simulated: bool) -> str:
    """The words below a timeline."""
    if not simulated:
        transfer = "Of a transfer only its length is known: half is drawn before the map task."
    else:
        transfer = (
            "Simulated: tasks were run and timed one by one and are placed side by side; transfers"
            " follow one after the other, as they are counted."
        )
    return (
        "What each device did. Transfer: messages with model and answer under way. Waiting: nothing"
        f" to do while others train. {transfer} Validation is no training time."
    )


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
