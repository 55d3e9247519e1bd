"""The probe: what a training step costs on this device, for batches of some sizes and lengths.

The only task whose answer depends on the clock. It runs before round 1, and what the master makes
of it is in the run's config before any result is computed. Like the map task it leaves nothing
behind that a later task reads.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from mapreduce_rnn.probe import BUDGET_SECONDS, BatchTimePoint, most_seconds, probe_batches
from mapreduce_rnn.protocol.messages import ProbeResult, ProbeTask, under
from mapreduce_rnn.reduce.params import load_arrays
from mapreduce_rnn.workers.maptask import Context, OnStep, Trainer

PASSES = 3  # over all batches: up, down, up


class _Batch(NamedTuple):
    indices: np.ndarray  # int64 (B,), sequences of the store
    length: int  # frames to pad to


TimeStep = Callable[[_Batch], float]


def probe_task(
    context: Context, message: ProbeTask, on_step: OnStep, budget_seconds: float = BUDGET_SECONDS
) -> ProbeResult:
    """Time full training steps, reading the batch included, as the map task makes them.

    Every batch is timed once before any is timed again, so that a moment in which the machine is
    busy with something else spoils one time of a few batches, which their medians forgive. Sizes
    go up, down and up again: a small batch right after a large one took twice as long (measured
    on a CPU: the caches are cold, memory was given back), which is rare in an epoch.

    Args:
        context: Shared by the tasks of the run.
        message: Arrays ``model/<name>``, ``indices`` int64 (n,), n >= 1 (training sequences).
        on_step: Called with the number of steps made, after each.
        budget_seconds: For all of them. A batch that may not fit is passed over; only the
            smallest one is timed whatever it takes.

    Returns:
        The batches that were timed, from small to large, with the median of up to 3 times each.
    """
    started = time.monotonic()
    load_arrays(context.model, under("model/", message.arrays))
    time_step = _timer(context, on_step)
    batches = _batches(context, message.arrays["indices"])
    time_step(batches[0])  # the first step of a process is none like the others
    batches, up = _within(budget_seconds / PASSES, batches, time_step)
    deadline = started + budget_seconds
    down = _again(batches[::-1], up[::-1], time_step, deadline)[::-1]
    again = _again(batches, up, time_step, deadline)
    return ProbeResult(
        round=message.round,
        slot=message.slot,
        attempt=message.attempt,
        seconds=time.monotonic() - started,
        arrays={
            "sizes": np.array([len(batch.indices) for batch in batches], np.int64),
            "lengths": np.array([batch.length for batch in batches], np.int64),
            "seconds": np.nanmedian([up, down, again], axis=0),
        },
    )


def _batches(context: Context, indices: np.ndarray) -> list[_Batch]:
    options = context.config.batches
    ordered = indices[np.argsort(context.store.lengths[indices], kind="stable")]
    lengths = context.store.lengths[ordered]
    batches = probe_batches(lengths, options.batch_size, options.max_frames)
    return [_Batch(ordered[positions], int(lengths[positions[-1]])) for positions in batches]


def _within(
    budget_seconds: float, batches: list[_Batch], time_step: TimeStep
) -> tuple[list[_Batch], list[float]]:
    """Time each batch that fits into what is left; those batches, and their seconds."""
    timed: list[_Batch] = []
    points: list[BatchTimePoint] = []
    for batch in batches:
        size, length = len(batch.indices), batch.length
        spent = sum(point.seconds for point in points)
        if points and spent + most_seconds(size, length, points) > budget_seconds:
            continue
        points.append(BatchTimePoint(size, length, time_step(batch)))
        timed.append(batch)
    return timed, [point.seconds for point in points]


def _again(
    batches: list[_Batch], seconds: list[float], time_step: TimeStep, deadline: float
) -> list[float]:
    """Time batches that took ``seconds`` before; NaN where the time is up."""
    return [
        time_step(batch) if time.monotonic() + before < deadline else math.nan
        for batch, before in zip(batches, seconds, strict=True)
    ]


def _timer(context: Context, on_step: OnStep) -> TimeStep:
    """A function that makes one training step and says how long the device took for it."""
    trainer = Trainer(context, {})
    steps = itertools.count(1)

    def time_step(batch: _Batch) -> float:
        began = time.perf_counter()
        trainer.step(batch.indices, batch.length, epochs_done=0.0)
        if context.device.type == "cuda":
            torch.cuda.synchronize(context.device)
        seconds = time.perf_counter() - began
        on_step(next(steps))
        return seconds

    return time_step
