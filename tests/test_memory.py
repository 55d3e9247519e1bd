"""Batches that do not fit into a GPU's memory: told with their size, the largest before round 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never
from unittest import mock

import numpy as np
import pytest
import torch

from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.plan import resolve_config
from mapreduce_rnn.protocol.messages import MapTask, ScoreTask, prefixed
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.workers.largest import try_largest_batch
from mapreduce_rnn.workers.maptask import Context, make_context, map_task, score_task


def context_of(store: Path, device: str = "cpu", **options: Any) -> Context:
    torch.set_num_threads(1)
    config = override(TrainConfig(), {"units": 4, "buckets": 3, "epochs": 1} | options, "test")
    config = resolve_config(config, slots=1, threads=1, device="cpu")
    return make_context(config, Store.open(store), torch.device(device))


def without_memory(context: Context) -> Context:
    """Every batch is too large."""

    def full(*_: object) -> Never:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    task = mock.Mock(wraps=context.task, losses=full, score=full)
    return dataclasses.replace(context, task=task)


@pytest.mark.parametrize(
    "limits",
    [{"batch_size": 4}, {"batch_size": 999}, {"max_frames": 90, "batch_size": 8}],
    ids=["sequences", "all", "frames"],
)
def test_no_batch_of_an_epoch_is_larger_than_the_one_that_is_tried(
    store: Path, limits: dict[str, int]
) -> None:
    context = context_of(store, **limits)
    shapes: list[int] = []

    def collate(store: Store, indices: np.ndarray, length: int) -> Any:
        shapes.append(len(indices) * length)
        return context.task.collate(store, indices, length)

    spied = dataclasses.replace(context, task=mock.Mock(wraps=context.task, collate=collate))
    try_largest_batch(spied)
    map_task(spied, task_of(spied), lambda steps: None)
    assert shapes[0] >= max(shapes[1:]) > 0


def task_of(context: Context) -> MapTask:
    arrays = prefixed("model/", module_arrays(context.model))
    arrays["shard"] = context.store.split("train")
    return MapTask(round=1, slot=0, attempt=1, epoch=1, arrays=arrays)


def test_a_batch_that_does_not_fit_is_told_with_its_size_and_the_limits_to_set(
    store: Path,
) -> None:
    full = without_memory(context_of(store, batch_size=4))
    longest = int(full.store.lengths[full.store.split("train")].max())
    told = rf"4 sequences, padded to {longest} frames, .* --max-frames below {4 * longest}, or"
    with pytest.raises(TrainingFailed, match=told) as caught:
        try_largest_batch(full)
    assert "\n" not in str(caught.value)


def test_a_task_that_runs_out_of_memory_says_the_same(store: Path) -> None:
    full = without_memory(context_of(store, batch_size=4))
    task = task_of(full)
    score = ScoreTask(1, 0, 1, {**task.arrays, "indices": full.store.split("validation")})
    for attempt in (lambda: map_task(full, task, print), lambda: score_task(full, score, print)):
        with pytest.raises(TrainingFailed, match=r"a batch of \d sequences, padded to \d+ frames"):
            attempt()


def test_nothing_stays_behind_that_a_task_reads(store: Path) -> None:
    context = context_of(store, dropout=0.3)
    task = task_of(context)
    before = map_task(context, task, lambda steps: None)
    try_largest_batch(context)
    after = map_task(context, task, lambda steps: None)
    assert all(after.arrays[name].tobytes() == a.tobytes() for name, a in before.arrays.items())


@pytest.fixture
def little_memory() -> Iterator[None]:
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.001)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.usefixtures("little_memory")
def test_a_gpu_that_is_too_small_is_told_before_round_1(store: Path) -> None:
    context = context_of(store, "cuda", units=512, batch_size=999)
    with pytest.raises(TrainingFailed, match="does not fit on the GPU: set --max-frames below"):
        try_largest_batch(context)
