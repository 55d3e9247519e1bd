"""How the master's time and memory grow: with workers and models, and with a store's sequences.

- workers: rounds of the real master with ``mean`` on 1 to 64 stub workers (``stubs.py``), which
  send back the arrays they got; models of 1, 10 and 100 MB. The bound is a copy of all bytes that
  were sent and received, as fast as numpy copies 64 MB in the same process.
- stores: 10^4, 10^5 and 10^6 short sequences, six slots: opening, shuffle and shards, a slot's
  batches, the plan (CPU seconds of a single thread), and rounds on six stubs with a model of 1 MB.
  To reach at a million: opening in 1 s, shuffle and shards in 0.5 s, the master below 500 MB.

Every case has a process of its own; memory is the most that it ever held (VmHWM). Fits minimise
relative deviations; N workers, M MB (10^6 bytes) of model, n million sequences.

    python benchmarks/scaling.py [--rounds 9] [--only workers stores]
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from reduce import SPAWN, make_model
from stubs import run_rounds

from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data import format as layout
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.data.store import Sequence as StoredSequence
from mapreduce_rnn.data.store import Store, write_store
from mapreduce_rnn.epochs import slot_epoch
from mapreduce_rnn.plan import make_plan, resolve_config

# torch is imported where it is used: the master's memory is told without it, too.

WORKERS = (1, 2, 4, 8, 16, 32, 64)
MEGABYTES = (1, 10, 100)
SIZES = (10_000, 100_000, 1_000_000)
SLOTS = 6  # of the stores' rounds
REPEATS = 3  # processes for each store; medians
COPIED = 64_000_000  # bytes
MB = 1e6
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Row = dict[str, float]
T = TypeVar("T")


def main() -> int:
    """Measure and print."""
    parts = {"workers": workers, "stores": stores}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="of a case; a third for 100 MB")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_short(Path(folder, "10000"))
        for name in options.only:
            parts[name](Path(folder), options.rounds)
    return 0


def fresh(case: Callable[..., T], *arguments: Any) -> T:
    """What a function returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
        return process.submit(case, *arguments).result()


# Workers and models


def workers(folder: Path, rounds: int) -> None:
    """A row for every number of workers and size of model, and the formulas."""
    names = ("transfer", "reduce", "ratio", "sent", "received", "memory")
    print("workers: s a round, times a copy, MB a round, MB at most\n   N    M" + _heads(names))
    rows = []
    for megabytes in MEGABYTES:
        for n in WORKERS:
            if 2.2 * n * megabytes * MB > _available():  # at both ends, and what the rest takes
                print(f"{n:4} {megabytes:4}   skipped: too little memory is free")
                continue
            row = fresh(worker_case, folder / "10000", n, megabytes, _fewer(rounds, megabytes))
            rows.append({"N": n, "M": megabytes} | row)
            print(f"{n:4} {megabytes:4}" + _cells(row, names), flush=True)
    sizes = [(row["N"], row["M"]) for row in rows]
    for name, unit in (("transfer", "s"), ("reduce", "s"), ("memory", "MB")):
        terms = [{"": 1.0, "N": n, "M": m, "N M": n * m} for n, m in sizes]
        print(f"  {name} = {fit(terms, [row[name] for row in rows])} {unit}")


