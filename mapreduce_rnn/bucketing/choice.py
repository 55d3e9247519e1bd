"""How many buckets: as few as cost hardly more than the best number.

More buckets mean less padding, but each ends its epoch with a partial batch, whose step costs
nearly as much as that of a full one, and batches drawn from narrow buckets are less random. So
the cost of an epoch is planned for each number Q, from one run of the exact program, and the
smallest Q within 2 % of the best is taken.

The program's own cost curve counts batches as fractions and pads them to the boundary. That is
exact for aligned cuts. Without them an epoch differs in both respects, so it is planned batch by
batch: a bucket of c sequences gives floor(c / b) batches of b and one of the rest. Any of them is
a uniform draw of b of the c sequences and padded to the longest drawn, which is at most v with
the chance

    P(v) = C(N(v), b) / C(c, b),

N(v) being the number of the bucket's sequences up to v; the expected cost of a batch follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.bucketing.cost import CostModel, batches_cost
from mapreduce_rnn.bucketing.histogram import histogram
from mapreduce_rnn.bucketing.limits import Number, check_limits, full_batches
from mapreduce_rnn.bucketing.optimal import optimal_partitions

_Array = NDArray[Any]

MOST = 32  # buckets that are looked at: beyond, padding is a few percent at most
_BATCHES = 4  # of each bucket, on average: fewer are hardly random
_TOLERANCE = 0.02  # of the best planned cost
_ROUNDING = 0.0005  # below that a percentage would be shown as 0.0


@dataclass(frozen=True)
class Choice:
    """A number of buckets, and why."""

    n_buckets: int
    reason: str  # one sentence for a person, without a full stop
    planned: tuple[float, ...]  # planned[q - 1]: cost of an epoch with at most q buckets


def choose_n_buckets(
    lengths: ArrayLike,
    *,
    cost: CostModel,
    batch_size: int | None,
    max_frames: Number | None,
    align: int | None = None,
) -> Choice:
    """The smallest number of buckets whose epoch is planned within 2 % of the best.

    Numbers from 1 to 32 are compared, as long as there are at least 4 batches a bucket (the
    batches of the whole epoch divided by the number of buckets, not those of each bucket), and
    no more than distinct lengths.

    Args:
        lengths: (n,) positive numbers, n >= 1, in any order.
        cost: What a padded sequence or batch costs.
        batch_size: Most sequences in a batch, and
        max_frames: most frames in a padded one; at least one of both.
        align: Batch size of aligned cuts, where batches have static shapes; None where each is
            padded to its longest sequence.

    Returns:
        The choice. Its planned costs go to 32, or to the number of distinct lengths (with
        ``align``, of batch lengths), also where fewer buckets are allowed.

    Raises:
        UsageError: Lengths or limits that are none, or a length beyond a cost table.
    """
    check_limits(batch_size, max_frames)
    partitions = optimal_partitions(lengths, MOST, cost=cost, align=align)
    epoch = _Epoch(lengths, cost, batch_size, max_frames)
    if align is None:
        planned = tuple(epoch.cost_with(buckets.boundaries) for buckets in partitions)
    else:
        planned = tuple(float(planned) for planned in partitions[-1].cost_curve)
    return _choose(planned, epoch.batches)


def _choose(planned: tuple[float, ...], batches: int) -> Choice:
    """The smallest number within the tolerance; see :func:`choose_n_buckets`."""
    most = max(1, min(len(planned), batches // _BATCHES))
    enough = min(planned[:most]) * (1 + _TOLERANCE)
    n_buckets = next(q for q in range(1, most + 1) if planned[q - 1] <= enough)
    return Choice(n_buckets, _reason(n_buckets, most, planned), planned)


def _reason(n_buckets: int, most: int, planned: tuple[float, ...]) -> str:
    """The choice in words."""
    if most == 1:
        return "1 bucket: too few batches or lengths for more"
    limit = f" of {_BATCHES} or more batches" if most < len(planned) else ""
    limit = limit or (", one per length" if most < MOST else "")
    least = min(planned[:most])
    more = planned[n_buckets - 1] / (least or 1) - 1
    above = f"{100 * more:.1f} % above the planned cost of {planned.index(least) + 1}"
    why = above if more > _ROUNDING else "the least planned cost"
    return f"{n_buckets} of up to {most} buckets{limit}: {why}"


class _Epoch:
    """What an epoch is expected to cost whose batches are padded to their longest sequences.

    Attributes:
        batches: Number of batches, as if all were full.
    """

    def __init__(
        self,
        lengths: ArrayLike,
        cost: CostModel,
        batch_size: int | None,
        max_frames: Number | None,
    ) -> None:
        self._values, self._counts = histogram(lengths)
        self._cost = cost
        self._full = full_batches(self._values, batch_size=batch_size, max_frames=max_frames)
        # Rounded: three full batches are not 3.0000000001.
        self.batches = math.ceil(round((self._counts / self._full).sum(), 6))
        factors = np.arange(1, self._counts.sum() + 1)
        self._log_factorials = np.concatenate(([0.0], np.cumsum(np.log(factors))))

    def cost_with(self, boundaries: tuple[Number, ...]) -> float:
        """Cost with these buckets; the last boundary is the longest length."""
        ends = np.searchsorted(self._values, boundaries) + 1
        return math.fsum(self._bucket(slice(*edges)) for edges in pairwise([0, *ends]))

    def _bucket(self, part: slice) -> float:
        """Cost of the batches of one bucket, as full as the limits allow at its boundary."""
        values, upto = self._values[part], np.cumsum(self._counts[part])
        count, full = int(upto[-1]), int(self._full[part][-1])
        sizes = {full: count // full, count % full: 1}
        return math.fsum(
            times * self._batch(values, upto, size) for size, times in sizes.items() if size * times
        )

    def _batch(self, values: _Array, upto: _Array, size: int) -> float:
        """Cost of one batch of that many sequences, drawn from ``upto[k]`` up to ``values[k]``."""
        longest = np.diff(self._chances(upto, size), prepend=0.0)
        return float(longest @ batches_cost(self._cost, np.full(len(values), size), values))

    def _chances(self, upto: _Array, size: int) -> NDArray[np.float64]:
        """P(v): that none of ``size`` sequences drawn is longer than v."""
        logs, count = self._log_factorials, upto[-1]
        possible = np.maximum(upto, size)
        chances = np.exp(
            (logs[possible] - logs[count]) - (logs[possible - size] - logs[count - size])
        )
        return np.where(upto < size, 0.0, chances)
