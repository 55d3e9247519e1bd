"""Nesterov momentum on the mean, as in DiLoCo: Douillard et al. 2023 (arXiv 2311.08105).

    D = momentum D + G,    W = W + lr (G + momentum D)

This is torch.optim.SGD(lr, momentum, nesterov=True) on the gradient -G. What others call Nesterov
differs: in where the gradient is taken, or in whether lr is inside D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mapreduce_rnn.reduce.combine import Float64
from mapreduce_rnn.reduce.options import require_decay, require_positive
from mapreduce_rnn.reduce.outer import OuterRule


@dataclass(frozen=True)
class Nesterov(OuterRule):
    """The mean, with Nesterov momentum over rounds; defaults as in DiLoCo.

    With lr 1 and momentum 0 the mean, bit for bit.
    """

    lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        require_positive(self, "lr")
        require_decay(self, "momentum")

    def moments(self) -> Mapping[str, float]:
        """D."""
        return {"momentum": 0.0}

    def step(
        self, change: Float64, moments: Sequence[Float64], learning_rate: float | None
    ) -> tuple[Float64, Sequence[Float64]]:
        """lr (G + momentum D)."""
        momentum = self.momentum * moments[0] + change
        return self.lr * (change + self.momentum * momentum), [momentum]
