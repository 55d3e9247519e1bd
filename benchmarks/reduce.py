"""What the reduce costs beside a plain sum, and a round's models beside gloo's all-reduce.

Six slots and models of 1, 10 and 100 MB: the float32 arrays of three bidirectional LSTM layers.

- reduce: a rule on six models, beside torch.sum over as many bytes, both on one thread. The sum
  reads each byte once and writes nothing, so it is the bound. The limit for ``mean`` is 4 times.
- round trip: the master sends the model to six worker processes over its socket, each sends one
  back, the master takes the mean; no training. Beside it six processes that sum as many floats by
  torch.distributed's all-reduce over gloo, as one flat tensor; the slowest counts. The aim is to be
  faster up to 1 MB; above that the ratio is reported.

    python benchmarks/reduce.py
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from figures import spread
from numpy.typing import NDArray
from processgroup import process_group

from mapreduce_rnn.protocol.messages import Hello, MapResult, MapTask, Stop, prefixed, under
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel, share
from mapreduce_rnn.reduce import RULES, Contribution
from mapreduce_rnn.reduce.base import layout

# torch is imported where it is used: the workers of the round trip start without it.

SLOTS = 6
MEGABYTES = (1, 10, 100)
RUN = "reduce"
WAIT_SECONDS = 60.0
LEARNING_RATE = 1e-3  # for slowmo
SPAWN = multiprocessing.get_context("spawn")

Model = dict[str, NDArray[np.float32]]
Pairs = list[tuple[float, float]]  # seconds: ours, theirs


def main() -> int:
    """Measure and print."""
    pairs = _parse().pairs
    print(
        f"{SLOTS} slots, {pairs} pairs a row (100 MB: {pairs // 3}), medians in ms, least .. most"
    )
    print(f"\n{'reduce':20} {'ours':26} {'torch.sum':26} ratio")
    rows = [("mean", size) for size in MEGABYTES]
    for rule, size in rows + [(rule, 10) for rule in RULES if rule != "mean"]:
        _print(f"{rule} {size} MB", reduce_pairs(rule, size, _fewer(pairs, size)))
    print(f"\n{'round trip':20} {'ours':26} {'gloo':26} ratio")
    with _workers() as socket, Gloo() as gloo:
        for size in MEGABYTES:
            _print(f"{size} MB", round_pairs(socket, gloo, size, _fewer(pairs, size)))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15, help="of a row; a third for 100 MB")
    return parser.parse_args()


def _fewer(pairs: int, megabytes: int) -> int:
    return pairs if megabytes < 100 else pairs // 3


def make_model(megabytes: int, seed: int) -> Model:
    """Random arrays of about ``megabytes`` (10^6 bytes), named and shaped like torch's LSTM."""
    rng = np.random.default_rng(seed)
    hidden = int((megabytes * 1e6 / 4 / 72) ** 0.5)  # 72 hidden^2 weights, and the biases
    shapes = {
        "weight_ih": [4 * hidden, 2 * hidden],
        "weight_hh": [4 * hidden, hidden],
        "bias_ih": [4 * hidden],
        "bias_hh": [4 * hidden],
    }
    return {
        f"lstm.{name}_l{layer}{direction}": rng.standard_normal(shape, np.float32)
        for layer in range(3)
        for direction in ("", "_reverse")
        for name, shape in shapes.items()
    }


# Reduce


def reduce_pairs(name: str, megabytes: int, pairs: int) -> Pairs:
    """Seconds of a rule on six models, and of the sum over as many bytes."""
    import torch

    torch.set_num_threads(1)
    models = [make_model(megabytes, seed) for seed in range(SLOTS)]
    contributions = [Contribution(slot, 1 + slot, model) for slot, model in enumerate(models)]
    rule = RULES[name].for_slots(SLOTS)
    state = rule.init(models[0])
    flat = torch.ones(SLOTS * _n_floats(models[0]))
    return _interleaved(
        lambda: _seconds(lambda: rule.apply(models[0], state, contributions, LEARNING_RATE)),
        lambda: _seconds(flat.sum),
        pairs,
    )


# Round trip


