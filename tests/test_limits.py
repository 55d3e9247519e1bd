"""Limits of a batch: sequences, padded frames, both."""

from __future__ import annotations

import logging
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import epoch_batches, optimal_buckets
from mapreduce_rnn.bucketing.limits import cut_batches
from mapreduce_rnn.errors import UsageError

LENGTHS = st.lists(st.integers(1, 60), max_size=40)
SIZES = st.none() | st.integers(1, 9)


def sizes(lengths: list[int], batch_size: int | None, max_frames: int | None) -> list[int]:
    batches = cut_batches(lengths, batch_size=batch_size, max_frames=max_frames)
    return [batch.stop - batch.start for batch in batches]


@pytest.mark.parametrize(
    ("lengths", "batch_size", "max_frames", "expected"),
    [
        ([100, 10, 10, 10, 100], None, 150, [1, 3, 1]),
        ([5] * 7, None, 10, [2, 2, 2, 1]),
        ([5] * 7, 3, None, [3, 3, 1]),
        ([5] * 7, 3, 10, [2, 2, 2, 1]),
        ([5] * 7, 2, 100, [2, 2, 2, 1]),
        ([60, 1], None, 50, [1, 1]),
        ([1, 60, 1], 8, 50, [1, 1, 1]),
        ([], None, 50, []),
        ([], 4, None, []),
    ],
)
def test_known_cuts(
    lengths: list[int], batch_size: int | None, max_frames: int | None, expected: list[int]
) -> None:
    assert sizes(lengths, batch_size, max_frames) == expected


@given(LENGTHS, SIZES, st.integers(1, 200))
def test_no_batch_breaks_a_limit_or_could_have_taken_the_next(
    lengths: list[int], batch_size: int | None, max_frames: int
) -> None:
    cuts = cut_batches(lengths, batch_size=batch_size, max_frames=max_frames)
    most = batch_size or len(lengths)

    def fits(part: list[int]) -> bool:
        return len(part) <= most and len(part) * max(part) <= max_frames

    assert [k for cut in cuts for k in range(*cut.indices(len(lengths)))] == [*range(len(lengths))]
    for cut in cuts:
        assert fits(lengths[cut]) or cut.stop - cut.start == 1
    for one, following in pairwise(cuts):
        assert not fits(lengths[one.start : following.start + 1])


@given(LENGTHS.filter(bool), st.integers(1, 4), SIZES, st.integers(60, 300), st.integers(0, 9))
def test_an_epoch_under_both_limits_is_a_permutation(
    lengths: list[int], n_buckets: int, batch_size: int | None, max_frames: int, seed: int
) -> None:
    boundaries = optimal_buckets(lengths, n_buckets).boundaries
    rng = np.random.default_rng(seed)
    batches = epoch_batches(lengths, boundaries, batch_size, rng, max_frames=max_frames)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) * max(lengths[k] for k in batch) <= max_frames
        assert len(batch) <= (batch_size or len(lengths))


def test_a_sequence_beyond_the_limit_goes_alone_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lengths = [6001, 1, 6002]  # lengths of no other test: a warning comes once for the same facts
    with caplog.at_level(logging.WARNING):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            batches = epoch_batches(lengths, [6002], None, rng, max_frames=50)
            assert sorted(batch.tolist() for batch in batches) == [[0], [1], [2]]
    (record,) = caplog.records
    assert record.getMessage().startswith("2 sequences are longer than the limit of 50 frames")
    assert "6002" in record.getMessage()


@pytest.mark.parametrize(
    ("batch_size", "max_frames", "message"),
    [
        (None, None, "batch_size, max_frames or both"),
        (0, None, "at least 1, got 0"),
        (0, 10, "at least 1, got 0"),
        (None, 0, "above 0, got 0"),
        (4, float("nan"), "above 0, got nan"),
    ],
)
def test_missing_and_senseless_limits_are_refused(
    batch_size: int | None, max_frames: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        cut_batches([1, 2], batch_size=batch_size, max_frames=max_frames)
