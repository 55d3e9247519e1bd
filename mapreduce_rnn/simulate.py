"""The wall-clock that more devices would take than there are.

A map task is a pure function of its message, so N of them can run one after the other on one
device, each alone and timed; the model is that of N devices to the last byte. What the N devices
would have taken follows: the tasks side by side, and all that the master does one after the other,
as it was measured:

    map = makespan of the tasks' own seconds + transfer of every task + the master's own work

Transfers of real devices overlap in part, with each other and with training, so this is no less
than what they take. A device that waits for another one's memory or power is not simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Placed:
    """A task on a device; ``start`` and ``end`` in seconds since the first ones began."""

    device: int
    start: float
    end: float


def schedule(seconds: Sequence[float], devices: int) -> tuple[Placed, ...]:
    """Where and when each task runs: in order, each on the device that is free first.

    It is what :mod:`mapreduce_rnn.rounds` does with real workers.

    Args:
        seconds: What each task takes, in slot order.
        devices: 1 or more.
    """
    free = [(0.0, device) for device in range(devices)]
    placed = []
    for taken in seconds:
        start, device = heapq.heappop(free)
        placed.append(Placed(device, start, start + taken))
        heapq.heappush(free, (start + taken, device))
    return tuple(placed)


def makespan(seconds: Sequence[float], devices: int) -> float:
    """When the last task of :func:`schedule` ends; 0 without any."""
    return max((task.end for task in schedule(seconds, devices)), default=0.0)


@dataclass(frozen=True)
class Timed:
    """A task as it was measured, in seconds since the phase began."""

    sent: float
    received: float
    busy: float  # that the worker computed; the rest of the time between them is transfer

    @property
    def transfer(self) -> float:
        """Seconds of the message on its way there, of the answer back, and of the codec."""
        return max(0.0, self.received - self.sent - self.busy)


def map_seconds(measured: float, tasks: Sequence[Timed], devices: int) -> float:
    """Seconds that the map phase of a round would take on ``devices`` devices.

    Args:
        measured: What the phase took on those that are there.
        tasks: All of them, in slot order, each of which had a device to itself.
    """
    own = measured - max((task.received for task in tasks), default=0.0)
    transfer = sum(task.transfer for task in tasks)
    return makespan([task.busy for task in tasks], devices) + transfer + own
