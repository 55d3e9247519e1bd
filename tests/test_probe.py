"""The probe: what is timed, what its times say, and that nothing of it stays behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing.cost import BatchTime, parse_cost
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.plan import resolve_config
from mapreduce_rnn.probe import (
    BatchTimePoint,
    make_probe,
    measured_cost,
    most_seconds,
    probe_batches,
)
from mapreduce_rnn.protocol.messages import MapTask, ProbeResult, prefixed
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.workers.maptask import Context, make_context, map_task
from mapreduce_rnn.workers.probe import probe_task

GRID = [(b, length) for b in (4, 16, 32) for length in (20, 60, 180, 540)]
NUMBERS = st.floats(0, 1)
SIZES, LENGTHS = st.integers(1, 64), st.integers(1, 1000)


@pytest.fixture
def context(store: Path) -> Context:
    torch.set_num_threads(1)
    config = override(TrainConfig(), {"units": 4, "batch_size": 8, "dropout": 0.3}, "test")
    config = resolve_config(config, slots=1, threads=1, device="cpu")
    return make_context(config, Store.open(store), torch.device("cpu"))


def probe(context: Context, n: int | None = None, budget_seconds: float = 20.0) -> ProbeResult:
    indices = context.store.split("train")[:n]
    task = make_probe(module_arrays(context.model), indices)
    return probe_task(context, task, lambda steps: None, budget_seconds)


def result(seconds: Callable[[int, int], float], points: list[tuple[int, int]]) -> ProbeResult:
    sizes, lengths = np.array(points, np.int64).T
    times = np.array([seconds(*point) for point in points])
    return ProbeResult(0, 0, 1, 0.5, {"sizes": sizes, "lengths": lengths, "seconds": times})


# What is timed


def test_three_sizes_at_four_lengths_are_timed_from_small_to_large() -> None:
    lengths = np.arange(10, 1011)
    batches = probe_batches(lengths, 32, None)
    shapes = [(len(batch), int(lengths[batch].max())) for batch in batches]
    assert {size for size, _ in shapes} == {4, 16, 32}
    assert sorted({length for _, length in shapes}) == [60, 153, 391, 1000]
    assert len(shapes) == 12
    padded = [size * length for size, length in shapes]
    assert padded == sorted(padded)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60).map(sorted),
    st.integers(1, 64),
    st.none() | st.integers(1, 2000),
)
def test_every_batch_keeps_the_limits_and_holds_neighbours(
    lengths: list[int], batch_size: int, max_frames: int | None
) -> None:
    batches = probe_batches(np.array(lengths), batch_size, max_frames)
    assert 1 <= len(batches) <= 12
    for batch in batches:
        size, longest = len(batch), lengths[batch[-1]]
        assert longest == max(lengths[at] for at in batch)
        assert size <= batch_size
        assert max_frames is None or size == 1 or size * longest <= max_frames
        assert set(np.diff(batch)) <= ({1} if size <= batch[-1] + 1 else {0, 1})


def test_where_sequences_are_few_they_are_repeated() -> None:
    sizes = {len(batch) for batch in probe_batches(np.array([5, 9, 30]), 32, None)}
    assert sizes == {4, 16, 32}


@given(NUMBERS, NUMBERS, NUMBERS, st.lists(st.tuples(SIZES, LENGTHS), min_size=2, max_size=6))
def test_no_step_takes_longer_than_expected_where_the_model_holds(
    a: float, p: float, c: float, shapes: list[tuple[int, int]]
) -> None:
    (size, length), *others = shapes
    measured = [BatchTimePoint(b, t, a + p * t + c * b * t) for b, t in others]
    assert a + p * length + c * size * length <= most_seconds(size, length, measured) * (1 + 1e-9)


# What the times say


def test_the_measured_numbers_are_read_back_as_a_cost_model() -> None:
    cost, line = measured_cost(
        result(lambda b, t: 3.12345678e-3 + 1.2e-5 * t + 1.9e-6 * b * t, GRID), "cpu"
    )
    model = parse_cost(cost, batch_size=32, max_frames=None)
    assert isinstance(model, BatchTime)
    found = (model.fixed, model.per_step, model.per_frame)
    assert found == (0.00312346, 1.2e-5, 1.9e-6)
    assert "measured on cpu" in line
    assert "3.1 ms + 12 us L + 1.9 us b L (12 points, median error 0.0 %)" in line


def test_a_part_that_costs_nothing_is_not_told() -> None:
    assert "take 2.0 s + 500 ns b L (" in measured_cost(
        result(lambda b, t: 2 + 5e-7 * b * t, GRID), "cuda"
    ).line  # fmt: skip


def test_times_that_do_not_follow_the_model_are_refused() -> None:
    noisy = measured_cost(result(lambda b, t: 1.0 if t == 60 or b == 16 else 1e-3, GRID), "cpu")
    assert noisy.bucket_cost == "frames"
    assert "12 points, median error" in noisy.line


def test_too_few_points_are_refused() -> None:
    few = measured_cost(result(lambda b, t: 1.0, GRID[:3]), "cpu")
    assert few.bucket_cost == "frames"
    assert "3 points in 20 s, at least 4 are needed" in few.line


# The task


def test_the_probe_times_steps_on_real_batches(context: Context) -> None:
    seen: list[int] = []
    task = make_probe(module_arrays(context.model), context.store.split("train"))
    arrays = probe_task(context, task, seen.append).arrays
    assert set(arrays["sizes"].tolist()) == {1, 4, 8}
    assert set(arrays["lengths"]) <= set(context.store.lengths[context.store.split("train")])
    assert (arrays["seconds"] > 0).all()
    assert [arrays[k].dtype.str for k in ("sizes", "lengths", "seconds")] == ["<i8", "<i8", "<f8"]
    assert seen == list(range(1, 1 + 3 * len(arrays["sizes"]) + 1))  # and one to warm up


def test_without_time_only_the_smallest_batch_is_timed(context: Context) -> None:
    arrays = probe(context, budget_seconds=0.0).arrays
    assert (len(arrays["sizes"]), arrays["sizes"][0]) == (1, 1)
    assert arrays["seconds"][0] > 0


def test_one_sequence_is_enough_to_be_timed(context: Context) -> None:
    assert set(probe(context, n=1).arrays["sizes"].tolist()) == {1, 4, 8}


def test_a_map_task_after_a_probe_gives_the_bytes_it_gave_before(context: Context) -> None:
    arrays = prefixed("model/", module_arrays(context.model))
    task = MapTask(1, 0, 1, epoch=1, arrays={**arrays, "shard": context.store.split("train")})
    before = map_task(context, task, lambda steps: None).arrays
    probe(context)
    after = map_task(context, task, lambda steps: None).arrays
    assert {k: v.tobytes() for k, v in before.items()} == {k: v.tobytes() for k, v in after.items()}