def round_pairs(socket: MasterSocket, gloo: Gloo, megabytes: int, pairs: int) -> Pairs:
    """Seconds of broadcast, receive and mean, and of gloo's all-reduce of as many floats."""
    model = make_model(megabytes, 0)
    return _interleaved(
        lambda: _seconds(lambda: round_trip(socket, model)),
        lambda: gloo.all_reduce(_n_floats(model)),
        pairs,
    )


def round_trip(socket: MasterSocket, model: Model) -> None:
    """One round without training: N tasks out, N results in, their mean."""
    arrays = prefixed("model/", model)
    tasks = [MapTask(1, slot, 1, 1, arrays=arrays) for slot in range(SLOTS)]
    for task in share(tasks):
        socket.send(str(task.slot), task)
    results: list[MapResult] = []
    while len(results) < SLOTS:
        results += [m for _, m in socket.receive(WAIT_SECONDS) if isinstance(m, MapResult)]
    contributions = [Contribution(r.slot, r.weight, under("model/", r.arrays)) for r in results]
    RULES["mean"]().apply(model, {}, contributions)


@contextmanager
def _workers() -> Iterator[MasterSocket]:
    """A master's socket to which a worker process for every slot is connected."""
    with MasterSocket(RUN, max_bytes=1 << 30) as socket:
        processes = [
            SPAWN.Process(target=serve, args=(socket.address, str(slot)), daemon=True)
            for slot in range(SLOTS)
        ]
        for process in processes:
            process.start()
        greeted: set[str] = set()
        while len(greeted) < SLOTS:
            greeted |= {name for name, m in socket.receive(WAIT_SECONDS) if isinstance(m, Hello)}
        yield socket
        for slot in range(SLOTS):
            socket.send(str(slot), Stop())
        for process in processes:
            process.join(WAIT_SECONDS)


def serve(address: str, name: str) -> None:
    """A worker that answers every task with a model of its own, of the same arrays."""
    own: Model = {}
    with WorkerChannel(address, RUN, name) as channel:
        channel.send(Hello("", "cpu", os.getpid()))
        while isinstance(task := channel.receive(), MapTask):
            if layout(own) != layout(task.arrays):
                own = {k: np.array(v) for k, v in task.arrays.items()}
            channel.send(MapResult(1, task.slot, 1, 1, {}, 0.0, own))


class Gloo:
    """A process group of one rank for every slot. A context manager; exit ends the processes."""

    def __init__(self) -> None:
        self._exit = ExitStack()
        folder = self._exit.enter_context(tempfile.TemporaryDirectory())
        self._pipes = [self._start(rank, Path(folder, "group")) for rank in range(SLOTS)]

    def _start(self, rank: int, group: Path) -> Connection:
        pipe, far = SPAWN.Pipe()
        process = SPAWN.Process(target=rank_main, args=(rank, group, far), daemon=True)
        process.start()
        self._exit.callback(process.join, WAIT_SECONDS)
        self._exit.callback(pipe.send, 0)
        return pipe

    def all_reduce(self, n_floats: int) -> float:
        """Seconds of the slowest rank, from a barrier on."""
        for pipe in self._pipes:
            pipe.send(n_floats)
        return max(float(pipe.recv()) for pipe in self._pipes)

    def __enter__(self) -> Gloo:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._exit.close()


def rank_main(rank: int, group: Path, pipe: Connection) -> None:
    """A rank: all-reduces as many floats as it is told, until it is told 0."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    values = torch.zeros(0)
    with process_group(rank, SLOTS, group):
        while n_floats := pipe.recv():
            if len(values) != n_floats:
                values = torch.zeros(n_floats)
            distributed.barrier()
            pipe.send(_seconds(partial(distributed.all_reduce, values)))


# Figures


def _n_floats(model: Model) -> int:
    return sum(array.size for array in model.values())


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _interleaved(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Pairs:
    return [(ours(), theirs()) for _ in range(pairs + 1)][1:]  # the first warms up


def _print(row: str, pairs: Pairs) -> None:
    ours, theirs = (spread(1e3 * seconds for seconds in side) for side in zip(*pairs, strict=True))
    print(f"{row:20} {ours:26} {theirs:26} {spread(a / b for a, b in pairs)}")


if __name__ == "__main__":
    sys.exit(main())
