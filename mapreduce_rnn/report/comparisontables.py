"""The tables, the verdict and the summary of a comparison, as text; and table.csv."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Sequence

from mapreduce_rnn.report import measures
from mapreduce_rnn.report.comparison import Comparison, Group
from mapreduce_rnn.report.curves import Value, table_file, yes_no
from mapreduce_rnn.report.measures import Measure, Spread, over_seeds
from mapreduce_rnn.report.tables import Table, machine, shares_table, software
from mapreduce_rnn.report.timeline import KINDS
from mapreduce_rnn.text import NOTHING, Verdict, counted, duration, time_unit

_NO_SPREAD = Spread()


def times_table(comparison: Comparison) -> Table:
    """Time per epoch and to each of the targets, a row per group, a unit per column."""
    losses = measures.targets(comparison)
    times = [_column([over_seeds(g, m) for g in comparison.groups]) for m in _taken(losses)]
    units, columns = zip(*times, strict=True)
    heads = (f"{head} ({unit})" for head, unit in zip(_heads(losses), units, strict=True))
    rows = (
        (*_names(group), _seeds(group), *cells)
        for group, *cells in zip(comparison.groups, *columns, strict=True)
    )
    return Table(("devices", "buckets", "seeds", *heads), tuple(rows), names=2)


def _column(times: Sequence[Spread]) -> tuple[str, tuple[str, ...]]:
    """A unit for some times, and their cells."""
    unit, seconds = time_unit(max((time.most for time in times if time.count), default=0.0))
    return unit, tuple(_with_spread(time, lambda t: _digits(t / seconds)) for time in times)


def _digits(value: float) -> str:
    """Three digits, and more only before the point."""
    return f"{value:#.3g}".rstrip(".") if value < 100 else f"{value:,.0f}"


def speed_up_table(comparison: Comparison) -> Table:
    """How many times as fast as the fewest devices, a row per group of more."""
    losses = measures.targets(comparison)
    rows = (
        (
            *_names(group),
            *(_times(speed_up(comparison, group, m)) for m in _taken(losses)),
            f"{100 * efficiency(comparison, group):.0f} %",
        )
        for group in comparison.groups
        if speed_up(comparison, group, measures.epoch_seconds).count
    )
    return Table(("devices", "buckets", *_heads(losses), "efficiency"), tuple(rows), names=2)


def bucket_gain_table(comparison: Comparison) -> Table:
    """How many times as fast as without buckets, a row per group with them."""
    losses = measures.targets(comparison)
    rows = (
        (*_names(group), *(_times(bucket_gain(comparison, group, m)) for m in _taken(losses)))
        for group in comparison.groups
        if bucket_gain(comparison, group, measures.epoch_seconds).count
    )
    return Table(("devices", "buckets", *_heads(losses)), tuple(rows), names=2)


def _taken(losses: Iterable[float]) -> tuple[Measure, ...]:
    return (measures.epoch_seconds, *map(measures.seconds_to, losses))


def _heads(losses: Iterable[float]) -> tuple[str, ...]:
    return ("per epoch", *(f"to {loss:g}" for loss in losses))


def speed_up(comparison: Comparison, group: Group, measure: Measure) -> Spread:
    """How many times as fast as the fewest devices with the same buckets."""
    base = measures.baseline(comparison, group)
    return measures.ratio(base, group, measure) if base else _NO_SPREAD


def bucket_gain(comparison: Comparison, group: Group, measure: Measure) -> Spread:
    """How many times as fast as the same devices without buckets."""
    base = measures.unbucketed(comparison, group)
    return measures.ratio(base, group, measure) if base else _NO_SPREAD


def efficiency(comparison: Comparison, group: Group) -> float:
    """Speed-up of an epoch by how many times as many devices there are; 1.0 is perfect."""
    base = measures.baseline(comparison, group)
    if base is None:
        return math.nan
    faster = speed_up(comparison, group, measures.epoch_seconds).median
    return faster * base.setting.count / group.setting.count


def time_shares_table(comparison: Comparison) -> Table:
    """Where the devices' time went, a row per group."""
    rows = ((_names(group), measures.group_shares(group)) for group in comparison.groups)
    return shares_table(("devices", "buckets"), rows)


def comparison_verdict(comparison: Comparison) -> Verdict:
    """What more devices gain, and what buckets gain, in one sentence."""
    loss = measures.last_target(comparison)
    if loss is None:
        return Verdict(None, "no run was validated yet: there is nothing to compare")
    lead = measures.lead(comparison)
    bucketed = measures.bucketed(comparison)
    said = [
        _gain(measures.baseline(comparison, lead), lead, loss, by_devices=True),
        _gain(measures.unbucketed(comparison, bucketed), bucketed, loss, by_devices=False),
    ]
    told = [gain for gain in said if gain is not None]
    if not told:
        return Verdict(None, "no two groups of runs reached the same loss yet")
    return Verdict(all(gain.better for gain in told), "; ".join(gain.text for gain in told))


