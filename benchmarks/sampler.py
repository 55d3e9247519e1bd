"""How long a BucketBatchSampler takes to give an epoch, and what ranks lose waiting for each other.

The limit is 0.5 s for all batches of an epoch of 1 million lengths, on one core. Beside it the time
that a rank waits: a step of data parallel training lasts as long as its longest batch, so with
batches dealt as they come most ranks wait in most steps. Counted in padded frames.

    python benchmarks/sampler.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn import BucketBatchSampler

RANKS = (1, 2, 6)


def main() -> int:
    """Measure and print."""
    options = _parse()
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.lognormal(np.log(300) - 0.245, 0.7, options.n), 1, 2000).astype(np.int64)
    print(f"{options.n} log-normal lengths, Q = {options.buckets}, B = {options.batch_size}")
    print("ranks   epoch, wall s (range)      CPU s   waiting   dealt as they come")
    for world_size in RANKS:

        def sampler(rank: int | None, world_size: int = world_size) -> BucketBatchSampler:
            return BucketBatchSampler(
                lengths,
                options.buckets,
                batch_size=options.batch_size,
                seed=1,
                rank=rank,
                world_size=world_size,
            )

        _row(lengths, sampler, world_size, options.repeats)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=1_000_000, help="lengths")
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=15, help="epochs that are timed")
    return parser.parse_args()


def _row(
    lengths: NDArray[np.int64],
    sampler: Callable[[int | None], BucketBatchSampler],
    world_size: int,
    repeats: int,
) -> None:
    one = sampler(0)
    walls, cpus = zip(*(_timed(lambda: list(one)) for _ in range(repeats)), strict=True)
    ours = list(sampler(None))
    mixed = [ours[k] for k in np.random.default_rng(1).permutation(len(ours))]
    print(
        f"{world_size:5}   {statistics.median(walls):.3f} ({min(walls):.3f} to {max(walls):.3f})"
        f"  {statistics.median(cpus):9.3f}"
        f"  {_waiting(lengths, ours, world_size):8.1%}  {_waiting(lengths, mixed, world_size):8.1%}"
    )


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _waiting(lengths: NDArray[np.int64], batches: list[list[int]], world_size: int) -> float:
    """Share of the ranks' time that is waiting, a batch costing its padded frames."""
    cost = np.array([len(batch) * lengths[batch].max() for batch in batches])
    steps = cost.reshape(-1, world_size)
    return float(1 - steps.sum() / (steps.max(axis=1).sum() * world_size))


if __name__ == "__main__":
    sys.exit(main())
