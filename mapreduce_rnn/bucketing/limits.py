"""How large a batch may be: a number of sequences, a number of padded frames, or both."""

from __future__ import annotations

import logging
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.errors import UsageError

log = logging.getLogger(__name__)

Number = int | float

_MANY = 1 << 53  # more sequences than a batch ever has, and a whole number in float64


def check_limits(batch_size: int | None, max_frames: Number | None) -> None:
    """Refuse limits below 1, and none at all, with a :class:`UsageError`."""
    if batch_size is None and max_frames is None:
        raise UsageError("expected a limit of a batch: give batch_size, max_frames or both")
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"expected a batch size of at least 1, got {batch_size}")
    if max_frames is not None and not 0 < max_frames < float("inf"):
        raise UsageError(f"expected a frame limit above 0, got {max_frames}")


def full_batches(
    lengths: ArrayLike, *, batch_size: int | None = None, max_frames: Number | None = None
) -> NDArray[np.float64]:
    """Most sequences of each length that a batch may hold:

        b(L) = min(batch_size, max(1, floor(max_frames / L)))

    It never grows with L. A sequence longer than ``max_frames`` goes alone.

    Args:
        lengths: (k,) positive, in any order.
        batch_size: Most sequences in a batch.
        max_frames: Most frames in a padded batch.

    Returns:
        (k,) whole numbers; at least one limit must be given.
    """
    row, most = np.asarray(lengths), min(batch_size or _MANY, _MANY)
    if max_frames is None:
        return np.full(row.shape, most, np.float64)
    # Integers too wide for int64 are divided as Python's: exactly.
    limit = np.array(max_frames, object if max_frames >= 2**63 else None)
    sizes: NDArray[np.float64] = np.clip(limit // row, 1, most).astype(np.float64)
    return sizes


def cut_batches(
    lengths: ArrayLike, *, batch_size: int | None = None, max_frames: Number | None = None
) -> list[slice]:
    """Cut sequences, in the order given, into the fewest batches that keep the limits.

    A batch takes sequences until the next would break a limit. Its padded size is the number of
    its sequences times the longest of them.

    Args:
        lengths: (n,) positive, as they will be padded: where a batch is padded to a boundary
            rather than to its longest sequence, that boundary for each.
        batch_size: Most sequences in a batch.
        max_frames: Largest padded size of a batch. A sequence that is longer goes alone, and its
            batch is the only kind that exceeds the limit.

    Returns:
        One slice per batch, in order, none empty; together they cover 0 .. n.

    Raises:
        UsageError: No limit, or one that is not positive.
    """
    check_limits(batch_size, max_frames)
    row = np.asarray(lengths)
    if max_frames is None:
        assert batch_size is not None
        starts = list(range(0, len(row), batch_size))
    else:
        starts = _greedy_starts(row.tolist(), batch_size or len(row), max_frames)
    return [slice(*edges) for edges in pairwise([*starts, len(row)])]


def _greedy_starts(lengths: list[Number], batch_size: int, max_frames: Number) -> list[int]:
    """Where each batch begins."""

    def end(start: int, longest: Number) -> int:
        """Where a batch is full at the latest; one sequence always fits."""
        return start + max(1, min(batch_size, int(max_frames // longest)))

    starts: list[int] = []
    full, longest = 0, lengths[0] if lengths else 0
    for position, length in enumerate(lengths):
        if position < full and length > longest:
            full, longest = end(starts[-1], length), length
        if position >= full:
            starts.append(position)
            full, longest = end(position, length), length
    return starts


def warn_oversized(lengths: ArrayLike, max_frames: Number) -> None:
    """Log, once for the same facts, how many sequences alone exceed the frame limit."""
    row = np.asarray(lengths)
    if row.size and row.max() > max_frames:
        _warn(int(np.count_nonzero(row > max_frames)), row.max().item(), max_frames)


@cache
def _warn(sequences: int, longest: Number, max_frames: Number) -> None:
    log.warning(
        "%d sequences are longer than the limit of %s frames and go alone, the longest with %s: "
        "raise the limit or leave them out",
        sequences,
        max_frames,
        longest,
    )
