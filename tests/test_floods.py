"""What an authenticated peer can fill: neither the master's memory nor its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np
import pytest
import zmq

from mapreduce_rnn.keys import MasterKeys
from mapreduce_rnn.protocol import transport
from mapreduce_rnn.protocol.codec import MOST_ARRAYS, DecodeError, Fault, decode, encode
from mapreduce_rnn.protocol.curve import Door, make_pair
from mapreduce_rnn.protocol.inbox import Rejections, Shares, held_bytes
from mapreduce_rnn.protocol.messages import PROTOCOL, Hello, MapResult, MapTask, Setup
from mapreduce_rnn.protocol.oddities import MOST_TOLD_APART, OTHERS, Oddities
from mapreduce_rnn.protocol.transport import GUESTS_BYTES, RECEIVED_MESSAGES, MasterSocket

RUN = "run-1"
PATIENCE = 20.0
LIMIT = 4 << 20  # bytes of a message
FLOOD = 80  # messages of that size
MASTER, LISTED = make_pair(), make_pair()
KEYS = MasterKeys(MASTER, {LISTED.public: "lab"})
SLACK = 32 << 20  # bytes of memory that come and go


@pytest.fixture
def master() -> Iterator[MasterSocket]:
    door = Door("tcp://127.0.0.1:*", KEYS)
    with MasterSocket(RUN, door=door, heartbeat_seconds=0.05) as socket:
        socket.open(LIMIT)
        yield socket


@contextmanager
def connected(master: MasterSocket, name: bytes) -> Iterator[zmq.Socket[bytes]]:
    """A listed peer with no more than a message of its own in memory: it sends what is taken."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger, socket.sndhwm, socket.routing_id = 0, 1, name
        socket.sndtimeo = round(1000 * PATIENCE)
        socket.curve_publickey, socket.curve_secretkey = (
            LISTED.public.encode(),
            LISTED.secret.encode(),
        )
        socket.curve_serverkey = MASTER.public.encode()
        socket.connect(master.address)
        yield socket


