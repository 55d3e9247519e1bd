"""The exact optimum of sequence bucketing (Khomenko et al. 2016, arXiv 1708.05604, section 3).

Sort n lengths and let v_1 < ... < v_m be the distinct ones, N_j the number of lengths up to v_j
(N_0 = 0). Equal lengths never gain from being apart, so a bucket (i, j] holds the lengths
v_{i+1} .. v_j, all padded to v_j, and costs w(i, j) = (N_j - N_i) v_j. With D_1(j) = w(0, j), the
least cost of the lengths up to v_j in q buckets is

    D_q(j) = min over i < j of  D_{q-1}(i) + w(i, j),                                         (1)

and row q = 1, 2, ... gives the optimum D_q(m) for every number of buckets up to the last one.

For i <= k <= j <= l, w is Monge:

    w(i, l) + w(k, j) - w(i, j) - w(k, l) = (N_k - N_i) (v_l - v_j) >= 0.                      (2)

By (2), a cut k that beats an earlier cut i for the end j beats it for every end l > j: the first
best cut never moves back as j grows. So the best cut of a middle end bounds those on both sides,
and a row takes O(m log m) by divide and conquer instead of O(m^2): level by level, from the middle
end to all others, each level a few numpy passes over at most 2 m candidates. Total time: one
histogram of the n lengths and O(Q m log m); memory O(Q m).

(1) adds only positive terms, so floats keep a relative error of a few Q units in the last place.
Integers are exact: every sum is at most n v_m, held in int64 below 2^63 and in Python's integers
beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.cost import Number, frames_cost, padding
from mapreduce_rnn.errors import UsageError

_Array = NDArray[Any]

_CHUNK = 1 << 18  # lengths counted at a time: a cast to int64 stays in the cache
_SMALL_RANGE = 1 << 16  # longest length that is counted in a table for any n
_LONG = 1 << 9  # mean candidates per end from which a pass for each end is faster
_SPAN = 1 << 17  # ends a pass spans at most: its temporary arrays stay in the cache


@dataclass(frozen=True)
class Buckets:
    """The cheapest partition of a set of lengths."""

    boundaries: tuple[Number, ...]  # inclusive upper lengths, strictly increasing
    counts: tuple[int, ...]  # sequences per bucket
    cost: Number  # frames, padding included
    padding: float  # share of `cost` that is padding, in [0, 1)
    cost_curve: tuple[Number, ...]  # cost_curve[q - 1]: least cost with q buckets


def optimal_buckets(lengths: ArrayLike, n_buckets: int) -> Buckets:
    """Split lengths into at most ``n_buckets`` buckets of least total padded length.

    Args:
        lengths: (n,) positive integers of any width, or floats, in any order; at least one.
        n_buckets: Q >= 1. With fewer distinct lengths than that, each gets its own bucket.

    Returns:
        The partition; its numbers are Python's int or float, like the lengths.

    Raises:
        UsageError: Lengths that are none, not a flat list of numbers, not finite, or 0 or less;
            Q below 1.
    """
    if n_buckets < 1:
        raise UsageError(f"expected at least 1 bucket, got {n_buckets}")
    values, counts = _histogram(_checked(lengths))
    ends, curve = _solve(values, counts, min(n_buckets, len(values)))
    return Buckets(
        boundaries=tuple(values[ends - 1].tolist()),
        counts=tuple(np.add.reduceat(counts, np.concatenate(([0], ends[:-1]))).tolist()),
        cost=curve[-1],
        padding=padding(frames_cost(values, counts), curve[-1]),
        cost_curve=curve,
    )


def _checked(lengths: ArrayLike) -> _Array:
    """Lengths as a flat array: integers, float64, or objects (Python integers)."""
    array = np.asarray(lengths)
    if array.ndim != 1 or array.size == 0:
        raise UsageError(f"expected a flat list of lengths, got one of shape {array.shape}")
    if not isinstance(lengths, np.ndarray) and array.dtype.kind == "f":
        # numpy turns a list of integers from 2^63 on into floats that have lost their last digits
        integers = all(isinstance(length, int) for length in lengths)  # type: ignore[union-attr]
        array = np.array(lengths, dtype=object if integers else np.float64)
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)
    elif array.dtype.kind not in "iu" and not all(type(length) is int for length in array):
        raise UsageError(f"expected lengths that are numbers, got {array.dtype}")
    smallest, longest = array.min(), array.max()
    if not (smallest > 0 and longest < np.inf):  # false for NaN too
        wrong = smallest if not smallest > 0 else longest
        raise UsageError(f"expected positive, finite lengths, got {wrong}")
    return array


def _histogram(lengths: _Array) -> tuple[_Array, _Array]:
    """Distinct lengths, ascending, and how often each occurs (int64): (m,), (m,).

    The lengths come as float64, as int64, or as Python integers where n x longest needs them.
    """
    longest = lengths.max()
    if lengths.dtype.kind in "iu" and longest <= max(_SMALL_RANGE, len(lengths) // 4):
        table = _count(lengths, int(longest) + 1)
        values = np.flatnonzero(table)
        counts = table[values]
    else:
        values, counts = np.unique(lengths, return_counts=True)
    if values.dtype == np.float64:
        return values, counts
    fits = len(lengths) * int(longest) < 2**63
    return values.astype(np.int64 if fits else object), counts


def _count(lengths: _Array, size: int) -> NDArray[np.int64]:
    """How often each of 0 .. size - 1 occurs; bincount without a copy of all lengths."""
    table = np.zeros(size, np.int64)
    for start in range(0, len(lengths), _CHUNK):
        part = np.bincount(lengths[start : start + _CHUNK].astype(np.int64, copy=False))
        table[: len(part)] += part
    return table


def _solve(
    values: _Array, counts: _Array, n_buckets: int
) -> tuple[NDArray[np.int64], tuple[Number, ...]]:
    """Ends j of the best buckets, ascending, and D_q(m) for q = 1 .. n_buckets."""
    below = np.concatenate(([0], np.cumsum(counts))).astype(values.dtype)  # N_0 .. N_m
    padded = np.concatenate((values[:1], values))  # v_1, v_1 .. v_m: index 0 has no length
    costs = below * padded  # D_1(0) .. D_1(m)
    curve, cuts = [costs[-1]], []
    for _ in range(1, n_buckets):
        costs, cut = _next_row(costs, below, padded)
        curve.append(costs[-1])
        cuts.append(cut)
    return _ends(cuts, len(values)), tuple(np.array(curve, values.dtype).tolist())


def _next_row(costs: _Array, below: _Array, padded: _Array) -> tuple[_Array, _Array]:
    """D_q(j) from D_{q-1}, and the first cut i that attains it, for j = 0 .. m.

    Levels of the divide and conquer: ends at odd multiples of a stride, which halves each time.
    """
    last = len(costs) - 1
    stride = 1 << (last.bit_length() - 1)
    row = costs.copy()
    # A cut not yet known is bounded by j - 1; beyond m too, so that every end has a neighbour.
    cuts = np.arange(-1, 2 * stride)
    cuts[0] = 0
    while stride:
        best = _best_of_long if stride >= _LONG else _best_of_short
        span = max(2 * stride, _SPAN)
        for start in range(stride, last + 1, span):
            ends = np.arange(start, min(start + span, last + 1), 2 * stride)
            low = cuts[ends - stride]
            high = np.minimum(cuts[ends + stride], ends - 1)
            row[ends], cuts[ends] = best(costs, below, padded, ends, low, high)
        stride //= 2
    return row, cuts[: last + 1].astype(np.int32 if last < 2**31 else np.int64)


def _best_of_long(
    costs: _Array, below: _Array, padded: _Array, ends: _Array, low: _Array, high: _Array
) -> tuple[_Array, _Array]:
    """Least cost of each end j and its first best cut i among low[j] .. high[j].

    One numpy pass per end, for the few ends with long ranges of candidates.
    """
    least, cuts = np.empty(len(ends), costs.dtype), np.empty(len(ends), np.int64)
    for k, (end, first, final) in enumerate(zip(ends, low, high, strict=True)):
        candidate = below[end] - below[first : final + 1]
        candidate *= padded[end]
        candidate += costs[first : final + 1]
        best = candidate.argmin()
        least[k], cuts[k] = candidate[best], first + best
    return least, cuts


def _best_of_short(
    costs: _Array, below: _Array, padded: _Array, ends: _Array, low: _Array, high: _Array
) -> tuple[_Array, _Array]:
    """The same in one pass over all ends, for many ends with short ranges.

    The candidates of all ends lie one after another in flat arrays.
    """
    sizes = high - low + 1
    starts = np.cumsum(sizes) - sizes
    cut = np.arange(sizes.sum()) - np.repeat(starts - low, sizes)
    candidate = np.repeat(below[ends], sizes) - below[cut]
    candidate *= np.repeat(padded[ends], sizes)
    candidate += costs[cut]
    least = np.minimum.reduceat(candidate, starts)
    hits = np.flatnonzero(candidate == np.repeat(least, sizes))
    return least, cut[hits[np.searchsorted(hits, starts)]]


def _ends(cuts: list[_Array], last: int) -> NDArray[np.int64]:
    """Walk the cuts back from the last length."""
    ends = [last]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    # Where rounding hides a gain, a float optimum may leave a bucket empty.
    return np.array([end for end in reversed(ends) if end > 0])
