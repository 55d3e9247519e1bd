"""What an epoch fixes: which slot trains on what, in which batches; how validation is dealt.

The master plans with these functions and the workers train with them, so both always mean the
same batches.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import Buckets, epoch_batches, optimal_buckets
from mapreduce_rnn.config import BatchConfig
from mapreduce_rnn.seeds import batch_generator

Positions = NDArray[np.int64]


def slot_batches(
    lengths: NDArray[np.int64], options: BatchConfig, seed: int, epoch: int, slot: int
) -> tuple[Buckets, list[Positions]]:
    """Solve the bucketing program on one shard and draw its batches for one epoch.

    Args:
        lengths: int64 (n,), n >= 1: frames of each sequence of the shard.

    Returns:
        The buckets, and the batches in training order as positions in ``lengths``; together they
        hold every position once.
    """
    buckets = optimal_buckets(lengths, options.buckets)
    rng = batch_generator(seed, epoch, slot)
    return buckets, epoch_batches(lengths, buckets.boundaries, options.batch_size, rng)


def deal_by_length(lengths: NDArray[np.int64], n_slots: int) -> list[Positions]:
    """Validation sequences of each slot: the same every time, lengths spread evenly.

    Returns positions in ``lengths``; sizes differ by at most 1.
    """
    order = np.argsort(lengths, kind="stable")
    return [order[slot::n_slots] for slot in range(n_slots)]


def length_batches(lengths: NDArray[np.int64], batch_size: int) -> list[Positions]:
    """Batches of neighbours in length, the longest first so that memory is short at once or never.

    Returns positions in ``lengths``.
    """
    order = np.argsort(-lengths, kind="stable")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
