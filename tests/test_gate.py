"""Who gets in over TCP: listed keys only; strangers reach nothing and hold no memory."""

from __future__ import annotations

import logging
import multiprocessing
import os
import secrets
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn.errors import TrainingFailed, UsageError
from mapreduce_rnn.keys import MasterKeys, Pair, WorkerKey
from mapreduce_rnn.protocol import transport
from mapreduce_rnn.protocol.codec import NO_RUN
from mapreduce_rnn.protocol.curve import Door, check_address, make_pair
from mapreduce_rnn.protocol.messages import Hello, MapResult, MapTask
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel

RUN = "run-1"
PATIENCE = 20.0
LIMIT = 1 << 20  # bytes of a message
HELLO = Hello("0.1.0", "cpu", 1)

MASTER, LISTED, STRANGER = make_pair(), make_pair(), make_pair()
KEYS = MasterKeys(MASTER, {LISTED.public: "lab"})


@pytest.fixture
def master() -> Iterator[MasterSocket]:
    door = Door("tcp://127.0.0.1:*", KEYS)
    with MasterSocket(RUN, door=door, heartbeat_seconds=0.05) as opened:
        opened.open(LIMIT)
        yield opened


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What reaches the codec; it is there for the asking."""
    seen: list[object] = []
    monkeypatch.setattr(transport, "decode", lambda frames, *_: seen.append(frames))
    return seen


def join(
    address: str, own: Pair = LISTED, master: Pair = MASTER, silence_seconds: float = PATIENCE
) -> WorkerChannel:
    return WorkerChannel(
        address, NO_RUN, f"w-{secrets.token_hex(2)}", key=WorkerKey(own, master.public),
        hello=HELLO, heartbeat_seconds=0.05, silence_seconds=silence_seconds,
    )  # fmt: skip


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def port(master: MasterSocket) -> int:
    return int(master.address.rpartition(":")[2])


def memory() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_listed_worker_is_heard_until_it_is_answered_and_learns_the_run(
    master: MasterSocket,
) -> None:
    with join(master.address) as worker:
        greetings = [message for _ in range(2) for message in master.receive(PATIENCE)]
        (name, _), *_ = greetings
        assert {message for _, message in greetings} == {HELLO}
        assert master.send(name, MapTask(1, 0, 1, 1))
        assert isinstance(worker.receive(PATIENCE), MapTask)
        worker.send(MapResult(1, 0, 1, 1, {}, 0.0, {"w": np.arange(3.0)}))
        until(lambda: any(isinstance(m, MapResult) for _, m in master.receive(0.1)))
    assert not master.rejected
    assert not master.refused


def test_a_key_off_the_list_is_refused_at_both_ends_and_logged_once(
    master: MasterSocket, no_decoding: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        refused = pytest.raises(TrainingFailed, match="refuses this key")
        with join(master.address, STRANGER) as worker, refused:
            worker.receive(PATIENCE)
    assert master.refused == {("127.0.0.1", "its key is not on the list"): 3}
    assert caplog.text.count("refused a connection from 127.0.0.1") == 1
    assert not no_decoding


def test_a_worker_with_the_key_of_another_master_says_so_when_it_gives_up(
    master: MasterSocket, no_decoding: list[object]
) -> None:
    mistrusted = pytest.raises(TrainingFailed, match=r"is this key from that master.*$")
    with join(master.address, master=STRANGER, silence_seconds=0.5) as worker, mistrusted:
        worker.receive(PATIENCE)
    assert not no_decoding


def test_no_byte_of_a_plain_socket_reaches_the_codec(
    master: MasterSocket, no_decoding: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
        plain.linger = 0
        plain.connect(master.address)
        for _ in range(3):
            plain.send(b"\x00" * 1000)
        until(lambda: master.refused)
    assert master.receive(0.0) == []
    assert not no_decoding
    assert caplog.text.count("refused a connection from a peer: no handshake") == 1


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
"""ZeroMQ's (RFC 23): signature, version 3.0, mechanism, as a client."""


