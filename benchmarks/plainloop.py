"""Training as one would write it without this project: pad, forward, CTC, backward, clip, step.

What several benchmarks measure us against. Batches may lie in a ``DataLoader`` or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from mapreduce_rnn.data.store import Store

Item = tuple[Tensor, Tensor]  # (T, F) float32 frames and (L,) int64 labels of a sequence


class Batch(NamedTuple):
    """Sequences padded to the longest of them, on the CPU."""

    frames: Tensor  # (B, T, F) float32
    lengths: Tensor  # (B,) int64
    labels: Tensor  # (B, longest) int64
    label_lengths: Tensor  # (B,) int64


class Sequences(Dataset[Item]):
    """Sequences of a store as a data set: item k is sequence ``indices[k]``."""

    def __init__(self, store: Store, indices: NDArray[np.int64]) -> None:
        self._store, self._indices = store, indices
        self.lengths = store.lengths[indices]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> Item:
        index = int(self._indices[position])
        frames, labels = self._store.frames(index), self._store.labels(index)
        return torch.from_numpy(frames), torch.from_numpy(labels).long()


def collate(items: Sequence[Item]) -> Batch:
    """A batch of sequences in their order."""
    frames, labels = map(list, zip(*items, strict=True))
    return Batch(pad_sequence(frames, batch_first=True), _lengths(frames),
                 pad_sequence(labels, batch_first=True), _lengths(labels))  # fmt: skip


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Sequence[Batch], clip_norm: float
) -> None:
    """One step on a batch; given in parts, their gradients add up to that of the whole batch."""
    size = sum(len(part.lengths) for part in batch)
    optimizer.zero_grad()
    for part in batch:
        (_loss_sum(model, part) / size).backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()


def _loss_sum(model: nn.Module, batch: Batch) -> Tensor:
    device = next(model.parameters()).device
    log_probs = model(batch.frames.to(device), batch.lengths)
    return nn.functional.ctc_loss(
        log_probs.transpose(0, 1),
        batch.labels.to(device),
        batch.lengths,
        batch.label_lengths,
        reduction="sum",
    )


def _lengths(tensors: Sequence[Tensor]) -> Tensor:
    return torch.tensor([len(tensor) for tensor in tensors])
