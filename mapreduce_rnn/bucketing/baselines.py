"""Boundaries as others choose them: what the optimum is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mapreduce_rnn.bucketing.limits import Number


def equal_counts(lengths: ArrayLike, n_buckets: int) -> tuple[Number, ...]:
    """Boundaries of buckets with as many sequences each, as percentiles give them.

    Args:
        lengths: (n,) positive numbers, n >= 1, in any order.
        n_buckets: Q, at least 1.

    Returns:
        Inclusive upper lengths, strictly increasing, the last one the longest; fewer than Q where
        equal lengths would be apart.
    """
    ordered = np.sort(np.asarray(lengths))
    last = -(-np.arange(1, n_buckets + 1) * len(ordered) // n_buckets) - 1  # of each bucket
    return tuple(np.unique(ordered[last]).tolist())


def fixed_widths(lengths: ArrayLike, n_buckets: int) -> tuple[Number, ...]:
    """Boundaries of buckets that each span an equal part of the range of lengths.

    Args:
        lengths: (n,) positive numbers, n >= 1, in any order.
        n_buckets: Q, at least 1.

    Returns:
        Inclusive upper lengths, strictly increasing, the last one the longest; empty buckets are
        left out, and each other boundary is the longest length inside: no padding is counted that
        the partition itself doesn't need.
    """
    values = np.unique(np.asarray(lengths))
    low, high = values[[0, -1]].tolist()
    limits = np.array(_equal_parts(low, high, n_buckets), values.dtype)
    last = np.searchsorted(values, limits, side="right") - 1
    return tuple(values[np.unique(last)].tolist())


def _equal_parts(low: Number, high: Number, parts: int) -> list[Number]:
    """Upper ends of equal parts of [low, high]; of integers of any width exactly, rounded down."""
    if isinstance(low, int) and isinstance(high, int):
        return [low + k * (high - low) // parts for k in range(1, parts + 1)]
    ends: list[Number] = np.linspace(low, high, parts + 1)[1:].tolist()
    return ends
