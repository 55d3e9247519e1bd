"""Ours beside what one would use instead: time of an epoch, and time to a validation loss.

Same store, model, initial parameters, local optimizer, batch size of a rank and schedule:

- ours: ``mapreduce_rnn.train`` with a worker for each rank. Map, reduce and checkpoints count.
  ``--ours`` gives it options of its own, such as how often the slots' models are averaged.
- ddp: DistributedDataParallel, gloo on CPUs and nccl on GPUs, with batches of a
  BucketBatchSampler: as many on each rank, those of a step alike in length.
- plain: one process, a shuffling DataLoader, pack_padded_sequence. On a CPU that is so slow (see
  the README) that only ``--batches`` of its batches are timed in each turn, and stand for its
  epoch. How many epochs it needs is seen on a stand-in that computes the same batches padded, with
  equal results. ``--full`` trains all of it instead.

Each trains until the lowest target, or for all epochs; validation and start-up are outside the
clock. First all rates are tried, and each contestant takes the one that brings it to the lowest
target in fewest epochs. Then whole trainings alternate, turn by turn: each turn with another seed,
in the reverse order of the turn before. The stand-in trains once per rate only: its epochs are
those of the try. The aim is to be faster to the targets than both.

    python benchmarks/ddp.py --data stores/kanji --ours sync-steps=8
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import contestants
import numpy as np
from contestants import BACKENDS, device_kind
from curve import Curve, Point, epoch_seconds, reached
from figures import spread

from mapreduce_rnn.commands.options import add_options, given_options
from mapreduce_rnn.config import TrainConfig, fields, override
from mapreduce_rnn.data.store import Sequence, Store, write_store

NAME = "ddp"
FIRST_SEED = 1  # chooses rates; the turns have those after it


class Contestant(NamedTuple):
    """A way to train."""

    try_out: Callable[[TrainConfig], Curve]  # to see how many epochs a rate needs
    train: Callable[[TrainConfig, Curve], Curve]  # also given what its try-out gave


class Result(NamedTuple):
    """Trainings of a contestant, one for each turn."""

    rate: float
    trainings: list[Curve]


def main() -> int:
    """Measure and print; exit code 0 also when there is no data."""
    options = _parse()
    if options.data is None:
        print(f"{NAME}: skipped, no store: give --data FOLDER or set MAPREDUCE_RNN_DATA")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        write_part(Store.open(options.data), options.sequences, store)
        print(_heading(store, options), flush=True)
        racing = _contestants(store, options)
        results = compare(racing, _config(options), options.rates, options.turns)
    _print(results, sorted(options.targets, reverse=True))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = os.environ.get("MAPREDUCE_RNN_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), help="a store")
    parser.add_argument("--sequences", type=int, default=2000, help="of an epoch, at most")
    parser.add_argument("--ranks", type=int, default=2, help="of ours and ddp")
    parser.add_argument("--units", type=int, default=32, help="LSTM units per direction")
    parser.add_argument("--batch-size", type=int, default=32, help="of a rank")
    parser.add_argument("--epochs", type=int, default=15, help="at most; the schedule's horizon")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.005, 0.01, 0.02])
    parser.add_argument("--targets", type=float, nargs="+", default=[45.0, 35.0], metavar="LOSS")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="of plain that a turn times")
    parser.add_argument("--full", action="store_true", help="train plain as it is")
    parser.add_argument("--ours", type=_options, default={}, metavar="NAME=VALUE,...",
                        help="options of `mapreduce-rnn train` for ours")  # fmt: skip
    return parser.parse_args()


def _options(text: str) -> dict[str, object]:
    """Options by name, read as the command line reads them."""
    parser = argparse.ArgumentParser(prog=f"{NAME} --ours", add_help=False)
    add_options(parser, fields())
    return given_options(parser.parse_args([f"--{part}" for part in text.split(",")]))


def write_part(store: Store, n_train: int, path: Path) -> None:
    """A store of about ``n_train`` training sequences and that part of the validation sequences.

    Taken at even distances, since neighbours in a store are often alike.
    """
    splits = {name: store.split(name) for name in ("train", "validation")}
    step = max(1.0, len(splits["train"]) / n_train)
    write_store(
        path,
        (
            Sequence(store.id(i), store.frames(i), store.labels(i), name)
            for name, indices in splits.items()
            for i in indices[np.arange(0, len(indices), step).astype(int)].tolist()
        ),
        alphabet=store.meta.alphabet,
        feature_names=store.meta.feature_names,
    )


def _heading(store: Path, options: argparse.Namespace) -> str:
    n, kind = len(Store.open(store).split("train")), device_kind()
    given = ", ".join(f"{name}={value}" for name, value in options.ours.items())
    plain = "trained in full" if options.full else f"epoch estimated from {options.batches} batches"
    return (
        f"{n} sequences, {options.units} units, batches of {options.batch_size} a rank, "
        f"at most {options.epochs} epochs\n"
        f"{kind}, {options.ranks} ranks, ddp over {BACKENDS[kind]}, plain on one and {plain}\n"
        f"options of ours: {given or 'none'}"
    )


def _contestants(store: Path, options: argparse.Namespace) -> dict[str, Contestant]:
    own = partial(override, values=options.ours, source="--ours")
    plain = Contestant(
        partial(contestants.stand_in, store),
        partial(contestants.estimated, store, batches=options.batches),
    )
    return {
        "ours": _as_it_is(lambda config: contestants.ours(store, own(config), options.ranks)),
        "ddp": _as_it_is(partial(contestants.ddp, store, ranks=options.ranks)),
        "plain": _as_it_is(partial(contestants.packed, store)) if options.full else plain,
    }


def _as_it_is(train: Callable[[TrainConfig], Curve]) -> Contestant:
    return Contestant(train, lambda config, tried: train(config))


def compare(
    racing: dict[str, Contestant], config: TrainConfig, rates: list[float], turns: int
) -> dict[str, Result]:
    """Choose each contestant's rate, then let them train in turns."""
    tried = {name: try_rates(name, each, config, rates) for name, each in racing.items()}
    best = {name: min(found, key=lambda rate: _merit(found[rate], config))
            for name, found in tried.items()}  # fmt: skip
    results = {name: Result(rate, []) for name, rate in best.items()}
    for turn in range(1, turns + 1):
        for name in list(racing)[:: 1 if turn % 2 else -1]:
            seeded = _with(config, best[name], FIRST_SEED + turn)
            curve = racing[name].train(seeded, tried[name][best[name]])
            results[name].trainings.append(curve)
            _say(f"turn {turn}, {name}", curve)
    return results


