"""What a comparison measures: time per epoch, time to a loss, speed-up, each over the seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from mapreduce_rnn.report.comparison import Cell, Comparison, Group
from mapreduce_rnn.report.fields import finite
from mapreduce_rnn.report.run import Run
from mapreduce_rnn.report.setting import NO_BUCKETS
from mapreduce_rnn.report.timeline import shares

TARGETS = 3

Measure = Callable[[Run], float]
"""A number of a run, NaN if it has none."""


@dataclass(frozen=True)
class Spread:
    """A number over the seeds; NaN where no run has one."""

    median: float = math.nan
    least: float = math.nan
    most: float = math.nan
    count: int = 0  # of runs that have it


def spread(values: Iterable[float]) -> Spread:
    """Median, least and most of those that are finite."""
    known = finite(values)
    return Spread(median(known), min(known), max(known), len(known)) if known else Spread()


def over_seeds(group: Group, measure: Measure) -> Spread:
    """A measure over the runs of a group."""
    return spread(measure(cell.run) for cell in group.counted)


def ratio(slow: Group, fast: Group, measure: Measure) -> Spread:
    """How many times as long one group takes as the other, over the seeds that both have.

    Runs of the same seed are compared with each other: they begin with the same model.
    """
    base = {cell.seed: measure(cell.run) for cell in slow.counted}
    return spread(_divided(base.get(cell.seed), cell, measure) for cell in fast.counted)


def _divided(base: float | None, cell: Cell, measure: Measure) -> float:
    taken = measure(cell.run)
    return base / taken if base is not None and taken > 0 else math.nan


def epoch_seconds(run: Run) -> float:
    """Training seconds per epoch: median over the rounds of each one's seconds per epoch done."""
    paces, elapsed, epoch = [], 0.0, 0.0
    for round in run.rounds:
        done, seconds = round.epoch - epoch, round.elapsed - elapsed
        paces.append(seconds / done if done > 0 else math.nan)
        elapsed, epoch = round.elapsed, round.epoch
    known = finite(paces)
    return median(known) if known else math.nan


def seconds_to(loss: float) -> Measure:
    """Training seconds to the first validation with a loss of at most ``loss``; NaN: never."""

    def seconds(run: Run) -> float:
        reached = (r.elapsed for r in run.validated if r.validation and r.validation.loss <= loss)
        return next(reached, math.nan)

    return seconds


def targets(comparison: Comparison) -> tuple[float, ...]:
    """The losses that times are given to, highest first: every finished run reaches them.

    The last is the worst among the runs' best losses, and above it two more, so that all three
    are evenly spaced in ratio below the lowest loss that any run had at its first validation
    (there, nothing had been reached yet). Rounded up to three digits; a run that is worse at its
    best than another at its first validation leaves one target. While none is finished, the runs
    as far as they are count. None without validations.
    """
    runs = [cell.run for cell in _finished(comparison)]
    losses = [known for run in runs if (known := _losses(run))]
    if not losses:
        return ()
    first, last = min(known[0] for known in losses), max(map(min, losses))
    steps = range(1, TARGETS + 1) if first > last else [TARGETS]
    spaced = [first * (last / first) ** (step / TARGETS) for step in steps]
    return tuple(dict.fromkeys(map(_rounded_up, spaced)))


def last_target(comparison: Comparison) -> float | None:
    """The lowest of :func:`targets`; None without any."""
    return next(reversed(targets(comparison)), None)


def _finished(comparison: Comparison) -> tuple[Cell, ...]:
    return tuple(cell for cell in comparison.cells if cell.finished) or comparison.cells


def _losses(run: Run) -> list[float]:
    """Of the validations, in their order."""
    return [x for x in finite(r.validation.loss for r in run.validated if r.validation) if x > 0]


def _rounded_up(value: float) -> float:
    """To three significant digits, up: what reaches ``value`` reaches the result too."""
    digits = 2 - math.floor(math.log10(value))
    near = round(value, digits)
    return near if near >= value else round(near + 10.0**-digits, digits)


def baseline(comparison: Comparison, group: Group) -> Group | None:
    """The group of fewest devices of the same kind with the same buckets; None if it is that."""
    alike = comparison.with_buckets(group.setting.buckets)
    least = next(other for other in alike if other.setting.kind == group.setting.kind)
    return None if least == group else least


def unbucketed(comparison: Comparison, group: Group | None) -> Group | None:
    """The group without buckets on the same devices; None if it is that, or there is none."""
    if group is None:
        return None
    alike = comparison.with_devices(group.setting)
    without = (other for other in alike if other.setting.buckets == NO_BUCKETS)
    return next((other for other in without if other != group), None)


def group_shares(group: Group) -> dict[str, float]:
    """:func:`mapreduce_rnn.report.timeline.shares` of all rounds of a group's runs."""
    return shares(times for cell in group.counted for times in cell.run.times)


def lead(comparison: Comparison) -> Group:
    """The fastest group of the most devices: the one that a report compares with others."""
    most = max((group.setting for group in comparison.groups), key=lambda s: (s.count, s.kind))
    return _fastest(comparison.with_devices(most), last_target(comparison))


def bucket_row(comparison: Comparison) -> tuple[Group, ...]:
    """Groups that differ in their buckets only: on the devices that have most kinds of them.

    Of several on the devices of the lead.
    """
    first = comparison.with_devices(lead(comparison).setting)
    others = (comparison.with_devices(group.setting) for group in comparison.groups)
    return max((first, *others), key=len)


def bucketed(comparison: Comparison) -> Group | None:
    """The fastest group with buckets of :func:`bucket_row`; None if there is none."""
    alike = bucket_row(comparison)
    groups = [group for group in alike if group.setting.buckets != NO_BUCKETS]
    return _fastest(groups, last_target(comparison)) if groups else None


def _fastest(groups: Iterable[Group], loss: float | None) -> Group:
    """The one that is first at a loss; by time per epoch if none gets there."""
    reached = seconds_to(math.nan if loss is None else loss)

    def time(group: Group) -> tuple[float, float]:
        return (
            _or_never(over_seeds(group, reached).median),
            _or_never(over_seeds(group, epoch_seconds).median),
        )

    return min(groups, key=time)


def _or_never(seconds: float) -> float:
    return math.inf if math.isnan(seconds) else seconds
