"""Baseline boundaries: each is what its name says, and none beats the optimum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.bucketing import equal_counts, fixed_widths, optimal_buckets
from partitions import cost_of, exact, priced

Baseline = Callable[[list[float], int], tuple[float, ...]]

LENGTHS = st.lists(st.integers(1, 40) | st.floats(0.01, 50), min_size=1, max_size=30)
BOTH = pytest.mark.parametrize("baseline", [equal_counts, fixed_widths])


@pytest.mark.parametrize(
    ("lengths", "n_buckets", "expected"),
    [
        ([9, 1, 2, 3, 4, 7], 3, (2, 4, 9)),
        ([1, 2, 3, 4, 5], 2, (3, 5)),
        ([5, 5, 5, 5, 9], 4, (5, 9)),  # equals stay together
        ([3, 4], 7, (3, 4)),
        ([2.5, 0.5], 2, (0.5, 2.5)),
    ],
)
def test_equal_counts_cut_at_percentiles(
    lengths: list[float], n_buckets: int, expected: tuple[float, ...]
) -> None:
    assert equal_counts(lengths, n_buckets) == expected


@pytest.mark.parametrize(
    ("lengths", "n_buckets", "expected"),
    [
        ([10, 20, 30, 12, 19, 50], 4, (20, 30, 50)),  # nothing in (30, 40]
        ([1, 2, 3, 4, 100], 3, (4, 100)),
        ([7, 7], 3, (7,)),
        ([1.0, 1.5, 2.0, 2.1, 3.0], 2, (2.0, 3.0)),
        ([2**62 + 1, 2**62 + 3, 2**62 + 2], 2, (2**62 + 2, 2**62 + 3)),
        ([2**70, 2**70 + 1, 2**70 + 2], 2, (2**70 + 1, 2**70 + 2)),
    ],
)
def test_fixed_widths_cut_the_range_evenly(
    lengths: list[float], n_buckets: int, expected: tuple[float, ...]
) -> None:
    assert fixed_widths(lengths, n_buckets) == expected


@BOTH
@given(LENGTHS, st.integers(1, 9))
def test_boundaries_rise_to_the_longest_and_no_bucket_is_empty(
    baseline: Baseline, lengths: list[float], n_buckets: int
) -> None:
    boundaries = baseline(lengths, n_buckets)
    assert list(boundaries) == sorted(set(boundaries))
    assert len(boundaries) <= n_buckets
    assert boundaries[-1] == max(lengths)
    used = set(np.searchsorted(boundaries, lengths).tolist())
    assert used == set(range(len(boundaries)))


@BOTH
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 9))
def test_no_baseline_has_less_padding_than_the_optimum(
    baseline: Baseline, lengths: list[float], n_buckets: int
) -> None:
    optimum = exact(optimal_buckets(lengths, n_buckets).cost)
    assert cost_of(priced(lengths), lengths, baseline(lengths, n_buckets)) >= optimum
