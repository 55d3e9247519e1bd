"""Bucketing against brute force, the textbook program and known answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import optimal_buckets
from mapreduce_rnn.errors import UsageError
from partitions import Lengths, cheapest, cost_of, drawn, exact, is_close, priced

SMALL = range(1, 13)
HUGE = [*range(2**53 - 3, 2**53 + 10), *range(2**62 - 3, 2**62 + 10)]
CLOSE = [100.0 + k * 2.0**-46 for k in range(-3, 4)]  # neighbours: an ulp or few apart
FLOATS = [*CLOSE, *np.geomspace(0.001, 1e6, 50).tolist()]

N_BUCKETS = st.integers(1, 5)


def quadratic(lengths: NDArray[np.int64], n_buckets: int) -> list[int]:
    """The textbook program over all samples' distinct lengths, one end at a time."""
    values, counts = np.unique(lengths, return_counts=True)
    below = np.concatenate(([0], np.cumsum(counts)))
    costs = below * np.concatenate(([0], values))
    curve = [costs[-1]]
    for _ in range(1, n_buckets):
        ends = range(1, len(below))
        rows = [(costs[:j] + (below[j] - below[:j]) * values[j - 1]).min() for j in ends]
        costs = np.array([0, *rows])
        curve.append(costs[-1])
    return curve


@pytest.mark.parametrize(
    ("lengths", "n_buckets", "cost", "boundaries"),
    [
        ([2, 5, 7, 11], 3, 27, (2, 7, 11)),
        ([1] * 8 + [100], 2, 108, (1, 100)),
        ([5] * 10, 5, 50, (5,)),
        ([7] * 95 + [8, 9, 10, 11, 12], 5, 716, None),  # several partitions cost 716
    ],
)
def test_known_answers(
    lengths: Lengths, n_buckets: int, cost: int, boundaries: tuple[int, ...] | None
) -> None:
    buckets = optimal_buckets(lengths, n_buckets)
    assert buckets.cost == buckets.cost_curve[-1] == cost
    assert sum(buckets.counts) == len(lengths)
    assert boundaries in (None, buckets.boundaries)


@settings(max_examples=2000)
@given(drawn(SMALL, 8) | drawn(HUGE, 6), N_BUCKETS)
def test_integers_reach_the_exact_optimum_for_every_number_of_buckets(
    lengths: list[int], n_buckets: int
) -> None:
    buckets, prices = optimal_buckets(lengths, n_buckets), priced(lengths)
    assert len(buckets.boundaries) == len(buckets.cost_curve) == min(n_buckets, len(prices))
    assert list(buckets.boundaries) == sorted(set(buckets.boundaries))
    assert cost_of(prices, lengths, buckets.boundaries) == exact(buckets.cost)
    curve = [exact(cost) for cost in buckets.cost_curve]
    assert curve == cheapest(prices, lengths)[: len(curve)]


@settings(max_examples=2000)
@given(drawn(FLOATS, 7), N_BUCKETS)
def test_floats_reach_the_optimum_to_1e_12(lengths: list[float], n_buckets: int) -> None:
    buckets, prices = optimal_buckets(lengths, n_buckets), priced(lengths)
    optimum = cheapest(prices, lengths)[: len(buckets.cost_curve)]
    assert list(buckets.boundaries) == sorted(set(buckets.boundaries))
    assert is_close(cost_of(prices, lengths, buckets.boundaries), optimum[-1])
    assert all(map(is_close, map(exact, buckets.cost_curve), optimum))


def test_many_distinct_lengths_agree_with_the_quadratic_program() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.lognormal(7, 1, 4000).astype(np.int64) + 1
    assert len(np.unique(lengths)) > 2000
    assert list(optimal_buckets(lengths, 6).cost_curve) == quadratic(lengths, 6)


def test_lengths_one_to_m_are_cut_in_the_middle() -> None:
    m = 300_000  # more ends than one pass spans
    buckets = optimal_buckets(np.arange(1, m + 1), 2)
    assert buckets.boundaries == (m // 2, m)
    assert buckets.cost == 3 * m * m // 4


@pytest.mark.parametrize("kind", [np.int64, np.float64, object])
def test_arcs_with_kinks_between_agree_with_the_quadratic_program(kind: type) -> None:
    """Evenly spaced clusters: the hull is smooth but for the gaps, where whole arcs are bridged."""
    clusters = [10**6 * k**3 + np.arange(1, 600) for k in range(1, 9)]
    lengths = np.concatenate(clusters)
    expected = quadratic(lengths, 5)
    scale = 2**40 if kind is object else 1  # far beyond int64: Python integers
    curve = optimal_buckets([int(x) * scale for x in lengths], 5).cost_curve
    if kind is not object:
        curve = optimal_buckets(lengths.astype(kind), 5).cost_curve
    assert [cost / scale for cost in curve] == expected


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "int32", "uint32", "int64", "uint64", "float16", "float32"]
)
def test_no_width_overflows_and_order_does_not_matter(dtype: str) -> None:
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 200, 5000)
    expected = optimal_buckets(np.sort(lengths), 8)
    assert expected.cost > 2**16
    assert optimal_buckets(lengths.astype(dtype), 8) == expected


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_nanosecond_lengths_above_2_to_the_53_stay_exact(dtype: str) -> None:
    lengths = np.array([2**53 + 1, 2**53 + 3, 2**61 + 1, 2**61 + 3, 2**61 + 5], dtype)
    buckets = optimal_buckets(lengths, 2)
    assert buckets.boundaries == (2**53 + 3, 2**61 + 5)
    assert buckets.cost == 2 * (2**53 + 3) + 3 * (2**61 + 5)


def test_sums_beyond_2_to_the_63_are_exact() -> None:
    lengths = np.array([2**64 - 1] * 3 + [2**63 + 1] * 2 + [7], np.uint64)
    buckets = optimal_buckets(lengths, 3)
    assert buckets.boundaries == (7, 2**63 + 1, 2**64 - 1)
    assert buckets.cost == 3 * (2**64 - 1) + 2 * (2**63 + 1) + 7
    assert optimal_buckets([2**70 + 1, 2**70], 1).cost == 2 * (2**70 + 1)


def test_result_holds_plain_numbers_and_its_padding_share() -> None:
    buckets = optimal_buckets(np.array([2, 5, 7, 11], np.int32), 3)
    assert [type(b) for b in buckets.boundaries] == [int] * 3
    assert type(buckets.cost) is int
    assert buckets.padding == pytest.approx(2 / 27)
    assert type(optimal_buckets([2.5, 3.0], 1).cost) is float


@pytest.mark.parametrize(
    ("lengths", "n_buckets", "message"),
    [
        ([], 1, "flat list"),
        ([[1, 2], [3, 4]], 1, "flat list"),
        ([3, 0], 1, "positive, finite lengths, got 0"),
        ([3, -2], 1, "positive, finite lengths, got -2"),
        ([1.0, float("nan")], 1, "finite lengths, got nan"),
        ([1.0, float("inf")], 1, "finite lengths, got inf"),
        (["long", "short"], 1, "numbers"),
        ([True, False], 1, "numbers"),
        ([1, 2], 0, "at least 1 bucket, got 0"),
    ],
)
def test_senseless_input_is_refused_in_one_line(
    lengths: Lengths, n_buckets: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        optimal_buckets(lengths, n_buckets)
    assert "\n" not in str(refused.value)
