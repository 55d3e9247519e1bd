"""Is simulated time what real workers take? Two CPU workers, beside the same two simulated.

Both runs make the same model to the last byte. Simulated, every task runs alone on one worker and
the time of two is counted (see mapreduce_rnn/simulate.py); really, two run at once. The limit is a
ratio of 1; the aim is to be within 15 %. Both kinds of run alternate.

    python benchmarks/simulated.py --data stores/kanji [--workers 2] [--pairs 3] [--epochs 2]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import mapreduce_rnn
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.launch.devices import usable_cores
from mapreduce_rnn.runfolder import BEST_MODEL, EVENTS
from mapreduce_rnn.runlog import read_lines


class Times(NamedTuple):
    """Seconds of training of a run, and the bytes that it made."""

    seconds: float
    model: bytes


def main() -> int:
    """Measure and print; exit code 1 if a model differs."""
    options = _parse()
    if options.data is None:
        print("simulated.py: skipped, give --data FOLDER or set MAPREDUCE_RNN_DATA")
        return 0
    if usable_cores() < options.workers:
        print(f"simulated.py: skipped, {options.workers} real workers need as many cores")
        return 0
    pairs = [(_run(options, simulate=False), _run(options, simulate=True))
             for _ in range(options.pairs)]  # fmt: skip
    _print(options, pairs)
    return int(len({times.model for pair in pairs for times in pair}) > 1)


def _run(options: argparse.Namespace, *, simulate: bool) -> Times:
    values = {"cpu_workers": options.workers, "simulate": simulate, "epochs": options.epochs,
              "sync_steps": options.sync_steps, "threads": 1}  # fmt: skip
    config = override(TrainConfig(), values, "benchmark")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        mapreduce_rnn.train(options.data, config, run_dir=run, quiet=True, report=False)
        rounds = [e for e in read_lines(run / EVENTS).records if e["event"] == "round"]
        return Times(rounds[-1]["elapsed"], (run / BEST_MODEL).read_bytes())


def _print(options: argparse.Namespace, pairs: list[tuple[Times, Times]]) -> None:
    ratios = [simulated.seconds / real.seconds for real, simulated in pairs]
    print(f"{options.workers} CPU workers, {options.epochs} epochs, {len(pairs)} pairs of runs")
    for name, times in zip(("really", "simulated"), zip(*pairs, strict=True), strict=True):
        seconds = [t.seconds for t in times]
        print(f"  {name:<10} {statistics.median(seconds):7.1f} s"
              f"  ({min(seconds):.1f} to {max(seconds):.1f})")  # fmt: skip
    print(f"  simulated / really {statistics.median(ratios):.3f}"
          f"  ({min(ratios):.3f} to {max(ratios):.3f}); aim: 0.85 to 1.15")  # fmt: skip
    same = len({times.model for pair in pairs for times in pair}) == 1
    print(f"  models {'equal to the last byte' if same else 'DIFFER'}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("MAPREDUCE_RNN_DATA"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--sync-steps", type=int, default=None)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
