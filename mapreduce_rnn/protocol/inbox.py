"""What the thread of a socket hands over to the rest of its process."""

from __future__ import annotations

import logging
import queue
from collections import Counter
from typing import Generic, TypeVar

from mapreduce_rnn.protocol.codec import DecodeError, Fault

log = logging.getLogger(__name__)

T = TypeVar("T")


class Inbox(Generic[T]):
    """What the socket's thread has for the others: items, and at last perhaps an error."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()  # None: look at the error
        self._error: Exception | None = None

    def put(self, item: T) -> None:
        self._items.put(item)

    def fail(self, error: Exception) -> None:
        self._error = error
        self._items.put(None)

    def take(self, timeout_seconds: float | None) -> T | None:
        """The next item, None if there is none in time; raises the error once items are used up."""
        try:
            item = self._items.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        if item is None and self._error is not None:
            self._items.put(None)  # for every later call
            raise self._error
        return item


class Rejections:
    """Counts messages that were ignored, and logs the first of each fault and peer."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, Fault]] = Counter()

    def add(self, peer: str, error: DecodeError) -> None:
        self.counts[peer, error.fault] += 1
        if self.counts[peer, error.fault] == 1:
            log.warning("ignored, from %s: %s; more like it are only counted", peer, error)
