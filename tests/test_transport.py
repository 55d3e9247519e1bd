"""Both ends of the wire, in one process and between processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgpack
import numpy as np
import pytest

from mapreduce_rnn.errors import ProtocolError, TrainingFailed, UsageError
from mapreduce_rnn.protocol.codec import Fault
from mapreduce_rnn.protocol.messages import (
    Alive,
    Heartbeat,
    Hello,
    MapResult,
    MapTask,
    Message,
    Stop,
)
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel, share

RUN = "run-1"
PATIENCE = 20.0  # deadline of what takes milliseconds on an idle machine


@pytest.fixture
def master() -> Iterator[MasterSocket]:
    with MasterSocket(RUN, heartbeat_seconds=0.05, max_bytes=1 << 24) as socket:
        yield socket


@pytest.fixture
def worker(master: MasterSocket) -> Iterator[WorkerChannel]:
    with WorkerChannel(master.address, RUN, "0.1", heartbeat_seconds=0.05) as channel:
        yield channel


def hear(master: MasterSocket, wanted: Callable[[str, Message], bool]) -> tuple[str, Message]:
    """The first message that is ``wanted``; heartbeats and others before it are dropped."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for worker, message in master.receive(0.5):
            if wanted(worker, message):
                return worker, message
    raise AssertionError("no such message in time")


def connect(master: MasterSocket, worker: str = "0.1") -> None:
    hear(master, lambda name, message: name == worker and isinstance(message, Heartbeat))


def answer(value: np.ndarray) -> MapResult:
    return MapResult(1, 0, 1, 1, {}, 0.0, {"w": value})


def test_messages_pass_both_ways(master: MasterSocket, worker: WorkerChannel) -> None:
    worker.send(Hello("0.1.0", "cpu", 42))
    name, hello = hear(master, lambda _, message: isinstance(message, Hello))
    assert (name, hello) == ("0.1", Hello("0.1.0", "cpu", 42))
    assert master.send("0.1", MapTask(1, 0, 1, 1, arrays={"model/w": np.arange(3.0)}))
    task = worker.receive(PATIENCE)
    assert isinstance(task, MapTask)
    assert task.arrays["model/w"].tolist() == [0.0, 1.0, 2.0]


