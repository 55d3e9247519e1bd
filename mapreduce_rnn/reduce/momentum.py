"""Block momentum (BMUF): Chen and Huo 2016, Scalable training of deep learning machines by
incremental block training with intra-block parallel optimization and blockwise model-update
filtering, ICASSP.

    D = eta D + zeta G,    W = W + D
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mapreduce_rnn.reduce.combine import Float64
from mapreduce_rnn.reduce.options import require_decay, require_positive
from mapreduce_rnn.reduce.outer import OuterRule


@dataclass(frozen=True)
class Momentum(OuterRule):
    """The mean, with momentum over rounds. With eta 0 and zeta 1 the mean, bit for bit.

    The paper's advice is eta = 1 - 1/N for N slots, the default, and zeta = 1; it is for long
    rounds.
    """

    eta: float  # momentum
    zeta: float = 1.0  # learning rate of the block

    def __post_init__(self) -> None:
        require_decay(self, "eta")
        require_positive(self, "zeta")

    @classmethod
    def for_slots(cls, n_slots: int, **given: Any) -> Self:
        """See :meth:`Rule.for_slots`; eta depends on the slots."""
        return cls(**{"eta": 1 - 1 / n_slots} | given)

    def moments(self) -> Mapping[str, float]:
        """D."""
        return {"momentum": 0.0}

    def step(
        self, change: Float64, moments: Sequence[Float64], learning_rate: float | None
    ) -> tuple[Float64, Sequence[Float64]]:
        """D."""
        momentum = self.eta * moments[0] + self.zeta * change
        return momentum, [momentum]
