"""The pool beyond its decisions: workers end whatever else goes wrong."""

from __future__ import annotations

import pytest

from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.launch.base import Launcher
from mapreduce_rnn.pool import Pool
from mapreduce_rnn.protocol.messages import Message
from mapreduce_rnn.protocol.transport import MasterSocket


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


def test_workers_are_stopped_although_nothing_can_be_sent_any_more() -> None:
    launcher = _Launcher()
    pool = Pool(
        _DeadSocket(), launcher, (0, 1), version="1", max_attempts=5,
        check_signals=lambda: None, on_worker=lambda **facts: None,
    )  # fmt: skip
    with pytest.raises(TrainingFailed, match="closed"), pool:
        pool.start()
    assert launcher.stopped
