"""What a round took, on which devices, as its event in events.jsonl tells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mapreduce_rnn import simulate
from mapreduce_rnn.report.fields import Record, integer, of_kind, real, records, section


@dataclass(frozen=True)
class Task:
    """A task as it was measured; seconds."""

    worker: int
    start: float  # since its phase began
    seconds: float  # from sending it to receiving its answer
    busy: float  # that the worker computed; NaN in runs of older versions

    @property
    def transfer(self) -> float:
        """Seconds of the message there, of the answer back, and of the codec."""
        return max(0.0, self.seconds - self.busy)


@dataclass(frozen=True)
class Phase:
    """Map or validation of a round; ``seconds`` are those that count, simulated or measured."""

    seconds: float
    tasks: tuple[Task, ...] = ()  # in slot order


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of a round by what they were spent on; NaN where the run has no number."""

    elapsed: float  # training time at its end: all rounds' map, reduce and checkpoint
    map: Phase
    reduce: float
    validation: Phase
    checkpoint: float
    devices: int  # that the tasks ran on, or that were simulated
    simulated: bool

    @property
    def complete(self) -> bool:
        """Whether everything is known that a share of the time needs."""
        phases = (self.map, self.validation)
        spans = [phase.seconds for phase in phases] + [self.reduce, self.checkpoint]
        tasks = [n for phase in phases for t in phase.tasks for n in (t.start, t.seconds, t.busy)]
        return self.devices > 0 and all(math.isfinite(n) and n >= 0 for n in spans + tasks)


def round_times(events: Iterable[Record]) -> dict[int, RoundTimes]:
    """The times of each round by its number.

    A round that ran again after a resume has two events: the later one counts, and the devices
    are those of its session.
    """
    times: dict[int, RoundTimes] = {}
    workers = 0
    for event in events:
        if event.get("event") == "start":
            workers = integer(event.get("workers")) or 0
        number = integer(event.get("round"))
        if number is not None and of_kind([event], "round"):
            times[number] = _times(event, workers)
    return times


def _times(event: Record, workers: int) -> RoundTimes:
    simulated = section(event, "simulated")
    devices = integer(simulated.get("devices"))
    training, scoring = _tasks(event, "map"), _tasks(event, "score")
    validation = real(event.get("validation_seconds"))
    if devices is not None and devices > 0:
        map_seconds = real(simulated.get("map_seconds"))
        validation = _on(devices, validation, scoring)
    else:
        map_seconds = real(event.get("map_seconds"))
    used = max((task.worker + 1 for task in (*training, *scoring)), default=0)
    return RoundTimes(
        elapsed=real(event.get("elapsed")),
        map=Phase(map_seconds, training),
        reduce=real(event.get("reduce_seconds")),
        validation=Phase(validation, scoring),
        checkpoint=real(event.get("checkpoint_seconds")),
        devices=devices or max(workers, used),
        simulated=devices is not None,
    )


def _tasks(event: Record, kind: str) -> tuple[Task, ...]:
    told = [task for task in records(event.get("tasks")) if task.get("kind") == kind]
    return tuple(
        Task(
            worker=max(0, integer(task.get("worker")) or 0),
            start=real(task.get("start")),
            seconds=real(task.get("seconds")),
            busy=real(task.get("busy_seconds")),
        )
        for task in sorted(told, key=lambda task: integer(task.get("slot")) or 0)
    )


def _on(devices: int, measured: float, tasks: Iterable[Task]) -> float:
    """What a phase that was measured on fewer devices would take on ``devices``."""
    timed = [simulate.Timed(task.start, task.start + task.seconds, task.busy) for task in tasks]
    return simulate.map_seconds(measured, timed, devices)
