"""Automatic number of buckets: planned costs are those of real epochs, few buckets suffice."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from mapreduce_rnn.bucketing import (
    BatchTime,
    Choice,
    CostModel,
    CostTable,
    Frames,
    batches_cost,
    choose_n_buckets,
    epoch_batches,
    optimal_buckets,
    optimal_partitions,
)
from mapreduce_rnn.errors import UsageError

LONG_TAIL = np.minimum(np.random.default_rng(0).lognormal(5.7, 0.7, 3000), 2000).astype(int) + 1
STEP = BatchTime(5, 0.05, 0.002, batch_size=32)


def choose(
    lengths: ArrayLike,
    cost: CostModel,
    batch_size: int | None = 32,
    max_frames: int | None = None,
    align: int | None = None,
) -> Choice:
    return choose_n_buckets(
        lengths, cost=cost, batch_size=batch_size, max_frames=max_frames, align=align
    )


def mean_cost(bucket: list[int], cost: CostModel, size: int) -> float:
    """Cost of a bucket's batches, averaged over every order of its sequences."""
    starts = range(0, len(bucket), size)
    cuts = [order[i : i + size] for order in permutations(bucket) for i in starts]
    total = batches_cost(cost, [len(cut) for cut in cuts], [max(cut) for cut in cuts]).sum()
    return float(total) * len(list(starts)) / len(cuts)


@pytest.mark.parametrize("cost", [Frames(), CostTable((2, 5, 9), (1, 2, 9)), STEP])
@settings(max_examples=40)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), size=st.integers(1, 6))
def test_planned_costs_are_the_mean_over_all_epochs(
    cost: CostModel, lengths: list[int], size: int
) -> None:
    planned = choose(lengths, cost, size).planned
    assert len(planned) == len(set(lengths))
    for q, expected in enumerate(planned, start=1):
        edges = [0, *optimal_buckets(lengths, q, cost=cost).boundaries]
        buckets = [[v for v in lengths if low < v <= high] for low, high in pairwise(edges)]
        mean = sum(mean_cost(bucket, cost, size) for bucket in buckets)
        assert expected == pytest.approx(mean)


@pytest.mark.parametrize(("batch_size", "max_frames"), [(32, None), (None, 20_000), (64, 20_000)])
def test_planned_costs_are_met_by_drawn_epochs(
    batch_size: int | None, max_frames: int | None
) -> None:
    cost = BatchTime(5, 0.05, 0.002, batch_size, max_frames)
    planned = choose(LONG_TAIL, cost, batch_size, max_frames).planned
    partitions = optimal_partitions(LONG_TAIL, 32, cost=cost)
    for q in (10, 20, 32):
        rng, boundaries = np.random.default_rng(q), partitions[q - 1].boundaries
        epochs = [
            epoch_batches(LONG_TAIL, boundaries, batch_size, rng, max_frames=max_frames)
            for _ in range(10)
        ]
        batches = [batch for epoch in epochs for batch in epoch]
        longest = [LONG_TAIL[batch].max() for batch in batches]
        spent = batches_cost(cost, [*map(len, batches)], longest).sum() / len(epochs)
        assert planned[q - 1] == pytest.approx(spent, rel=0.005)


def test_partial_batches_make_many_buckets_dear() -> None:
    shard = LONG_TAIL[:1000]
    planned = choose(shard, STEP).planned
    assert planned.index(min(planned)) == 7  # with 8 buckets
    assert planned[31] > planned[7] * 1.15
    # Counted as fractions, batches would make more buckets ever cheaper, by a third too cheap here.
    assert optimal_buckets(shard, 32, cost=STEP).cost < planned[31] * 0.7


@pytest.mark.parametrize("cost", [Frames(), STEP])
@pytest.mark.parametrize("size", [4, 32, 100])
def test_the_choice_is_the_smallest_within_two_percent_of_the_best(
    cost: CostModel, size: int
) -> None:
    choice = choose(LONG_TAIL, cost, size)
    allowed = choice.planned[: min(32, -(-3000 // size) // 4)]
    enough = [q for q, planned in enumerate(allowed, 1) if planned <= min(allowed) * 1.02]
    assert choice.n_buckets == enough[0]
    assert len(choice.planned) == 32


def test_static_shapes_are_planned_by_the_aligned_curve() -> None:
    choice = choose(LONG_TAIL, STEP, align=32)
    assert choice.planned == optimal_buckets(LONG_TAIL, 32, cost=STEP, align=32).cost_curve


@pytest.mark.parametrize(
    ("lengths", "size", "n_buckets", "reason"),
    [
        ([7] * 500, 2, 1, "1 bucket: too few batches or lengths for more"),
        (range(1, 8), 1, 1, "1 bucket: too few batches or lengths for more"),
        ([5, 6, 7] * 10, 2, 3, "3 of up to 3 buckets, one per length: the least planned cost"),
        (
            range(1, 33),
            2,
            3,
            "3 of up to 4 buckets of 4 or more batches: 1.8 % above the planned cost of 4",
        ),
        (LONG_TAIL, 16, 22, "22 of up to 32 buckets: 1.9 % above the planned cost of 32"),
    ],
)
def test_the_reason_says_what_was_compared(
    lengths: Iterable[int], size: int, n_buckets: int, reason: str
) -> None:
    choice = choose(list(lengths), Frames(), size)
    assert (choice.n_buckets, choice.reason) == (n_buckets, reason)


def test_costs_of_zero_need_one_bucket() -> None:
    choice = choose(LONG_TAIL, BatchTime(0, 0, 0, 32))
    assert (choice.n_buckets, set(choice.planned)) == (1, {0.0})


@pytest.mark.parametrize(
    ("lengths", "batch_size", "message"),
    [([], 4, "flat list"), ([3], None, "limit"), ([3], 0, "0")],
)
def test_senseless_input_is_refused(
    lengths: list[int], batch_size: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose(lengths, Frames(), batch_size)
