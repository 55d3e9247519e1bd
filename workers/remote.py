"""A worker that was started by a person or a cluster and joins a run over TCP."""

from __future__ import annotations

import contextlib
import platform
import secrets
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import MapReduceRnnError
from mapreduce_rnn.keys import WorkerKey
from mapreduce_rnn.protocol.codec import NO_RUN
from mapreduce_rnn.protocol.messages import TaskFailed
from mapreduce_rnn.protocol.transport import WorkerChannel
from mapreduce_rnn.workers.main import hello, serve


def join(address: str, key: WorkerKey, store: Store, device: str, wait_seconds: float) -> None:
    """Work for the run whose master listens at ``address`` until that says Stop.

    Args:
        device: "cpu", or "cuda:<token>" with the token in CUDA_VISIBLE_DEVICES since before CUDA
            was loaded.
        wait_seconds: Without a message from the master, before it answers and ever after.

    Raises:
        TrainingFailed: The master is silent, or refuses this worker or its key.
    """
    name = f"{platform.node()[:64]}-{secrets.token_hex(4)}"
    with (
        _leaving_on_sigterm(),
        WorkerChannel(
            address, NO_RUN, name, key=key, hello=hello(device, store), silence_seconds=wait_seconds
        ) as channel,
    ):
        try:
            serve(channel, device, store)
        except (KeyboardInterrupt, SystemExit):
            if channel.answered:
                with contextlib.suppress(MapReduceRnnError):  # the master may be gone as well
                    channel.send(TaskFailed(None, 0, 0, 0, "it was stopped where it runs"))
            raise


@contextlib.contextmanager
def _leaving_on_sigterm() -> Iterator[None]:
    """Clusters send SIGTERM some time before they kill: time to say so to the master."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + signum)
