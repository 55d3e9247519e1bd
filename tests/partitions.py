"""Partitions by brute force over samples, in exact arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from fractions import Fraction

Lengths = list[int] | list[float]
Price = Callable[[float], Fraction]


def exact(number: float | Fraction) -> int:
    """A number in units of 2^-80: exact for lengths, floats included."""
    return int(Fraction(number) * 2**80)


def cheapest(
    lengths: Lengths, n_buckets: int, price: Price = Fraction, batch: int = 1, whole: bool = False
) -> int:
    """Least cost of all ways to cut the sorted samples, paid in whole batches; units of 2^-80.

    With ``whole``, only of those that cut whole batches off the long end, never among equals.
    """
    ordered = sorted(lengths)
    prices, n = [exact(price(length)) for length in ordered], len(ordered)
    places = [
        cut
        for cut in range(1, n)
        if not whole or ((n - cut) % batch == 0 and ordered[cut - 1] < ordered[cut])
    ]
    return min(
        sum(
            -(-(stop - start) // batch) * batch * prices[stop - 1]
            for start, stop in itertools.pairwise((0, *inner, n))
        )
        for q in range(min(n_buckets, n))
        for inner in itertools.combinations(places, q)
    )


def cost_of(lengths: Lengths, boundaries: Iterable[float], price: Price = Fraction) -> int:
    """Cost of given buckets, sample by sample; in units of 2^-80."""
    paid = (min(b for b in boundaries if b >= length) for length in lengths)
    return sum(exact(price(boundary)) for boundary in paid)


def static_cost(boundaries: Iterable[float], counts: Iterable[int], batch: int) -> float:
    """Frames of given buckets when each batch, full or not, is padded to its static shape."""
    return sum(-(-n // batch) * batch * upper for n, upper in zip(counts, boundaries, strict=True))
