"""Where the time of a run went: what each device did when, and the shares of it all.

A round is a map phase, in which the devices train, then reduce, validation and checkpoint, one
after the other. In the map phase a device trains (``map``), has its message or its answer on the
way (``transfer``), or has nothing to do (``waiting``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mapreduce_rnn import simulate
from mapreduce_rnn.report.roundtimes import RoundTimes, Task
from mapreduce_rnn.report.run import Round

KINDS = ("map", "transfer", "waiting", "reduce", "validation", "checkpoint")


@dataclass(frozen=True)
class Span:
    """What one device does for a while; seconds since the round began."""

    device: int
    kind: str
    start: float
    end: float


def shares(rounds: Iterable[RoundTimes]) -> dict[str, float]:
    """Parts of the devices' time by kind, which add up to 1; empty if no round has all its times.

    The whole is the time of all devices from the begin of each round to its end: a second of
    reduce is one of every device.
    """
    sums = dict.fromkeys(KINDS, 0.0)
    for times in rounds:
        if times.complete:
            for kind, seconds in _device_seconds(times).items():
                sums[kind] += seconds
    whole = sum(sums.values())
    return {kind: seconds / whole for kind, seconds in sums.items()} if whole else {}


def _device_seconds(times: RoundTimes) -> dict[str, float]:
    """Seconds of a round by kind, summed over its devices."""
    busy = sum(task.busy for task in times.map.tasks)
    transfer = sum(task.transfer for task in times.map.tasks)
    return {
        "map": busy,
        "transfer": transfer,
        "waiting": max(0.0, times.devices * times.map.seconds - busy - transfer),
        "reduce": times.devices * times.reduce,
        "validation": times.devices * times.validation.seconds,
        "checkpoint": times.devices * times.checkpoint,
    }


def spans(times: RoundTimes) -> tuple[Span, ...]:
    """What every device does in a round, ordered by device and time; none where times are missing.

    Simulated devices train side by side as :func:`mapreduce_rnn.simulate.schedule` places their
    tasks; after that come the transfers of all, one by one, as they are counted. Of a real
    transfer only its seconds are known: half of them are shown before the training, half after.
    """
    if not times.complete:
        return ()
    placed = _simulated(times) if times.simulated else _measured(times)
    known = sorted(placed, key=lambda span: (span.device, span.start))
    every = [*known, *_idle(known, times), *_together(times)]
    seen = (span for span in every if span.start < span.end)
    return tuple(sorted(seen, key=lambda span: (span.device, span.start)))


def _measured(times: RoundTimes) -> Iterator[Span]:
    for task in times.map.tasks:
        begin, end = task.start, task.start + task.seconds
        trained = begin + task.transfer / 2
        yield Span(task.worker, "transfer", begin, trained)
        yield Span(task.worker, "map", trained, trained + task.busy)
        yield Span(task.worker, "transfer", trained + task.busy, end)


def _simulated(times: RoundTimes) -> Iterator[Span]:
    placed = simulate.schedule([task.busy for task in times.map.tasks], times.devices)
    begin = max((task.end for task in placed), default=0.0)
    for task, at, start in zip(times.map.tasks, placed, _starts(times.map.tasks), strict=False):
        yield Span(at.device, "map", at.start, at.end)
        yield Span(at.device, "transfer", begin + start, begin + start + task.transfer)


def _starts(tasks: Iterable[Task]) -> Iterator[float]:
    """When each transfer starts if one follows the other."""
    return accumulate((task.transfer for task in tasks), initial=0.0)


def _idle(known: Iterable[Span], times: RoundTimes) -> Iterator[Span]:
    """The gaps of the map phase."""
    free = [0.0] * times.devices
    for span in known:
        yield Span(span.device, "waiting", free[span.device], span.start)
        free[span.device] = max(free[span.device], span.end)
    for device, since in enumerate(free):
        yield Span(device, "waiting", since, times.map.seconds)


def _together(times: RoundTimes) -> Iterator[Span]:
    """What all devices wait for or do together after the map phase."""
    begin = times.map.seconds
    for kind, seconds in (
        ("reduce", times.reduce),
        ("validation", times.validation.seconds),
        ("checkpoint", times.checkpoint),
    ):
        for device in range(times.devices):
            yield Span(device, kind, begin, begin + seconds)
        begin += seconds


def typical(rounds: Sequence[Round]) -> Round | None:
    """The round of median length, the map phase counted, among those with all their times."""
    known = [round for round in rounds if round.times is not None and round.times.complete]
    by_length = sorted(known, key=lambda round: round.times.map.seconds if round.times else 0.0)
    return by_length[(len(known) - 1) // 2] if known else None


def shown(rounds: Sequence[Round]) -> tuple[Round, ...]:
    """Rounds for a picture of a run: the first two and the typical one of those after them."""
    known = [round for round in rounds if round.times is not None and round.times.complete]
    later = typical(known[2:])
    return (*known[:2], *([later] if later else []))