@pytest.mark.parametrize("announced", [LIMIT // 2, 4 << 30], ids=["below the limit", "4 GB"])
def test_an_unfinished_message_of_a_stranger_holds_no_memory(
    master: MasterSocket, no_decoding: list[object], announced: int
) -> None:
    """The attack that grew a plain socket's master to 1.3 GB: 64 MB are sent of what is said."""
    before = memory()
    with socket.create_connection(("127.0.0.1", port(master))) as stranger:
        stranger.settimeout(PATIENCE)
        stranger.sendall(GREETING)
        with pytest.raises(OSError, match=r"reset|pipe"):
            stranger.sendall(b"\x06" + struct.pack(">Q", announced) + bytes(64 << 20))
        assert memory() - before < 8 << 20
    assert not no_decoding
    with join(master.address):  # others still get in
        assert until(lambda: no_decoding) is None


def test_many_silent_connections_do_not_keep_a_worker_out(master: MasterSocket) -> None:
    before = memory()
    silent = [socket.create_connection(("127.0.0.1", port(master))) for _ in range(200)]
    try:
        with join(master.address):
            assert [message for _, message in master.receive(PATIENCE)] == [HELLO]
        assert memory() - before < 50 << 20
    finally:
        for stranger in silent:
            stranger.close()


def test_a_message_over_the_limit_is_cut_off_before_it_takes_memory(master: MasterSocket) -> None:
    with join(master.address) as worker:
        master.receive(PATIENCE)
        worker.send(MapResult(1, 0, 1, 1, {}, 0.0, {"w": np.zeros(LIMIT)}))
        until(lambda: any(m == HELLO for _, m in master.receive(0.1)))  # it has connected anew
    assert not master.rejected


def _serve_until_killed(addresses: Connection) -> None:
    with MasterSocket(RUN, door=Door("tcp://127.0.0.1:*", KEYS)) as master:
        master.open(1 << 30)
        addresses.send(master.address)
        while True:
            master.receive(PATIENCE)


def test_a_worker_whose_master_is_killed_while_it_sends_ends_in_its_wait() -> None:
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        child = multiprocessing.get_context("fork").Process(
            target=_serve_until_killed, args=(theirs,)
        )
        child.start()
        try:
            worker = join(ours.recv(), silence_seconds=0.5)
        finally:
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            child.join(PATIENCE)
    began = time.monotonic()

    def answer() -> None:
        worker.send(MapResult(1, 0, 1, 1, {}, 0.0, {"w": np.zeros(8 << 20)}))
        worker.receive(PATIENCE)

    with worker, pytest.raises(TrainingFailed, match="it has ended or cannot be reached"):
        answer()
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "of another machine"])
def test_an_address_that_cannot_be_had_is_one_line(master: MasterSocket, taken: bool) -> None:
    address = master.address if taken else "tcp://203.0.113.1:5555"
    refused = pytest.raises(UsageError, match=f"^--listen {address}: [^;\n]*; give an address.*$")
    with MasterSocket(RUN, door=Door(address, KEYS)) as second, refused:
        second.open(LIMIT)


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0.1:5555", "ipc:///tmp/x", "tcp://host", "tcp://host:0", "tcp://host:70000",
     "tcp://ho st:1", "tcp://a:b:1", "tcp://host:*"],
)  # fmt: skip
def test_what_is_no_tcp_address_is_one_line(address: str) -> None:
    with pytest.raises(UsageError, match=r"--connect .*expected tcp://HOST:PORT"):
        check_address(address, "--connect")


@pytest.mark.parametrize("address", ["tcp://*:5555", "tcp://[::1]:5555", "tcp://eth0:*"])
def test_a_master_may_listen_on_any_address_and_port(address: str) -> None:
    assert check_address(address, "--listen", free_port=True) == address
