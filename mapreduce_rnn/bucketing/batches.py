"""Random batches inside length buckets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.cost import frames_cost, padding
from mapreduce_rnn.errors import UsageError


def epoch_batches(
    lengths: ArrayLike, boundaries: ArrayLike, batch_size: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Batches of one epoch: positions into ``lengths``, together a permutation of all.

    The sequences of a bucket are shuffled and cut into batches, the last of which may be
    smaller. Then the batches of all buckets are shuffled, so that lengths mix over the epoch.
    The same arguments and generator state give the same batches.

    Args:
        lengths: (n,) of the sequences; n may be 0, which gives no batches.
        boundaries: (Q,) inclusive upper lengths of the buckets, strictly increasing.
        batch_size: Sequences per batch, at least 1.
        rng: The only source of randomness.

    Returns:
        Positions, int64 (B,) per batch, B up to ``batch_size``.

    Raises:
        UsageError: A length beyond the last boundary, a batch size below 1.
    """
    if batch_size < 1:
        raise UsageError(f"expected a batch size of at least 1, got {batch_size}")
    order, bucket = _shuffled_buckets(np.asarray(lengths), np.asarray(boundaries), rng)
    edges = np.concatenate(([0], np.cumsum(np.bincount(bucket)))).tolist()
    cuts = [
        (start, min(start + batch_size, stop))
        for first, stop in pairwise(edges)
        for start in range(first, stop, batch_size)
    ]
    return [order[slice(*cuts[k])] for k in rng.permutation(len(cuts))]


def _shuffled_buckets(
    lengths: NDArray[Any], boundaries: NDArray[Any], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All positions, bucket by bucket and shuffled inside each, and their ascending buckets."""
    bucket = np.searchsorted(boundaries, lengths)  # first boundary >= length
    if bucket.size and bucket.max() == len(boundaries):
        raise UsageError(f"expected lengths up to the last boundary, got {lengths.max()}")
    order = rng.permutation(len(lengths))
    order = order[np.argsort(bucket[order], kind="stable")]
    return order, bucket[order]


def padding_share(lengths: ArrayLike, batches: list[NDArray[np.int64]]) -> float:
    """Share of padding when each batch is padded to its longest sequence, in [0, 1).

    Args:
        lengths: (n,) of the sequences.
        batches: As from :func:`epoch_batches`: positions into ``lengths``, none empty.
    """
    if not batches:
        return 0.0
    sizes = [len(batch) for batch in batches]
    visited = np.asarray(lengths)[np.concatenate(batches)]
    longest = np.maximum.reduceat(visited, np.cumsum([0, *sizes[:-1]]))
    return padding(visited.sum().item(), frames_cost(longest, sizes))
