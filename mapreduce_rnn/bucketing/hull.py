"""The lower hull of cuts: which cut is the best at which price, in time linear in the cuts.

A cut i that costs D(i) and leaves N(i) sequences behind competes, for an end whose price is g,
with D(i) - N(i) g: a line in g that falls the faster the later the cut. The best cuts of all
prices are the lower hull of the points (N(i), D(i)).
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Array = NDArray[Any]

# A pass over all points pays while it drops at least one point in so many.
_WORTHWHILE = 64
_STRIDE = 64  # of the sample that bridges long arcs


def lower_hull(below: _Array, costs: _Array) -> tuple[NDArray[np.int64], _Array]:
    """Cuts that are the first best one at some price, ascending, and where each takes over.

    A point on or above the line through its neighbours is never the first best. Each pass drops
    all such points at once: the best at a price is never among them, equals counting by order.
    Noise falls in a few passes. Smooth arcs with kinks between them would lose a point per kink
    and pass: a coarse hull bridges those, and the classic loop cleans up.

    Args:
        below: (m,) N(i), strictly increasing.
        costs: (m,) D(i), never falling; both int64, float64 or Python integers.

    Returns:
        Positions (k,), and the prices (k - 1,), strictly increasing, beyond which the next
        position is better: floored for integers, since prices are integers then.
    """
    kept, sieved = np.arange(len(below)), False
    while True:
        prices = _takeover(np.diff(costs[kept]), np.diff(below[kept]))
        useful = prices[:-1] < prices[1:]
        kinks = np.flatnonzero(~useful) + 1
        if not kinks.size:
            return kept, prices
        if kinks.size * _WORTHWHILE >= len(kept):
            kept = kept[np.concatenate(([True], useful, [True]))]
        elif not sieved and len(kept) > _STRIDE**2:
            kept, sieved = kept[_sieve(below[kept], costs[kept])], True
        else:
            kept = kept[_chain(below[kept], costs[kept], prices, kinks)]


def _sieve(below: _Array, costs: _Array) -> NDArray[np.int64]:
    """Positions that are not above the hull of every 64th point: arcs are bridged at once."""
    sample = np.append(np.arange(0, len(below) - 1, _STRIDE), len(below) - 1)
    corners = sample[lower_hull(below[sample], costs[sample])[0]]
    inside = np.delete(np.arange(len(below)), corners)
    right = np.searchsorted(corners, inside)
    before, after = corners[right - 1], corners[right]
    first = _takeover(costs[inside] - costs[before], below[inside] - below[before])
    second = _takeover(costs[after] - costs[inside], below[after] - below[inside])
    return np.sort(np.concatenate((corners, inside[first < second])))


def _takeover(rise: _Array, run: _Array) -> _Array:
    """Prices beyond which the later of two cuts is better; no product that could overflow."""
    return rise / run if rise.dtype == np.float64 else rise // run


def _chain(below: _Array, costs: _Array, prices: _Array, kinks: NDArray[np.int64]) -> list[int]:
    """Positions of the hull's points: the monotone chain, in time linear in the points it drops.

    Between two kinks the takeover prices of neighbours rise: once a point of such an arc joins
    its neighbour on the hull, the rest of the arc follows unseen.
    """
    counts, heights, edges = below.tolist(), costs.tolist(), prices.tolist()
    divide = operator.truediv if isinstance(heights[0], float) else operator.floordiv
    hull, taken = [0], [-math.inf]
    point = 1
    for kink in [*kinks.tolist(), len(counts) - 1]:
        while point <= kink:
            if hull[-1] == point - 1 and edges[point - 1] > taken[-1]:
                hull.extend(range(point, kink + 1))
                taken.extend(edges[point - 1 : kink])
                point = kink + 1
                break
            while True:
                last = hull[-1]
                price = divide(heights[point] - heights[last], counts[point] - counts[last])
                if price > taken[-1]:
                    break
                hull.pop()
                taken.pop()
            hull.append(point)
            taken.append(price)
            point += 1
    return hull
