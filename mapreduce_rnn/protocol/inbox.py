"""What the thread of a socket hands over to the rest of its process."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from typing import Generic, TypeVar

from mapreduce_rnn.protocol.codec import DecodeError, Frames
from mapreduce_rnn.protocol.messages import Message
from mapreduce_rnn.protocol.oddities import Oddities

log = logging.getLogger(__name__)

HEADER_GROWTH = 72  # bytes that a byte of msgpack can become: an empty dict, and a pointer to it
ARRAY_BYTES = 512  # of an array's objects besides its values and its name

T = TypeVar("T")


class Inbox(Generic[T]):
    """What the socket's thread has for the others: items, and at last perhaps an error."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T | None] = queue.SimpleQueue()  # None: look at the error
        self._error: Exception | None = None

    def __len__(self) -> int:
        return self._items.qsize()

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


class Shares:
    """Bytes that wait for the rest of the process, by whose share they are in; for two threads."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, owner: str, size: int, limit: int) -> bool:
        """Whether ``size`` bytes fit into a share; the first message always does."""
        with self._lock:
            held = self._bytes[owner]
            if held and held + size > limit:
                return False
            self._bytes[owner] = held + size
        return True

    def remove(self, owner: str, size: int) -> None:
        with self._lock:
            self._bytes[owner] -= size
            if not self._bytes[owner]:
                del self._bytes[owner]


def held_bytes(frames: Frames, message: Message) -> int:
    """Upper bound of the memory that a received message takes, in bytes.

    A message of few bytes may take many: its header holds objects, its table is compressed.
    """
    arrays = getattr(message, "arrays", {})
    named: int = sum(ARRAY_BYTES + 4 * len(name) + array.nbytes for name, array in arrays.items())
    return HEADER_GROWTH * len(frames[0]) + named


class Rejections:
    """Counts messages that were ignored, and logs the first of each fault and peer."""

    def __init__(self) -> None:
        self._oddities = Oddities()
        self.counts = self._oddities.counts

    def add(self, peer: str, error: DecodeError) -> None:
        who = self._oddities.add(peer, error.fault)
        if who is not None:
            log.warning("ignored, from %s: %s; more like it are only counted", who, error)
