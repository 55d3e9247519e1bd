"""What the rules of order statistics share: a mean without the extremes, position by position.

Every slot has the same say: n_i only tells whether it has trained at all. What is left of the m
sorted values at a position is averaged like identical weights, so identical copies come back bit
for bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.reduce.base import Contribution, Reduction, Rule
from mapreduce_rnn.reduce.combine import Array, Float64, all_finite, combine
from mapreduce_rnn.reduce.mean import weighted_mean

LEAST_SLOTS = 3
"""With fewer, no value lies between others."""


class OrderRule(Rule):
    """A rule that is its ``cut``. Keeps no state.

    In a round where fewer than three slots have trained on something finite the formula stays the
    same, and of one or two values it is the mean: as with other rules, the run goes on without
    the others, but nothing guards it in that round.
    """

    @classmethod
    def for_slots(cls, n_slots: int, **given: Any) -> Self:
        """See :meth:`Rule.for_slots`; at least three slots."""
        if n_slots < LEAST_SLOTS:
            raise UsageError(
                f"--reduce: a median or trimmed mean needs at least {LEAST_SLOTS} map tasks, got "
                f"{n_slots}; raise --map-tasks or choose mean"
            )
        return cls(**given)

    @abstractmethod
    def cut(self, m: int) -> int:
        """How many of ``m`` values are left out at each end; less than m / 2."""

    def apply(
        self,
        model: Mapping[str, Array],
        state: Mapping[str, Array],
        contributions: Iterable[Contribution],
        learning_rate: float | None = None,
    ) -> Reduction:
        """The mean of what is left at each position; counters take their largest value."""
        reduced, rejected = combine(model, contributions, self._of_block)
        return Reduction(reduced, {}, rejected)

    def _of_block(
        self, values: Sequence[Array], weights: Sequence[float], scratch: Float64
    ) -> Float64:
        rows = np.array(values, np.float64)
        if not all_finite(rows):  # sorting would put it where it is cut off
            return np.full(rows.shape[1], np.nan)
        rows.sort(axis=0)
        cut = self.cut(len(rows))
        left = rows[cut : len(rows) - cut]
        return weighted_mean(list(left), [1 / len(left)] * len(left), scratch)
