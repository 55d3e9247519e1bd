"""How much of an epoch is padding, bucketing by bucketing.

Padded frames of an epoch / real frames. A batch counts its size times its longest sequence, or
times its bucket's boundary, which is what the optimal program minimises. Beside ours:

- without buckets: plain shuffle, all sorted by length, and HuggingFace's length grouping (random
  groups of 50 batches, sorted inside);
- other boundaries for the same random batches: equal counts, fixed widths, and those of lhotse's
  `estimate_duration_buckets` (equal total duration).

The script fails unless ours costs what a second, quadratic solver finds, and no other boundaries
cost less. Lists: log-normal lengths; the training lines of a store and the samples of
unipen-text.npz, as far as --data names the store and the folder of the other.

    pip install -c constraints.txt lhotse urllib3 transformers     # or they are skipped
    python benchmarks/padding.py --data stores/kanji unipen
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import epoch_batches, optimal_buckets, padding_share
from mapreduce_rnn.bucketing.baselines import equal_counts, fixed_widths
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import StoreError

Lengths = NDArray[np.int64]
Batches = list[NDArray[np.int64]]  # positions in the lengths
Boundaries = Callable[[Lengths, int], Any]  # inclusive upper lengths of Q buckets
Order = Callable[[Lengths, int], NDArray[np.int64]]  # from a seed; cut into batches as it comes

BATCH = 64
EPOCHS = 5  # of batches, whose padding is averaged
UNIPEN = "unipen-text.npz"
FAR = np.iinfo(np.int64).max // 2


def main() -> int:
    """Measure and print; exit code 1 if ours is not the optimum, 0 also when data is missing."""
    options = _parse()
    partitions, orders = _partitions(), _orders()
    right = [
        padding(name, lengths, options.buckets, partitions, orders)
        for name, lengths in _lists(options.data).items()
    ]
    return 0 if all(right) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = os.environ.get("MAPREDUCE_RNN_DATA")
    parser.add_argument(
        "--data", type=Path, nargs="+", default=[Path(data)] if data else [], metavar="FOLDER",
        help=f"a store, or a folder with {UNIPEN}",
    )  # fmt: skip
    parser.add_argument("--buckets", type=int, nargs="+", default=[4, 8, 16], metavar="Q")
    return parser.parse_args()


def lognormal() -> Lengths:
    drawn = np.random.default_rng(0).lognormal(np.log(300) - 0.245, 0.7, 50_000)
    return np.clip(drawn, 1, 2000).astype(np.int64)


def _lists(folders: list[Path]) -> dict[str, Lengths]:
    """Lists of lengths by name; says which are missing."""
    print("".join(inspect.getsourcelines(lognormal)[0]))
    unipen = [folder for folder in folders if (folder / UNIPEN).is_file()]
    stores = [folder for folder in folders if folder not in unipen]
    for found, what in ((stores, "store"), (unipen, UNIPEN)):
        if not found:
            print(f"padding: skipped, no {what}: give --data FOLDER or set MAPREDUCE_RNN_DATA\n")
    named = [("log-normal", lognormal())]
    named += [_store(folder) for folder in stores]
    return dict(named + [("UNIPEN text", _unipen(folder / UNIPEN)) for folder in unipen])


def _store(folder: Path) -> tuple[str, Lengths]:
    """What is in a store, and the lengths of its training split."""
    try:
        store = Store.open(folder)
    except StoreError as error:
        sys.exit(f"padding: {error}")
    return store.meta.source, store.lengths[store.split("train")]


def _unipen(file: Path) -> Lengths:
    """Points of each sample that has any."""
    with np.load(file) as arrays:
        lengths: Lengths = np.diff(arrays["stroke_offsets"][arrays["sample_offsets"]])
    return lengths[lengths > 0]


def _partitions() -> dict[str, Boundaries]:
    """Ways to choose Q buckets; ours is the last."""
    partitions: dict[str, Boundaries] = {"equal counts": equal_counts, "fixed widths": fixed_widths}
    estimate = _optional("lhotse.dataset.sampling.dynamic_bucketing", "estimate_duration_buckets")
    if estimate:
        constraint = SimpleNamespace(measure_length=int)

        def lhotse(lengths: Lengths, n_buckets: int) -> NDArray[np.int64]:
            """Its bins say where the next bucket begins; the longest length before it counts."""
            ordered = np.sort(lengths)
            starts = np.searchsorted(ordered, estimate(lengths, n_buckets, constraint))
            return np.unique(ordered[np.append(starts, len(ordered)) - 1])

        partitions["lhotse"] = lhotse
    partitions["ours"] = lambda lengths, n_buckets: optimal_buckets(lengths, n_buckets).boundaries
    return partitions


def _orders() -> dict[str, Order]:
    """Ways that cut one order of all sequences into batches, without buckets."""
    orders: dict[str, Order] = {
        "plain shuffle": lambda lengths, seed: shuffled(len(lengths), seed),
        "sorted": lambda lengths, seed: np.argsort(lengths, kind="stable"),
    }
    group = _optional("transformers.trainer_pt_utils", "get_length_grouped_indices")
    if group:
        orders["HuggingFace grouping"] = lambda lengths, seed: np.array(
            group(lengths.tolist(), BATCH, generator=torch.Generator().manual_seed(seed))
        )
    return orders


def _optional(module: str, name: str) -> Any:
    """A function of a package that only this comparison needs; None if it is not there."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        print(f"{module.split('.')[0]}: skipped: pip install {error.name}")
        return None


