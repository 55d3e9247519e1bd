"""Random batches inside length buckets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import epoch_batches, optimal_buckets, padding_share
from mapreduce_rnn.errors import UsageError


def generator(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=80),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_an_epoch_is_a_permutation_in_batches_inside_buckets(
    lengths: list[int], n_buckets: int, size: int, seed: int
) -> None:
    boundaries = optimal_buckets(lengths, n_buckets).boundaries
    batches = epoch_batches(lengths, boundaries, size, generator(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    used = []
    for batch in batches:
        (bucket,) = {next(b for b in boundaries if lengths[i] <= b) for i in batch}
        used.append(bucket)
        assert batch.dtype == np.int64
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= size
    for bucket in boundaries:  # one partial batch at most
        assert sum(b == bucket and n < size for b, n in zip(used, sizes, strict=True)) <= 1


def test_small_buckets_and_partial_batches_are_trained() -> None:
    lengths = [10] * 7 + [20] * 17
    batches = epoch_batches(lengths, [10, 20], 8, generator(1))
    assert sorted(len(batch) for batch in batches) == [1, 7, 8, 8]
    assert sorted(np.concatenate(batches).tolist()) == list(range(24))


def test_batches_differ_between_epochs_and_agree_between_runs() -> None:
    lengths = np.full(64, 50)

    def members(epoch: int) -> list[list[int]]:
        batches = epoch_batches(lengths, [50], 8, generator(7, epoch))
        return [sorted(batch.tolist()) for batch in batches]

    epochs = [members(epoch) for epoch in range(3)]
    for one, other in [(0, 1), (1, 2), (0, 2)]:
        assert sorted(epochs[one]) != sorted(epochs[other])
    assert members(2) == epochs[2]


def test_lengths_mix_over_the_epoch() -> None:
    lengths = np.repeat([10, 20, 30, 40], 100)
    batches = epoch_batches(lengths, [10, 20, 30, 40], 4, generator(3))
    order = [lengths[batch[0]] for batch in batches]
    first, second = order[:50], order[50:]
    assert set(first) == set(second) == {10, 20, 30, 40}


def test_fewer_samples_than_a_batch_give_one_partial_batch() -> None:
    batches = epoch_batches([5, 9], [9], 64, generator(0))
    assert [sorted(batch.tolist()) for batch in batches] == [[0, 1]]


def test_no_samples_give_no_batches() -> None:
    assert epoch_batches([], [], 8, generator(0)) == []
    assert padding_share([], []) == 0.0


def test_padding_share_counts_each_batch_to_its_longest() -> None:
    batches = [np.array([0, 2]), np.array([1])]
    assert padding_share([2, 5, 10], batches) == pytest.approx(8 / 25)


@pytest.mark.parametrize(
    ("boundaries", "size", "message"),
    [([9], 4, "last boundary, got 10"), ([10], 0, "batch size of at least 1, got 0")],
)
def test_lengths_beyond_the_buckets_and_empty_batches_are_refused(
    boundaries: list[int], size: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        epoch_batches([3, 10], boundaries, size, generator(0))
