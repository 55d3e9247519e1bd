"""Which workers count as lost or hung: pure, the time is an argument.

A worker's communication thread sends a heartbeat every two seconds, with the batches done in its
task and the longest that one of its batches took so far. No message at all for ``silence_seconds``
means that the process is stopped, or its machine is gone: lost. Heartbeats without a step for
``hang_seconds`` mean that its main thread is stuck: hung. A step that is only slow is neither: a
model whose batches take minutes has its own measure, 20 times the slowest batch of any worker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

SLOWEST_TIMES = 20
"""Times the slowest batch seen so far, that a batch may take before its worker counts as hung."""


@dataclass(frozen=True)
class Limits:
    """How long a worker may be silent, and how long it may stand still."""

    silence_seconds: float
    hang_seconds: float


@dataclass(frozen=True)
class Pulse:
    """What is known of one worker's process; times on a clock that never goes back.

    Attributes:
        moved: When it last got on: it was started, greeted, was set up, given a task, or made a
            step.
        heard: When its last message came; None before the first one: until a process has found
            its modules on a slow disk, it can say nothing.
        steps: Batches done in its task, as of the last heartbeat.
        slowest: Seconds of its slowest batch.
    """

    moved: float
    heard: float | None = None
    steps: int = 0
    slowest: float = 0.0

    def message(self, now: float) -> Pulse:
        """After any message."""
        return replace(self, heard=now)

    def busy(self, now: float) -> Pulse:
        """After it was given something to do."""
        return replace(self, moved=now, steps=0)

    def beat(self, steps: int, slowest: float, now: float) -> Pulse:
        """After a heartbeat."""
        moved = self.moved if steps == self.steps else now
        return replace(self, moved=moved, steps=steps, slowest=max(self.slowest, slowest))


def fault(
    pulse: Pulse, limits: Limits, slowest: float, now: float, *, idle: bool = False
) -> str | None:
    """Why a worker counts as lost or hung, in words; None while it does not.

    Args:
        slowest: Seconds of the slowest batch of any worker.
        now: After all messages that have come in were looked at: the master may have been busy.
        idle: Whether it has nothing to do, so that it need not get on.
    """
    if pulse.heard is not None and now - pulse.heard > limits.silence_seconds:
        return f"silent for {now - pulse.heard:.0f} s"
    still = now - pulse.moved
    if not idle and still > max(limits.hang_seconds, SLOWEST_TIMES * slowest):
        what = "started, but silent" if pulse.heard is None else "hung: no step"
        return f"{what} for {still:.0f} s"
    return None


def slowest_of(pulses: Iterable[Pulse]) -> float:
    """Seconds of the slowest batch of all."""
    return max((pulse.slowest for pulse in pulses), default=0.0)