def padding(
    name: str,
    lengths: Lengths,
    buckets: list[int],
    partitions: dict[str, Boundaries],
    orders: dict[str, Order],
) -> bool:
    """Print the table of one list; whether ours is the optimum and nothing is lower."""
    print(f"{name}: {len(lengths)} lengths, mean {lengths.mean():.0f}, longest {lengths.max()}")
    print(f"padded / real frames, B = {BATCH}, mean of {EPOCHS} epochs")
    _print_row("", ["to the boundary"], ["to the longest"], "batches", len(buckets))
    columns = [f"Q={q}" for q in buckets]
    _print_row("", columns, columns, f"Q={buckets[-1]}", len(buckets))
    for row, order in orders.items():
        epochs = [cut(order(lengths, seed)) for seed in range(EPOCHS)]
        _print_row(row, ["-"], [_to_longest(lengths, epochs)], len(epochs[0]), len(buckets))
    bounds = {row: [find(lengths, q) for q in buckets] for row, find in partitions.items()}
    for row, found in bounds.items():
        boundary = [f"{_frames(lengths, b) / lengths.sum():.3f}" for b in found]
        batches = [[bucketed(lengths, b, seed) for seed in range(EPOCHS)] for b in found]
        longest = [_to_longest(lengths, epochs) for epochs in batches]
        _print_row(row, boundary, longest, len(batches[-1][0]), len(buckets))
    return _is_optimum(lengths, buckets, bounds)


def _print_row(
    name: str, boundary: list[str], longest: list[str], batches: int | str, n_buckets: int
) -> None:
    """A line of the table: one cell for all numbers of buckets, or one for each."""
    left, right = ("".join(f"{cell:>7}" for cell in cells) for cells in (boundary, longest))
    print(f"  {name:20}{left:>{7 * n_buckets}}  {right:>{7 * n_buckets}}{batches:>9}")


def _is_optimum(lengths: Lengths, buckets: list[int], bounds: dict[str, list[Any]]) -> bool:
    """Compare ours with the second solver and with all other boundaries, and print the result."""
    ours = [_frames(lengths, b) for b in bounds["ours"]]
    equal = ours == [least_frames(lengths, q) for q in buckets]
    others = [[_frames(lengths, b) for b in found] for found in bounds.values()]
    lowest = ours == np.min(others, axis=0).tolist()
    print(f"  ours: {'equal' if equal else 'NOT EQUAL'} to the second solver's optimum, ", end="")
    print(f"{'lowest' if lowest else 'NOT LOWEST'} of all with the same Q\n")
    return equal and lowest


def least_frames(lengths: Lengths, n_buckets: int) -> int:
    """Least padded frames in at most Q buckets, every pair of cuts tried: O(Q m^2), plainly."""
    values, counts = np.unique(lengths, return_counts=True)
    upto = np.concatenate(([0], np.cumsum(counts)))
    bucket = (upto[1:] - upto[:-1, None]) * values  # [i, j]: values i .. j, padded to j
    bucket[np.tril_indices(len(values), -1)] = FAR
    best = bucket[0]
    for _ in range(n_buckets - 1):
        best = np.minimum(best, (best[:-1, None] + bucket[1:]).min(axis=0))
    return int(best[-1])


def _frames(lengths: Lengths, boundaries: Any) -> int:
    """Frames with every sequence padded to its bucket's boundary."""
    return int(np.asarray(boundaries)[np.searchsorted(boundaries, lengths)].sum())


def to_longest(lengths: Lengths, batches: Batches) -> float:
    """Padded / real frames, each batch padded to its longest."""
    return 1 / (1 - padding_share(lengths, batches))


def _to_longest(lengths: Lengths, epochs: list[Batches]) -> str:
    """The mean of some epochs, as a cell of the table."""
    return f"{statistics.mean(to_longest(lengths, batches) for batches in epochs):.3f}"


def shuffled(n: int, seed: int) -> NDArray[np.int64]:
    """Positions 0 .. n - 1 in random order."""
    return np.random.default_rng(seed).permutation(n)


def cut(order: NDArray[np.int64]) -> Batches:
    """Batches as they come, the last one smaller."""
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def bucketed(lengths: Lengths, boundaries: Any, seed: int) -> Batches:
    """Random batches inside buckets."""
    return epoch_batches(lengths, boundaries, BATCH, np.random.default_rng(seed))


if __name__ == "__main__":
    sys.exit(main())