def _gain(
    slow: Group | None, fast: Group | None, loss: float, *, by_devices: bool
) -> Verdict | None:
    """None: there aren't both, or no seed of both reaches the loss."""
    if slow is None or fast is None:
        return None
    reached = measures.seconds_to(loss)
    ratio = measures.ratio(slow, fast, reached).median
    if math.isnan(ratio):
        return None
    ours, theirs = (duration(over_seeds(group, reached).median) for group in (fast, slow))
    if by_devices:
        what, other, one = fast.devices, slow.devices, fast.setting.count == 1
    else:
        what, other = f"{fast.setting.batches} on {fast.devices}", slow.setting.batches
        one = fast.setting.buckets == "1"
    verb = "reaches" if one else "reach"
    text = f"{what} {verb} validation loss {loss:g} in {ours}, {other} in {theirs}"
    return Verdict(ratio > 1, f"{text}: {ratio:.1f} times as fast")


def comparison_summary(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """What was compared, on what: pairs of a name and a text, unknown ones left out."""
    runs = [cell.run for cell in comparison.cells]
    finished = sum(cell.finished for cell in comparison.cells)
    pairs = (
        ("Runs", f"{counted(len(runs), 'run')}, {finished} finished"),
        ("Simulated", _simulated(comparison)),
        ("Store", _each(str(run.config.get("store", {}).get("path", "")) for run in runs)),
        ("Machine", _each(machine(run.start) for run in runs)),
        ("Software", _each(software(run.start) for run in runs)),
    )
    return tuple((name, text) for name, text in pairs if text)


def commands(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """The command of each run by the name of its folder."""
    told = ((cell.run.path.name, cell.run.start.get("command")) for cell in comparison.cells)
    return tuple(
        (name, shlex.join(map(str, words))) for name, words in told if isinstance(words, list)
    )


def _simulated(comparison: Comparison) -> str:
    groups = [group for group in comparison.groups if group.simulated]
    if not groups:
        return ""
    names = _each(group.setting.devices for group in groups)
    return (
        f"the wall-clock of {names}: each map task was run alone and timed, and placed beside the"
        " others; transfers, reduce and checkpoint were really done and timed. The models are those"
        " of as many real devices."
    )


def comparison_csv(comparison: Comparison) -> bytes:
    """table.csv: the numbers of all tables, a row per group.

    ``_least`` and ``_most`` are over the seeds, as the median is; seconds are of training,
    simulated ones where ``simulated`` says yes.
    """
    losses = measures.targets(comparison)
    spreads = ["epoch_seconds", *(f"seconds_to_{loss:g}" for loss in losses)]
    ratios = ["epoch", *(f"to_{loss:g}" for loss in losses)]
    names = [
        *spreads,
        *(f"speed_up_{what}" for what in ratios),
        *(f"against_no_buckets_{what}" for what in ratios),
    ]
    header = (
        "count", "kind", "buckets", "simulated", "runs", "finished",
        *(f"{name}{end}" for name in names for end in ("", "_least", "_most")),
        "efficiency", *(f"share_{kind}" for kind in KINDS),
    )  # fmt: skip
    return table_file(header, (_numbers(comparison, group, losses) for group in comparison.groups))


def _numbers(comparison: Comparison, group: Group, losses: Iterable[float]) -> list[Value]:
    taken = _taken(losses)
    spreads = [
        *(over_seeds(group, measure) for measure in taken),
        *(speed_up(comparison, group, measure) for measure in taken),
        *(bucket_gain(comparison, group, measure) for measure in taken),
    ]
    setting, parts = group.setting, measures.group_shares(group)
    return [
        setting.count, setting.kind, setting.buckets, yes_no(group.simulated),
        len(group.cells), sum(cell.finished for cell in group.cells),
        *(value for spread in spreads for value in (spread.median, spread.least, spread.most)),
        efficiency(comparison, group), *(parts.get(kind) for kind in KINDS),
    ]  # fmt: skip


def _names(group: Group) -> tuple[str, str]:
    return group.devices, group.setting.buckets


def _seeds(group: Group) -> str:
    finished = sum(cell.finished for cell in group.cells)
    total = len(group.cells)
    return f"{total}" if finished == total else f"{finished} of {total}"


def _times(value: Spread) -> str:
    return _with_spread(value, lambda ratio: f"{ratio:.2f}", " x")


def _with_spread(value: Spread, written: Callable[[float], str], unit: str = "") -> str:
    """The median with its unit; of several seeds the least and the most as its detail."""
    if not value.count:
        return NOTHING
    extremes = f"\n{written(value.least)} to {written(value.most)}" if value.count > 1 else ""
    return f"{written(value.median)}{unit}{extremes}"


def _each(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
