"""An epoch of a shard in the best buckets, and in those that others would cut.

Nothing is trained or timed: the batches of one epoch are drawn as training draws them, and the
cost model prices each. Other partitions get the same number of buckets, limits, padding and
stream of random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import (
    Choice,
    CostModel,
    batches_cost,
    epoch_batches,
    equal_counts,
    fixed_widths,
)
from mapreduce_rnn.config import BatchConfig, TrainConfig
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.epochs import cost_of, slot_epoch
from mapreduce_rnn.plan import choose_buckets, with_buckets
from mapreduce_rnn.seeds import batch_generator

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]

EPOCH = 1
"""The epoch that is looked at; others differ by their random draws only."""


@dataclass(frozen=True)
class Partition:
    """An epoch of a shard in the buckets of one partition; arrays have an entry per bucket."""

    boundaries: _Ints  # (Q,) inclusive upper lengths, frames
    sequences: _Ints  # (Q,)
    batches: _Ints  # (Q,)
    own: _Ints  # (Q,) frames without padding
    fed: _Ints  # (Q,) frames with padding
    costs: _Floats  # (Q,) of the batches, in the unit of the cost model


@dataclass(frozen=True)
class Survey:
    """A shard in its own buckets, and in those of others."""

    options: BatchConfig  # with a number of buckets
    choice: Choice  # planned cost by number of buckets
    automatic: bool  # whether that number was left open
    slots: int
    slot: int  # whose shard it is: the first that has sequences
    total: int  # training sequences over all slots
    lengths: _Ints  # (n,) frames of the shard's sequences
    ours: Partition
    others: dict[str, Partition]  # by name


def survey(config: TrainConfig, lengths: _Ints) -> Survey:
    """Draw the first epoch of the first shard in our buckets and in those of others.

    Args:
        config: With a number of map tasks; its bucket cost is not still to be measured.
        lengths: int64 (n,), n >= 1: frames of every training sequence.

    Raises:
        UsageError: The bucket cost can't be read, or is a table that ends too soon.
    """
    slots, seed = config.mapreduce.map_tasks, config.run.seed
    assert slots is not None
    choice, automatic = choose_buckets(config, lengths), config.batches.buckets == "auto"
    if automatic:
        config = with_buckets(config, choice.n_buckets)
    shards = epoch_shards(lengths, slots, seed, EPOCH)
    slot = next(slot for slot, shard in enumerate(shards) if len(shard))
    shard = lengths[shards[slot]]
    return Survey(
        options=config.batches,
        choice=choice,
        automatic=automatic,
        slots=slots,
        slot=slot,
        total=len(lengths),
        lengths=shard,
        ours=_ours(shard, config.batches, seed, slot),
        others={
            name: _other(shard, boundaries, config.batches, batch_generator(seed, EPOCH, slot))
            for name, boundaries in _other_boundaries(shard, config.batches).items()
        },
    )


def _ours(lengths: _Ints, options: BatchConfig, seed: int, slot: int) -> Partition:
    epoch = slot_epoch(lengths, options, seed, EPOCH, slot)
    boundaries = np.array(epoch.buckets.boundaries)
    return _partition(lengths, boundaries, epoch.batches, epoch.padded, cost_of(options))


def _other_boundaries(lengths: _Ints, options: BatchConfig) -> dict[str, Sequence[int | float]]:
    assert isinstance(options.buckets, int)
    return {
        "equal counts": equal_counts(lengths, options.buckets),
        "fixed widths": fixed_widths(lengths, options.buckets),
        "no bucketing": (int(lengths.max()),),
    }


def _other(
    lengths: _Ints,
    boundaries: Sequence[int | float],
    options: BatchConfig,
    rng: np.random.Generator,
) -> Partition:
    limits = np.array(boundaries)
    fed = lengths if options.pad_to == "longest" else limits[np.searchsorted(limits, lengths)]
    batches = epoch_batches(fed, limits, options.batch_size, rng, max_frames=options.max_frames)
    padded = np.array([fed[batch].max() for batch in batches])
    return _partition(lengths, limits, batches, padded, cost_of(options))


def _partition(
    lengths: _Ints, boundaries: _Ints, batches: list[_Ints], padded: _Ints, cost: CostModel
) -> Partition:
    """Sums over the batches of each bucket: the first whose boundary holds the padded length."""
    bucket = np.searchsorted(boundaries, padded)
    sizes = np.array([len(batch) for batch in batches])
    own = np.array([lengths[batch].sum() for batch in batches])

    def sums(values: NDArray[Any]) -> NDArray[Any]:
        total = np.zeros(len(boundaries), values.dtype)
        np.add.at(total, bucket, values)
        return total

    return Partition(
        boundaries=boundaries,
        sequences=sums(sizes),
        batches=sums(np.ones_like(sizes)),
        own=sums(own),
        fed=sums(sizes * padded),
        costs=sums(batches_cost(cost, sizes, padded)),
    )
