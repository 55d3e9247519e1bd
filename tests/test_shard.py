"""Shards: every sequence once, equal numbers, nearly equal lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.data.shard import epoch_shards


@given(
    lengths=st.lists(st.integers(1, 50), max_size=40),
    n_slots=st.integers(1, 9),
    epoch=st.integers(1, 5),
)
def test_every_sequence_is_in_one_shard_and_sizes_differ_by_one(
    lengths: list[int], n_slots: int, epoch: int
) -> None:
    shards = epoch_shards(np.array(lengths, dtype=np.int64), n_slots, 3, epoch)
    sizes = [len(shard) for shard in shards]
    assert len(shards) == n_slots
    assert max(sizes) - min(sizes) <= 1
    assert sorted(np.concatenate(shards).tolist()) == list(range(len(lengths)))
    assert all(shard.dtype == np.int64 for shard in shards)


@pytest.mark.parametrize(("n", "n_slots", "sizes"), [(10, 3, [3, 3, 4]), (2, 4, [0, 0, 1, 1])])
def test_uneven_numbers(n: int, n_slots: int, sizes: list[int]) -> None:
    shards = epoch_shards(np.arange(1, n + 1), n_slots, 1, 1)
    assert sorted(len(shard) for shard in shards) == sizes


@given(lengths=st.lists(st.integers(1, 1000), min_size=1, max_size=60), n_slots=st.integers(1, 6))
def test_each_slot_gets_one_of_every_group_of_neighbours_by_length(
    lengths: list[int], n_slots: int
) -> None:
    array = np.array(lengths, dtype=np.int64)
    rank = np.empty(len(array), dtype=np.int64)
    rank[np.argsort(array, kind="stable")] = np.arange(len(array))
    for shard in epoch_shards(array, n_slots, 1, 1):
        groups = rank[shard] // n_slots
        assert len(set(groups.tolist())) == len(shard)


def test_shards_depend_on_seed_and_epoch_alone() -> None:
    lengths = np.full(64, 20)

    def members(seed: int, epoch: int) -> list[list[int]]:
        return [shard.tolist() for shard in epoch_shards(lengths, 2, seed, epoch)]

    assert members(7, 3) == members(7, 3)
    assert members(7, 3) != members(7, 4)
    assert members(7, 3) != members(8, 3)


def test_neighbours_do_not_always_meet_the_same_slot() -> None:
    shards = [epoch_shards(np.arange(60), 2, 1, epoch)[0] for epoch in range(20)]
    shares = np.bincount(np.concatenate(shards), minlength=60) / 20
    assert shares.min() > 0.0
    assert shares.max() < 1.0
