"""A task for whole runs in milliseconds: to tell how many labels a sequence has."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from mapreduce_rnn.tasks import Batch, CtcTask
from mapreduce_rnn.tasks.base import Scores


class FrameNet(nn.Module):
    """The mean over a sequence's frames of what two layers make of each."""

    def __init__(self, features: int, units: int, between: nn.Module) -> None:
        super().__init__()
        self.hidden = nn.Linear(features, units)
        self.between = between
        self.output = nn.Linear(units, 1)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """(B, T, features), (B,) to (B,); padding has no influence."""
        inside = torch.arange(frames.shape[1]) < lengths.unsqueeze(1)  # (B, T)
        values = self.output(self.between(torch.tanh(self.hidden(frames)))).squeeze(2)
        return (values * inside).sum(dim=1) / lengths


class SmallTask(CtcTask):
    """Squared error of a guess; of the options of a model, units and dropout are read."""

    dtype = torch.float32

    def build_model(self) -> nn.Module:
        features, units = len(self._meta.feature_names), self._options.units
        return FrameNet(features, units, nn.Dropout(self._options.dropout)).to(self.dtype)

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        guesses: Tensor = model(batch.frames.to(self.dtype), batch.lengths)
        return (guesses - batch.target_lengths).square()

    def score(self, model: nn.Module, batch: Batch) -> Scores:
        loss = self.losses(model, batch).double().numpy()
        return Scores(loss, np.zeros(len(loss), np.int64), batch.target_lengths.numpy())

    def decode(self, model: nn.Module, batch: Batch) -> list[list[int]]:
        return [[] for _ in batch.lengths]


class DoubleTask(SmallTask):
    """In float64, where sums in another order differ in the last digits only."""

    dtype = torch.float64


class TiedTask(DoubleTask):
    """One weight under two names; with as many units as features."""

    def build_model(self) -> nn.Module:
        net = super().build_model()
        net.between = nn.Linear(self._options.units, self._options.units, dtype=self.dtype)
        net.between.weight = net.hidden.weight
        return net


class NormalisedTask(SmallTask):
    """With running statistics and a counter beside the parameters, and with dropout."""

    def build_model(self) -> nn.Module:
        net = super().build_model()
        net.between = nn.Sequential(_FrameNorm(self._options.units), net.between)
        return net


class _FrameNorm(nn.BatchNorm1d):
    def forward(self, frames: Tensor) -> Tensor:
        return super().forward(frames.flatten(0, 1)).view_as(frames)
