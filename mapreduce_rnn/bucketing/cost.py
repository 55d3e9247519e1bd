"""What a partition into buckets costs.

A cost model is one method, :meth:`CostModel.prices`: what one sequence costs when it is padded to
a given length. Longer never costs less; the exact program of ``optimal.py`` needs no more.

The program counts batches as fractions: c sequences in batches of b cost c / b batches. What real
batches cost, partial ones too, is :func:`batches_cost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.limits import Number, check_limits, full_batches
from mapreduce_rnn.errors import UsageError

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

    A sequence costs its part of a full batch, T(b(L), L) / b(L), where b(L) is the most that the
    limits allow at that length (:func:`full_batches`). That is (a + p L) / b(L) + c L, and it never
    falls, since b(L) never grows with L.

    Attributes:
        fixed: a, any unit of time, 0 or more like the other two.
        per_step: p, per frame of the batch's length.
        per_frame: c, per frame of the padded batch.
        batch_size: Most sequences in a batch; None where ``max_frames`` alone is the limit.
        max_frames: Most frames in a padded batch; a longer sequence goes alone. None: no limit.
    """

    fixed: float
    per_step: float
    per_frame: float
    batch_size: int | None
    max_frames: Number | None = None

    def __post_init__(self) -> None:
        numbers = (self.fixed, self.per_step, self.per_frame)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise UsageError(f"expected costs a, p, c that are finite and 0 or more, got {numbers}")
        check_limits(self.batch_size, self.max_frames)

    def time(self, sizes: ArrayLike, lengths: ArrayLike) -> NDArray[np.float64]:
        """T(b, L) of batches of these sizes padded to these lengths; float64 of their shape."""
        size, long = np.asarray(sizes, np.float64), np.asarray(lengths, np.float64)
        return self.fixed + self.per_step * long + self.per_frame * size * long

    def prices(self, lengths: _Array) -> _Array:
        """T(b(L), L) / b(L), float64; see :meth:`CostModel.prices`."""
        full = full_batches(lengths, batch_size=self.batch_size, max_frames=self.max_frames)
        long = np.asarray(lengths, np.float64)
        # In this order rounding can't make a longer one cheaper.
        return (self.fixed + self.per_step * long) / full + self.per_frame * long


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
            raise UsageError("expected a table with finite lengths above 0 that rise strictly")
        if not (costs[0] >= 0 and np.isfinite(costs).all() and (np.diff(costs) >= 0).all()):
            raise UsageError("expected a table with finite costs of 0 or more that never fall")

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


def batches_cost(cost: CostModel, sizes: ArrayLike, longest: ArrayLike) -> NDArray[np.float64]:
    """What real batches cost, partial ones too.

    With :class:`BatchTime` T(size, L). Other models know the price of one sequence only, padded
    to the batch's length: size x g(L).

    Args:
        cost: The model.
        sizes: (k,) sequences per batch; k may be 0.
        longest: (k,) length that each batch is padded to, in any order.

    Returns:
        (k,) in the unit of the model.

    Raises:
        UsageError: A length beyond a cost table.
    """
    if isinstance(cost, BatchTime):
        return cost.time(sizes, longest)
    values, place = np.unique(np.asarray(longest), return_inverse=True)
    if not values.size:
        return np.zeros(0)
    return np.asarray(sizes, np.float64) * np.asarray(cost.prices(values), np.float64)[place]


def parse_cost(text: str, *, batch_size: int | None, max_frames: Number | None) -> CostModel:
    """The cost model that ``--bucket-cost`` names.

    Args:
        text: ``frames``; ``A,P,C`` as in :class:`BatchTime`; ``LENGTH:COST,...`` as in
            :class:`CostTable`. Not ``measured``: that is made numbers before anybody computes.
        batch_size: Most sequences in a batch, and
        max_frames: most frames in a padded one; at least one of both.

    Raises:
        UsageError: Anything else, in one line that names the option.
        ValueError: ``measured``: the caller's mistake, not the user's.
    """
    if text == "measured":
        raise ValueError("expected measured costs as the numbers A,P,C")
    if text == "frames":
        return FRAMES
    syntax = "frames, measured, A,P,C or LENGTH:COST,..."
    try:
        if ":" in text:
            lengths, costs = zip(*(_numbers(pair, ":", 2) for pair in text.split(",")), strict=True)
            return CostTable(lengths, costs)
        fixed, per_step, per_frame = _numbers(text, ",", 3)
        return BatchTime(fixed, per_step, per_frame, batch_size, max_frames)
    except ValueError:
        raise UsageError(f"--bucket-cost must be {syntax}, got {text!r}") from None
    except UsageError as error:
        raise UsageError(f"--bucket-cost {text}: {error}; it takes {syntax}") from None


def _numbers(text: str, separator: str, count: int) -> list[float]:
    """Exactly ``count`` numbers, or a ValueError."""
    numbers = [float(part) for part in text.split(separator)]
    if len(numbers) != count:
        raise ValueError
    return numbers
