"""Mean and deviation of features, in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Moments:
    """Mean and deviation of frames that come in pieces.

    Pieces are merged by the update of Chan, Golub and LeVeque (1979), which does not cancel as a
    plain sum of squares does for features far from zero, time stamps for one.
    """

    def __init__(self, features: int) -> None:
        self._count = 0
        self._mean = np.zeros(features)
        self._squares = np.zeros(features)  # sum of squared deviations from the mean

    def add(self, frames: NDArray[np.float32]) -> None:
        """Take in a piece, (T, features), T at least 1."""
        piece = frames.astype(np.float64)
        n, mean = len(piece), piece.mean(axis=0)
        delta, total = mean - self._mean, self._count + n
        self._squares += ((piece - mean) ** 2).sum(axis=0) + delta**2 * (self._count * n / total)
        self._mean += delta * (n / total)
        self._count = total

    def result(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation per feature; deviation 1 for a feature that never changes.

        Its squares are exactly 0: n equal float32 values add up in float64 without rounding, for
        n below 2^29.
        """
        std = np.sqrt(self._squares / self._count)
        std[std == 0.0] = 1.0
        return tuple(self._mean.tolist()), tuple(std.tolist())
