"""Runs full of faults, and a long run without any: do results stay the same, and resources flat?

Faults: short runs on three CPU workers, in which a quarter of all tasks goes wrong when it is tried
first: the worker is killed in it or while it answers, its disk is full, its answer comes twice, or
after that of the round before. The limit is no difference from the run without faults.

Soak: memory, files and threads of master and workers over many short rounds. The limit is none
that grows.

    python benchmarks/faults.py --faults 500 --rounds 300
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mapreduce_rnn
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.runfolder import METRICS
from mapreduce_rnn.runlog import read_lines

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import inprocess
from faulty_worker import Fault, drawn
from faultyruns import faulty
from killing import workers_of
from runs_real import result_bytes
from stores import tiny_store

KINDS = [
    Fault.KILLED_IN_TASK,
    Fault.KILLED_WHILE_SENDING,
    Fault.DISK_FULL,
    Fault.DUPLICATE_ANSWER,
    Fault.LATE_ANSWER,
]
ROUNDS, SLOTS = 20, 6
SMALL = {"units": 4, "batch_size": 4, "buckets": 2, "threads": 1}
SAMPLE_SECONDS = 0.5


def main() -> int:
    """Measure and print; exit code 1 if a result differs."""
    options = _parse()
    with tempfile.TemporaryDirectory() as folder:
        store = tiny_store(Path(folder, "store"), n=60)
        equal = inject(store, Path(folder), options.faults, options.seed)
        if options.rounds:
            soak(store, Path(folder), options.rounds)
    return 0 if equal else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=100, help="at least so many")
    parser.add_argument("--rounds", type=int, default=100, help="of the soak; 0 for none")
    parser.add_argument("--seed", type=int, default=0, help="of the first run's faults")
    return parser.parse_args()


def inject(store: Path, folder: Path, faults: int, seed: int) -> bool:
    """Runs until there were so many faults; whether all gave the bytes of the calm one."""
    inprocess.train(store, folder / "calm", **SMALL, map_tasks=SLOTS, epochs=ROUNDS)
    calm = result_bytes(folder / "calm")
    injected = runs = equal = 0
    slowest = 0.0
    while injected < faults:
        run = folder / f"run-{runs}"
        with faulty(*KINDS, seed=seed + runs):
            train(store, run, cpu_workers=3, map_tasks=SLOTS, epochs=ROUNDS, max_attempts=1000)
        injected += _faults_of(seed + runs)
        runs += 1
        equal += result_bytes(run) == calm
        slowest = max([slowest, *recoveries(run / "events.jsonl")])
        print(f"  {injected} faults, {runs} runs, {equal} equal", flush=True)
    memory = _status("self", "VmHWM") / 1024
    print(f"faults {injected}, runs {runs}, equal results {equal}, differences {runs - equal}")
    print(f"longest recovery {slowest:.1f} s, highest memory of the master {memory:.0f} MiB")
    return equal == runs


def train(store: Path, run: Path, **options: Any) -> None:
    """A run with real workers."""
    config = override(TrainConfig(), {**SMALL, **options}, "this benchmark")
    mapreduce_rnn.train(store, config, run_dir=run, quiet=True, report=False)


def _faults_of(seed: int) -> int:
    tasks = [(round, slot) for round in range(1, ROUNDS + 1) for slot in range(SLOTS)]
    return sum(drawn(KINDS, seed, *task) is not None for task in tasks)


def recoveries(events: Path) -> Iterator[float]:
    """Seconds from the loss of each worker until another is ready in its place."""
    lost: dict[int, float] = {}
    for event in read_lines(events).records:
        if event.get("what") == "lost":
            lost.setdefault(event["place"], event["time"])
        elif event.get("what") == "ready" and event["place"] in lost:
            yield event["time"] - lost.pop(event["place"])


class Sample(NamedTuple):
    """Of one process, or the most of several."""

    memory: float  # MiB, resident
    files: int
    threads: int


def soak(store: Path, folder: Path, rounds: int) -> None:
    """Print what the processes of a run hold in its first and in its last quarter."""
    run, began = folder / "soak", time.monotonic()
    with _sampling(run / METRICS) as samples:
        train(store, run, cpu_workers=2, epochs=rounds, validate_every=10)
    print(f"soak: {rounds} rounds, {time.monotonic() - began:.0f} s, {len(samples)} samples")
    quarter = max(1, len(samples) // 4)
    for name, at in (("master", 0), ("workers", 1)):
        first = _medians([sample[at] for sample in samples[:quarter]])
        last = _medians([sample[at] for sample in samples[-quarter:]])
        print(f"  {name}: first quarter {first}, last quarter {last}")


@contextmanager
def _sampling(metrics: Path) -> Iterator[list[tuple[Sample, Sample]]]:
    """Look at this process and its workers every half second, once they are all ready."""
    samples: list[tuple[Sample, Sample]] = []
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            workers = workers_of(os.getpid()).values()
            if workers and metrics.exists():
                samples.append((_sample("self"), _most([_sample(str(pid)) for pid in workers])))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def _sample(process: str) -> Sample:
    files = len(os.listdir(f"/proc/{process}/fd"))
    return Sample(_status(process, "VmRSS") / 1024, files, _status(process, "Threads"))


def _status(process: str, name: str) -> int:
    """A number of /proc/PROCESS/status; memory is in KiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _most(samples: list[Sample]) -> Sample:
    return Sample(*map(max, zip(*samples, strict=True)))


def _medians(samples: list[Sample]) -> str:
    memory, files, threads = map(statistics.median, zip(*samples, strict=True))
    return f"{memory:.0f} MiB, {files:g} files, {threads:g} threads"


if __name__ == "__main__":
    sys.exit(main())
