"""Who may connect over TCP: listed keys, and nobody else, on loopback too.

Every connection is encrypted and authenticated at both ends by Curve25519 keys (CurveZMQ, ZeroMQ
RFC 26); the master's list is asked for every one (ZAP, RFC 27). A stranger gets no further than
the handshake inside libzmq: no byte of his is seen by Python, other than his key and address.

What libzmq 4.3 does not do by itself: a command of the handshake may be as long as any message, so
without a limit a stranger fills the memory with one that never ends. Hence MAXMSGSIZE, from the
model's size, before the first connection; what announces more is cut off at once, and what is
unfinished after HANDSHAKE_SECONDS is given back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from mapreduce_rnn.errors import TrainingFailed, UsageError
from mapreduce_rnn.keys import MasterKeys, Pair, WorkerKey
from mapreduce_rnn.protocol.oddities import Oddities

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0  # three round trips; the shorter, the less a silent peer can hold
PROBE_SECONDS = 10.0  # between two looks at a silent connection; three without an answer end it
CURVE_BYTES = 128  # that encryption adds to a frame (33), and to spare

_ZAP = "inproc://zeromq.zap.01"
_DOMAIN = b"mapreduce-rnn"

_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH

Handlers = dict["zmq.Socket[bytes]", Callable[[], None]]
"""Sockets beside the one that messages pass through, and what to do when something is there."""


@dataclass(frozen=True)
class Door:
    """Where a master listens, as ``tcp://HOST:PORT``, and its keys."""

    address: str
    keys: MasterKeys


def make_pair() -> Pair:
    """A new key pair from the system's randomness."""
    public, secret = zmq.curve_keypair()
    return Pair(public.decode(), secret.decode())


def check_address(address: str, option: str, *, free_port: bool = False) -> str:
    """``address``, if it is ``tcp://HOST:PORT``, with an IPv6 address in brackets.

    Args:
        free_port: A master may also say ``*`` for any port that is free.

    Raises:
        UsageError: It is something else; the text names ``option``.
    """
    match = re.fullmatch(r"tcp://(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5}|\*)", address)
    any_port = free_port and match is not None and match[1] == "*"
    if not any_port and not (match and match[1].isdecimal() and 0 < int(match[1]) < 1 << 16):
        raise UsageError(f"{option} {address}: expected tcp://HOST:PORT, as tcp://10.0.0.1:5555")
    return address


class Gate:
    """Guards a master's socket. Used in that socket's thread only.

    Attributes:
        refused: How often, by (who, why); the first time of each is logged.
    """

    def __init__(self, guarded: zmq.Socket[bytes], keys: MasterKeys) -> None:
        self._oddities = Oddities()
        self.refused = self._oddities.counts
        self._guarded = guarded
        self._allowed = keys.allowed
        _set_up_connections(guarded, keys.own)
        guarded.setsockopt(zmq.CURVE_SERVER, 1)
        guarded.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        guarded.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        guarded.setsockopt(zmq.HANDSHAKE_IVL, round(1000 * HANDSHAKE_SECONDS))
        self._requests = guarded.context.socket(zmq.REP)
        self._requests.bind(_ZAP)
        failures = guarded.get_monitor_socket(_FAILED)
        self.handlers: Handlers = {
            self._requests: self._answer,
            failures: lambda: self._note_failure(failures),
        }

    def open(self, address: str, max_bytes: int) -> str:
        """Let peers connect from now on; returns the address with its real port.

        Args:
            max_bytes: Of one frame; more is cut off by libzmq before it takes up memory.

        Raises:
            UsageError: The address cannot be had.
        """
        self._guarded.setsockopt(zmq.IPV6, int(_is_ipv6(address)))
        self._guarded.setsockopt(zmq.MAXMSGSIZE, max_bytes + CURVE_BYTES)
        try:
            self._guarded.bind(address)
        except zmq.ZMQError as error:
            raise UsageError(
                f"--listen {address}: {zmq.strerror(error.errno or 0)}; give an address of this "
                "machine (* for all of them) and a port that is free"
            ) from None
        return self._guarded.getsockopt_string(zmq.LAST_ENDPOINT)

    def _answer(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._requests.recv_multipart()
        key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" else ""
        name = self._allowed.get(key)
        if name is None:
            self._note(address.decode(), "its key is not on the list")
        status = [b"200", b"OK"] if name is not None else [b"400", b"not on the list"]
        user = (name or "").encode()
        self._requests.send_multipart([version, request, *status, user, b""])

    def _note_failure(self, monitor: zmq.Socket[bytes]) -> None:
        monitor.recv_multipart()  # it does not say whose handshake it was
        self._note(
            "a peer", "no handshake: it speaks another protocol, or has another master's key"
        )

    def _note(self, peer: str, why: str) -> None:
        who = self._oddities.add(peer, why)
        if who is not None:
            log.warning("refused a connection from %s: %s; more are only counted", who, why)


class Ticket:
    """A worker's side of the gate. Used in the thread of its socket only.

    Attributes:
        hint: What may be wrong with the connection, for the message when it does not come about.
    """

    def __init__(self, socket: zmq.Socket[bytes], key: WorkerKey, address: str) -> None:
        self.hint = ""
        self._address = address
        _set_up_connections(socket, key.own)
        socket.setsockopt(zmq.IPV6, int(_is_ipv6(address)))
        socket.setsockopt(zmq.CURVE_SERVERKEY, key.master.encode())
        events = socket.get_monitor_socket(_FAILED | _REFUSED)
        self.handlers: Handlers = {events: lambda: self._look(events)}

    def _look(self, events: zmq.Socket[bytes]) -> None:
        event = parse_monitor_message(events.recv_multipart())["event"]
        if event == _REFUSED:
            raise TrainingFailed(
                f"the master at {self._address} refuses this key: its NAME.pub must lie in the "
                "folder that the master was given as --keys, before it starts"
            )
        self.hint = " (the handshake failed: is this key from that master?)"


def _set_up_connections(socket: zmq.Socket[bytes], own: Pair) -> None:
    """Keys, and an end of connections whose other machine is gone without a word."""
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret.encode())
    socket.setsockopt(zmq.HEARTBEAT_IVL, round(1000 * PROBE_SECONDS))
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, round(3000 * PROBE_SECONDS))


def _is_ipv6(address: str) -> bool:
    """Names and ``*`` mean IPv4: libzmq takes one family for an address, and tries no other."""
    return "[" in address
