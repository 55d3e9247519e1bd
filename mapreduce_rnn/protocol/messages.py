"""Messages between the master and its workers, one frozen dataclass each.

    worker                                  master
      Hello        ------------------------>           who I am, what I run on
                   <------------------------  Setup    resolved config, store
                   <------------------------  Refused  or: this worker is of no use
      Ready        ------------------------>           set up, give me tasks
      MapResult    <------------------------  MapTask  train on a shard
      ScoreResult  <------------------------  ScoreTask  score validation sequences
      ProbeResult  <------------------------  ProbeTask  time training steps, before round 1
      TaskFailed   ------------------------>           a task raised
      Heartbeat    ------------------------>           alive, and how far
                   <------------------------  Alive    the master is alive
                   <------------------------  Stop     end after the current task

A worker that the master has not started, but waits for, knows no run id: it repeats its Hello under
an empty one until it gets a place. Every message of the master's names the run.

Plain fields travel in the msgpack header, ``arrays`` as one raw frame per array
(see :mod:`mapreduce_rnn.protocol.codec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

PROTOCOL = 1
"""Version of the wire format; peers of another version are refused."""

Arrays = Mapping[str, np.ndarray]
TaskKind = Literal["map", "score", "probe"]


def under(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays whose names start with ``prefix``, without it."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def prefixed(prefix: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """The arrays with ``prefix`` before their names; the inverse of :func:`under`."""
    return {prefix + name: array for name, array in arrays.items()}


@dataclass(frozen=True, order=True)
class TaskKey:
    """What a task computes. Whoever runs it, and however often, the answer is the same bytes."""

    round: int
    kind: TaskKind
    slot: int


@dataclass(frozen=True)
class Hello:
    """First message of a worker."""

    version: str  # package version; must equal the master's
    device: str  # "cpu" or "cuda:<token>"
    pid: int
    store: str = ""  # fingerprint of the one it has opened; must equal the master's


@dataclass(frozen=True)
class Setup:
    """What every task of the run shares; answers a Hello."""

    config: Mapping[str, Any]  # resolved config, as config.to_dict gives it
    fingerprint: str  # of the store, so that a worker with another one refuses


@dataclass(frozen=True)
class Refused:
    """The worker cannot work for this run, and ends."""

    reason: str


@dataclass(frozen=True)
class Ready:
    """The worker is set up: model built, device awake."""

    notes: str  # what the task does differently on this device, for the log; may be empty


@dataclass(frozen=True)
class MapTask:
    """Train one slot's shard. Arrays: ``model/<name>``, ``state/<name>``, ``shard`` int64."""

    round: int
    slot: int
    attempt: int
    epoch: int  # from 1; the first one of a round of several
    first: int = 0  # batch of the epoch's list that the round begins with, where it is a window
    drops: int = 0  # of the learning rate so far, by the plateau schedule
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "map", self.slot)


@dataclass(frozen=True)
class MapResult:
    """Answer to a MapTask. Arrays: ``model/<name>``, ``state/<name>``."""

    round: int
    slot: int
    attempt: int
    weight: int  # sequence visits whose step was applied
    statistics: Mapping[str, Any]  # results only; nothing that depends on time or place
    seconds: float  # time in the task, for the timeline
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "map", self.slot)


@dataclass(frozen=True)
class ScoreTask:
    """Score sequences. Arrays: ``model/<name>``, ``indices`` int64."""

    round: int
    slot: int
    attempt: int
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "score", self.slot)


@dataclass(frozen=True)
class ScoreResult:
    """Answer to a ScoreTask, in the order of its indices.

    Arrays: ``loss`` float64, ``edits`` int64, ``reference`` int64 (reference lengths).
    """

    round: int
    slot: int
    attempt: int
    seconds: float
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "score", self.slot)


@dataclass(frozen=True)
class ProbeTask:
    """Time training steps on batches of some sizes and lengths; of round 0, slot 0.

    Arrays: ``model/<name>``, ``indices`` int64 (training sequences, in any order).
    """

    round: int
    slot: int
    attempt: int
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "probe", self.slot)


@dataclass(frozen=True)
class ProbeResult:
    """Answer to a ProbeTask: measured batches, fewer than asked for where time was short.

    Arrays: ``sizes`` int64 (sequences), ``lengths`` int64 (frames they were padded to),
    ``seconds`` float64 (median time of a step).
    """

    round: int
    slot: int
    attempt: int
    seconds: float
    arrays: Arrays = field(default_factory=dict)

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.round, "probe", self.slot)


AnyTask = MapTask | ScoreTask | ProbeTask
AnyResult = MapResult | ScoreResult | ProbeResult


@dataclass(frozen=True)
class TaskFailed:
    """A task raised an exception; with ``kind`` None, the worker itself cannot go on."""

    kind: TaskKind | None
    round: int
    slot: int
    attempt: int
    traceback: str


@dataclass(frozen=True)
class Heartbeat:
    """A worker is alive."""

    steps: int  # batches done in its current task
    slowest: float  # seconds of its slowest batch so far, in any task


@dataclass(frozen=True)
class Alive:
    """The master is alive."""


@dataclass(frozen=True)
class Stop:
    """End after the current task."""


Message = (
    Hello | Setup | Refused | Ready | AnyTask | AnyResult | TaskFailed | Heartbeat | Alive | Stop
)
