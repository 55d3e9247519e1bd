"""SlowMo: Wang et al. 2020, SlowMo: improving communication-efficient distributed SGD with slow
momentum (arXiv 1910.00643), algorithm 1.

    u = beta u + (W - mean) / gamma,    W = W - alpha gamma u,

gamma the learning rate of the slots in this round: u is in units of a gradient and stays right
when a schedule changes gamma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mapreduce_rnn.reduce.combine import Float64
from mapreduce_rnn.reduce.options import require_decay, require_positive
from mapreduce_rnn.reduce.outer import OuterRule


@dataclass(frozen=True)
class SlowMo(OuterRule):
    """The mean, with momentum over rounds that follows the learning rate.

    Defaults are those of torch's SlowMomentumOptimizer.
    """

    alpha: float = 1.0  # slow learning rate
    beta: float = 0.5  # slow momentum

    def __post_init__(self) -> None:
        require_positive(self, "alpha")
        require_decay(self, "beta")

    def moments(self) -> Mapping[str, float]:
        """u."""
        return {"slow_momentum": 0.0}

    def step(
        self, change: Float64, moments: Sequence[Float64], learning_rate: float | None
    ) -> tuple[Float64, Sequence[Float64]]:
        """-alpha gamma u.

        Raises:
            ValueError: No learning rate, or one that is not positive.
        """
        if learning_rate is None or learning_rate <= 0:
            raise ValueError(f"expected the round's learning rate, got {learning_rate}")
        momentum = self.beta * moments[0] - change / learning_rate
        return -self.alpha * learning_rate * momentum, [momentum]
