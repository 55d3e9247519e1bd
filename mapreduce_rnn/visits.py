"""Which sequences were visited, as one number that does not depend on who did it and when.

The sum, modulo 2^64, of a hash of every visit's index in the store: those of slots, windows and
epochs add up. Two epochs that visit the same sequences as often have the same sum; of others it
differs, but for a chance of 2^-64. It finds mistakes, it is no defence against a forger.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def visit_sum(indices: NDArray[np.int64]) -> int:
    """The sum of visits to these sequences, one for each time that an index occurs.

    The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, Fast splittable
    pseudorandom number generators): every bit of the index changes half of the bits.

    Args:
        indices: (n,), in any order.
    """
    z = (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int((z ^ (z >> np.uint64(31))).sum(dtype=np.uint64))


def total(sums: Iterable[int]) -> int:
    """The sum of all visits that some sums count."""
    return sum(sums) % 2**64


def spelt(visits: int) -> str:
    """A sum as text, for JSON, whose readers round large numbers."""
    return f"{visits:016x}"
