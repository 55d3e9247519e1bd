"""The seam between a run and whatever starts its workers.

A *place* is a device that one worker process at a time owns; the process may be lost and started
again, under a new name, so that nothing its predecessor sent can be taken for its own.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal, Protocol

from mapreduce_rnn.protocol.messages import Hello


@dataclass(frozen=True)
class Place:
    """Where one worker computes.

    ``token`` is one whole entry of CUDA_VISIBLE_DEVICES (an index, a UUID or a MIG id), kept as
    text because only the CUDA driver can tell what it means; empty on a CPU.
    """

    kind: Literal["cpu", "cuda"]
    token: str = ""

    @property
    def device(self) -> str:
        """As a worker's Hello and its command line name it: "cpu" or "cuda:<token>"."""
        return f"{self.kind}:{self.token}" if self.token else self.kind


class Unfit(Exception):
    """Why a worker cannot work for a run, in one line for people at both ends."""


class Launcher(Protocol):
    """Starts and ends the worker processes of a run, at most one per place (0, 1, ...).

    Attributes:
        remote: Workers come by themselves: an unfit one is sent away, and the run goes on.
    """

    remote: bool

    def start(self, place: int) -> str | None:
        """Start a worker; returns the name it will have on the socket, never used before.

        None: one is awaited, see :meth:`admit`.
        """

    def admit(self, hello: Hello) -> int | None:
        """The place for a worker that nobody started here; None if there is none now.

        Raises:
            Unfit: It cannot work for this run.
        """

    def poll(self) -> list[tuple[int, str]]:
        """Workers that ended since the last call, each once: (place, how it ended)."""

    def stop(self, place: int) -> None:
        """SIGKILL and reap a lost or hung worker; :meth:`poll` does not report it."""

    def stop_all(self, grace_seconds: float) -> None:
        """End every worker: asked first, killed after ``grace_seconds``, reaped in any case."""


def describe_exit(returncode: int) -> str:
    """``returncode`` of a process in words; negative ones are signals, as in subprocess."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:  # a real-time signal has no name
        name = "no name"
    return f"signal {-returncode} ({name})"
