"""Aligned cuts: whole batches from the long end, exact for static shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import epoch_batches, optimal_buckets
from mapreduce_rnn.bucketing.cost import BatchTime
from mapreduce_rnn.errors import UsageError
from partitions import cheapest, drawn, exact, priced, static_cost

LENGTHS = drawn(range(1, 13), 9)
N_BUCKETS = st.integers(1, 4)
SIZES = st.integers(1, 5)

TEN_TWENTY = [10] * 5 + [20] * 3
STEP = BatchTime(50, 2, 1, batch_size=4)


@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, SIZES)
def test_aligned_cuts_are_the_optimum_of_static_shapes(
    lengths: list[int], n_buckets: int, size: int
) -> None:
    """No partition, aligned or not, costs less in whole batches."""
    buckets = optimal_buckets(lengths, n_buckets, align=size)
    curve = [exact(cost) for cost in buckets.cost_curve]
    assert curve == cheapest(priced(lengths), lengths, batch=size)[: len(curve)]
    assert static_cost(buckets.boundaries, buckets.counts, size) == buckets.cost
    assert sum(buckets.counts) == len(lengths)
    assert all(count % size == 0 for count in buckets.counts[1:])


@settings(max_examples=2000)
@given(LENGTHS, N_BUCKETS, SIZES)
def test_without_split_ties_the_boundaries_say_all(
    lengths: list[int], n_buckets: int, size: int
) -> None:
    """The best of all aligned cuts between unequal lengths."""
    buckets = optimal_buckets(lengths, n_buckets, align=size, split_ties=False)
    edges = np.searchsorted(buckets.boundaries, sorted(lengths))
    assert np.bincount(edges).tolist() == list(buckets.counts)
    assert static_cost(buckets.boundaries, buckets.counts, size) == buckets.cost
    optimum = cheapest(priced(lengths), lengths, batch=size, whole=True)
    assert exact(buckets.cost) == optimum[:n_buckets][-1]


def test_known_answers() -> None:
    split = optimal_buckets(TEN_TWENTY, 2, cost=STEP, align=4)
    assert (split.cost, split.boundaries, split.counts) == (280, (10, 20), (4, 4))
    whole = optimal_buckets(TEN_TWENTY, 2, cost=STEP, align=4, split_ties=False)
    assert (whole.cost, whole.boundaries, whole.counts) == (340, (20,), (8,))


def test_the_plain_optimum_is_a_third_dearer_in_static_shapes() -> None:
    lengths = [6, 11, 12, 13, 14, 14, 17, 19, 23]
    plain = optimal_buckets(lengths, 3)
    assert static_cost(plain.boundaries, plain.counts, 4) == 228
    assert optimal_buckets(lengths, 3, align=4).cost == 172


def test_an_aligned_epoch_has_one_partial_batch_and_the_planned_cost() -> None:
    lengths = np.random.default_rng(2).integers(1, 40, 1003)
    buckets = optimal_buckets(lengths, 6, align=16)
    rng = np.random.default_rng(3)
    batches = epoch_batches(lengths, buckets.boundaries, 16, rng, counts=buckets.counts)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1003))
    assert sorted(map(len, batches))[:2] == [1003 % 16, 16]
    longest = (lengths[batch].max() for batch in batches)
    shapes = [min(b for b in buckets.boundaries if b >= length) for length in longest]
    assert sum(16 * shape for shape in shapes) <= buckets.cost


def test_which_of_equal_sequences_moves_up_changes_between_epochs() -> None:
    rng = np.random.default_rng(4)
    moved = set()
    for _ in range(40):
        batches = epoch_batches(TEN_TWENTY, [10, 20], 4, rng, counts=[4, 4])
        (long,) = [batch for batch in batches if 5 in batch]
        assert {5, 6, 7} < set(long.tolist())
        moved |= set(long.tolist()) - {5, 6, 7}
    assert moved == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("boundaries", "counts", "message"),
    [
        ([10, 20], [4, 5], "counts of 8 sequences, got 9"),
        ([10, 20], [8], "counts of 8 sequences"),
        ([10, 20], [6, 2], "same lengths"),
    ],
)
def test_counts_of_other_lengths_are_refused(
    boundaries: list[int], counts: list[int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        epoch_batches(TEN_TWENTY, boundaries, 4, np.random.default_rng(0), counts=counts)


def test_alignment_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        optimal_buckets([3, 4], 1, align=0)