@pytest.fixture
def peer(master: MasterSocket) -> Iterator[zmq.Socket[bytes]]:
    with connected(master, b"bad") as socket:
        yield socket


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def memory() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def largest() -> list[bytes]:
    """Frames of a message of nearly the largest size, well-formed, that nobody waits for."""
    values = np.ones((LIMIT - (64 << 10)) // 8)
    return [bytes(f) for f in encode(MapResult(7, 7, 7, 1, {}, 0.0, {"w": values}), RUN)]


@pytest.mark.parametrize("seated", [False, True], ids=["guest", "worker"])
def test_what_waits_while_the_master_is_busy_is_bounded_by_the_stated_bytes(
    master: MasterSocket, peer: zmq.Socket[bytes], seated: bool
) -> None:
    if seated:
        peer.send_multipart(encode(Hello("1", "cpu", 1), RUN))
        assert master.receive(PATIENCE)
        assert master.send("bad", Setup({}, ""))
    share = 2 * LIMIT if seated else GUESTS_BYTES
    frames, before = largest(), memory()
    fit = share // held_bytes(frames, decode(frames, RUN))
    for _ in range(FLOOD):
        peer.send_multipart(frames)
    until(lambda: master.rejected["worker bad", Fault.FLOOD] == FLOOD - fit)
    assert memory() - before < share + (RECEIVED_MESSAGES + 1) * LIMIT + SLACK
    assert len(master.receive(0.0)) == fit
    peer.send_multipart(frames)  # there is room again
    assert len(master.receive(PATIENCE)) == 1


def test_a_guest_that_floods_takes_nothing_from_a_worker(
    master: MasterSocket, peer: zmq.Socket[bytes]
) -> None:
    with connected(master, b"good") as worker:
        worker.send_multipart(encode(Hello("1", "cpu", 1), RUN))
        assert master.receive(PATIENCE)
        assert master.send("good", Setup({}, ""))
        for _ in range(FLOOD // 2):
            peer.send_multipart(largest())
        until(lambda: master.rejected["worker bad", Fault.FLOOD])
        worker.send_multipart(largest())
        names: list[str] = []
        until(lambda: names.extend(name for name, _ in master.receive(0.1)) or "good" in names)
    assert {name for name, _ in master.rejected} == {"worker bad"}


def test_a_message_of_very_many_frames_is_refused_and_takes_no_lasting_memory(
    master: MasterSocket, peer: zmq.Socket[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    header, frame = encode(MapResult(7, 7, 7, 1, {}, 0.0, {"w": np.ones(1)}), RUN)
    for _ in range(2):
        peer.send_multipart([header, *[frame] * (MOST_ARRAYS + 1000)])
    peer.send_multipart([header, frame])
    assert [type(message) for _, message in master.receive(PATIENCE)] == [MapResult]
    assert master.rejected == {("worker bad", Fault.OVERSIZED): 2}
    assert caplog.text.count(f"more than {MOST_ARRAYS} arrays") == 1


def test_what_a_peer_does_not_read_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "UNREAD_MESSAGES", 5)
    task = MapTask(1, 0, 1, 1, arrays={"w": np.zeros(1 << 17)})
    with (
        MasterSocket(RUN) as master,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as peer,
    ):
        peer.linger, peer.rcvhwm, peer.routing_id = 0, 1, b"bad"
        peer.connect(master.address)
        peer.send_multipart(encode(Hello("1", "cpu", 1), RUN))
        assert master.receive(PATIENCE)
        sent = 0
        while master.send("bad", task):
            sent += 1
            assert sent < 100
        assert sent >= 5
        assert not master.send("nobody", task)


def test_a_name_that_breaks_lines_is_refused_and_spelt_out(
    master: MasterSocket, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(master, b"0.1\nWARNING all is lost") as peer:
        peer.send_multipart(encode(Hello("1", "cpu", 1), RUN))
        until(lambda: master.rejected)
    assert master.receive(0.0) == []
    assert r"'0.1\nWARNING all is lost'" in caplog.text


def test_a_header_that_grows_in_memory_is_counted_as_what_it_becomes() -> None:
    nested = [bytes(msgpack.packb([PROTOCOL, RUN, "X", {"config": [{}] * 60_000}, b""]))]
    assert held_bytes(nested, Hello("1", "cpu", 1)) > 4_000_000
    empty = {"n" * 1000 + str(i): np.empty(0) for i in range(1000)}
    assert held_bytes([b""], MapResult(1, 0, 1, 1, {}, 0.0, empty)) > 4_500_000


def test_a_share_takes_one_message_of_any_size_and_then_what_fits() -> None:
    shares = Shares()
    assert shares.add("a", 100, limit=10)
    assert not shares.add("a", 1, limit=10)
    assert shares.add("b", 1, limit=10)
    shares.remove("a", 100)
    assert [shares.add("a", 5, limit=10) for _ in range(3)] == [True, True, False]


def test_peers_under_ever_new_names_fill_neither_counts_nor_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    rejections = Rejections()
    for number in range(5 * MOST_TOLD_APART):
        for fault in (Fault.MALFORMED, Fault.OVERSIZED):
            rejections.add(f"worker {number}", DecodeError(fault, "x"))
    assert len(rejections.counts) == len(caplog.records) == MOST_TOLD_APART + 2
    assert sum(rejections.counts.values()) == 10 * MOST_TOLD_APART
    assert rejections.counts[OTHERS, Fault.OVERSIZED] == 5 * MOST_TOLD_APART - MOST_TOLD_APART // 2


def test_an_oddity_is_told_once_per_peer_and_kind() -> None:
    oddities = Oddities()
    told = [oddities.add(peer, kind) for peer in "aba" for kind in ("late", "odd", "late")]
    assert told == ["a", "a", None, "b", "b", None, None, None, None]
