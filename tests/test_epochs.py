"""What a slot trains on in an epoch: limits, padding, curricula; how validation is batched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapreduce_rnn.config import BatchConfig
from mapreduce_rnn.epochs import SlotEpoch, length_batches, slot_epoch

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80).map(np.array)
OPTIONS = st.builds(
    BatchConfig,
    batch_size=st.integers(1, 9),
    max_frames=st.none() | st.integers(60, 200),
    buckets=st.integers(1, 6),
    bucket_cost=st.sampled_from(["frames", "0.01,0.0002,0.00003", "1:1,60:9"]),
    pad_to=st.sampled_from(["longest", "boundary"]),
    curriculum=st.sampled_from(["none", "growing-buckets", "competence"]),
)


def drawn(lengths: Any, epoch: int = 1, **options: Any) -> SlotEpoch:
    return slot_epoch(np.array(lengths), BatchConfig(**options), seed=1, epoch=epoch, slot=0)


@settings(max_examples=200)
@given(LENGTHS, OPTIONS, st.integers(1, 6))
def test_an_epoch_is_a_permutation_of_what_is_in_play_within_the_limits(
    lengths: np.ndarray, options: BatchConfig, epoch: int
) -> None:
    slot = slot_epoch(lengths, options, seed=1, epoch=epoch, slot=0)
    visited = np.concatenate(slot.batches)
    assert len(set(visited.tolist())) == len(visited) == len(lengths) - slot.held_back
    held = np.delete(lengths, visited)
    assert not len(held) or held.min() > lengths[visited].max()
    for batch, frames in zip(slot.batches, slot.padded, strict=True):
        assert lengths[batch].max() <= frames
        assert len(batch) <= options.batch_size
        assert (
            len(batch) == 1
            or options.max_frames is None
            or len(batch) * frames <= options.max_frames
        )
    assert slot.held_back == 0 or (options.curriculum != "none" and epoch < 5)


@given(LENGTHS, OPTIONS)
def test_padding_is_to_the_longest_or_to_a_boundary(
    lengths: np.ndarray, options: BatchConfig
) -> None:
    slot = slot_epoch(lengths, options, seed=1, epoch=9, slot=0)
    longest = [lengths[batch].max() for batch in slot.batches]
    if options.pad_to == "longest":
        assert slot.padded.tolist() == longest
    else:
        assert set(slot.padded.tolist()) <= set(slot.buckets.boundaries)


def test_static_shapes_have_one_partial_batch() -> None:
    lengths = np.random.default_rng(3).integers(1, 500, 1003)
    slot = drawn(lengths, batch_size=16, buckets=8, pad_to="boundary")
    assert sorted(map(len, slot.batches))[:2] == [1003 % 16, 16]


def test_equal_epochs_are_equal_and_others_differ() -> None:
    lengths = [5] * 64
    first, again, second = drawn(lengths), drawn(lengths), drawn(lengths, epoch=2)
    assert [b.tolist() for b in first.batches] == [b.tolist() for b in again.batches]
    assert [b.tolist() for b in first.batches] != [b.tolist() for b in second.batches]


@pytest.mark.parametrize("curriculum", ["growing-buckets", "competence"])
def test_a_curriculum_lets_longer_sequences_in_epoch_by_epoch(curriculum: str) -> None:
    lengths = np.random.default_rng(4).integers(1, 400, 500)
    epochs = [drawn(lengths, epoch, buckets=8, curriculum=curriculum) for epoch in range(1, 7)]
    longest = [slot.padded.max() for slot in epochs]
    assert longest == sorted(longest)
    assert longest[0] < longest[3] < longest[4] == longest[5] == lengths.max()
    assert [slot.held_back for slot in epochs[4:]] == [0, 0]


def test_growing_buckets_trains_the_first_buckets_of_the_full_partition() -> None:
    lengths = np.random.default_rng(5).integers(1, 400, 500)
    whole = drawn(lengths, buckets=10).buckets
    second = drawn(lengths, 2, buckets=10, curriculum="growing-buckets").buckets
    assert second.boundaries == whole.boundaries[:4]


def test_competence_lets_the_square_root_share_in() -> None:
    """c(t)^2 = t (1 - c0^2) / T + c0^2 with c0 = 0.01, t = 1 and T = 4: c = 0.50007..."""
    slot = drawn(np.arange(1, 1001), curriculum="competence", curriculum_epochs=4)
    assert slot.held_back == 1000 - 501


def test_validation_batches_keep_both_limits_the_longest_first() -> None:
    lengths = np.array([10, 60, 20, 20, 20, 200])
    batches = length_batches(lengths, BatchConfig(batch_size=3, max_frames=100))
    assert [lengths[batch].tolist() for batch in batches] == [[200], [60], [20, 20, 20], [10]]
