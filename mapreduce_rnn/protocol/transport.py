"""Messages between processes, over ZeroMQ.

The master has a ROUTER, every worker a DEALER, connected through a socket file in a folder that
only the user can enter, or over TCP with keys (:mod:`mapreduce_rnn.protocol.curve`; these two
modules are the only ones that import zmq). Each end has one thread that owns its socket and
nothing else: it sends, receives and tells the other end every 2 seconds that this one is alive,
also while the main thread computes. What was sent arrives or the peer is gone, and both ends notice
that. Queues have limits that only those meet who send what nobody asked for, or never read: what
waits in the master, with M bytes the limit of a message (:attr:`MasterSocket.max_bytes`), is

    2 M for every worker that the master speaks to, max(M, GUESTS_BYTES) for all others together,
    RECEIVED_MESSAGES + 1 messages in libzmq for every connection over TCP.

What does not fit in is dropped, counted and logged. One limit is not to be had: libzmq takes any
number of frames for one message, and keeps them until the last one has come. Who has a key can
fill the memory that way; a stranger cannot.

A context belongs to one object of one process; nothing is made at import, so a fork inherits no
socket that it would use.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import numpy as np
import zmq

from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.keys import WorkerKey
from mapreduce_rnn.protocol.codec import (
    MOST_ARRAYS,
    NO_RUN,
    DecodeError,
    Fault,
    Frame,
    Frames,
    decode,
    encode,
    raw,
    run_of,
)
from mapreduce_rnn.protocol.curve import Door, Gate, Handlers, Ticket
from mapreduce_rnn.protocol.inbox import Inbox, Rejections, Shares, held_bytes
from mapreduce_rnn.protocol.messages import (
    Alive,
    AnyTask,
    Arrays,
    Heartbeat,
    Hello,
    Message,
    Refused,
)
from mapreduce_rnn.protocol.socketfolder import SOCKET, SocketFolder

HEARTBEAT_SECONDS = 2.0
SILENCE_SECONDS = 8.0  # looked at with every heartbeat, so a worker ends within 10 s
LINGER_SECONDS = 1.0  # for the last messages of an end that closes
CALL_SECONDS = 60.0  # for the socket's thread to do what it is asked; a moment, usually
MESSAGES_AT_ONCE = 100  # received between two looks at what else the thread has to do
SMALL_BYTES = 64 * 1024  # received frames below this are copied: many share one buffer
RECEIVED_MESSAGES = 16  # of a peer, that libzmq holds for the thread; what is on the way to a full
# queue when a connection ends is lost, so there is room for all that a worker says as it leaves
UNREAD_MESSAGES = 10_000  # to a worker, after which it counts as gone: hours of Alive
GUESTS_BYTES = 64 << 20  # of messages from all whom the master does not speak to: Hello, mostly
MOST_FRAMES = MOST_ARRAYS + 3  # identity, header, and one by which it is seen that there are more
_GUESTS = ""

# As plain numbers: the enum's own arithmetic takes longer than to send a small frame.
_NO_WAIT, _SEND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_MORE = int(zmq.MORE)

T = TypeVar("T")


class MasterSocket:
    """The master's end: a ROUTER that every worker of the run connects to.

    Attributes:
        address: What a worker connects to.
        max_bytes: Limit of a received message; starts small, since a worker says no more than
            Hello before it has a task, and is set from the model's size once that is known.
        rejected: Messages that were ignored, counted by (worker, fault).
        refused: Connections that were refused, counted by (peer, reason).
    """

    def __init__(
        self,
        run_id: str,
        *,
        door: Door | None = None,
        max_bytes: int = 1 << 20,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        """Bind a socket in a private folder; with a door, wait for :meth:`open` instead.

        Raises:
            UsageError: No folder can hold the socket.
        """
        self._run_id = run_id
        self.max_bytes = max_bytes
        self._inbox: Inbox[tuple[str, Message, str, int]] = Inbox()  # the last: share, bytes
        self._shares = Shares()
        self._members: set[str] = set()  # workers that the master speaks to
        self._peers: set[bytes] = set()  # used by the socket's thread only
        self._door = door
        self._folder: SocketFolder | None = None
        if door is None:
            self._folder = SocketFolder(os.environ)
            self.address = f"ipc://{self._folder.path}/{SOCKET}"
        else:
            self.address = door.address
        self.refused: Counter[tuple[str, str]] = Counter()
        self._alive = _pack(Alive(), run_id)
        self._rejections = Rejections()
        self.rejected = self._rejections.counts
        try:
            self._thread = _SocketThread(zmq.ROUTER, self, heartbeat_seconds)
        except BaseException:
            self._remove_folder()
            raise
        self._thread.start()

    def open(self, max_bytes: int) -> None:
        """Take messages of up to ``max_bytes``. A door opens now: not before the limit is known.

        Raises:
            UsageError: The door's address cannot be had.
        """
        self.max_bytes = max_bytes
        if self._door is not None:
            address = self._door.address
            opening = self._thread.call(lambda: self._gate.open(address, max_bytes))
            self.address = opening.result(CALL_SECONDS)

    def send(self, worker: str, message: Message) -> bool:
        """Send to a worker by name; False if no such worker is connected.

        True means that it is on its way: a worker that ends before it reads it is noticed by
        its process or its silence. The arrays may be changed when this returns.

        Raises:
            ProtocolError: It cannot be sent, see :func:`mapreduce_rnn.protocol.codec.encode`.
        """
        frames = _pack(message, self._run_id)
        if not isinstance(message, Refused):
            self._members.add(worker)  # before there can be an answer
        call = self._thread.call(lambda: self._deliver(worker.encode(), frames))
        delivered = call.result(CALL_SECONDS)
        if not delivered or isinstance(message, Refused):
            self._members.discard(worker)
        return delivered

    def receive(self, timeout_seconds: float) -> list[tuple[str, Message]]:
        """All messages that are there, as (worker, message); waits for the first one only.

        What comes meanwhile is left for the next call: a flood must not keep the caller for ever.
        """
        messages: list[tuple[str, Message]] = []
        item, left = self._inbox.take(timeout_seconds), len(self._inbox)
        while item is not None:
            worker, message, share, size = item
            self._shares.remove(share, size)
            messages.append((worker, message))
            item = self._inbox.take(0.0) if len(messages) <= left else None
        return messages

    def close(self) -> None:
        """End the thread, within seconds; remove the socket and its folder."""
        self._thread.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder is not None:
            self._folder.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # The rest runs in the socket's thread.

    def attach(self, socket: zmq.Socket[bytes]) -> Handlers:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # without it a message to nobody just vanishes
        socket.setsockopt(zmq.SNDHWM, UNREAD_MESSAGES)
        if self._door is None:
            socket.bind(self.address)
            return {}
        socket.setsockopt(zmq.RCVHWM, RECEIVED_MESSAGES)
        self._gate = Gate(socket, self._door.keys)
        self.refused = self._gate.refused
        return self._gate.handlers

    def on_frames(self, frames: Frames) -> None:
        identity, body = bytes(frames[0]), frames[1:]
        worker = identity.decode(errors="backslashreplace")
        try:
            _check_name(worker)
            message = decode(body, self._run_id, self.max_bytes)
            self._put(worker, message, held_bytes(body, message))
        except DecodeError as error:
            self._rejections.add(f"worker {_spelt(worker)}", error)
            return
        self._peers.add(identity)

    def _put(self, worker: str, message: Message, size: int) -> None:
        member = worker in self._members
        share, limit = (worker, 2 * self.max_bytes) if member else (_GUESTS, GUESTS_BYTES)
        if not self._shares.add(share, size, limit):
            raise DecodeError(
                Fault.FLOOD, f"{limit} bytes wait, this is a {type(message).__name__}"
            )
        self._inbox.put((worker, message, share, size))

    def on_tick(self) -> None:
        for identity in tuple(self._peers):
            self._deliver(identity, self._alive)

    def on_error(self, error: Exception) -> None:
        self._inbox.fail(error)

    def _deliver(self, identity: bytes, frames: list[zmq.Frame]) -> bool:
        try:
            self._thread.send([zmq.Frame(identity, copy=True), *frames])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._peers.discard(identity)
            return False
        return True


class WorkerChannel:
    """A worker's end: a DEALER and the thread that keeps the master informed."""

    def __init__(
        self,
        address: str,
        run_id: str,
        name: str,
        *,
        key: WorkerKey | None = None,
        hello: Hello | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """
        Args:
            run_id: Of the run, or NO_RUN: of the first run whose master answers.
            name: That the master knows this worker by; unique among all workers of the run.
            key: For an address over TCP.
            hello: Sent instead of heartbeats until the master answers with more than Alive: it
                may have no place for this worker yet.
            silence_seconds: Without a message from the master, after which it counts as gone.
        """
        self._steps, self._slowest = 0, 0.0  # heartbeats carry them
        self._stepped = time.monotonic()
        self._address = address
        self._run_id = run_id
        self._key = key
        self._ticket: Ticket | None = None
        self._hello = hello
        self._name = name
        self._silence_seconds = silence_seconds
        self._heard = time.monotonic()
        self._inbox: Inbox[Message] = Inbox()
        self._rejections = Rejections()
        self.rejected = self._rejections.counts
        self._thread = _SocketThread(zmq.DEALER, self, heartbeat_seconds)
        self._thread.start()

    @property
    def answered(self) -> bool:
        """Whether the master has said more than Alive: it knows this worker."""
        return self._run_id != NO_RUN and self._hello is None

    def send(self, message: Message) -> None:
        """Hand a message to the thread; its arrays may be changed when this returns.

        Raises:
            ProtocolError: For what cannot be sent (:func:`mapreduce_rnn.protocol.codec.encode`).
            TrainingFailed: The channel is closed or the master is gone.
        """
        frames = _pack(message, self._run_id)
        self._thread.call(lambda: self._thread.send(frames))

    def progress(self, steps: int) -> None:
        """Say how many batches of the current task are done; 0 at its beginning."""
        now = time.monotonic()
        if steps > 0:
            self._slowest = max(self._slowest, now - self._stepped)
        self._steps, self._stepped = steps, now

    def receive(self, timeout_seconds: float | None = None) -> Message | None:
        """The next message, None if there is none in time. Alive is not passed on.

        Without a timeout the master's silence is the deadline.

        Raises:
            TrainingFailed: The master has been silent for too long.
        """
        return self._inbox.take(timeout_seconds)

    def close(self) -> None:
        """Send what is waiting, for a second at most, and end the thread."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # The rest runs in the socket's thread.

    def attach(self, socket: zmq.Socket[bytes]) -> Handlers:
        socket.setsockopt(zmq.ROUTING_ID, self._name.encode())
        if self._key is not None:
            self._ticket = Ticket(socket, self._key, self._address)
        socket.connect(self._address)
        return self._ticket.handlers if self._ticket else {}

    def on_frames(self, frames: Frames) -> None:
        try:
            message = decode(frames, self._run_id)
        except DecodeError as error:
            self._rejections.add("the master", error)
            return
        if self._run_id == NO_RUN:
            self._run_id = run_of(frames)
        self._heard = time.monotonic()
        if not isinstance(message, Alive):
            self._hello = None
            self._inbox.put(message)

    def on_tick(self) -> None:
        silence = time.monotonic() - self._heard
        if silence > self._silence_seconds:
            hint = self._ticket.hint if self._ticket else ""
            raise TrainingFailed(
                f"no message from the master at {self._address} for {silence:.0f} s: it has ended "
                f"or cannot be reached{hint}, so this worker ends too"
            )
        message = self._hello or Heartbeat(self._steps, self._slowest)
        self._thread.send(_pack(message, self._run_id))

    def on_error(self, error: Exception) -> None:
        self._inbox.fail(error)


class _SocketThread:
    """A thread that owns one socket. ``end`` is the MasterSocket or WorkerChannel it works for.

    Other threads reach the socket through :meth:`call` only; an eventfd wakes the thread up.
    """

    def __init__(
        self, socket_type: int, end: MasterSocket | WorkerChannel, tick_seconds: float
    ) -> None:
        self._end = end
        self._tick_seconds = tick_seconds
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock = threading.Lock()  # over _calls and _open
        self._open = True
        self._error: Exception | None = None  # that ended the thread
        self._context = zmq.Context()
        self._socket = self._context.socket(socket_type)
        self._socket.setsockopt(zmq.LINGER, int(LINGER_SECONDS * 1000))
        self._socket.setsockopt(zmq.SNDHWM, 0)  # a limit would block or drop
        try:
            self._others = end.attach(self._socket)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="mapreduce-socket", daemon=True)

    def start(self) -> None:
        """Not part of the constructor: ``end`` has to know this object first."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` in the thread; raises what has ended that, if it has ended."""
        future: Future[T] = Future()
        with self._lock:
            if not self._open:
                raise self._error or TrainingFailed("the connection between processes is closed")
            self._calls.append((future, function))
            os.eventfd_write(self._wake, 1)
        return future

    def send(self, frames: list[zmq.Frame]) -> None:
        """Only for the thread itself. ZeroMQ shares the frames' memory, and never waits."""
        for frame in frames[:-1]:
            self._socket.send(frame, _SEND_MORE, copy=False)
        self._socket.send(frames[-1], _NO_WAIT, copy=False)

    def close(self) -> None:
        """Do what was called for before, then end. A second time does nothing."""
        if self._wake < 0:
            return
        with self._lock:
            self._open = False
        os.eventfd_write(self._wake, 1)
        self._thread.join(CALL_SECONDS)
        self._context.term()  # waits for what is still to be sent, at most LINGER_SECONDS
        os.close(self._wake)
        self._wake = -1

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            self._error = error
            self._end.on_error(error)
        finally:
            with self._lock:
                self._open = False
            for future, _ in self._calls:
                future.cancel()
            for socket in (self._socket, *self._others):
                socket.close()

    def _loop(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake, zmq.POLLIN)
        for other in self._others:
            poller.register(other, zmq.POLLIN)
        next_tick = time.monotonic()
        while self._open or self._calls:
            wait = max(0.0, next_tick - time.monotonic())
            ready = dict(poller.poll(round(1000 * wait)))
            if self._wake in ready:
                os.eventfd_read(self._wake)
            for other, handle in self._others.items():
                if other in ready:
                    handle()
            self._run_calls()
            self._receive()
            if time.monotonic() >= next_tick:
                self._end.on_tick()
                next_tick = time.monotonic() + self._tick_seconds

    def _run_calls(self) -> None:
        while self._calls:
            future, function = self._calls.popleft()
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

    def _receive(self) -> None:
        for _ in range(MESSAGES_AT_ONCE):
            try:
                frames = [self._socket.recv(_NO_WAIT, copy=False)]
            except zmq.Again:
                return
            more = frames[-1].get(_MORE)
            while more:  # a message is there as a whole or not at all
                frame = self._socket.recv(_NO_WAIT, copy=False)
                more = frame.get(_MORE)
                if len(frames) < MOST_FRAMES:
                    frames.append(frame)
            self._end.on_frames([_received(frame) for frame in frames])


# Frames: libzmq counts the references to their memory, also while it sends them


def share(tasks: Iterable[AnyTask]) -> list[AnyTask]:
    """The same tasks, with one copy of each array that several of them hold, as a global model.

    The copies are read-only, and sending them does not copy them again.
    """
    tasks = list(tasks)
    held = [array for task in tasks for array in task.arrays.values()]
    uses = Counter(map(id, held))
    copies = {key: _copy(a) for key, a in {id(a): a for a in held}.items() if uses[key] > 1}

    def shared(arrays: Arrays) -> Arrays:
        return {name: copies.get(id(array), array) for name, array in arrays.items()}

    return [dataclasses.replace(task, arrays=shared(task.arrays)) for task in tasks]


def _copy(array: np.ndarray) -> np.ndarray:
    """An equal array whose memory is a frame and can be written to by nobody."""
    frame = zmq.Frame(raw(array), copy=True)
    return np.frombuffer(frame.buffer.toreadonly(), array.dtype).reshape(array.shape)


def _pack(message: Message, run_id: str) -> list[zmq.Frame]:
    """A snapshot of ``message``: later changes of its arrays do not reach the receiver."""
    return [_frame_of(data) or zmq.Frame(data, copy=True) for data in encode(message, run_id)]


def _frame_of(data: Frame) -> zmq.Frame | None:
    """The frame whose memory ``data`` is, all of it and read-only, as made by _copy or received."""
    owner = data.obj if isinstance(data, memoryview) else None
    while isinstance(owner, np.ndarray):
        owner = owner.base
    frame = owner.obj if isinstance(owner, memoryview) and owner.readonly else None
    return frame if isinstance(frame, zmq.Frame) and len(frame) == len(data) else None


def _check_name(worker: str) -> None:
    """Names go into lines of a log, which nobody shall be able to break."""
    if not worker.isprintable():
        raise DecodeError(Fault.MALFORMED, "a name that cannot be printed")


def _spelt(worker: str) -> str:
    return worker if worker.isprintable() else ascii(worker)


def _received(frame: zmq.Frame) -> Frame:
    """Read-only bytes of a received frame; those of a large one are its own memory.

    Arrays over small ones would be misaligned, and keep the buffer that they all lie in.
    """
    return frame.bytes if len(frame) < SMALL_BYTES else frame.buffer.toreadonly()