def _fewer(rounds: int, megabytes: int) -> int:
    return max(2, rounds // 3) if megabytes >= 100 else rounds


def worker_case(path: Path, n: int, megabytes: int, rounds: int) -> Row:
    """Medians over the rounds but the first, which warms up."""
    store, model = Store.open(path), make_model(megabytes, 0)
    config = _config(map_tasks=n, epochs=rounds, validate_every=rounds)
    task: Any = _AllUsable()
    plan = make_plan(config, "cpu", store, task, model, frozenset(model))
    done = run_rounds(plan, store, model)
    memory = _most_memory()
    transfer, reduce = (_median(done.events, name) for name in ("map_seconds", "reduce_seconds"))
    sent, received = done.sent / MB / rounds, done.received / MB / rounds
    copied = (sent + received) * MB / _copied_in_a_second()
    return {
        "M": plan.model_bytes / MB, "transfer": transfer, "reduce": reduce,
        "ratio": (transfer + reduce) / copied, "sent": sent, "received": received,
        "memory": memory,
    }  # fmt: skip


class _AllUsable:
    """Of a task what a plan asks for, without torch."""

    def usable(self, store: Store, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.ones(len(indices), dtype=bool)


def _copied_in_a_second() -> float:
    """Bytes."""
    source = np.ones(COPIED, np.uint8)
    target = source.copy()
    return COPIED / statistics.median(
        timeit.repeat(lambda: np.copyto(target, source), repeat=15, number=1)
    )


# Stores


def stores(folder: Path, rounds: int) -> None:
    """A row for every size of store, and the formulas."""
    names = (
        "open", "shards", "batches", "plan", "transfer", "validation",
        "bare", "with torch", "after rounds",
    )  # fmt: skip
    print("stores: s, and MB at most\n         n" + _heads(names))
    rows = []
    for n in SIZES:
        path = folder / str(n)
        if n > SIZES[0]:
            repeat_store(folder / str(SIZES[0]), path, n // SIZES[0])
        found = [fresh(store_case, path, rounds) for _ in range(REPEATS)]
        rows.append({name: statistics.median(row[name] for row in found) for name in names})
        print(f"{n:10}" + _cells(rows[-1], names), flush=True)
    for name in names:
        terms = [{"": 1.0, "n": n / MB} for n in SIZES]
        print(f"  {name} = {fit(terms, [row[name] for row in rows])}")


def store_case(path: Path, rounds: int) -> Row:
    """What the master does with a store, in the order of a run."""
    (store, train), opening = _timed(lambda: _opened(path))
    config, lengths = _config(map_tasks=SLOTS, epochs=rounds, validate_every=1), store.lengths
    shards, sharding = _timed(lambda: epoch_shards(lengths[train], SLOTS, seed=0, epoch=1))
    mine = lengths[train[shards[0]]]
    _, batching = _timed(lambda: slot_epoch(mine, config.batches, seed=0, epoch=1, slot=0))
    bare = _most_memory()
    from mapreduce_rnn.tasks import make_task  # imports torch

    torch, task, model = _most_memory(), make_task(config, store.meta), make_model(1, 0)
    plan, planning = _timed(lambda: make_plan(config, "cpu", store, task, model, frozenset(model)))
    done = run_rounds(plan, store, model).events
    store.id(0)  # for the examples of the report
    return {
        "open": opening, "shards": sharding, "batches": batching, "plan": planning,
        "transfer": _median(done, "map_seconds"),
        "validation": _median(done, "validation_seconds"),
        "bare": bare, "with torch": torch, "after rounds": _most_memory(),
    }  # fmt: skip


def _opened(path: Path) -> tuple[Store, NDArray[np.int64]]:
    store = Store.open(path)
    store.split("validation")
    return store, store.split("train")


def write_short(path: Path) -> None:
    """The smallest store: random frames, 2 to 34 in a sequence, and 1 to 5 labels."""
    write_store(path, _short(SIZES[0]), alphabet=LETTERS, feature_names=("x", "y", "pen_up"))


def _short(n: int) -> Iterator[StoredSequence]:
    rng = np.random.default_rng(0)
    for i in range(n):
        labels = rng.integers(1, len(LETTERS) + 1, rng.integers(1, 6))
        frames = rng.standard_normal((2 * len(labels) + rng.integers(25), 3), np.float32)
        yield StoredSequence(f"s{i}", frames, labels, "train" if i % 10 else "validation")


def repeat_store(source: Path, path: Path, times: int) -> None:
    """A store of the same sequences, so many times over: the writer would take minutes."""
    path.mkdir()
    meta, sums = Store.open(source).meta, {}
    for name in layout.stored_shapes(meta):
        repeat = _repeat_offsets if "offsets" in name else _repeat
        repeated = repeat(np.load(source / name), times)
        np.save(path / name, repeated)
        sums[name] = layout.array_sum(repeated)
    ids = (source / layout.IDS).read_text().split("\n")
    (path / layout.IDS).write_text("\n".join(f"{k}-{name}" for k in range(times) for name in ids))
    sums[layout.IDS] = meta.sha256[layout.IDS]  # opening does not look at it
    meta = dataclasses.replace(
        meta, total_frames=times * meta.total_frames, sha256=sums,
        counts={split: times * count for split, count in meta.counts.items()},
        sizes={name: (path / name).stat().st_size for name in sums},
    )  # fmt: skip
    (path / layout.META).write_bytes(meta.to_bytes())


def _repeat(values: NDArray[Any], times: int) -> NDArray[Any]:
    return np.concatenate([values] * times)


def _repeat_offsets(offsets: NDArray[np.int64], times: int) -> NDArray[np.int64]:
    starts = offsets[-1] * np.arange(times)[:, None] + offsets[:-1]
    return np.append(starts.reshape(-1), times * offsets[-1])


def _config(**options: Any) -> TrainConfig:
    config = override(TrainConfig(), options, "this benchmark")
    return resolve_config(config, slots=SLOTS, threads=1, device="cpu")


# Figures


def fit(terms: Sequence[Row], values: Sequence[float]) -> str:
    """Constants of a sum of terms, and how far it is off at most, relative to each value."""
    names = list(terms[0])
    matrix = np.array([[term[name] for name in names] for term in terms])
    target = np.array(values)
    constants = np.linalg.lstsq(matrix / target[:, None], np.ones(len(target)))[0]
    worst = float(np.abs(matrix @ constants / target - 1).max())
    parts = zip(constants, names, strict=True)
    formula = " + ".join(f"{x:.3g} {name}".strip() for x, name in parts)
    return f"{formula}   (at most {worst:.0%} off)"


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    """What a function returns, and its CPU seconds."""
    began = time.process_time()
    result = run()
    return result, time.process_time() - began


def _median(events: Sequence[dict[str, Any]], name: str) -> float:
    """Over the rounds but the first, which warms up."""
    return statistics.median(float(event[name]) for event in events[1:])


def _most_memory() -> float:
    return _kibibytes("/proc/self/status", "VmHWM") * 1024 / MB


def _available() -> float:
    return _kibibytes("/proc/meminfo", "MemAvailable") * 1024


def _kibibytes(file: str, name: str) -> int:
    lines = Path(file).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def _heads(names: Sequence[str]) -> str:
    return "".join(f"{name:>13}" for name in names)


def _cells(row: Row, names: Sequence[str]) -> str:
    return "".join(f"{row[name]:13.4g}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
