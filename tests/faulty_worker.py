"""A process that a launcher starts in place of a worker: it is one, but for its faults.

faulty_worker.py FAULT once|always WORKER_OPTION ...
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Never

import numpy as np

ROUND, SLOT = 2, 1
"""The task in which a fault happens once."""

SHARE = 0.25
"""Of the tasks of a run with many faults, that have one in their first attempt."""

LONG_STEP_SECONDS = 12.0


class Fault(Enum):
    """What goes wrong.

    Once: in the first process of place 0, if it is a fault of a start, else in the first attempt
    of one task, whoever has it. Always: in every start, or in every task of place 0. With a seed:
    one of several faults in the first attempts of SHARE of all tasks.
    """

    KILLED_BEFORE_START = auto()
    IMPORT_ERROR = auto()
    KILLED_IN_TASK = auto()
    KILLED_WHILE_SENDING = auto()
    STOPPED = auto()
    HUNG = auto()
    SLOW = auto()
    DISK_FULL = auto()
    CORRUPT_ANSWER = auto()
    DUPLICATE_ANSWER = auto()
    LATE_ANSWER = auto()
    NOT_FINITE_ANSWER = auto()


def kill_oneself(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def miss_a_module() -> Never:
    raise ModuleNotFoundError("No module named 'torch'")


# In a task: called with the steps done, after each


def stop_oneself(steps: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang(steps: int) -> None:
    while True:
        signal.pause()


def take_long(steps: int) -> None:
    """Keep the core busy with one step, as a large model does."""
    import torch

    numbers, end = torch.ones(500, 500), time.monotonic() + LONG_STEP_SECONDS
    while steps == 1 and time.monotonic() < end:
        numbers.mm(numbers)


def fill_the_disk(steps: int) -> Never:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# With an answer


def kill_while_sending(channel: Any, answer: Any, send: Callable[..., None]) -> None:
    send(channel, answer)
    kill_oneself()


def send_corrupted(channel: Any, answer: Any, send: Callable[..., None]) -> None:
    """Random bytes in place of the header."""
    from mapreduce_rnn.protocol import transport

    frames = transport._pack(answer, channel._run_id)
    frames[0] = np.random.default_rng(0).bytes(len(frames[0]))
    channel._thread.call(lambda: channel._thread.send(frames))


def send_twice(channel: Any, answer: Any, send: Callable[..., None]) -> None:
    send(channel, answer)
    send(channel, answer)


def send_an_old_one_too(channel: Any, answer: Any, send: Callable[..., None]) -> None:
    send(channel, replace(answer, round=answer.round - 1))
    send(channel, answer)


def send_not_finite(channel: Any, answer: Any, send: Callable[..., None]) -> None:
    send(channel, not_finite(answer))


def not_finite(answer: Any) -> Any:
    """The answer with NaN in place of all parameters."""
    names = [name for name in answer.arrays if name.startswith("model/")]
    lost = {name: np.full_like(answer.arrays[name], np.nan) for name in names}
    return replace(answer, arrays={**answer.arrays, **lost})


AT_START = {Fault.KILLED_BEFORE_START: kill_oneself, Fault.IMPORT_ERROR: miss_a_module}
IN_TASK = {
    Fault.KILLED_IN_TASK: kill_oneself, Fault.STOPPED: stop_oneself, Fault.HUNG: hang,
    Fault.SLOW: take_long, Fault.DISK_FULL: fill_the_disk,
}  # fmt: skip
WITH_ANSWER = {
    Fault.KILLED_WHILE_SENDING: kill_while_sending, Fault.CORRUPT_ANSWER: send_corrupted,
    Fault.DUPLICATE_ANSWER: send_twice, Fault.LATE_ANSWER: send_an_old_one_too,
    Fault.NOT_FINITE_ANSWER: send_not_finite,
}  # fmt: skip


Due = Callable[[Any], Fault | None]
"""Which fault happens in a task or with its answer."""


def main() -> int:
    kinds, when = [Fault[name] for name in sys.argv[1].split(",")], sys.argv[2]
    del sys.argv[1:3]
    if kinds[0] in AT_START and (when == "always" or "0.1" in sys.argv):
        AT_START[kinds[0]]()
    from mapreduce_rnn.workers import __main__ as command
    from mapreduce_rnn.workers import main as worker

    due = _due(kinds, when)
    worker.map_task = _failing(worker.map_task, due)
    worker.WorkerChannel.send = _sending(worker.WorkerChannel.send, due)
    return command.main()


def _due(kinds: list[Fault], when: str) -> Due:
    if when == "once":
        return lambda task: kinds[0] if attempt_of(task) == (ROUND, SLOT, 1) else None
    if when == "always":
        first_place = sys.argv[sys.argv.index("--place") + 1] == "0"
        return lambda task: kinds[0] if first_place else None
    return lambda task: (
        drawn(kinds, int(when), task.round, task.slot) if task.attempt == 1 else None
    )


def attempt_of(task: Any) -> tuple[int, int, int]:
    return task.round, task.slot, task.attempt


def drawn(kinds: list[Fault], seed: int, round: int, slot: int) -> Fault | None:
    """The fault of a task of a run with many, the same for whoever asks."""
    random = np.random.default_rng((seed, round, slot))
    return kinds[random.integers(len(kinds))] if random.random() < SHARE else None


def _failing(map_task: Callable[..., Any], due: Due) -> Callable[..., Any]:
    def failing(context: Any, task: Any, on_step: Callable[[int], None]) -> Any:
        fail = IN_TASK.get(due(task))

        def stepped(steps: int) -> None:
            if fail is not None:
                fail(steps)
            on_step(steps)

        return map_task(context, task, stepped)

    return failing


def _sending(send: Callable[..., None], due: Due) -> Callable[..., None]:
    def sending(channel: Any, message: Any) -> None:
        is_answer = type(message).__name__ == "MapResult"
        fail = WITH_ANSWER.get(due(message)) if is_answer else None
        if fail is None:
            send(channel, message)
        else:
            fail(channel, message, send)

    return sending


if __name__ == "__main__":
    sys.exit(main())
