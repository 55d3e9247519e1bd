"""FedAdam: Reddi et al. 2021, Adaptive federated optimization (arXiv 2003.00295), algorithm 2.

    m = beta1 m + (1 - beta1) G,    v = beta2 v + (1 - beta2) G^2,    W = W + lr m / (sqrt(v) + tau)

without bias correction; m starts at 0 and v at tau^2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mapreduce_rnn.reduce.combine import Float64
from mapreduce_rnn.reduce.options import require_decay, require_positive
from mapreduce_rnn.reduce.outer import OuterRule


@dataclass(frozen=True)
class Adam(OuterRule):
    """Adam over rounds; no parameter moves by much more than lr in a round.

    beta1, beta2 and tau by default as in the paper's experiments, which tune lr from task to task.
    """

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3  # below this change of a parameter, its step gets smaller

    def __post_init__(self) -> None:
        require_positive(self, "lr", "tau")
        require_decay(self, "beta1", "beta2")

    def moments(self) -> Mapping[str, float]:
        """m and v."""
        return {"first_moment": 0.0, "second_moment": self.tau**2}

    def step(
        self, change: Float64, moments: Sequence[Float64], learning_rate: float | None
    ) -> tuple[Float64, Sequence[Float64]]:
        """lr m / (sqrt(v) + tau)."""
        first = self.beta1 * moments[0] + (1 - self.beta1) * change
        second = self.beta2 * moments[1] + (1 - self.beta2) * change**2
        return self.lr * first / (np.sqrt(second) + self.tau), [first, second]
