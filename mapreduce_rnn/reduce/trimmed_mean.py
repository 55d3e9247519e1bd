"""Coordinate-wise trimmed mean: Yin et al. 2018, Byzantine-robust distributed learning: towards
optimal statistical rates (arXiv 1803.01498), definition 2.

    W = mean of W_i at each position, without the floor(trim m) smallest and largest of m values
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mapreduce_rnn.reduce.options import require
from mapreduce_rnn.reduce.order import OrderRule


@dataclass(frozen=True)
class TrimmedMean(OrderRule):
    """The mean of the slots' values without extremes, position by position.

    With the default nothing is trimmed in rounds of less than five: ``trim=0.34`` does it from
    three on.
    """

    trim: float = 0.2  # share left out at each end

    def __post_init__(self) -> None:
        require(0 <= self.trim < 0.5, "trim", "at least 0 and less than 0.5", self.trim)

    def cut(self, m: int) -> int:
        """floor(trim m), of trim as it is written: in floats 0.29 x 100 is less than 29."""
        return math.floor(Fraction(str(self.trim)) * m)
