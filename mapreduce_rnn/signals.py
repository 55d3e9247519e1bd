"""SIGINT and SIGTERM as a question that is asked between two steps, never in one."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from mapreduce_rnn.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Notes a stop signal while the context is open; a second one acts at once.

    Python delivers signals to the main thread only: in any other thread this does nothing and the
    caller's own handling stays in force.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        if self._received is not None:
            raise Interrupted(signum)
        self._received = signum

    def check(self) -> None:
        """Raise Interrupted if a signal came since the context was opened."""
        if self._received is not None:
            raise Interrupted(self._received)
