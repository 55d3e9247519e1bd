"""The cost of a batch from measured times: T(b, L) = a + p L + c b L, with a, p, c >= 0.

Relative errors are what counts, so that the short batches, most of an epoch, weigh as much as the
long ones: minimise

    sum_k ((a + p L_k + c b_k L_k) / t_k - 1)^2      over a, p, c >= 0

Non-negative least squares with three unknowns needs no iteration. At the optimum some of them are
0 and the others solve the plain least squares problem on their own columns (Lawson and Hanson,
*Solving Least Squares Problems*, 1974, chapter 23), and there are seven such choices: solve each,
drop those with a negative number, keep the best.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mapreduce_rnn.errors import UsageError

_Floats = NDArray[np.float64]

FEWEST_POINTS = 4
"""Three unknowns pass through three points whatever was measured."""

_SUPPORTS = tuple(s for size in (1, 2, 3) for s in combinations(range(3), size))


@dataclass(frozen=True)
class BatchTimeFit:
    """What was fitted, and how well.

    Attributes:
        fixed: a, in seconds per batch.
        per_step: p, in seconds per frame of the batch's length.
        per_frame: c, in seconds per frame of the padded batch.
        error: Median of abs(T / t - 1) over the points.
    """

    fixed: float
    per_step: float
    per_frame: float
    error: float


def fit_batch_time(sizes: ArrayLike, lengths: ArrayLike, seconds: ArrayLike) -> BatchTimeFit:
    """Fit the batch time model to measured points.

    Where the points cannot tell the unknowns apart (one size only, say), one of the equally good
    answers is given; it predicts batches like the measured ones.

    Args:
        sizes: (k,) sequences of each measured batch, b.
        lengths: (k,) frames it was padded to, L.
        seconds: (k,) time of a training step on it, t.

    Raises:
        UsageError: Fewer than 4 points, other shapes, or values that are not positive and finite.
    """
    b, length, t = _checked(sizes, lengths, seconds)
    rows = np.stack([np.ones_like(t), length, b * length], axis=1) / t[:, None]  # (k, 3)
    best = min(_candidates(rows), key=lambda x: float(np.square(rows @ x - 1).sum()))
    fixed, per_step, per_frame = best.tolist()
    error = float(np.median(np.abs(rows @ best - 1)))
    return BatchTimeFit(fixed, per_step, per_frame, error)


def _checked(*columns: ArrayLike) -> tuple[_Floats, ...]:
    arrays: list[NDArray[Any]] = [np.asarray(column, np.float64) for column in columns]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 1:
        raise UsageError(f"expected flat lists of one length, got shapes {sorted(shapes)}")
    if len(arrays[0]) < FEWEST_POINTS:
        raise UsageError(f"expected at least {FEWEST_POINTS} points, got {len(arrays[0])}")
    for array in arrays:
        wrong = array[~(np.isfinite(array) & (array > 0))]
        if wrong.size:
            raise UsageError(f"expected positive, finite sizes, lengths and times, got {wrong[0]}")
    return tuple(arrays)


def _candidates(rows: _Floats) -> Iterable[_Floats]:
    """The non-negative ones of the least squares solutions of rows @ x = 1 on each support.

    A single column, positive throughout, always gives one.
    """
    scale = np.linalg.norm(rows, axis=0)  # columns differ by the padded size, 1e5 and more
    for support in map(list, _SUPPORTS):
        x = np.zeros(rows.shape[1])
        part = rows[:, support] / scale[support]
        x[support] = np.linalg.lstsq(part, np.ones(len(rows)), rcond=None)[0] / scale[support]
        if (x >= 0).all():
            yield x
