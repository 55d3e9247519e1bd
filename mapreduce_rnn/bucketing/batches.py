"""Random batches inside length buckets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.cost import frames_cost, padding
from mapreduce_rnn.bucketing.limits import Number, check_limits, cut_batches, warn_oversized
from mapreduce_rnn.errors import UsageError

_Array = NDArray[Any]
_Positions = NDArray[np.int64]


def epoch_batches(
    lengths: ArrayLike,
    boundaries: ArrayLike,
    batch_size: int | None,
    rng: np.random.Generator,
    *,
    max_frames: Number | None = None,
    counts: ArrayLike | None = None,
) -> list[_Positions]:
    """Batches of one epoch: positions into ``lengths``, together a permutation of all.

    The sequences of a bucket are shuffled and cut into batches, the last of which may be
    smaller. Then the batches of all buckets are shuffled, so that lengths mix over the epoch.
    The same arguments and generator state give the same batches.

    Args:
        lengths: (n,) of the sequences; n may be 0, which gives no batches.
        boundaries: (Q,) inclusive upper lengths of the buckets, strictly increasing.
        batch_size: Most sequences in a batch; None where ``max_frames`` alone is the limit.
        rng: The only source of randomness.
        max_frames: Most frames in a batch that is padded to its longest sequence. A longer
            sequence goes alone, and a warning is logged once.
        counts: (Q,) sequences per bucket, from aligned cuts with split ties: of the sequences as
            long as a boundary, a random choice goes to the bucket above in each epoch.

    Returns:
        Positions, int64 (B,) per batch, B up to ``batch_size``.

    Raises:
        UsageError: A length beyond the last boundary, no limit or one that is not positive,
            counts of another set of lengths.
    """
    check_limits(batch_size, max_frames)
    row, limits = np.asarray(lengths), np.asarray(boundaries)
    if max_frames is not None:
        warn_oversized(row, max_frames)
    bucket = _buckets(row, limits) if counts is None else _counted(row, limits, counts, rng)
    order = rng.permutation(len(row))
    narrow = bucket.astype(np.min_scalar_type(len(limits)))  # few bits: numpy sorts by radix
    order = order[np.argsort(narrow[order], kind="stable")]
    edges = np.concatenate(([0], np.cumsum(np.bincount(bucket)))).tolist()
    batches = [
        members[cut]
        for members in (order[first:stop] for first, stop in pairwise(edges))
        for cut in cut_batches(row[members], batch_size=batch_size, max_frames=max_frames)
    ]
    return [batches[k] for k in rng.permutation(len(batches))]


def _buckets(lengths: _Array, boundaries: _Array) -> _Positions:
    """Bucket of each sequence: the first whose boundary is not below its length."""
    bucket = np.searchsorted(boundaries, lengths)
    if bucket.size and bucket.max() == len(boundaries):
        raise UsageError(f"expected lengths up to the last boundary, got {lengths.max()}")
    return bucket


def _counted(
    lengths: _Array, boundaries: _Array, counts: ArrayLike, rng: np.random.Generator
) -> _Positions:
    """Bucket of each sequence by rank, the shortest first; the order of equals is random."""
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    sizes = np.asarray(counts)
    if sizes.shape != boundaries.shape or sizes.sum() != len(lengths):
        raise UsageError(f"expected counts of {len(lengths)} sequences, got {sizes.sum()}")
    bucket = np.empty(len(lengths), np.int64)
    bucket[order] = np.repeat(np.arange(len(sizes)), sizes)
    if (lengths > boundaries[bucket]).any():
        raise UsageError("expected boundaries and counts from the same lengths, got a longer one")
    return bucket


def padding_share(lengths: ArrayLike, batches: list[_Positions]) -> float:
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
