"""Whether `--buckets auto` takes a good number: planned against measured time of an epoch.

For each store: the probe of `--bucket-cost measured` times training steps, the plan says what an
epoch costs with 1 to 32 buckets, counted in frames and in measured time, and then every one of
these epochs is trained: a map task as a worker runs it, in passes over all numbers of buckets,
each pass in another order. Times are CPU seconds of one thread, medians over the passes, shown
relative to the fastest.

The least of 32 noisy times is too low, so what auto takes is compared with the three fastest in
passes of their own. The limit is 1; the aim is below 1.03.

    python benchmarks/buckets_auto.py --data stores/kanji stores/words
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from mapreduce_rnn.bucketing import Choice
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.plan import choose_buckets, resolve_config, with_bucket_cost, with_buckets
from mapreduce_rnn.probe import make_probe, measured_cost
from mapreduce_rnn.protocol.messages import MapTask, prefixed
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.workers.maptask import Context, make_context, map_task
from mapreduce_rnn.workers.probe import probe_task

MOST = 32
FINALISTS = 3


def main() -> int:
    """Measure and print; exit code 0 also when there is no data."""
    options = _parse()
    if not options.data:
        print("buckets_auto: skipped, no store: give --data FOLDER or set MAPREDUCE_RNN_DATA")
        return 0
    torch.set_num_threads(1)
    for folder in options.data:
        _measure(folder, options)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = os.environ.get("MAPREDUCE_RNN_DATA")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[Path(data)] if data else [], help="stores"
    )
    parser.add_argument("--slots", type=int, default=2, help="the epoch is that of one of them")
    parser.add_argument("--units", type=int, default=32, help="LSTM units per direction")
    parser.add_argument("--passes", type=int, default=2, help="over 1 to 32 buckets")
    parser.add_argument("--finals", type=int, default=7, help="passes over auto and the fastest")
    return parser.parse_args()


def _measure(folder: Path, options: argparse.Namespace) -> None:
    store = Store.open(folder)
    config = override(TrainConfig(), {"units": options.units}, "buckets_auto")
    config = resolve_config(config, slots=options.slots, threads=1, device="cpu")
    context = make_context(config, store, torch.device("cpu"))
    indices = store.split("train")
    lengths = store.lengths[indices]
    probe = make_probe(module_arrays(context.model), indices)
    cost, line = measured_cost(probe_task(context, probe, lambda steps: None), "cpu")
    choices = {
        "frames": choose_buckets(config, lengths),
        "measured": choose_buckets(with_bucket_cost(config, cost), lengths),
    }
    shard = indices[epoch_shards(lengths, options.slots, config.run.seed, epoch=1)[0]]
    print(f"\n{folder.name}: one epoch of {len(shard):,} sequences, batches of 32\n{line}")
    seconds = _medians(context, shard, range(1, MOST + 1), options.passes)
    _print(choices, seconds)
    fastest = sorted(seconds, key=lambda q: seconds[q])[:FINALISTS]
    finals = {*fastest, *(choice.n_buckets for choice in choices.values())}
    _print_finals(choices, _medians(context, shard, finals, options.finals))


def _medians(
    context: Context, shard: np.ndarray, numbers: Iterable[int], passes: int
) -> dict[int, float]:
    """Median CPU seconds of an epoch by number of buckets, each pass in another order."""
    rng = np.random.default_rng(1)
    spent: dict[int, list[float]] = {q: [] for q in sorted(numbers)}
    for _ in range(passes):
        for q in rng.permutation(list(spent)).tolist():
            spent[q].append(_epoch(context, shard, q))
    return {q: statistics.median(seconds) for q, seconds in spent.items()}


def _epoch(context: Context, shard: np.ndarray, n_buckets: int) -> float:
    context = dataclasses.replace(context, config=with_buckets(context.config, n_buckets))
    arrays = {**prefixed("model/", module_arrays(context.model)), "shard": shard}
    task = MapTask(round=1, slot=0, attempt=1, epoch=1, arrays=arrays)
    began = time.process_time()
    map_task(context, task, lambda steps: None)
    return time.process_time() - began


def _print(choices: dict[str, Choice], seconds: dict[int, float]) -> None:
    """Times relative to the least of their column; what auto takes is marked."""
    fastest = min(seconds.values())
    print("buckets  planned, frames  planned, measured    CPU s   real time")
    for q, spent in seconds.items():
        row = [f"{q:7}"]
        for width, choice in zip((13, 15), choices.values(), strict=True):
            mark = "*" if q == choice.n_buckets else " "
            row.append(f"{_relative(choice.planned, q):>{width}} {mark}")
        print("  ".join([*row, f"{spent:8.2f}", f"{spent / fastest:8.3f} x"]))


def _print_finals(choices: dict[str, Choice], seconds: dict[int, float]) -> None:
    fastest = min(seconds, key=lambda q: seconds[q])
    print("finals:", ", ".join(f"{q} buckets {spent:.2f} s" for q, spent in seconds.items()))
    for name, choice in choices.items():
        ratio = seconds[choice.n_buckets] / seconds[fastest]
        print(f"auto, {name}: {choice.reason}; {ratio:.3f} of the time with {fastest}")


def _relative(planned: tuple[float, ...], q: int) -> str:
    return f"{planned[q - 1] / min(planned):.3f} x" if q <= len(planned) else "-"


if __name__ == "__main__":
    sys.exit(main())
