"""Workers that come by themselves: who gets a place, who waits, who is sent away."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn import __version__, cli
from mapreduce_rnn.config import WorkerConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.keys import MasterKeys, WorkerKey, make_keys
from mapreduce_rnn.launch.base import Unfit
from mapreduce_rnn.launch.connect import ConnectLauncher, Terms
from mapreduce_rnn.pool import Pool
from mapreduce_rnn.probe import make_probe
from mapreduce_rnn.protocol.curve import Door, make_pair
from mapreduce_rnn.protocol.messages import (
    Heartbeat,
    Hello,
    Message,
    ProbeResult,
    ProbeTask,
    Ready,
    Refused,
    Setup,
    TaskFailed,
)
from mapreduce_rnn.protocol.transport import MasterSocket
from mapreduce_rnn.workers.remote import join

TERMS = Terms("1", "sha", "cpu")
HELLO = Hello("1", "cpu", 7, "sha")
PROBE = make_probe({}, np.arange(3))
NO_POINTS = {
    "sizes": np.empty(0, np.int64), "lengths": np.empty(0, np.int64), "seconds": np.empty(0),
}  # fmt: skip
PATIENCE = 20.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def launcher(clock: Clock) -> ConnectLauncher:
    """Waits for two workers, for 10 s."""
    made = ConnectLauncher(TERMS, patience_seconds=10.0, clock=clock)
    for place in (0, 1):
        made.start(place)
    return made


def test_places_are_taken_in_order_and_then_there_is_none(launcher: ConnectLauncher) -> None:
    assert [launcher.admit(HELLO) for _ in range(3)] == [0, 1, None]
    launcher.stop(0)
    launcher.start(0)
    assert launcher.admit(HELLO) == 0


@pytest.mark.parametrize(
    ("hello", "text"),
    [
        (Hello("2", "cpu", 7, "sha"), "runs mapreduce_rnn 2, the master 1: install one"),
        (Hello("1", "cpu", 7, "other"), "store is not the one the master has opened"),
        (Hello("1", "cuda:0", 7, "sha"), "computes on cuda, this run on cpu"),
    ],
)
def test_a_worker_that_would_compute_something_else_gets_no_place(
    launcher: ConnectLauncher, hello: Hello, text: str
) -> None:
    with pytest.raises(Unfit, match=text):
        launcher.admit(hello)
    assert launcher.admit(HELLO) == 0


def test_a_place_that_nobody_takes_is_reported_in_time(
    launcher: ConnectLauncher, clock: Clock
) -> None:
    launcher.admit(HELLO)
    clock.now = 11.0
    assert launcher.poll() == [(1, "no worker has connected in 10 s")]
    assert launcher.poll() == []


def test_a_worker_may_come_back_at_any_time_while_others_work(
    launcher: ConnectLauncher, clock: Clock
) -> None:
    assert [launcher.admit(HELLO), launcher.admit(HELLO)] == [0, 1]
    launcher.stop(0)
    launcher.start(0)
    clock.now = 1000.0
    assert launcher.poll() == []
    launcher.stop(1)
    launcher.start(1)
    assert [place for place, _ in launcher.poll()] == [0]


class Remote(MasterSocket):
    """A master's socket with workers that come in the order of a list of first messages.

    Attributes:
        sent: What the master sent, as (worker, message).
        answers_first: An answer is there before the next worker comes, not after the last.
    """

    def __init__(self, *comes: tuple[str, Message]) -> None:
        self.sent: list[tuple[str, Message]] = []
        self._inbound = list(comes)
        self.answers_first = True

    def send(self, worker: str, message: Message) -> bool:
        self.sent.append((worker, message))
        at = 0 if self.answers_first else len(self._inbound)
        self._inbound[at:at] = [(worker, answer) for answer in self.answers(worker, message)]
        return True

    def answers(self, worker: str, message: Message) -> list[Message]:
        if isinstance(message, ProbeTask):
            return [ProbeResult(0, 0, message.attempt, 0.1, NO_POINTS)]
        if isinstance(message, Setup):
            return [TaskFailed(None, 0, 0, 0, "no GPU here") if worker == "broken" else Ready("")]
        return []

    def receive(self, timeout_seconds: float) -> list[tuple[str, Message]]:
        first, self._inbound = self._inbound[:1], self._inbound[1:]
        return first

    def refusals(self) -> dict[str, str]:
        return {name: m.reason for name, m in self.sent if isinstance(m, Refused)}

    def setups(self) -> list[str]:
        return [name for name, m in self.sent if isinstance(m, Setup)]


def pool_of(socket: MasterSocket, launcher: ConnectLauncher) -> Pool:
    return Pool(
        socket, launcher, (0, 1), version="1", options=WorkerConfig(),
        check_signals=lambda: None, on_worker=lambda **facts: None,
    )  # fmt: skip


def test_the_unfit_are_sent_away_and_the_run_goes_on_with_others(
    launcher: ConnectLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    old, newer = Hello("0", "cpu", 7, "sha"), ("good", HELLO)
    socket = Remote(("old", old), ("old", old), ("broken", HELLO), newer, newer, ("late", HELLO))
    with pool_of(socket, launcher) as pool:
        pool.set_up(Setup({}, "sha"))
        done = pool.run([PROBE], lambda steps: None)
    assert isinstance(done[PROBE.key].result, ProbeResult)
    assert socket.setups() == ["broken", "good", "late"]
    assert set(socket.refusals()) == {"old", "broken"}
    assert caplog.text.count("worker old is refused: it runs mapreduce_rnn 0") == 1
    assert "worker 0 is gone: no GPU here" in caplog.text


def test_a_third_worker_waits_and_one_that_was_given_up_is_told_so(
    launcher: ConnectLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    third = ("c", HELLO)
    socket = Remote(("ghost", Heartbeat(0, 0.0)), ("a", HELLO), ("b", HELLO), third, third)
    socket.answers_first = False
    with pool_of(socket, launcher) as pool:
        pool.set_up(Setup({}, "sha"))
    assert socket.setups() == ["a", "b"]
    assert "was given up" in socket.refusals()["ghost"]
    assert caplog.text.count("worker c has no place: it waits for one") == 1


def test_a_run_that_nobody_joins_ends(launcher: ConnectLauncher, clock: Clock) -> None:
    class Later(Remote):
        def receive(self, timeout_seconds: float) -> list[tuple[str, Message]]:
            clock.now += 1.0
            return []

    pool = pool_of(Later(), launcher)
    with pytest.raises(TrainingFailed, match="no worker has connected in 10 s"), pool:
        pool.set_up(Setup({}, "sha"))
    assert clock.now < 100.0


# The worker's end


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["lab"], make_pair)
    return tmp_path / "keys"


@pytest.fixture(autouse=True)
def _visible_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets the variable; it is put back afterwards."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_a_worker_ends_in_its_wait_where_nobody_listens(
    store: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--connect", "tcp://127.0.0.1:9", "--store", store, "--key", keys / "lab.key"]
    assert cli.main(["worker", *map(str, arguments), "--wait", "0.5"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no message from the master at tcp://127.0.0.1:9" in err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--device", "gpu"], "expected cpu, cuda or cuda:TOKEN"),
        (["--device", "cuda"], "--gpus 1: no GPU is visible"),
        (["--device", "cuda:0"], "--devices 0: no GPU is visible"),
        (["--connect", "host:1"], "--connect host:1: expected tcp://HOST:PORT"),
        (["--key", "none.key"], "cannot read the key none.key"),
        (["--wait", "0"], "--wait: invalid number of seconds value: '0'"),
    ],
)
def test_a_wrong_option_of_a_worker_is_one_line(
    store: Path, keys: Path, capsys: pytest.CaptureFixture[str],
    options: list[str], expected: str,
) -> None:  # fmt: skip
    usual = ["--connect", "tcp://127.0.0.1:9", "--store", store, "--key", keys / "lab.key"]
    try:
        code = cli.main(["worker", *map(str, usual), *options])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


class Answering(threading.Thread):
    """A master that listens, hears one worker's first message, and does something about it.

    Attributes:
        key: Of the worker.
        heard: What the worker said, in order.
    """

    def __init__(self, answer: Callable[[MasterSocket, str], object]) -> None:
        super().__init__()
        master, worker = make_pair(), make_pair()
        self.key = WorkerKey(worker, master.public)
        self.heard: list[Message] = []
        self._answer = answer
        allowed = MasterKeys(master, {worker.public: "lab"})
        self._socket = MasterSocket("run-1", door=Door("tcp://127.0.0.1:*", allowed))

    def __enter__(self) -> str:
        self._socket.open(1 << 20)
        self.start()
        return self._socket.address

    def __exit__(self, *exc_info: object) -> None:
        self.join()
        with self._socket:
            self.heard += [message for _, message in self._socket.receive(1.0)]

    def run(self) -> None:
        for name, message in self._socket.receive(PATIENCE)[:1]:
            self.heard.append(message)
            self._answer(self._socket, name)


def test_a_refused_worker_says_why_and_ends(store: Path) -> None:
    master = Answering(lambda socket, name: socket.send(name, Refused("it runs version 0")))
    opened = Store.open(store)
    refused = pytest.raises(TrainingFailed, match="refuses this worker: it runs version 0")
    with master as address, refused:
        join(address, master.key, opened, "cpu", PATIENCE)
    assert master.heard[0] == Hello(__version__, "cpu", os.getpid(), opened.fingerprint)


def test_a_worker_that_gets_sigterm_tells_the_master_that_it_leaves(store: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def terminate(socket: MasterSocket, name: str) -> None:
        socket.send(name, Ready(""))  # a worker ignores it, but is answered
        while not any(isinstance(m, Heartbeat) for _, m in socket.receive(PATIENCE)):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    master = Answering(terminate)
    with master as address, pytest.raises(SystemExit) as left:
        join(address, master.key, Store.open(store), "cpu", PATIENCE)
    assert left.value.code == 128 + signal.SIGTERM
    assert TaskFailed(None, 0, 0, 0, "it was stopped where it runs") in master.heard
    assert signal.getsignal(signal.SIGTERM) == before
