"""Coordinate-wise median: Yin et al. 2018, Byzantine-robust distributed learning: towards optimal
statistical rates (arXiv 1803.01498), definition 1.

    W = med_i W_i at each position; of an even number, the mean of the middle two
"""

from __future__ import annotations

from dataclasses import dataclass

from mapreduce_rnn.reduce.order import OrderRule


@dataclass(frozen=True)
class Median(OrderRule):
    """The median of the slots' values, position by position; under half of them may be anything."""

    def cut(self, m: int) -> int:
        """All but the middle one or two."""
        return (m - 1) // 2
