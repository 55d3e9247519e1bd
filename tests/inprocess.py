"""Whole runs in this process: session, loop, codec and tasks are real; workers and sockets are not.

A run takes a fraction of a second instead of the seconds in which workers import torch. What it
leaves in the run folder is what a run with real workers leaves, byte for byte.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import mapreduce_rnn
from mapreduce_rnn import session
from mapreduce_rnn.config import TrainConfig, from_dict, override
from mapreduce_rnn.data.store import Meta, Store
from mapreduce_rnn.errors import Interrupted
from mapreduce_rnn.pool import Done
from mapreduce_rnn.protocol.codec import decode, encode
from mapreduce_rnn.protocol.messages import (
    AnyResult,
    AnyTask,
    MapTask,
    ScoreTask,
    Setup,
    TaskKey,
)
from mapreduce_rnn.session import RunResult
from mapreduce_rnn.tasks import CtcTask, Task
from mapreduce_rnn.workers.device import prepare_device
from mapreduce_rnn.workers.maptask import Context, make_context, map_task, score_task

TINY = {"units": 8, "batch_size": 4, "buckets": 3, "cpu_workers": 1}
"""Options of every run here, unless it names others."""

Compute = Callable[[Context, AnyTask], AnyResult]
MakeTask = Callable[[TrainConfig, Meta], Task]


def compute(context: Context, task: AnyTask) -> AnyResult:
    """What a worker does with a task."""
    assert isinstance(task, MapTask | ScoreTask)
    run = map_task if isinstance(task, MapTask) else score_task
    return run(context, task, lambda steps: None)


def interrupted_in(round: int, compute: Compute = compute) -> Compute:
    """Ctrl-C while the first task of a round is under way; until then ``compute``."""

    def interrupted(context: Context, task: AnyTask) -> AnyResult:
        if task.round == round:
            raise Interrupted(signal.SIGINT)
        return compute(context, task)

    return interrupted


def train(
    store: Path,
    run_dir: Path,
    *,
    compute: Compute = compute,
    make_task: MakeTask = CtcTask,
    init_from: Path | None = None,
    **options: Any,
) -> RunResult:
    """As :func:`mapreduce_rnn.train`, with options by name.

    Args:
        compute: Answers the tasks; what it raises ends the run as it is.
        make_task: What is trained.
    """
    config = override(TrainConfig(), TINY | options, "test")
    with without_processes(compute, make_task):
        return mapreduce_rnn.train(
            store, config, run_dir=run_dir, init_from=init_from, quiet=True, report=False
        )


def resume(
    run_dir: Path,
    *,
    compute: Compute = compute,
    make_task: MakeTask = CtcTask,
    allow_changes: bool = False,
    quiet: bool = True,
    **changes: Any,
) -> RunResult:
    """As :func:`mapreduce_rnn.resume`; arguments as in :func:`train`."""
    changes = {"cpu_workers": 1} | changes
    with without_processes(compute, make_task):
        return mapreduce_rnn.resume(
            run_dir, changes, allow_changes=allow_changes, quiet=quiet, report=False
        )


class InProcessPool:
    """Stands in for :class:`mapreduce_rnn.pool.Pool`: computes tasks when it is told to run them.

    The last task first: nothing may lean on the order in which answers arrive.
    """

    def __init__(
        self, compute: Compute, socket: Any, launcher: Any, places: Iterable[int], **_: Any
    ) -> None:
        self._compute = compute
        self._store = launcher.store

    def __enter__(self) -> InProcessPool:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def start(self) -> None:
        pass

    def set_up(self, setup: Setup) -> None:
        config = from_dict(_sent(setup).config, "the master")
        assert config.run.threads is not None
        device = prepare_device("cpu", threads=config.run.threads, deterministic=False)
        self._context = make_context(config, Store.open(self._store), device)

    def run(self, tasks: Iterable[AnyTask], on_steps: Callable[[int], None]) -> dict[TaskKey, Done]:
        began = time.monotonic()
        done = [self._done(task, began) for task in reversed(list(tasks))]
        return {one.result.key: one for one in done}

    def _done(self, task: AnyTask, began: float) -> Done:
        sent = time.monotonic() - began
        answer = _sent(self._compute(self._context, _sent(task)))
        return Done(answer, place=0, sent=sent, received=time.monotonic() - began)


def _sent(message: Any) -> Any:
    """The message as its receiver gets it: its arrays are read-only views of bytes."""
    return decode(encode(message, "run"), "run")


@contextmanager
def without_processes(compute: Compute = compute, make_task: MakeTask = CtcTask) -> Iterator[None]:
    """Every run inside, however it is started, computes its tasks in this process."""
    stand_ins = {
        "MasterSocket": lambda run_id, door: nullcontext(mock.Mock(address="")),
        "LocalLauncher": lambda places, **options: SimpleNamespace(**options),
        "Pool": partial(InProcessPool, compute),
    }
    with (
        mock.patch.multiple(session, **stand_ins),
        mock.patch("mapreduce_rnn.tasks.make_task", make_task),
        mock.patch("mapreduce_rnn.workers.maptask.make_task", make_task),
    ):
        yield
