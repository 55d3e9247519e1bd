"""Partitions by brute force over samples, in exact arithmetic, and the cases to try it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from math import comb
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Choice = TypeVar("Choice")
Lengths = Sequence[int] | Sequence[float]
Prices = Mapping[float, int]  # of each length, in units of 2^-80


def drawn(choices: Sequence[Choice], most: int) -> st.SearchStrategy[list[Choice]]:
    """Up to ``most`` of the choices, with repetition.

    Made from bytes, which are one draw: a list of numbers takes hypothesis three times as long.
    """
    size = len(choices)
    assert size <= 128  # so that no choice is much rarer than another
    rows = st.binary(min_size=1, max_size=most)
    return rows.map(lambda row: [choices[byte % size] for byte in row])


def exact(number: float) -> int:
    """A number in units of 2^-80: exact for lengths, floats included."""
    numerator, denominator = number.as_integer_ratio()
    return (numerator << 80) // denominator


def is_close(cost: int, optimum: int) -> bool:
    """To 1e-12, as floats promise."""
    return abs(cost - optimum) * 10**12 <= optimum


def priced(lengths: Lengths, price: Callable[[float], int] = exact) -> dict[float, int]:
    """What one sequence of each length costs."""
    return {length: price(length) for length in set(lengths)}


def cheapest(prices: Prices, lengths: Lengths, batch: int = 1, whole: bool = False) -> list[int]:
    """Least cost in at most 1, 2, .. n buckets of all ways to cut the sorted samples.

    Buckets are paid in whole batches. With ``whole``, only of the ways that cut whole batches off
    the long end, never among equals.
    """
    ordered, n = sorted(lengths), len(lengths)
    paid, first = _ways(n, batch)
    costs = paid @ np.array([prices[length] for length in ordered], object)
    if whole:
        wrong = [(n - k) % batch > 0 or ordered[k - 1] == ordered[k] for k in range(1, n)]
        costs[paid[:, :-1] @ np.array(wrong, int) > 0] = costs[0]
    least: list[int] = np.minimum.accumulate(np.minimum.reduceat(costs, first)).tolist()
    return least


@cache
def _ways(n: int, batch: int) -> tuple[NDArray[np.object_], list[int]]:
    """All ways to cut n samples, by their number of buckets: 2^(n - 1) rows.

    Returns for how many sequences each pays where a bucket ends, 0 elsewhere, (ways, n), and the
    first way of each number of buckets.
    """
    ways = [(*cuts, n) for q in range(n) for cuts in combinations(range(1, n), q)]
    paid = np.zeros((len(ways), n), object)  # Python integers
    for row, ends in enumerate(ways):
        for start, stop in pairwise((0, *ends)):
            paid[row, stop - 1] = -(-(stop - start) // batch) * batch
    return paid, np.cumsum([0, *(comb(n - 1, q) for q in range(n - 1))]).tolist()


def cost_of(prices: Prices, lengths: Lengths, boundaries: Iterable[float]) -> int:
    """Cost of given buckets, sample by sample."""
    return sum(prices[min(b for b in boundaries if b >= length)] for length in lengths)


def static_cost(boundaries: Iterable[float], counts: Iterable[int], batch: int) -> float:
    """Frames of given buckets when each batch, full or not, is padded to its static shape."""
    return sum(-(-n // batch) * batch * upper for n, upper in zip(counts, boundaries, strict=True))
