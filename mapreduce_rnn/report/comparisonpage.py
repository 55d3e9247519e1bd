"""report.html of a comparison: its figures, their words, and the page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mapreduce_rnn.report import comparisontables as tables
from mapreduce_rnn.report import measures, parts
from mapreduce_rnn.report.comparison import Comparison, Group, read_comparison
from mapreduce_rnn.report.curves import curves
from mapreduce_rnn.report.picture import Picture, picture
from mapreduce_rnn.report.pictures import timeline_caption
from mapreduce_rnn.report.tables import CPU_NOTE, SHARES_NOTE, Table
from mapreduce_rnn.report.timeline import typical

_FILES = (
    ("table.csv", "the numbers of the tables, a row per devices and buckets"),
    ("curves.csv", "the numbers of the curves, a row per round of each run"),
    ("figures", "the figures as PNG files"),
)


def write(folder: Path) -> Path:
    """Write the report; see :func:`mapreduce_rnn.report.write_comparison`."""
    comparison = read_comparison(folder)
    pictures = draw(comparison)
    content = {
        "table.csv": tables.comparison_csv(comparison),
        "curves.csv": curves(cell.run for cell in comparison.cells),
    }
    return parts.save(folder, page(comparison, pictures), pictures, content)


def draw(comparison: Comparison) -> tuple[Picture, ...]:
    """Every figure for which there are runs."""
    from mapreduce_rnn.report import canvas

    with canvas.settings():
        drawn = (_devices(comparison), _buckets(comparison), _timeline(comparison))
    return tuple(one for one in drawn if one is not None)


def _devices(comparison: Comparison) -> Picture | None:
    from mapreduce_rnn.report.comparisonplots import by_devices

    if not any(cell.run.validated for cell in comparison.cells):
        return None
    lead = measures.lead(comparison)
    groups = comparison.with_buckets(lead.setting.buckets)
    caption = (
        f"Validation loss and label error rate with {lead.setting.batches} against training time"
        " (map, transfer, reduce and checkpoint; validation and start-up apart) and against"
        f" epochs. {_seeds(groups)}{_note(comparison)}"
    )
    return picture("devices", "By devices", caption, by_devices(groups))


def _buckets(comparison: Comparison) -> Picture | None:
    from mapreduce_rnn.report.comparisonplots import by_buckets

    if len({group.setting.buckets for group in comparison.groups}) < 2:
        return None
    groups, loss = measures.bucket_row(comparison), measures.last_target(comparison)
    caption = (
        "Above: training time per epoch, and to the first validation at or below a loss, by the"
        " number of buckets; none: shuffled batches, each padded to its own longest sequence."
        f" Below: validation loss on {groups[0].devices}. {_seeds(groups)}{_note(comparison)}"
    )
    return picture("buckets", "By buckets", caption, by_buckets(comparison, groups, loss))


def _timeline(comparison: Comparison) -> Picture | None:
    from mapreduce_rnn.report.timelineplot import Shown, timelines

    lead = measures.lead(comparison)
    rounds = [
        Shown(f"{group.devices}, round {round.number}", round.times)
        for group in comparison.with_buckets(lead.setting.buckets)
        for round in (typical(group.counted[0].run.rounds),)
        if round is not None and round.times is not None
    ]
    if not rounds:
        return None
    caption = (
        f"A round of median length with {lead.setting.batches}."
        f" {timeline_caption(comparison.simulated)}{_note(comparison)}"
    )
    return picture("timeline", "Where the time went", caption, timelines(rounds))


def _seeds(groups: Iterable[Group]) -> str:
    several = any(len(group.cells) > 1 for group in groups)
    return "A line per seed." if several else ""


def _note(comparison: Comparison) -> str:
    cpu = any(group.setting.kind == "cpu" for group in comparison.groups)
    return f" {CPU_NOTE}." if cpu else ""


def page(comparison: Comparison, pictures: Iterable[Picture]) -> str:
    """The whole page."""
    by_name = {one.name: one for one in pictures}
    sections = (
        parts.verdict(tables.comparison_verdict(comparison)),
        parts.problems(comparison.problems),
        parts.definitions("Summary", tables.comparison_summary(comparison)),
        _table("Times", tables.times_table(comparison), _times_note(comparison)),
        _table("Speed-up", tables.speed_up_table(comparison), _SPEED_UP_NOTE),
        _table("Gain of buckets", tables.bucket_gain_table(comparison), _GAIN_NOTE),
        parts.figure(by_name.get("devices")),
        parts.figure(by_name.get("buckets")),
        parts.figure(by_name.get("timeline")),
        parts.table(tables.time_shares_table(comparison), SHARES_NOTE),
        parts.definitions("Commands", tables.commands(comparison)),
        parts.files("Files", comparison.path, _FILES),
    )
    return parts.skeleton(comparison.path.absolute().name, "Comparison", sections)


def _table(title: str, table: Table, note: str) -> str:
    return f"<h2>{title}</h2>\n{parts.table(table, note)}" if table.rows else ""


def _times_note(comparison: Comparison) -> str:
    return (
        "Training time (map, transfer, reduce and checkpoint) per epoch, median over the rounds,"
        " and to the first validation at or below a loss, in nats per sequence. Of several seeds:"
        f" median, least to most.{_note(comparison)}"
    )


_SPEED_UP_NOTE = (
    "How many times as fast as the fewest devices with the same buckets. Efficiency: the speed-up"
    " per epoch, by how many times as many devices there are."
)
_GAIN_NOTE = (
    "How many times as fast as the same devices without buckets: shuffled batches, each padded to"
    " its own longest sequence."
)
