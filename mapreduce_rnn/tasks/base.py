"""What a user implements to train something else than CTC.

A task knows no process, socket or file but the store. Its methods are pure: what they return
depends on their arguments and on torch's generator (dropout) only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mapreduce_rnn.data.store import Store


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences padded to one length T, with their labels."""

    frames: Tensor  # (B, T, features) float32, zeros behind a sequence's length
    lengths: Tensor  # (B,) int64, always on the CPU: packing needs them there
    targets: Tensor  # (B, longest target) int64, zeros behind
    target_lengths: Tensor  # (B,) int64, always on the CPU

    def to(self, device: torch.device) -> Batch:
        """The batch with frames and targets on ``device``; lengths stay on the CPU."""
        frames = self.frames.to(device, non_blocking=True)
        targets = self.targets.to(device, non_blocking=True)
        return Batch(frames, self.lengths, targets, self.target_lengths)


class Scores(NamedTuple):
    """Per-sequence scores of a batch, in its order."""

    loss: NDArray[np.float64]  # (B,)
    edits: NDArray[np.int64]  # (B,) labels to insert, delete or replace
    reference: NDArray[np.int64]  # (B,) labels of the reference


class Task(ABC):
    """A model, its loss and its score.

    The caller chooses between training and evaluation mode of the model. A batch may lie
    anywhere: it is moved to the model's device.
    """

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A new model on the default device, its parameters drawn from torch's generator."""

    @abstractmethod
    def usable(self, store: Store, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which sequences can be trained on, after the model's own subsampling: bool (n,)."""

    @abstractmethod
    def collate(self, store: Store, indices: NDArray[np.int64], length: int | None = None) -> Batch:
        """The sequences as one batch on the CPU, in the order of ``indices``.

        Args:
            store: Holds the sequences.
            indices: (B,) int64, B >= 1.
            length: T, the frames to pad to: the bucket's boundary, so that all batches of a
                bucket have one shape. None: the longest of these sequences. No result may
                depend on it.

        Raises:
            ValueError: A sequence is longer than ``length``.
        """

    @abstractmethod
    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Loss of each sequence, (B,) float32, with gradients."""

    @abstractmethod
    def score(self, model: nn.Module, batch: Batch) -> Scores:
        """Loss, edits and reference length of each sequence; no gradients."""

    @abstractmethod
    def decode(self, model: nn.Module, batch: Batch) -> list[list[int]]:
        """The labels the model reads in each sequence; no gradients."""

    def notes(self, device: torch.device) -> tuple[str, ...]:
        """Lines for the log: what a task does differently on this device."""
        return ()


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device
