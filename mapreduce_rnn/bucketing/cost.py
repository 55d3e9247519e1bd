"""What a partition into buckets costs.

A cost model is one method, :meth:`CostModel.prices`: what one sequence costs when it is padded to
a given length. Longer never costs less; the exact program of ``optimal.py`` needs no more.

Batches are counted as fractions here: c sequences in batches of b cost c / b batches. What the
last, partial batch of a bucket really costs is the business of aligned cuts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.errors import UsageError

Number = int | float
_Array = NDArray[Any]


class CostModel(Protocol):
    """What the optimal partition minimises."""

    def prices(self, lengths: _Array) -> _Array:
        """Cost of one sequence padded to each length.

        Args:
            lengths: (m,) ascending and distinct, positive; int64, float64 or Python integers.

        Returns:
            (m,) finite, 0 or more, never falling; integers are summed exactly.
        """
        ...


@dataclass(frozen=True)
class Frames:
    """The paper's model: a sequence costs the frames it is padded to. Exact for integers."""

    def prices(self, lengths: _Array) -> _Array:
        """The lengths themselves; see :meth:`CostModel.prices`."""
        return lengths


FRAMES = Frames()


@dataclass(frozen=True)
class BatchTime:
    """Time of a training step, linear in what the step computes:

        T(b, L) = a + p L + c b L

    for b sequences padded to L frames. A recurrent step has all three parts: a is paid per step
    (optimizer, launch), p per time step whatever the batch holds (a sequential loop), c per frame.

    A sequence costs its part of a full batch, T(B, L) / B.

    Attributes:
        fixed: a, any unit of time, 0 or more like the other two.
        per_step: p, per frame of the batch's length.
        per_frame: c, per frame of the padded batch.
        batch_size: B, sequences per batch.
    """

    fixed: float
    per_step: float
    per_frame: float
    batch_size: int

    def __post_init__(self) -> None:
        numbers = (self.fixed, self.per_step, self.per_frame)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise UsageError(f"expected costs a, p, c that are finite and 0 or more, got {numbers}")
        if self.batch_size < 1:
            raise UsageError(f"expected a batch size of at least 1, got {self.batch_size}")

    def time(self, size: int, lengths: _Array) -> _Array:
        """T(size, L) of each length: float64, the shape of ``lengths``."""
        long = np.asarray(lengths, np.float64)
        return self.fixed + self.per_step * long + self.per_frame * size * long

    def prices(self, lengths: _Array) -> _Array:
        """T(B, L) / B; see :meth:`CostModel.prices`."""
        return self.time(self.batch_size, lengths) / self.batch_size


@dataclass(frozen=True)
class CostTable:
    """Costs as they were measured or are wished for, linear between the lengths given.

    Lengths below the first cost what the first does; beyond the last there is no answer.

    Attributes:
        lengths: Strictly increasing, positive.
        costs: Cost of one sequence padded to each of them: 0 or more, never falling.
    """

    lengths: tuple[Number, ...]
    costs: tuple[Number, ...]

    def __post_init__(self) -> None:
        lengths, costs = np.asarray(self.lengths, float), np.asarray(self.costs, float)
        if lengths.ndim != 1 or not lengths.size or lengths.shape != costs.shape:
            raise UsageError(f"expected one cost per length, got {costs.size} for {lengths.size}")
        if not (lengths[0] > 0 and np.isfinite(lengths).all() and (np.diff(lengths) > 0).all()):
            raise UsageError("expected a table with lengths above 0 that rise strictly")
        if not (costs[0] >= 0 and np.isfinite(costs).all() and (np.diff(costs) >= 0).all()):
            raise UsageError("expected a table with costs of 0 or more that never fall")

    def prices(self, lengths: _Array) -> _Array:
        """Interpolated costs, float64; see :meth:`CostModel.prices`.

        Raises:
            UsageError: A length beyond the table.
        """
        if lengths[-1] > self.lengths[-1]:
            raise UsageError(
                f"expected a cost table up to length {lengths[-1]}, got one up to "
                f"{self.lengths[-1]}: add the longest length"
            )
        return np.interp(np.asarray(lengths, np.float64), self.lengths, self.costs)


def frames_cost(upper: ArrayLike, counts: ArrayLike) -> Number:
    """Frames of ``counts[k]`` sequences padded to ``upper[k]``, over all k: sum of counts x upper.

    Integers of any width are summed exactly, floats with one rounding per product.
    With lengths as ``upper`` it is the number of frames without padding.
    """
    pairs = zip(np.asarray(counts).tolist(), np.asarray(upper).tolist(), strict=True)
    products = [count * length for count, length in pairs]
    return sum(products) if all(isinstance(p, int) for p in products) else math.fsum(products)


def padding(real: Number, padded: Number) -> float:
    """Share of ``padded`` frames that are padding, 0 to 1; 0 where there are no frames at all."""
    return float((padded - real) / padded) if padded else 0.0
