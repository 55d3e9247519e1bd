"""A worker that is one, but sends beside its answers whatever it can think of."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgpack
import numpy as np
import zmq

from mapreduce_rnn.protocol.codec import HEADER_BYTES, encode
from mapreduce_rnn.protocol.messages import (
    PROTOCOL,
    AnyResult,
    Heartbeat,
    MapResult,
    MapTask,
    Message,
    Ready,
    ScoreResult,
    Setup,
    Stop,
    TaskFailed,
)
from mapreduce_rnn.protocol.transport import WorkerChannel

LIMIT = 1 << 20  # bytes of a message, or a little more: the models here are small
TIMES = 3  # that everything is sent
NESTED = b"\x91" * 1000 + b"\x90"
BOMB = zlib.compress(bytes(30_000_000))


class Hostile(WorkerChannel):
    """Answers every second task rightly, once all of the others are answered with nonsense."""

    answered_rightly = 0

    def send(self, message: Message) -> None:
        if not isinstance(message, MapResult | ScoreResult):
            super().send(message)
            return
        for _ in range(TIMES):
            for frames in broken(message, self._run_id):
                self._send_raw(frames)
            for odd in out_of_place(message):
                super().send(odd)
        self._answer(message)

    def _answer(self, message: MapResult | ScoreResult) -> None:
        """A task that fails twice ends the run, so that nonsense goes to the first attempt only."""
        if message.attempt == 1 and (message.round + message.slot) % 2:
            for wrong in nonsense(message):
                super().send(wrong)
            return
        for _ in range(TIMES):
            super().send(message)
        self.answered_rightly += 1

    def _send_raw(self, frames: Iterable[bytes]) -> None:
        sent = [zmq.Frame(frame, copy=True) for frame in frames]
        self._thread.call(lambda: self._thread.send(sent))


def broken(message: AnyResult, run_id: str) -> Iterator[list[bytes]]:
    """Frames that are no message of this run, made from those of an answer that would be one."""
    header, *arrays = (bytes(frame) for frame in encode(message, run_id))
    version, run, kind, fields, table = msgpack.unpackb(header)

    def headed(*parts: Any) -> list[bytes]:
        return [bytes(msgpack.packb(list(parts))), *arrays]

    yield [header]
    yield [header, *arrays[:-1]]
    yield [header, *arrays, b"1234"]
    yield [arrays[0], header, *arrays[1:]]
    yield [header, arrays[0] + bytes(8), *arrays[1:]]
    yield [header, *[b""] * 5000]
    yield [header, *[bytes(LIMIT // 2)] * 4]
    yield [header + bytes(HEADER_BYTES), *arrays]
    yield [b"", NESTED]
    yield [NESTED]
    yield headed(version + 1, run, kind, fields, table)
    yield headed(version, "another", kind, fields, table)
    yield headed(version, run, "Backdoor", fields, table)
    yield headed(version, run, kind, fields, BOMB)
    for name, value in (("round", -1), ("attempt", 2**64 - 1), ("seconds", math.nan), ("slot", "")):
        yield headed(PROTOCOL, run, kind, {**fields, name: value}, table)


def out_of_place(message: AnyResult) -> Iterator[Message]:
    """Messages that nobody waits for."""
    for field, value in (("round", 0), ("round", 10**9), ("slot", 77), ("attempt", 99)):
        yield dataclasses.replace(message, **{field: value})
    yield dataclasses.replace(message, round=message.round - 1, attempt=1)
    yield TaskFailed("map", message.round, 77, 1, "of nobody")
    yield MapTask(1, 0, 1, 1)
    yield Setup({}, "")
    yield Stop()
    yield Ready("again")
    yield Heartbeat(2**62, 1e18)


def nonsense(message: MapResult | ScoreResult) -> Iterator[Message]:
    """Answers in their proper form to the task that is held: only the first of them counts."""
    if isinstance(message, ScoreResult):
        yield dataclasses.replace(message, arrays={"loss": np.zeros((2, 2))})
        return
    wrong: dict[str, Any] = {
        "steps": "many", "epoch_steps": 10**18, "loss_sum": math.nan, "visits": "x" * 10_000,
    }  # fmt: skip
    changes = [{name: value} for name, value in wrong.items()]
    first = (message.round + message.slot) % len(changes)
    for change in changes[first:] + changes[:first]:
        yield dataclasses.replace(message, statistics={**message.statistics, **change})
    yield dataclasses.replace(message, statistics={})
    yield dataclasses.replace(message, arrays={})
