"""What buckets save: CPU time of one epoch of training, beside plain shuffled batches.

One bidirectional LSTM of 96 units, CTC and Adam over a sample of the log-normal lengths of
padding.py, with noise as frames, on one thread. Round by round, each with new batches:

- shuffle, padded: sequences in random order, batches padded to their longest.
- shuffle, packed: the same batches through pack_padded_sequence, without padding. PyTorch's
  packed backward takes so long on a CPU (see the README) that a round runs one batch of its
  epoch, another in each round, and counts it for all.
- ours: batches inside optimal buckets, padded to their longest.

All take the same model and give the same losses for a sequence. The aim is to be 3 times faster
than padded and 5 times faster than packed.

    python benchmarks/epoch_time.py [--sequences 1024] [--rounds 5] [--buckets 4 8 16]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from figures import spread
from numpy.typing import NDArray
from padding import Batches, Lengths, bucketed, cut, lognormal, shuffled, to_longest

from mapreduce_rnn.bucketing import optimal_buckets
from mapreduce_rnn.models.lstm import Lstm
from mapreduce_rnn.tasks.ctc import ctc_losses, make_batch

FEATURES, LABELS, LABELS_EACH = 3, 50, 5
PADDED, PACKED = "shuffle, padded", "shuffle, packed"

Data = list[tuple[NDArray[np.float32], NDArray[np.int32]]]  # frames and labels of each sequence


class Epoch(NamedTuple):
    """An epoch as it was measured."""

    seconds: float  # CPU
    padded: float  # padded / real frames


Round = dict[str, Epoch]  # by kind


def main() -> int:
    """Measure and print."""
    options = _parse()
    torch.set_num_threads(1)
    lengths = np.random.default_rng(1).choice(lognormal(), options.sequences, replace=False)
    bounds = {f"ours, Q = {q}": optimal_buckets(lengths, q).boundaries for q in options.buckets}
    model, data = Lstm(FEATURES, LABELS + 1), _noise(lengths)
    rounds = [measure(model, data, lengths, bounds, turn) for turn in range(options.rounds)]
    _print(rounds, len(lengths))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=1024, help="of the epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--buckets", type=int, nargs="+", default=[4, 8, 16], metavar="Q")
    return parser.parse_args()


def _noise(lengths: Lengths) -> Data:
    rng = np.random.default_rng(2)
    frames = [rng.standard_normal((length, FEATURES), np.float32) for length in lengths]
    return [(f, rng.integers(1, LABELS + 1, LABELS_EACH, np.int32)) for f in frames]


def measure(model: Lstm, data: Data, lengths: Lengths, bounds: dict[str, Any], turn: int) -> Round:
    """One epoch of each kind, with this turn's batches."""
    plain = cut(shuffled(len(lengths), turn))
    one = [plain[turn % len(plain)]]
    packed = Epoch(train(model, "packed", data, one) * len(plain), 1.0)
    epochs = {PADDED: plain} | {name: bucketed(lengths, b, turn) for name, b in bounds.items()}
    return {PACKED: packed} | {
        name: Epoch(train(model, "padded", data, batches), to_longest(lengths, batches))
        for name, batches in epochs.items()
    }


def train(model: Lstm, kernel: str, data: Data, batches: Batches) -> float:
    """CPU seconds of a training step on each of the batches, padding included."""
    model.kernel = kernel
    optimizer = torch.optim.Adam(model.parameters())
    began = time.process_time()
    for positions in batches:
        frames, labels = zip(*(data[k] for k in positions), strict=True)
        batch = make_batch(frames, labels)
        optimizer.zero_grad()
        log_probs = model(batch.frames, batch.lengths)
        losses = ctc_losses(log_probs, batch.lengths, batch.targets, batch.target_lengths)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return time.process_time() - began


def _print(rounds: list[Round], sequences: int) -> None:
    print(f"one epoch of {sequences} log-normal lengths, CPU seconds, median of {len(rounds)}")
    print(f"{'':51}times faster than shuffle")
    print(f"{'':20}seconds (least .. most)  padded/real    padded    packed")
    for name in rounds[0]:
        epochs = [measured[name] for measured in rounds]
        seconds = spread(epoch.seconds for epoch in epochs)
        padded = statistics.mean(epoch.padded for epoch in epochs)
        ratios = "".join(f"{_faster(rounds, kind, name):10.2f}" for kind in (PADDED, PACKED))
        print(f"  {name:16}  {seconds:24}{padded:12.3f}{ratios}")


def _faster(rounds: list[Round], plain: str, name: str) -> float:
    """Median over the rounds of how many times faster a kind is than a plain one."""
    return statistics.median(turn[plain].seconds / turn[name].seconds for turn in rounds)


if __name__ == "__main__":
    sys.exit(main())
