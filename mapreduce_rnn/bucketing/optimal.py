"""The exact optimum of sequence bucketing (Khomenko et al. 2016, arXiv 1708.05604, section 3).

Sort n lengths and let v_1 < ... < v_m be the distinct ones, N_j the number of lengths up to v_j
(N_0 = 0), and g(v) what a sequence costs that is padded to v: v itself in the paper, any function
that never falls here. Equal lengths never gain from being apart, so a bucket (i, j] holds the
lengths v_{i+1} .. v_j, all padded to v_j, and costs w(i, j) = (N_j - N_i) g(v_j). With
D_1(j) = w(0, j), the least cost of the lengths up to v_j in at most q buckets is

    D_q(j) = min over i < j of  D_{q-1}(i) + w(i, j),                                         (1)

and row q = 1, 2, ... gives the optimum D_q(m) for every number of buckets up to the last one.

For i <= k <= j <= l, w is Monge, because g does not fall:

    w(i, l) + w(k, j) - w(i, j) - w(k, l) = (N_k - N_i) (g(v_l) - g(v_j)) >= 0.               (2)

By (2), a cut k that beats an earlier cut i for the end j beats it for every end l > j: the first
best cut never moves back as j grows. And w is more than Monge: N_j g(v_j) is the same for all
cuts of an end, so the best cut of j is the least of the lines D_{q-1}(i) - N_i g at g = g(v_j).
The lower hull of the points (N_i, D_{q-1}(i)) holds the best cuts of all ends in order, and a
row takes O(m) (``hull.py``). A cut i >= j never is the first best: it would add
D_{q-1}(i) - (N_i - N_j) g(v_j) >= D_{q-1}(j) >= D_q(j). Total: one histogram of the n lengths and
O(Q m) time; memory O(m + Q k), k points on a hull, mostly far fewer than m.

(1) adds only positive terms, so floats keep a relative error of a few Q units in the last place.
Integers are exact: every sum is at most n g(v_m), held in int64 below 2^63 and in Python's
integers beyond.

**Aligned cuts.** Batches of B sequences with static shapes cost B g(v) each, full or not, and
every bucket of (1) may end in a partial one. Moving sequences up until each bucket but the
shortest is a whole number of batches costs nothing: the longer bucket's last batch is paid for
anyway. So some optimum cuts at multiples of B counted from the long end, and the same program
over batches, each as long as its longest sequence, finds it exactly. A cut may then lie among
equal lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.cost import FRAMES, CostModel, frames_cost, padding
from mapreduce_rnn.bucketing.histogram import histogram
from mapreduce_rnn.bucketing.hull import lower_hull
from mapreduce_rnn.bucketing.limits import Number
from mapreduce_rnn.errors import UsageError

_Array = NDArray[Any]
_Cuts = tuple[NDArray[np.int64], NDArray[np.int64]]  # cuts, and the first end each is best for


@dataclass(frozen=True)
class Buckets:
    """The cheapest partition of a set of lengths."""

    boundaries: tuple[Number, ...]  # inclusive upper lengths, strictly increasing
    counts: tuple[int, ...]  # sequences per bucket
    cost: Number  # in the units of the cost model; frames, padding included, by default
    padding: float  # share of frames that is padding, each sequence padded to its boundary, [0, 1)
    cost_curve: tuple[Number, ...]  # cost_curve[q - 1]: least cost with at most q buckets


def optimal_buckets(
    lengths: ArrayLike,
    n_buckets: int,
    *,
    cost: CostModel = FRAMES,
    align: int | None = None,
    split_ties: bool = True,
) -> Buckets:
    """Split lengths into at most ``n_buckets`` buckets of least total cost.

    Args:
        lengths: (n,) positive integers of any width, or floats, in any order; at least one.
        n_buckets: Q >= 1. With fewer distinct lengths than that, each gets its own bucket; fewer
            buckets also where more gain nothing.
        cost: What a padded sequence costs: ``Frames``, ``BatchTime``, ``CostTable`` of
            ``cost.py``, or an object of your own with the same method.
        align: Batch size B: minimise the cost of static shapes, where a partial batch costs what
            a full one does; every bucket but the shortest is then a multiple of B. Sequences of a
            boundary's length may belong to the bucket above it, so draw the batches by
            ``counts``, as ``epoch_batches`` can.
        split_ties: With ``align``, False cuts only where the next sequence is longer, so that
            ``boundaries`` alone say where a length belongs; never cheaper.

    Returns:
        The partition; its numbers are Python's int or float, like the lengths and prices.

    Raises:
        UsageError: Lengths that are none, not a flat list of numbers, not finite, or 0 or less;
            Q or ``align`` below 1; prices that fall, are negative or not finite.
    """
    return _solved(lengths, n_buckets, cost, align, split_ties).buckets(n_buckets)


def optimal_partitions(
    lengths: ArrayLike, most: int, *, cost: CostModel = FRAMES, align: int | None = None
) -> tuple[Buckets, ...]:
    """The best partition for every number of buckets up to ``most``, from one run of the program.

    Takes and raises what :func:`optimal_buckets` does.

    Returns:
        Partitions of at most 1, 2, .. min(most, number of distinct lengths) buckets.
    """
    solved = _solved(lengths, most, cost, align, split_ties=True)
    return tuple(solved.buckets(q + 1) for q in range(len(solved.curve)))


@dataclass(frozen=True)
class _Solved:
    """One run of the program: the answers for all numbers of buckets."""

    n: int  # sequences
    frames: Number  # without padding
    values: _Array  # (m,) lengths between which cuts may lie
    counts: NDArray[np.int64]  # (m,) sequences of each, the shortest's last batch made full
    rows: list[_Cuts]  # best cuts of D_2, D_3, ..
    curve: tuple[Number, ...]  # D_1(m), D_2(m), ..

    def buckets(self, most: int) -> Buckets:
        """The best partition into at most so many buckets."""
        curve = self.curve[:most]
        ends = _ends(self.rows[: len(curve) - 1], len(self.values))
        boundaries = self.values[ends - 1].tolist()
        sizes = np.add.reduceat(self.counts, np.concatenate(([0], ends[:-1]))).tolist()
        sizes[0] -= sum(sizes) - self.n  # what the shortest bucket's partial batch lacks
        return Buckets(
            boundaries=tuple(boundaries),
            counts=tuple(sizes),
            cost=curve[-1],
            padding=padding(self.frames, frames_cost(boundaries, sizes)),
            cost_curve=curve,
        )


def _solved(
    lengths: ArrayLike, n_buckets: int, cost: CostModel, align: int | None, split_ties: bool
) -> _Solved:
    """Check, count and solve; see :func:`optimal_buckets`."""
    if n_buckets < 1:
        raise UsageError(f"expected at least 1 bucket, got {n_buckets}")
    if align is not None and align < 1:
        raise UsageError(f"expected cuts aligned to a batch size of at least 1, got {align}")
    values, counts = histogram(lengths)
    frames, n = frames_cost(values, counts), int(counts.sum())
    if align is not None:
        values, counts = _batches(values, counts, align, split_ties)
    rows, curve = _rows(_prices(cost, values, int(counts.sum())), counts, n_buckets)
    return _Solved(n, frames, values, counts, rows, curve)


def _batches(
    values: _Array, counts: _Array, size: int, split_ties: bool
) -> tuple[_Array, NDArray[np.int64]]:
    """Batches counted from the long end: lengths of their longest, sequences that they cost.

    Sequences of one value belong together when ties may not be split: then so do all batches
    that share a value with a neighbour.
    """
    upto = np.cumsum(counts)
    above = upto[-1] - upto
    # Batch k is as long as the sequence with k x size others above it.
    batches = -np.diff(-(-above // size), prepend=-(-upto[-1] // size))
    if not split_ties:
        ends = np.flatnonzero(above % size == 0)
        starts = np.concatenate(([0], ends[:-1] + 1))
        return values[ends], np.add.reduceat(batches, starts) * size
    return values[batches > 0], batches[batches > 0] * size


def _prices(cost: CostModel, values: _Array, n: int) -> _Array:
    """g(v_1) .. g(v_m), checked: float64, int64, or Python integers where n x g(v_m) needs them."""
    prices = np.asarray(cost.prices(values))
    numbers = prices.dtype.kind in "iuf" or all(type(price) is int for price in prices)
    if prices.shape != values.shape or not numbers:
        got = f"{prices.dtype} of shape {prices.shape}"
        raise UsageError(f"expected one price per length, {len(values)} numbers, got {got}")
    if not (prices[0] >= 0 and prices[-1] < np.inf and (prices[1:] >= prices[:-1]).all()):
        raise UsageError(f"expected finite prices of 0 or more that never fall, from {cost}")
    if prices.dtype.kind == "f":
        return prices.astype(np.float64, copy=False)
    return prices.astype(np.int64 if n * int(prices[-1]) < 2**63 else object)


def _rows(prices: _Array, counts: _Array, n_buckets: int) -> tuple[list[_Cuts], tuple[Number, ...]]:
    """Cuts of rows 2 .. min(Q, m), and D_q(m) for q = 1 .. min(Q, m)."""
    below = np.concatenate(([0], np.cumsum(counts))).astype(prices.dtype)  # N_0 .. N_m
    prices = np.concatenate((prices[:1], prices))  # index 0 has no length: any price would do
    costs = below * prices  # D_1(0) .. D_1(m)
    curve, rows = [costs[-1]], []
    for _ in range(1, min(n_buckets, len(counts))):
        costs, cuts = _next_row(costs, below, prices)
        curve.append(costs[-1])
        rows.append(cuts)
    return rows, tuple(np.array(curve, prices.dtype).tolist())


def _next_row(costs: _Array, below: _Array, prices: _Array) -> tuple[_Array, _Cuts]:
    """D_q(j) from D_{q-1} for j = 0 .. m, and the first cuts that attain it."""
    hull, takeover = lower_hull(below, costs)
    first = np.concatenate(([0], np.searchsorted(prices, takeover, side="right")))
    cuts = np.repeat(hull, np.diff(first, append=len(costs)))
    # Rounding may let a cut beyond the end tie with it; an empty bucket is then no worse.
    cuts = np.minimum(cuts, np.arange(len(costs)))
    return costs[cuts] + (below - below[cuts]) * prices, (hull, first)


def _ends(rows: list[_Cuts], last: int) -> NDArray[np.int64]:
    """Walk the cuts back from the last length."""
    ends = [last]
    for hull, first in reversed(rows):
        cut = hull[np.searchsorted(first, ends[-1], side="right") - 1]
        ends.append(min(int(cut), ends[-1]))
    # Where a price repeats or rounding hides a gain, the optimum may leave buckets empty.
    return np.unique([end for end in ends if end > 0])
