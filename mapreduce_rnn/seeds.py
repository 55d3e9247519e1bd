"""All random draws of a run come from these streams; no generator state is ever stored.

    (0, epoch)            shuffle and shards of an epoch
    (0, epoch, slot)      batch list of a slot
    (1, round, slot)      draws inside a map task (dropout)
    (2,)                  initial model
    (3, epoch)            batches of a BucketBatchSampler, all ranks together

A key is the ``spawn_key`` of ``SeedSequence(seed)``, not more entropy beside the seed: numpy pads
short entropy with zeros, so ``SeedSequence((s, 0, 5))`` and ``SeedSequence((s, 0, 5, 0))`` are the
same stream and slot 0 would draw its batches with the numbers that dealt the shards.
"""

from __future__ import annotations

import numpy as np


def shard_generator(seed: int, epoch: int) -> np.random.Generator:
    """Deals the sequences of an epoch to the slots."""
    return np.random.default_rng(_stream(seed, 0, epoch))


def batch_generator(seed: int, epoch: int, slot: int) -> np.random.Generator:
    """Draws the batches of a slot."""
    return np.random.default_rng(_stream(seed, 0, epoch, slot))


def task_seed(seed: int, round: int, slot: int) -> int:
    """Seed for torch inside a map task, below 2^63."""
    return _torch_seed(_stream(seed, 1, round, slot))


def model_seed(seed: int) -> int:
    """Seed for torch when the initial model is built, below 2^63."""
    return _torch_seed(_stream(seed, 2))


def sampler_generator(seed: int, epoch: int) -> np.random.Generator:
    """Draws the batches of an epoch in :class:`mapreduce_rnn.bucketing.BucketBatchSampler`."""
    return np.random.default_rng(_stream(seed, 3, epoch))


def _stream(seed: int, *key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=key)


def _torch_seed(stream: np.random.SeedSequence) -> int:
    return int(stream.generate_state(1, np.uint64)[0] >> np.uint64(1))
