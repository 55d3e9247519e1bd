"""Workers on other machines, which people or a cluster start: here they are only waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mapreduce_rnn.launch.base import Unfit
from mapreduce_rnn.protocol.messages import Hello


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with its master, so that it computes the same."""

    version: str
    store: str  # fingerprint
    device: Literal["cpu", "cuda"]

    def misfit(self, hello: Hello) -> str | None:
        """What a worker has that the run has not, and what to do; None if it fits."""
        device = hello.device.partition(":")[0]
        if hello.version != self.version:
            return (
                f"it runs mapreduce_rnn {hello.version}, the master {self.version}: install one "
                "version"
            )
        if hello.store != self.store:
            return (
                "its store is not the one the master has opened: copy that, or import the same "
                "source with the same options"
            )
        if device != self.device:
            return f"it computes on {device}, this run on {self.device}: see its --device"
        return None


class ConnectLauncher:
    """One place per worker that the run waits for; the first that fit get them.

    A place that is free stays so as long as others are taken: a worker may come back whenever it
    likes. But a run does not begin before each place had a worker or has been waited for in vain,
    and without any worker at all it does not wait for ever.
    """

    remote = True

    def __init__(
        self,
        terms: Terms,
        *,
        patience_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            patience_seconds: After which :meth:`poll` reports a place that nobody has taken.
        """
        self._terms = terms
        self._patience = patience_seconds
        self._clock = clock
        self._free: dict[int, float] = {}  # place -> since when a worker is awaited
        self._taken: set[int] = set()
        self._used: set[int] = set()  # places that somebody has had

    def start(self, place: int) -> None:
        """Wait for a worker; see :class:`mapreduce_rnn.launch.base.Launcher`."""
        self._free.setdefault(place, self._clock())
        self._taken.discard(place)

    def admit(self, hello: Hello) -> int | None:
        """The lowest free place, None if all are taken.

        Raises:
            Unfit: The worker has another version, store or kind of device.
        """
        misfit = self._terms.misfit(hello)
        if misfit is not None:
            raise Unfit(misfit)
        if not self._free:
            return None
        place = min(self._free)
        del self._free[place]
        self._taken.add(place)
        self._used.add(place)
        return place

    def poll(self) -> list[tuple[int, str]]:
        """Places that have been free for too long, each once per start: (place, why)."""
        now = self._clock()
        late = [
            place
            for place, since in self._free.items()
            if now - since > self._patience and (place not in self._used or not self._taken)
        ]
        for place in late:
            del self._free[place]
        return [(place, f"no worker has connected in {self._patience:.0f} s") for place in late]

    def stop(self, place: int) -> None:
        """Forget the worker: it cannot be ended from here, but what it sends is ignored."""
        self._taken.discard(place)

    def stop_all(self, grace_seconds: float) -> None:
        """Nothing: the master has told them to stop, and they notice its silence."""
