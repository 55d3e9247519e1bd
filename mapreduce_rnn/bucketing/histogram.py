"""Lengths, checked and counted: all that a partition depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.errors import UsageError

_Array = NDArray[Any]

_CHUNK = 1 << 18  # lengths counted at a time: a cast to int64 stays in the cache
_SMALL_RANGE = 1 << 16  # longest length that is counted in a table for any n


def histogram(lengths: ArrayLike) -> tuple[_Array, NDArray[np.int64]]:
    """Distinct lengths, ascending, and how often each occurs: (m,), (m,).

    Args:
        lengths: (n,) positive integers of any width, or floats, in any order; at least one.

    Returns:
        The lengths as float64, as int64, or as Python integers where int64 cannot hold them; the
        counts as int64.

    Raises:
        UsageError: Lengths that are none, not a flat list of numbers, not finite, or 0 or less.
    """
    row = _checked(lengths)
    longest = row.max()
    if row.dtype.kind in "iu" and longest <= max(_SMALL_RANGE, len(row) // 4):
        table = _count(row, int(longest) + 1)
        values = np.flatnonzero(table)
        counts = table[values]
    else:
        values, counts = np.unique(row, return_counts=True)
    if values.dtype == np.float64:
        return values, counts
    return values.astype(np.int64 if longest < 2**63 else object), counts


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


def _count(lengths: _Array, size: int) -> NDArray[np.int64]:
    """How often each of 0 .. size - 1 occurs; bincount without a copy of all lengths."""
    table = np.zeros(size, np.int64)
    for start in range(0, len(lengths), _CHUNK):
        part = np.bincount(lengths[start : start + _CHUNK].astype(np.int64, copy=False))
        table[: len(part)] += part
    return table