def try_rates(
    name: str, contestant: Contestant, config: TrainConfig, rates: list[float]
) -> dict[float, Curve]:
    """A training with each rate."""
    tried = {}
    for rate in rates:
        tried[rate] = contestant.try_out(_with(config, rate, FIRST_SEED))
        _say(f"rate {rate:g}, {name}", tried[rate])
    return tried


def _merit(curve: Curve, config: TrainConfig) -> tuple[float, float]:
    """Epochs to the target, and where it was not reached how far off it was; less is better."""
    assert config.stop.target_loss is not None
    at = reached(curve, config.stop.target_loss)
    return at.epochs if at else math.inf, curve[-1].loss


def _config(options: argparse.Namespace) -> TrainConfig:
    """What all have in common."""
    values = {
        "units": options.units,
        "batch_size": options.batch_size,
        "epochs": options.epochs,
        "target_loss": min(options.targets),
        "threads": 1,
    }
    return override(TrainConfig(), values, NAME)


def _with(config: TrainConfig, rate: float, seed: int) -> TrainConfig:
    return override(config, {"learning_rate": rate, "seed": seed}, NAME)


def _say(what: str, curve: Curve) -> None:
    print(f"  {what}: loss {curve[-1].loss:.3f} after {curve[-1].epochs:g} epochs", flush=True)


# Figures


def _print(results: dict[str, Result], targets: list[float]) -> None:
    """Seconds and their ratio to ours of the same turn: median, least and most."""
    _print_row("an epoch", "rate", "", "seconds", "times ours")
    seconds = {name: list(map(epoch_seconds, r.trainings)) for name, r in results.items()}
    for name, turns in seconds.items():
        medians = [list(map(statistics.median, each)) for each in (turns, seconds["ours"])]
        _print_row(f"  {name}", f"{results[name].rate:g}", "", spread(chain(*turns)),
                   _ratio(*medians))  # fmt: skip
    for target in targets:
        _print_row(f"loss {target:g}", "", "epochs", "seconds", "times ours")
        ours = [reached(curve, target) for curve in results["ours"].trainings]
        for name, result in results.items():
            _print_target(name, [reached(curve, target) for curve in result.trainings], ours)


def _print_target(name: str, found: list[Point | None], ours: list[Point | None]) -> None:
    points, own = ([point for point in each if point] for each in (found, ours))
    if len(points) < len(found):
        _print_row(f"  {name}", "", "", f"reached in {len(points)} of {len(found)} turns", "")
        return
    seconds = [point.elapsed for point in points]
    ratio = _ratio(seconds, [point.elapsed for point in own]) if len(own) == len(ours) else ""
    _print_row(f"  {name}", "", spread(p.epochs for p in points), spread(seconds), ratio)


def _ratio(theirs: list[float], ours: list[float]) -> str:
    return spread(a / b for a, b in zip(theirs, ours, strict=True))


def _print_row(name: str, rate: str, epochs: str, seconds: str, ratio: str) -> None:
    print(f"{name:10}{rate:>6}{epochs:>15}{seconds:>25}{ratio:>24}")


if __name__ == "__main__":
    sys.exit(main())
