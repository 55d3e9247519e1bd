"""Curricula: which part of the data an epoch sees while training begins with short sequences.

Both are functions of the epoch alone. Once all data is in play, epochs are as without a curriculum.
"""

from __future__ import annotations

import math

_START = 0.01  # c_0, the competence at the very beginning that Platanios et al. use


def buckets_in_play(epoch: int, epochs: int, n_buckets: int) -> int:
    """Buckets of the shortest sequences that an epoch draws from: a part more in each epoch.

    The curriculum of Khomenko et al. 2016 (arXiv 1708.05604): training starts with the shorter
    sequences, and the number of buckets grows every epoch; with fewer buckets than ``epochs``,
    some epochs add none.

    Args:
        epoch: From 1.
        epochs: The first epoch that has all buckets, at least 1.
        n_buckets: All buckets, at least 1.

    Returns:
        The least whole number not below ``n_buckets`` x epoch / epochs, at most ``n_buckets``.
    """
    return min(n_buckets, -(-n_buckets * epoch // epochs))


def competence(epoch: int, epochs: int) -> float:
    """Share of the data, shortest first, that an epoch draws from: square-root competence.

    Platanios et al. 2019 (arXiv 1903.09848), once per epoch instead of once per step: t is the
    epoch, T the epochs until all data is in play, and

        c(t) = min(1, sqrt(t (1 - c_0^2) / T + c_0^2)),  c_0 = 0.01

    The square root lets new data in at a rate that falls as 1 / c: the more is in play, the longer
    it takes to see all of it as often.

    Args:
        epoch: t, from 1.
        epochs: T, at least 1: epoch T and all later ones have everything.

    Returns:
        c(t), above 0 and at most 1.
    """
    if epoch >= epochs:
        return 1.0  # not left to rounding
    return math.sqrt(epoch * (1 - _START**2) / epochs + _START**2)
