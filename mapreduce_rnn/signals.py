"""SIGINT and SIGTERM: in a run a question that is asked between two steps, never in one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mapreduce_rnn.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Both raise KeyboardInterrupt, with the signal's number, while the context is open.

    For commands that write files: what passes the exception on tidies up after SIGTERM as it does
    after Ctrl-C. Only for the main thread.
    """
    before = {signum: signal.signal(signum, _interrupt) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signum)


class StopSignals:
    """Notes a stop signal while the context is open; a second one acts at once.

    Python delivers signals to the main thread only: in any other thread this does nothing and the
    caller's own handling stays in force.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._note) for s in SIGNALS}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        again = self._received is not None
        self._received = signum
        if again or self._at_once:
            raise Interrupted(signum)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A signal in here does not wait for :meth:`check`.

        For what takes long, keeps nothing and cannot be asked in between, such as an import: which
        may pass on another exception in place of ours, or none.
        """
        self._at_once = True
        try:
            yield
        except Exception:
            self.check()
            raise
        finally:
            self._at_once = False
        self.check()

    def check(self) -> None:
        """Raise Interrupted if a signal came since the context was opened."""
        if self._received is not None:
            raise Interrupted(self._received)