def test_heartbeats_carry_the_steps_while_the_main_thread_is_busy(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    for steps in (0, 1, 17):
        worker.progress(steps)
    _, beat = hear(
        master, lambda _, message: isinstance(message, Heartbeat) and message.steps == 17
    )
    assert isinstance(beat, Heartbeat)
    assert 0 < beat.slowest < PATIENCE


def test_a_worker_that_is_not_there_is_noticed(master: MasterSocket) -> None:
    assert master.send("7.1", Stop()) is False


def test_a_worker_that_left_is_noticed(master: MasterSocket) -> None:
    with WorkerChannel(master.address, RUN, "0.1", heartbeat_seconds=0.05):
        connect(master)
    deadline = time.monotonic() + PATIENCE
    while master.send("0.1", Alive()):
        assert time.monotonic() < deadline
        master.receive(0.01)


def test_receive_without_messages_returns_in_time(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    assert worker.receive(0.01) is None
    master.receive(PATIENCE)
    assert worker.receive(0.0) is None  # Alive stays with the thread


def test_none_of_5000_messages_to_a_slow_reader_is_lost(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    connect(master)
    for number in range(5000):
        assert master.send("0.1", MapTask(number, 0, 1, 1))
    received = [worker.receive(PATIENCE) for _ in range(5000)]
    assert [task.round for task in received if isinstance(task, MapTask)] == list(range(5000))


def test_none_of_5000_messages_to_a_slow_master_is_lost(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    for number in range(5000):
        worker.send(MapResult(number, 0, 1, 1, {}, 0.0))
    rounds: list[int] = []
    deadline = time.monotonic() + PATIENCE
    while len(rounds) < 5000 and time.monotonic() < deadline:
        messages = [message for _, message in master.receive(0.5)]
        rounds += [message.round for message in messages if isinstance(message, MapResult)]
    assert rounds == list(range(5000))


@pytest.mark.parametrize("size", [128, 131072], ids=["1 kB", "1 MB"])
def test_arrays_may_change_right_after_they_were_sent(
    master: MasterSocket, worker: WorkerChannel, size: int
) -> None:
    connect(master)
    array = np.zeros(size)
    for number in range(200):
        array[:] = number
        assert master.send("0.1", answer(array))
        array[:] = -1.0
        received = worker.receive(PATIENCE)
        assert isinstance(received, MapResult)
        assert (received.arrays["w"] == number).all()


@pytest.mark.parametrize("size", [128, 131072], ids=["1 kB", "1 MB"])
def test_received_arrays_are_aligned_and_nobody_can_write_to_them(
    master: MasterSocket, worker: WorkerChannel, size: int
) -> None:
    connect(master)
    arrays = {"odd": np.ones(3, np.int8), "w": np.arange(float(size))}
    assert master.send("0.1", MapTask(1, 0, 1, 1, arrays=arrays))
    received = worker.receive(PATIENCE)
    assert isinstance(received, MapTask)
    array = received.arrays["w"]
    assert array.flags.aligned
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.setflags(write=True)


def test_what_several_tasks_hold_is_copied_once_and_the_rest_not() -> None:
    model, shards = np.arange(3.0), [np.arange(2), np.arange(4)]
    first, second = share(
        [MapTask(1, slot, 1, 1, arrays={"w": model, "s": shards[slot]}) for slot in (0, 1)]
    )
    assert first.arrays["w"] is second.arrays["w"]
    assert not np.shares_memory(first.arrays["w"], model)
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.arrays["w"].setflags(write=True)
    assert first.arrays["s"] is shards[0]
    assert second.arrays["s"] is shards[1]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(131072.0),
        np.arange(131072.0).reshape(4, -1).T,
        np.array(3, np.int64),
        np.zeros((0, 3), np.float32),
        np.array([True, False]),
    ],
    ids=["large", "transposed", "scalar", "empty", "bool"],
)
def test_shared_tasks_arrive_as_they_were_when_shared(
    master: MasterSocket, worker: WorkerChannel, array: np.ndarray
) -> None:
    connect(master)
    before = array.copy()
    tasks = share([MapTask(1, slot, 1, 1, arrays={"w": array}) for slot in range(2)])
    array[...] = array == 0
    for task in tasks:
        assert master.send("0.1", task)
        received = worker.receive(PATIENCE)
        assert isinstance(received, MapTask)
        np.testing.assert_array_equal(received.arrays["w"], before, strict=True)


def test_parts_of_a_received_array_can_be_sent_on(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    connect(master)
    array = np.arange(131072.0).reshape(4, -1)
    assert master.send("0.1", answer(array))
    received = worker.receive(PATIENCE)
    assert isinstance(received, MapResult)
    whole = received.arrays["w"]
    for sent in (whole, whole[1], whole.T, whole[::-1], whole.view(np.int64)):
        worker.send(answer(sent))
        _, back = hear(master, lambda _, message: isinstance(message, MapResult))
        assert isinstance(back, MapResult)
        np.testing.assert_array_equal(back.arrays["w"], sent, strict=True)


def test_a_task_of_110_mebibytes_goes_to_a_worker_and_back(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    master.max_bytes = 111 << 20
    connect(master)
    array = np.zeros(110 << 18, np.float32)
    array[-1] = 1.0
    assert master.send("0.1", answer(array))
    received = worker.receive(PATIENCE)
    assert isinstance(received, MapResult)
    worker.send(received)
    _, back = hear(master, lambda _, message: isinstance(message, MapResult))
    assert isinstance(back, MapResult)
    assert back.arrays["w"].tobytes() == array.tobytes()


def test_a_value_that_cannot_be_sent_is_refused_in_the_callers_thread(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    with pytest.raises(ProtocolError, match=r"statistics\.loss"):
        worker.send(MapResult(1, 0, 1, 1, {"loss": np.float32(1.0)}, 0.0))
    worker.send(Hello("0.1.0", "cpu", 1))  # the channel still works
    hear(master, lambda _, message: isinstance(message, Hello))


def test_what_is_not_a_message_is_counted_logged_once_and_changes_nothing(
    master: MasterSocket, worker: WorkerChannel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    master.max_bytes = 1000
    for _ in range(3):
        worker.send(answer(np.zeros(1000)))
    worker.send(Hello("0.1.0", "cpu", 1))
    hear(master, lambda _, message: isinstance(message, Hello))
    assert master.rejected == {("worker 0.1", Fault.OVERSIZED): 3}
    assert caplog.text.count("ignored, from worker 0.1: message oversized") == 1


def test_a_stranger_on_the_socket_changes_nothing(
    master: MasterSocket, worker: WorkerChannel
) -> None:
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(master.address)
        for frames in ([b""], [b"\xc1" * 50], [msgpack.packb([2**63])], [b"a", b"b", b"c"]):
            stranger.send_multipart(frames)
        deadline = time.monotonic() + PATIENCE
        while sum(master.rejected.values()) < 4:
            assert time.monotonic() < deadline
            assert {name for name, _ in master.receive(0.01)} <= {"0.1"}
    connect(master)


def test_a_worker_of_another_run_is_refused(master: MasterSocket) -> None:
    with WorkerChannel(master.address, "run-2", "0.1", heartbeat_seconds=0.01):
        deadline = time.monotonic() + PATIENCE
        while not master.rejected["worker 0.1", Fault.OTHER_RUN]:
            assert time.monotonic() < deadline
            assert master.receive(0.01) == []


# Silence, ends and forks


def test_a_worker_whose_master_never_answers_gets_a_clear_error(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/nobody"
    with WorkerChannel(address, RUN, "0.1", heartbeat_seconds=0.02, silence_seconds=0.1) as channel:
        channel.send(Hello("0.1.0", "cpu", 1))
        for act in (channel.receive, channel.receive, lambda: channel.send(Stop())):
            with pytest.raises(TrainingFailed, match=f"no message from the master at {address}"):
                act()


def test_a_busy_master_is_not_taken_for_gone(master: MasterSocket) -> None:
    with WorkerChannel(
        master.address, RUN, "0.1", heartbeat_seconds=0.05, silence_seconds=1.0
    ) as channel:
        assert channel.receive(1.5) is None  # meanwhile nobody calls the master's receive


def test_the_last_messages_leave_before_an_end_closes(master: MasterSocket) -> None:
    with WorkerChannel(master.address, RUN, "0.1") as channel:
        for number in range(100):
            channel.send(MapResult(number, 0, 1, 1, {}, 0.0))
    hear(master, lambda _, message: isinstance(message, MapResult) and message.round == 99)


def test_closing_leaves_no_thread_file_or_folder() -> None:
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with MasterSocket(RUN) as master, WorkerChannel(master.address, RUN, "0.1") as worker:
        path = Path(master.address.removeprefix("ipc://"))
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.is_socket()
    worker.close()  # a second time does nothing
    assert not path.parent.exists()
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)


def _talk_to_itself() -> None:
    with MasterSocket(RUN) as master, WorkerChannel(master.address, RUN, "0.1") as worker:
        worker.send(Hello("0.1.0", "cpu", os.getpid()))
        hear(master, lambda _, message: message == Hello("0.1.0", "cpu", os.getpid()))


def test_a_forked_child_makes_its_own_sockets(master: MasterSocket, worker: WorkerChannel) -> None:
    connect(master)
    child = multiprocessing.get_context("fork").Process(target=_talk_to_itself)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    connect(master)  # the parent's still work


# Where the socket lies


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A short folder and one whose path is too long for a socket, as TMPDIR and for XDG."""
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    return tmp_path, long


def test_folders_that_are_too_long_or_missing_are_passed_over(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with MasterSocket(RUN) as first, MasterSocket(RUN) as second:
        assert first.address.startswith("ipc:///tmp/")
        assert first.address != second.address
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    monkeypatch.setenv("TMPDIR", "/dev/shm")
    with MasterSocket(RUN) as third:
        assert third.address.startswith("ipc:///dev/shm/")


def test_without_any_folder_one_line_names_limit_and_path(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="under 100 bytes") as caught:
        MasterSocket(RUN)
    assert str(folders[1]) in str(caught.value)
    assert "/tmp: cannot be written to" in str(caught.value)
    assert "\n" not in str(caught.value)


KILLED_MASTER = """
import os, signal
from mapreduce_rnn.protocol.transport import MasterSocket
MasterSocket("run-1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_leaves_is_removed_by_the_next_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path_factory.mktemp("s")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    theirs = base / "mapreduce-projects"
    (theirs / "master").mkdir(parents=True)
    named_alike = base / "mapreduce-thesis24"
    named_alike.mkdir()
    (named_alike / "master").write_text("of science")
    with MasterSocket(RUN) as in_use:
        subprocess.run([sys.executable, "-c", KILLED_MASTER], check=False, timeout=PATIENCE)
        assert len(list(base.iterdir())) == 4
        with MasterSocket(RUN) as new:
            mine = {Path(m.address.removeprefix("ipc://")).parent for m in (in_use, new)}
            assert set(base.iterdir()) == {theirs, named_alike, *mine}
    assert (named_alike / "master").read_text() == "of science"
