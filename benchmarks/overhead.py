"""What the map task costs beside the bare PyTorch loop on the same batches, as CPU time.

One epoch of one slot, two ways, in turn and in one process:

- ours: the task travels from the master's socket to a worker's channel, the worker solves the
  bucketing program, trains, and its answer travels back. CPU time of all threads of both ends.
- bare: a loop over the same batches, written as one would without this project: pad, forward,
  CTC, backward, clip, Adam.

The limit is a ratio of 1; the aim is below 1.03.

    python benchmarks/overhead.py --data stores/kanji
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from plainloop import Sequences, collate, train_step

from mapreduce_rnn import optim
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import slot_epoch
from mapreduce_rnn.plan import resolve_config
from mapreduce_rnn.protocol.messages import Alive, MapResult, MapTask
from mapreduce_rnn.protocol.transport import MasterSocket, WorkerChannel
from mapreduce_rnn.reduce.params import load_arrays, module_arrays
from mapreduce_rnn.workers.maptask import Context, make_context, map_task

RUN, WORKER = "overhead", "0.1"
WAIT_SECONDS = 60.0


def main() -> int:
    """Measure and print; exit code 0 also when there is no data."""
    options = _parse()
    if options.data is None:
        print("overhead: skipped, no store: give --data FOLDER or set MAPREDUCE_RNN_DATA")
        return 0
    torch.set_num_threads(1)
    config = resolve_config(TrainConfig(), slots=1, threads=1, device="cpu")
    context = make_context(config, Store.open(options.data), torch.device("cpu"))
    shard = context.store.split("train")[: options.sequences]
    arrays = {f"model/{name}": array for name, array in module_arrays(context.model).items()}
    task = MapTask(round=1, slot=0, attempt=1, epoch=1, arrays={**arrays, "shard": shard})
    with (
        MasterSocket(RUN, max_bytes=1 << 30) as socket,
        WorkerChannel(socket.address, RUN, WORKER) as channel,
    ):
        _connect(socket, channel)
        pairs = [
            (_cpu(lambda: ours(socket, channel, context, task)), _cpu(lambda: bare(context, task)))
            for _ in range(options.pairs + 1)
        ]
    _print(pairs[1:], len(shard))  # the first warms up
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = os.environ.get("MAPREDUCE_RNN_DATA")
    parser.add_argument("--data", type=Path, default=data and Path(data), help="a store")
    parser.add_argument("--sequences", type=int, default=600, help="of the epoch")
    parser.add_argument("--pairs", type=int, default=15)
    return parser.parse_args()


def _connect(socket: MasterSocket, channel: WorkerChannel) -> None:
    """Let the master hear of the worker, so that it can send."""
    channel.send(Alive())
    if not socket.receive(WAIT_SECONDS):
        sys.exit("overhead: the worker's message did not arrive")


def ours(socket: MasterSocket, channel: WorkerChannel, context: Context, task: MapTask) -> None:
    """One epoch through both ends of the wire."""
    socket.send(WORKER, task)
    received = channel.receive(WAIT_SECONDS)
    assert isinstance(received, MapTask)
    channel.send(map_task(context, received, lambda steps: None))
    while not any(isinstance(m, MapResult) for _, m in socket.receive(WAIT_SECONDS)):
        pass


def bare(context: Context, task: MapTask) -> None:
    """The same epoch as a plain loop."""
    model, store, options = context.model, context.store, context.config.optimizer
    load_arrays(model, {k[6:]: v for k, v in task.arrays.items() if k.startswith("model/")})
    shard = task.arrays["shard"]
    sequences = Sequences(store, shard)
    batches = slot_epoch(store.lengths[shard], context.config.batches, 1, 1, 0).batches
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    for done, positions in enumerate(batches):
        optimizer.param_groups[0]["lr"] = optim.learning_rate(options, done / len(batches))
        batch = collate([sequences[k] for k in positions])
        train_step(model, optimizer, [batch], options.clip_norm)


def _cpu(run: Callable[[], None]) -> float:
    """CPU seconds of all threads of this process."""
    began = time.process_time()
    run()
    return time.process_time() - began


def _print(pairs: list[tuple[float, float]], sequences: int) -> None:
    ratios = sorted(a / b for a, b in pairs)
    print(f"one epoch of {sequences} sequences, {len(pairs)} pairs, CPU seconds (median)")
    print(f"  ours  {statistics.median(a for a, _ in pairs):.3f}")
    print(f"  bare  {statistics.median(b for _, b in pairs):.3f}")
    print(f"  ratio {statistics.median(ratios):.3f}  (from {ratios[0]:.3f} to {ratios[-1]:.3f})")


if __name__ == "__main__":
    sys.exit(main())
