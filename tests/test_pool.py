"""The pool beyond its decisions: set up, probe, and workers that end whatever else goes wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from mapreduce_rnn.config import WorkerConfig
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.launch.base import Launcher
from mapreduce_rnn.pool import Pool
from mapreduce_rnn.probe import make_probe
from mapreduce_rnn.protocol.messages import (
    Heartbeat,
    Hello,
    Message,
    ProbeResult,
    ProbeTask,
    Ready,
    Setup,
    TaskFailed,
)
from mapreduce_rnn.protocol.transport import MasterSocket

PROBE = make_probe({}, np.arange(3))
NO_POINTS = {
    "sizes": np.empty(0, np.int64), "lengths": np.empty(0, np.int64), "seconds": np.empty(0),
}  # fmt: skip
OLD, NEW = Setup({"n": 1}, "sha"), Setup({"n": 2}, "sha")


When = Callable[[str, Message], bool]


class _DeadSocket(MasterSocket):
    def __init__(self) -> None:
        """Without a thread: nothing can be sent."""

    def send(self, worker: str, message: Message) -> bool:
        raise TrainingFailed("the connection between processes is closed")


class _Launcher(Launcher):
    stopped = False

    def start(self, place: int) -> str:
        return f"{place}.1"

    def stop_all(self, grace_seconds: float) -> None:
        self.stopped = True


class _Workers(MasterSocket, Launcher):
    """Workers in the master's own thread: what they are sent, they answer when they are read.

    Attributes:
        sent: All that was sent, as (worker, message).
        dies_of: Worker that ends on a message for which this is true, instead of answering it.
        answers: What comes from them next, as (worker, message).
        stopped: Places whose worker was ended from outside.
    """

    remote = False

    def __init__(
        self,
        dies_of: When = lambda name, message: False,
        *,
        mute_at: When = lambda name, message: False,
        stuck_at: When = lambda name, message: False,
    ) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.stopped: list[int] = []
        self.dies_of, self._mute_at, self._stuck_at = dies_of, mute_at, stuck_at
        self._beating: dict[int, str] = {}
        self.answers: list[tuple[str, Message]] = []
        self._ended: list[tuple[int, str]] = []
        self._starts = 0

    def start(self, place: int) -> str:
        self._starts += 1
        name = f"{place}.{self._starts}"
        self.answers.append((name, Hello("1", "cpu", self._starts)))
        self._beating[place] = name
        return name

    def stop(self, place: int) -> None:
        self.stopped.append(place)

    def poll(self) -> list[tuple[int, str]]:
        ended, self._ended = self._ended, []
        return ended

    def stop_all(self, grace_seconds: float) -> None:
        pass

    def send(self, worker: str, message: Message) -> bool:
        self.sent.append((worker, message))
        if self.dies_of(worker, message):
            self._ended.append((int(worker.split(".")[0]), "signal 9"))
        elif self._mute_at(worker, message):
            del self._beating[int(worker.split(".")[0])]
        elif self._stuck_at(worker, message):
            pass
        elif isinstance(message, Setup):
            self.answers.append((worker, Ready(f"n = {message.config['n']}")))
        elif isinstance(message, ProbeTask):
            self.answers.append(
                (worker, ProbeResult(message.round, 0, message.attempt, 0.1, NO_POINTS))
            )
        return True

    def receive(self, timeout_seconds: float) -> list[tuple[str, Message]]:
        """One message at a time, so that the others are late; heartbeats when there is none."""
        first, self.answers = self.answers[:1], self.answers[1:]
        return first or [(name, Heartbeat(0, 0.0)) for name in self._beating.values()]

    def setups_of(self, worker: str) -> list[Message]:
        return [m for name, m in self.sent if name == worker and isinstance(m, Setup)]


def pool_of(socket: MasterSocket, launcher: Launcher, options: WorkerConfig | None = None) -> Pool:
    return Pool(
        socket, launcher, (0, 1), version="1", options=options or WorkerConfig(),
        check_signals=lambda: None, on_worker=lambda **facts: None,
    )  # fmt: skip


def test_workers_are_stopped_although_nothing_can_be_sent_any_more() -> None:
    launcher = _Launcher()
    pool = pool_of(_DeadSocket(), launcher)
    with pytest.raises(TrainingFailed, match="closed"), pool:
        pool.start()
    assert launcher.stopped


def test_every_worker_is_set_up_again_with_what_the_probe_has_settled() -> None:
    workers = _Workers()
    with pool_of(workers, workers) as pool:
        pool.set_up(OLD)
        done = pool.run([PROBE], lambda steps: None)
        pool.set_up(NEW)
        assert isinstance(done[PROBE.key].result, ProbeResult)
        assert workers.setups_of("0.1") == workers.setups_of("1.2") == [OLD, NEW]
        pool.run([PROBE], lambda steps: None)  # they take tasks again


def test_a_worker_that_is_still_starting_is_set_up_once_it_has_answered() -> None:
    """A worker was killed in the probe, which ran elsewhere; another is taking its place."""
    workers = _Workers(lambda name, message: name == "0.1" and isinstance(message, ProbeTask))
    with pool_of(workers, workers) as pool:
        pool.set_up(OLD)
        done = pool.run([PROBE], lambda steps: None)[PROBE.key]
        pool.set_up(NEW)
    assert (done.place, done.result.attempt) == (1, 2)
    assert workers.setups_of("1.2") == workers.setups_of("0.3") == [OLD, NEW]


def test_a_worker_killed_while_it_is_set_up_again_is_replaced() -> None:
    workers = _Workers(lambda name, message: name == "1.2" and message == NEW)
    with pool_of(workers, workers) as pool:
        pool.set_up(OLD)
        pool.set_up(NEW)
    assert workers.setups_of("0.1") == [OLD, NEW]
    assert workers.setups_of("1.3") == [NEW]


def first_probed(name: str, message: Message) -> bool:
    return name == "0.1" and isinstance(message, ProbeTask)


@pytest.mark.parametrize(
    ("workers", "options", "told"),
    [
        (_Workers(mute_at=first_probed), WorkerConfig(silence_seconds=0.1), "silent for"),
        (_Workers(stuck_at=first_probed), WorkerConfig(hang_seconds=0.1), "hung: no step for"),
    ],
    ids=["silent", "hung"],
)
def test_a_silent_or_hung_worker_is_ended_and_replaced_and_its_task_runs_elsewhere(
    workers: _Workers, options: WorkerConfig, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pool_of(workers, workers, options) as pool:
        pool.set_up(OLD)
        done = pool.run([PROBE], lambda steps: None)[PROBE.key]
        pool.set_up(NEW)  # the new worker in place 0 is ready by then
    assert (done.place, done.result.attempt) == (1, 2)
    assert workers.stopped == [0]
    assert f"worker 0 is gone: {told}" in caplog.text
    assert workers.setups_of("0.3")[-1] == NEW


def test_a_worker_that_hangs_after_a_stale_answer_is_no_idle_one() -> None:
    def replays(name: str, message: Message) -> bool:
        stuck = isinstance(message, ProbeTask) and (message.round, message.attempt) == (1, 1)
        if stuck:
            workers.answers.append(
                (name, ProbeResult(0, 0, 1, 0.1, NO_POINTS))
            )  # of the phase before
        return stuck

    workers = _Workers(stuck_at=replays)
    with pool_of(workers, workers, WorkerConfig(hang_seconds=0.1)) as pool:
        pool.set_up(OLD)
        pool.run([PROBE], lambda steps: None)
        second = dataclasses.replace(PROBE, round=1)
        done = pool.run([second], lambda steps: None)[second.key]
    assert done.result.attempt == 2
    assert len(workers.stopped) == 1


def test_a_late_answer_of_a_worker_that_was_given_up_is_named_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was under way when the process was ended."""
    late = ProbeResult(PROBE.round, PROBE.slot, 1, 7.0)
    workers = _Workers(mute_at=first_probed)
    with pool_of(workers, workers, WorkerConfig(silence_seconds=0.1)) as pool:
        pool.set_up(OLD)
        first = pool.run([PROBE], lambda steps: None)[PROBE.key]
        workers.answers.insert(0, ("0.1", late))
        second = pool.run([dataclasses.replace(PROBE, round=1)], lambda steps: None)
    (done,) = second.values()
    assert [first.result.seconds, done.result.seconds] == [0.1, 0.1]
    assert "worker 0.1: it was given up: discarded its answer to the probe" in caplog.text


def test_what_a_task_raised_is_in_the_log_although_it_went_well_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raises(name: str, message: Message) -> bool:
        failing = first_probed(name, message)
        if failing:
            failure = TaskFailed("probe", PROBE.round, PROBE.slot, 1, "Traceback: no room")
            workers.answers.append((name, failure))
        return failing

    workers = _Workers(stuck_at=raises)
    with pool_of(workers, workers) as pool:
        pool.set_up(OLD)
        done = pool.run([PROBE], lambda steps: None)[PROBE.key]
    assert (done.place, done.result.attempt) == (1, 2)
    assert "raised on worker 0:\nTraceback: no room" in caplog.text


def test_a_worker_that_cannot_be_set_up_ends_the_run_with_its_own_words() -> None:
    def too_small(name: str, message: Message) -> bool:
        workers.answers.append((name, TaskFailed(None, 0, 0, 0, "out of memory: lower --units")))
        return True

    workers = _Workers(stuck_at=too_small)
    told = pytest.raises(TrainingFailed, match=r"^worker 0 cannot be set up: out of memory: lower")
    with told, pool_of(workers, workers) as pool:
        pool.set_up(OLD)
