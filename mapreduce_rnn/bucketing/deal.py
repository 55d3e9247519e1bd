"""Batches of one epoch dealt to ranks that step together, as in data parallel training.

A step is one batch on every rank, and it lasts as long as its slowest batch. So batches of similar
length share a step, and the steps are shuffled: the order stays random, no rank waits for another
that has the long sequences. Which sequences share a batch is not touched, with one exception: the
number of batches must be a multiple of the number of ranks, or some rank would end its epoch
before the others and leave them waiting. The largest batches are split for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = NDArray[np.int64]  # (B,) positions
Step = list[Batch]  # up to world_size batches
Fits = Callable[[NDArray[np.int64], NDArray[Any]], NDArray[np.bool_]]


def deal(
    batches: list[Batch],
    lengths: NDArray[Any],
    world_size: int,
    fits: Fits,
    rng: np.random.Generator,
) -> list[Step]:
    """Steps of an epoch: every batch once, rank r takes the r-th of each step.

    Args:
        batches: Positions into ``lengths``, none empty, in random order.
        lengths: (n,) of the sequences.
        world_size: Ranks, at least 1. One rank keeps the batches and their order.
        fits: Whether batches of these sizes (k,) and longest lengths (k,) are allowed, bool (k,).
        rng: The only source of randomness.

    Returns:
        Steps of ``world_size`` batches. Only where no multiple of ``world_size`` can be had within
        the limits (fewer sequences than ranks, say) a last step has fewer.
    """
    if world_size == 1:
        return [[batch] for batch in batches]
    batches = _multiple(batches, lengths, world_size, fits)
    order = np.argsort(_longest(batches, lengths), kind="stable")
    whole = len(batches) - len(batches) % world_size
    steps = rng.permuted(rng.permutation(order[:whole].reshape(-1, world_size)), axis=1)
    rest = [order[whole:]] if whole < len(batches) else []
    return [[batches[k] for k in step] for step in [*steps, *rest]]


def _longest(batches: list[Batch], lengths: NDArray[Any]) -> NDArray[Any]:
    """Length of each batch's longest sequence, (k,)."""
    starts = np.cumsum([0, *(len(batch) for batch in batches[:-1])])
    return np.maximum.reduceat(lengths[np.concatenate(batches)], starts)


def _multiple(
    batches: list[Batch], lengths: NDArray[Any], world_size: int, fits: Fits
) -> list[Batch]:
    """The batches, some split or merged so that their number is a multiple of ``world_size``."""
    missing = -len(batches) % world_size
    if len(batches) + missing <= sum(len(batch) for batch in batches):
        return _split(batches, missing)
    return _merge(batches, lengths, len(batches) % world_size, fits)


def _split(batches: list[Batch], times: int) -> list[Batch]:
    """Halve the largest batch, ``times`` times; there are enough sequences for it."""
    heap = [(-len(batch), k) for k, batch in enumerate(batches)]
    heapq.heapify(heap)
    batches = list(batches)
    for _ in range(times):
        _, k = heap[0]
        half = len(batches[k]) // 2
        batches[k], new = batches[k][half:], batches[k][:half]
        heapq.heapreplace(heap, (-len(batches[k]), k))
        heapq.heappush(heap, (-len(new), len(batches)))
        batches.append(new)
    return batches


def _merge(batches: list[Batch], lengths: NDArray[Any], times: int, fits: Fits) -> list[Batch]:
    """Join neighbours in length, ``times`` times; unchanged where limits don't allow that.

    This is for batches of single sequences, where there is nothing to split.
    """
    longest = _longest(batches, lengths)
    order = np.argsort(longest, kind="stable")
    joined, longest = [batches[k] for k in order], longest[order]
    for _ in range(times):
        sizes = np.array([len(batch) for batch in joined])
        added = sizes[:-1] * np.diff(longest).astype(np.float64)  # frames of padding
        added[~fits(sizes[:-1] + sizes[1:], longest[1:])] = np.inf
        if not np.isfinite(added).any():
            return batches
        k = int(added.argmin())
        joined[k : k + 2] = [np.concatenate(joined[k : k + 2])]
        longest = np.delete(longest, k)
    return joined
