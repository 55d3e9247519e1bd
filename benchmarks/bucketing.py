"""What the optimal partition costs, and beside it two solvers of the same kind of problem.

- target: 10 million integers, at most 5 000 of them distinct, 64 buckets; 1 million distinct
  floats, 16 buckets. Time, and memory beyond the lengths themselves.
- growth: time against the number m of distinct lengths, three shapes of length distributions:
  log-normal floats, lengths 1 .. m, and twenty evenly spaced clusters, a hard kind of list.
- others: 1 million integers, 16 groups, in turn: ours, kmeans1d and ckmeans (optimal
  one-dimensional k-means, compiled). They minimise squares and not frames, from the same sort of
  program; `pip install kmeans1d ckmeans`, or they are skipped.

Times are CPU seconds of all threads, as lists are drawn by numpy's default generator, seed 0.

    python benchmarks/bucketing.py [--pairs 15] [--only target growth others]
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import optimal_buckets

Lengths = NDArray[Any]
MEGABYTE = 1e6


def main() -> int:
    """Measure and print; exit code 0 also when a comparison is skipped."""
    parts = {"target": target, "growth": growth, "others": others}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15, help="runs of each solver, in turn")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args()
    for name in options.only:
        parts[name](options.pairs)
    return 0


def lognormal(n: int, longest: int | None = None) -> Lengths:
    """Median 400, sigma 0.8; whole frames up to ``longest`` if given, else distinct floats."""
    drawn = np.random.default_rng(0).lognormal(np.log(400), 0.8, n)
    return drawn if longest is None else np.minimum(np.ceil(drawn), longest).astype(np.int64)


def clusters(m: int) -> Lengths:
    """Twenty runs of m / 20 neighbouring lengths, ever further apart."""
    return np.concatenate([1 + k**3 * 2 * m + np.arange(m // 20) for k in range(20)])


def target(pairs: int) -> None:
    """The two cases that are promised."""
    print(f"target (median of {pairs}, least and most)")
    cases = [
        ("10 million integers, Q = 64", lognormal(10_000_000, 5000), 64, 0.2),
        ("1 million distinct floats, Q = 16", lognormal(1_000_000), 16, 5.0),
    ]
    for name, lengths, n_buckets, limit in cases:
        solve = partial(optimal_buckets, lengths, n_buckets)
        seconds, extra = [cpu(solve) for _ in range(pairs)], peak(solve) / MEGABYTE
        print(f"  {name:35} {spread(seconds)} s (limit {limit})   {extra:6.1f} MB extra")


def growth(pairs: int) -> None:
    """Time against the number of distinct lengths; linear means a tenth per row."""
    print("growth, Q = 16 (CPU seconds, once)")
    print(f"  {'m':>9}  log-normal    1 .. m  clusters")
    for m in (1_000, 10_000, 100_000, 1_000_000):
        shapes = (lognormal(m), np.arange(1, m + 1), clusters(m))
        times = (cpu(partial(optimal_buckets, lengths, 16)) for lengths in shapes)
        print(f"  {m:9d}  " + "".join(f"{seconds:10.4f}" for seconds in times))


def others(pairs: int) -> None:
    """Ours and the compiled solvers on the same integers, in turn."""
    lengths, n_buckets = lognormal(1_000_000, 5000), 16
    solvers: dict[str, Callable[[], Any]] = {"ours": partial(optimal_buckets, lengths, n_buckets)}
    for package, function in (("kmeans1d", "cluster"), ("ckmeans", "ckmeans")):
        try:
            solve = getattr(importlib.import_module(package), function)
        except ImportError:
            print(f"others: {package} skipped: pip install {package}")
            continue
        solvers[package] = partial(solve, lengths, n_buckets)
    times: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(pairs):
        for name, solve in solvers.items():
            times[name].append(cpu(solve))
    print(f"others, 1 million integers, Q = 16 (median of {pairs}, least and most)")
    for name, seconds in times.items():
        ratios = [theirs / ours for theirs, ours in zip(seconds, times["ours"], strict=True)]
        print(f"  {name:10} {spread(seconds)} s   {statistics.median(ratios):7.1f} x ours")


def cpu(run: Callable[[], Any]) -> float:
    """CPU seconds of all threads of this process."""
    began = time.process_time()
    run()
    return time.process_time() - began


def peak(run: Callable[[], Any]) -> float:
    """Most bytes that a run holds beyond what was there before; numpy's arrays included."""
    tracemalloc.start()
    run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return float(most)


def spread(seconds: list[float]) -> str:
    """Median, least and most."""
    return f"{statistics.median(seconds):7.4f} ({min(seconds):.4f} .. {max(seconds):.4f})"


if __name__ == "__main__":
    sys.exit(main())
