"""The parts of an epoch's sequences that the slots train on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.seeds import shard_generator


def epoch_shards(
    lengths: NDArray[np.int64], n_slots: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:
    """Deal the sequences of an epoch to the slots: one shard of positions per slot, ascending.

    Sequences are sorted by length and every ``n_slots`` neighbours go to the slots in random
    order, one each, so that all slots get the same number of sequences, give or take one, and
    nearly the same lengths: a round lasts as long as its slowest slot.

    Args:
        lengths: int64 (n,), frames of each sequence.
        n_slots: At least 1.
        seed: The run's.
        epoch: Counted from 1; each has shards of its own.

    Returns:
        int64 (n_s,) per slot. Every position 0..n-1 is in exactly one; with fewer sequences than
        slots some are empty.
    """
    rng = shard_generator(seed, epoch)
    groups = -(-len(lengths) // n_slots)
    hands = np.full((groups, n_slots), -1, dtype=np.int64)  # -1: no sequence is left
    hands.flat[: len(lengths)] = np.argsort(lengths, kind="stable")
    hands = rng.permuted(hands, axis=1)
    return [np.sort(hand[hand >= 0]) for hand in hands.T]
