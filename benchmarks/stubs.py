"""Rounds of the real master on workers that do nothing: what is left is the overhead.

Loop, pool, messages, sockets and reduce are those of a run. Only the workers are stubs: they send
back the arrays they got, where these lie, and import no torch. They share a few processes, in which
each has a thread and a socket of its own; so many more fit into a machine than could train there.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reduce import SPAWN

import mapreduce_rnn
from mapreduce_rnn.config import WorkerConfig, to_dict
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.launch.base import Launcher
from mapreduce_rnn.master import Master
from mapreduce_rnn.plan import Plan
from mapreduce_rnn.pool import Pool
from mapreduce_rnn.progress import Console
from mapreduce_rnn.protocol.codec import encode
from mapreduce_rnn.protocol.messages import (
    Hello,
    MapResult,
    MapTask,
    Message,
    Ready,
    ScoreResult,
    ScoreTask,
    Setup,
    prefixed,
    under,
)
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel
from mapreduce_rnn.runlog import JsonLines, read_lines
from mapreduce_rnn.runstate import RunState

PROCESSES = 8  # of all stubs together
RUN = "stubs"
WAIT_SECONDS = 60.0
PATIENCE_SECONDS = 3600.0  # of both ends: a large broadcast may take longer than a run's


@dataclass(frozen=True)
class Rounds:
    """What some rounds took."""

    events: list[dict[str, Any]]  # as in a run's events.jsonl: seconds of each round by their use
    sent: int  # bytes of all map tasks
    received: int  # of all their results


def run_rounds(plan: Plan, store: Store, model: dict[str, NDArray[Any]]) -> Rounds:
    """All rounds of a plan, with a stub for every slot."""
    with (
        tempfile.TemporaryDirectory() as folder,
        CountingSocket(RUN, max_bytes=plan.message_bytes) as socket,
        JsonLines(Path(folder, "metrics")) as metrics,
        JsonLines(Path(folder, "events")) as events,
        _pool(socket, plan.slots) as pool,
    ):
        pool.set_up(Setup(to_dict(plan.config), store.fingerprint))
        master = Master(
            plan, store, pool, Path(folder), metrics, events, Console(None),
            elapsed=0.0, count_training=False, board=None,
        )  # fmt: skip
        master.run(RunState(0, model), time.monotonic())
        return Rounds(
            list(read_lines(Path(folder, "events")).records), socket.sent, socket.received
        )


def _pool(socket: MasterSocket, n: int) -> Pool:
    return Pool(
        socket,
        Stubs(socket.address, n),
        range(n),
        version=mapreduce_rnn.__version__,
        options=WorkerConfig(silence_seconds=PATIENCE_SECONDS, hang_seconds=PATIENCE_SECONDS),
        check_signals=lambda: None,
        on_worker=lambda **facts: None,
    )


class CountingSocket(MasterSocket):
    """A master's socket that counts the bytes of map tasks and their results."""

    sent = received = 0

    def send(self, worker: str, message: Message) -> bool:
        self.sent += _size(message) if isinstance(message, MapTask) else 0
        return super().send(worker, message)

    def receive(self, timeout_seconds: float) -> list[tuple[str, Message]]:
        messages = super().receive(timeout_seconds)
        self.received += sum(_size(m) for _, m in messages if isinstance(m, MapResult))
        return messages


def _size(message: Message) -> int:
    return sum(map(len, encode(message, RUN)))


class Stubs(Launcher):
    """Processes that serve ``n`` places, taken in turn."""

    remote = False

    def __init__(self, address: str, n: int) -> None:
        names = [str(place) for place in range(n)]
        self._processes = [
            SPAWN.Process(target=serve, args=(address, names[k::PROCESSES]), daemon=True)
            for k in range(min(n, PROCESSES))
        ]
        for process in self._processes:
            process.start()

    def start(self, place: int) -> str:
        return str(place)

    def admit(self, hello: Hello) -> None:
        return None

    def poll(self) -> list[tuple[int, str]]:
        if any(process.exitcode is not None for process in self._processes):
            raise RuntimeError("a process of stubs has ended")
        return []

    def stop(self, place: int) -> None:
        raise RuntimeError(f"stub {place} is silent or hung")

    def stop_all(self, grace_seconds: float) -> None:
        for process in self._processes:
            process.join(WAIT_SECONDS)


def serve(address: str, names: list[str]) -> None:
    """One thread and socket for each name, until they are told to stop."""
    threads = [threading.Thread(target=_serve_one, args=(address, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve_one(address: str, name: str) -> None:
    with WorkerChannel(address, RUN, name, silence_seconds=PATIENCE_SECONDS) as channel:
        channel.send(Hello(mapreduce_rnn.__version__, "cpu", os.getpid()))
        # No variable holds the task: its memory is free once the answer is sent.
        while (answer := _answer(channel.receive())) is not None:
            channel.send(answer)
            del answer


def _answer(message: Message | None) -> Message | None:
    """What a stub says to a message; None: it is told to stop."""
    match message:
        case Setup():
            return Ready("")
        case MapTask():
            return _trained(message)
        case ScoreTask():
            return _scored(message)
    return None


def _trained(task: MapTask) -> MapResult:
    n = len(task.arrays["shard"])
    statistics: Mapping[str, Any] = {
        "loss_sum": 0.0, "sequences": n, "steps": 1, "skipped_steps": 0, "learning_rate": 0.1,
        "held_back": 0, "epoch_steps": 1, "visits": 0,
    }  # fmt: skip
    model = prefixed("model/", under("model/", task.arrays))
    return MapResult(task.round, task.slot, task.attempt, n, statistics, 0.0, model)


def _scored(task: ScoreTask) -> ScoreResult:
    n = len(task.arrays["indices"])
    zeros = {"loss": np.zeros(n), "edits": np.zeros(n, np.int64), "reference": np.ones(n, np.int64)}
    return ScoreResult(task.round, task.slot, task.attempt, 0.0, zeros)
