"""What an epoch fixes: which slot trains on what, in which batches; how validation is dealt.

The master plans with these functions and the workers train with them, so both always mean the
same batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import (
    Buckets,
    CostModel,
    buckets_in_play,
    competence,
    cut_batches,
    epoch_batches,
    optimal_buckets,
    parse_cost,
)
from mapreduce_rnn.config import BatchConfig
from mapreduce_rnn.seeds import batch_generator

Lengths = NDArray[np.int64]
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class SlotEpoch:
    """What one slot trains on in one epoch.

    Attributes:
        buckets: The cheapest partition of the sequences in play.
        batches: Positions in the shard, int64 (B,) each, in training order.
        padded: int64 (number of batches,): frames that each batch is padded to.
        held_back: Sequences that a curriculum keeps out of this epoch; the batches hold every
            other one once.
    """

    buckets: Buckets
    batches: list[Positions]
    padded: NDArray[np.int64]
    held_back: int


def slot_epoch(
    lengths: Lengths, options: BatchConfig, seed: int, epoch: int, slot: int
) -> SlotEpoch:
    """Solve the bucketing program on one shard and draw its batches for one epoch.

    Args:
        lengths: int64 (n,), n >= 1: frames of each sequence of the shard.
        options: Resolved: a number of buckets, and a cost that is not still to be measured.
        epoch: From 1; it decides the draws, and what a curriculum has in play.
    """
    positions, n_buckets = _in_play(lengths, options, epoch)
    played = lengths[positions]
    buckets = _solve(played, options, n_buckets)
    drawn = _draw(played, buckets, options, batch_generator(seed, epoch, slot))
    longest = np.array([played[batch].max() for batch in drawn])
    return SlotEpoch(
        buckets=buckets,
        batches=[positions[batch] for batch in drawn],
        padded=longest if options.pad_to == "longest" else _boundaries(buckets, longest),
        held_back=len(lengths) - len(positions),
    )


def cost_of(options: BatchConfig) -> CostModel:
    """The cost model that the partition minimises; UsageError if it cannot be read."""
    return parse_cost(
        options.bucket_cost, batch_size=options.batch_size, max_frames=options.max_frames
    )


def alignment(options: BatchConfig) -> int | None:
    """Batch size that cuts are aligned to: where shapes are static, a partial batch is dear.

    Where batches are padded to their longest sequence, a partial one costs its part only and the
    plain optimum is the better one (measured: aligned cuts cost up to 8 % more on small shards).
    With a limit in frames, batches of a bucket have no one size to align to.
    """
    static = options.pad_to == "boundary" and options.max_frames is None
    return options.batch_size if static else None


def curriculum_holds_back(options: BatchConfig, epoch: int) -> bool:
    """Whether an epoch, from 1, leaves out long sequences."""
    return options.curriculum != "none" and epoch < options.curriculum_epochs


def _in_play(lengths: Lengths, options: BatchConfig, epoch: int) -> tuple[Positions, int]:
    """Positions of the sequences that the curriculum lets in, and into how many buckets."""
    assert isinstance(options.buckets, int)
    last, n_buckets = options.curriculum_epochs, options.buckets
    if not curriculum_holds_back(options, epoch):
        return np.arange(len(lengths)), n_buckets
    if options.curriculum == "growing-buckets":
        boundaries = _solve(lengths, options, n_buckets).boundaries
        n_buckets = buckets_in_play(epoch, last, len(boundaries))
        limit = boundaries[n_buckets - 1]
    else:
        share = int(np.ceil(competence(epoch, last) * len(lengths)))
        limit = np.partition(lengths, share - 1)[share - 1]
    return np.flatnonzero(lengths <= limit), n_buckets


def _solve(lengths: Lengths, options: BatchConfig, n_buckets: int) -> Buckets:
    return optimal_buckets(lengths, n_buckets, cost=cost_of(options), align=alignment(options))


def _draw(
    lengths: Lengths, buckets: Buckets, options: BatchConfig, rng: np.random.Generator
) -> list[Positions]:
    """Batches within the limits, which hold for the frames that are fed."""
    if alignment(options) is not None:
        return epoch_batches(
            lengths, buckets.boundaries, options.batch_size, rng, counts=buckets.counts
        )
    fed = lengths if options.pad_to == "longest" else _boundaries(buckets, lengths)
    return epoch_batches(
        fed, buckets.boundaries, options.batch_size, rng, max_frames=options.max_frames
    )


def _boundaries(buckets: Buckets, lengths: Lengths) -> NDArray[np.int64]:
    """The lowest boundary that each length stays within."""
    boundaries = np.array(buckets.boundaries)
    return boundaries[np.searchsorted(boundaries, lengths)]


def deal_by_length(lengths: NDArray[np.int64], n_slots: int) -> list[Positions]:
    """Validation sequences of each slot: the same every time, lengths spread evenly.

    Returns positions in ``lengths``; sizes differ by at most 1.
    """
    order = np.argsort(lengths, kind="stable")
    return [order[slot::n_slots] for slot in range(n_slots)]


def length_batches(lengths: Lengths, options: BatchConfig) -> list[Positions]:
    """Batches of neighbours in length, the longest first so that memory is short at once or never.

    Returns positions in ``lengths``; the batches keep the limits that those of training keep.
    """
    order = np.argsort(-lengths, kind="stable")
    cuts = cut_batches(lengths[order], batch_size=options.batch_size, max_frames=options.max_frames)
    return [order[cut] for cut in cuts]
