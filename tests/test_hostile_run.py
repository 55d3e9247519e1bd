"""Whole runs with a worker that passed authentication and means harm: the same bytes as without."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import inprocess
import mapreduce_rnn
from hostile import Hostile
from mapreduce_rnn import session
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.keys import WorkerKey, make_keys, read_worker
from mapreduce_rnn.launch.base import Launcher
from mapreduce_rnn.protocol.codec import NO_RUN, Fault
from mapreduce_rnn.protocol.curve import make_pair
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel
from mapreduce_rnn.workers.main import hello, serve
from runs_real import result_bytes
from smalltask import SmallTask

OPTIONS = inprocess.TINY | {
    "map_tasks": 4, "epochs": 2, "units": 4, "cpu_workers": 2, "optimizer_state": "keep",
    "dropout": 0.0,  # the workers are threads here, and torch's random numbers are the process's
}  # fmt: skip
CHANNELS = (Hostile, WorkerChannel)


class Threads(Launcher):
    """Workers as threads of this process, the first of them hostile.

    Attributes:
        sockets: The master's, of all runs.
    """

    remote = False

    def __init__(self, store: Path, key: WorkerKey | None = None) -> None:
        self.sockets: list[MasterSocket] = []
        self._store, self._key = Store.open(store), key
        self._threads: list[threading.Thread] = []
        self.channels: list[WorkerChannel] = []

    def of_run(self, places: Any, *, address: str, run_id: str, **_: Any) -> Threads:
        self._address, self._run_id = address, run_id
        return self

    def start(self, place: int) -> str:
        assert place == len(self._threads), "a worker was given up"
        name = f"{place}.1"
        thread = threading.Thread(target=self._work, args=(CHANNELS[place], name))
        self._threads.append(thread)
        thread.start()
        return name

    def _work(self, kind: type[WorkerChannel], name: str) -> None:
        greeting = hello("cpu", self._store)
        key, repeated = self._key, greeting if self._key else None
        with kind(self._address, self._run_id, name, key=key, hello=repeated) as channel:
            self.channels.append(channel)
            if key is None:
                channel.send(greeting)
            serve(channel, "cpu", self._store)

    def poll(self) -> list[tuple[int, str]]:
        return []

    def stop_all(self, grace_seconds: float) -> None:
        for thread in self._threads:
            thread.join(20.0)

    def socket(self, run_id: str, **options: Any) -> MasterSocket:
        """A master's socket; where it has a door, workers come as soon as that is open."""
        made = MasterSocket(run_id, **options)
        self.sockets.append(made)
        if self._key is None:
            return made

        def opened(max_bytes: int) -> None:
            MasterSocket.open(made, max_bytes)
            self.of_run((), address=made.address, run_id=NO_RUN)
            for place in range(len(CHANNELS)):
                self.start(place)

        made.open = opened  # type: ignore[method-assign]
        return made


@contextmanager
def workers_of(threads: Threads) -> Iterator[None]:
    stand_ins = {"MasterSocket": threads.socket, "LocalLauncher": threads.of_run}
    with (
        mock.patch.multiple(session, **stand_ins),
        mock.patch("mapreduce_rnn.tasks.make_task", SmallTask),
        mock.patch("mapreduce_rnn.workers.maptask.make_task", SmallTask),
    ):
        try:
            yield
        finally:
            threads.stop_all(0.0)


@pytest.fixture
def calm(store: Path, tmp_path: Path) -> dict[str, str]:
    inprocess.train(store, tmp_path / "calm", make_task=SmallTask, **OPTIONS)
    return result_bytes(tmp_path / "calm")


@pytest.mark.parametrize("remote", [False, True], ids=["ipc", "tcp"])
def test_a_hostile_worker_changes_no_byte_and_its_oddities_are_told_once(
    store: Path, calm: dict[str, str], tmp_path: Path, remote: bool
) -> None:
    options: dict[str, Any] = dict(OPTIONS)
    key = None
    if remote:
        make_keys(tmp_path / "keys", ["lab"], make_pair)
        options |= {"listen": "tcp://127.0.0.1:*", "keys": str(tmp_path / "keys")}
        key = read_worker(tmp_path / "keys" / "lab.key")
    threads, run = Threads(store, key), tmp_path / "run"
    with workers_of(threads):
        config = override(TrainConfig(), options, "test")
        mapreduce_rnn.train(store, config, run_dir=run, quiet=True, report=False)
    assert result_bytes(run) == calm
    assert sum(getattr(channel, "answered_rightly", 0) for channel in threads.channels) > 0
    (socket,) = threads.sockets
    assert {fault for _, fault in socket.rejected} == set(Fault) - {Fault.FLOOD}
    assert min(socket.rejected.values()) >= 3
    told = warnings_in(run / "master.log")
    assert len(told) == len(set(told)) == 4 + len(OUT_OF_PLACE)
    for kind in OUT_OF_PLACE:
        assert sum(kind in line for line in told) == 1


OUT_OF_PLACE = ("a MapTask", "a Setup", "a Stop", "ready although it was", "a malformed answer",
                "does not hold this attempt")  # fmt: skip


def warnings_in(log: Path) -> list[str]:
    """What the warnings say, without their times; numbers in them may differ."""
    lines = [line for line in log.read_text().splitlines() if "WARNING" in line]
    return [re.sub(r"^.*WARNING", "", line) for line in lines]
