"""A worker: serves tasks from the master until it says Stop or falls silent.

The communication thread of :class:`WorkerChannel` owns the socket, so heartbeats go out while the
main thread computes. A worker keeps nothing from task to task that a task reads before it writes
it: it may be killed at any moment.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback

import mapreduce_rnn
from mapreduce_rnn.config import from_dict
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import MapReduceRnnError, StoreError, TrainingFailed
from mapreduce_rnn.protocol.messages import (
    AnyResult,
    AnyTask,
    Hello,
    MapTask,
    ProbeTask,
    Ready,
    Refused,
    ScoreTask,
    Setup,
    Stop,
    TaskFailed,
)
from mapreduce_rnn.protocol.transport import WorkerChannel
from mapreduce_rnn.workers.device import prepare_device
from mapreduce_rnn.workers.largest import try_largest_batch
from mapreduce_rnn.workers.maptask import Context, OnStep, make_context, map_task, score_task
from mapreduce_rnn.workers.probe import probe_task

TRACEBACK_CHARACTERS = 16_000  # the end of one fits into a message's header and says the most


def work(options: argparse.Namespace) -> int:
    """Serve as the options of :mod:`mapreduce_rnn.workers.__main__` say; returns the exit code."""
    try:
        store = Store.open(options.store)
        with WorkerChannel(options.connect, options.run, options.name) as channel:
            channel.send(hello(options.device, store))
            serve(channel, options.device, store)
    except MapReduceRnnError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def hello(device: str, store: Store) -> Hello:
    """What this process says of itself."""
    return Hello(mapreduce_rnn.__version__, device, os.getpid(), store.fingerprint)


def serve(channel: WorkerChannel, device: str, store: Store) -> None:
    """Do what the master says until it says Stop.

    Raises:
        TrainingFailed: The master is silent, or refuses this worker.
    """
    context: Context | None = None
    while True:
        message = channel.receive()
        match message:
            case Setup():
                context = _set_up(channel, device, store, message)
            case MapTask() | ScoreTask() | ProbeTask() if context is not None:
                _run_task(channel, context, message)
            case Stop():
                return
            case Refused(reason):
                raise TrainingFailed(f"the master refuses this worker: {reason}")
            case _:
                print(f"a {type(message).__name__} is not for a worker: ignored", file=sys.stderr)


def _set_up(channel: WorkerChannel, name: str, store: Store, setup: Setup) -> Context | None:
    """Get ready for the run's tasks; what fails is told to the master, who decides what then."""
    try:
        if store.fingerprint != setup.fingerprint:
            raise StoreError(f"{store.path} is not the store the master has opened")
        config = from_dict(setup.config, "the master")
        threads = config.run.threads  # the run's, wherever the worker runs: part of the result
        assert threads is not None
        device = prepare_device(name, threads=threads, deterministic=config.run.deterministic)
        context = make_context(config, store, device)
        if device.type == "cuda":
            try_largest_batch(context)
        channel.send(Ready("; ".join(context.task.notes(device))))
        return context
    except Exception as error:
        print(f"cannot be set up: {_told(error)}", file=sys.stderr)
        channel.send(TaskFailed(None, 0, 0, 0, _told(error)))
        return None


def _run_task(channel: WorkerChannel, context: Context, task: AnyTask) -> None:
    channel.progress(0)
    try:
        channel.send(_answer(context, task, channel.progress))
    except Exception as error:
        key = task.key
        channel.send(TaskFailed(key.kind, key.round, key.slot, task.attempt, _told(error)))


def _answer(context: Context, task: AnyTask, on_step: OnStep) -> AnyResult:
    match task:
        case MapTask():
            return map_task(context, task, on_step)
        case ScoreTask():
            return score_task(context, task, on_step)
        case ProbeTask():
            return probe_task(context, task, on_step)


def _told(error: Exception) -> str:
    """A mistake of the user's is one line; anything else comes with its traceback."""
    if isinstance(error, MapReduceRnnError):
        return str(error)
    end = traceback.format_exc()[-TRACEBACK_CHARACTERS:]
    return end.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate could not be sent
