"""Sample-weighted mean, the reduce of Khomenko et al. 2016 (arXiv 1708.05604, section 4).

With w_i = n_i / sum n over the contributions that count, in slot order,

    mean = sum_i w_i W_i = W_0 - sum_{i > 0} w_i (W_0 - W_i),

computed in float64 by the second form and rounded once to the model's dtype. Where all W_i are
equal the differences are exact zeros, so identical copies and a single contribution come back bit
for bit; the first form would round. Subtracting, not adding, keeps the sign of a negative zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce.base import (
    Arrays,
    Contribution,
    Reduction,
    Rejected,
    describe,
    differences,
    layout,
)

_Array = NDArray[Any]

_BLOCK = 1 << 16  # values reduced at a time: N float64 rows of 512 kB stay in the cache


class Mean:
    """The mean of the slots' models, weighted by their sequence visits. Keeps no state."""

    def init(self, model: Mapping[str, _Array]) -> Arrays:
        """Nothing to keep."""
        return {}

    def apply(
        self,
        model: Mapping[str, _Array],
        state: Mapping[str, _Array],
        contributions: Iterable[Contribution],
    ) -> Reduction:
        """See :func:`average`."""
        mean, rejected = average(model, contributions)
        return Reduction(mean, {}, rejected)


def average(
    expected: Mapping[str, _Array], contributions: Iterable[Contribution]
) -> tuple[Arrays, tuple[Rejected, ...]]:
    """Weighted mean of named arrays, and the contributions that were left out.

    Floats: the mean above. Integers and booleans (counters): the largest value. The order in
    which contributions arrive changes nothing. Weight 0 or less: skipped without a look.

    Args:
        expected: Names, shapes and dtypes that a contribution must have; values are not read.
        contributions: In any order.

    Returns:
        Fresh arrays like ``expected``, and in slot order the contributions with other names,
        shapes or dtypes, or with a value that is not finite. Nothing of those is in the mean.

    Raises:
        ReduceError: No contribution of positive weight is left.
    """
    weighted = sorted((c for c in contributions if c.weight > 0), key=lambda c: c.slot)
    if not weighted:
        raise ReduceError("expected a contribution of positive weight, got none; model kept")
    fitting, rejected = _split_off_misfits(expected, weighted)
    mean, not_finite = _try_average(expected, fitting)
    if not_finite:
        rejected += not_finite
        out = {r.slot for r in not_finite}
        mean, _ = _try_average(expected, [c for c in fitting if c.slot not in out])
    if mean is None:
        rejected.sort(key=lambda r: r.slot)
        faults = "; ".join(f"slot {r.slot}: {r.name}: {r.reason}" for r in rejected)
        raise ReduceError(f"no contribution can be averaged, model kept ({faults})")
    return mean, tuple(sorted(rejected, key=lambda r: r.slot))


def _split_off_misfits(
    expected: Mapping[str, _Array], contributions: Sequence[Contribution]
) -> tuple[list[Contribution], list[Rejected]]:
    wanted = layout(expected)
    fitting, rejected = [], []
    for contribution in contributions:
        wrong = differences(wanted, layout(contribution.arrays))
        if wrong:
            rejected.append(Rejected(contribution.slot, next(iter(wrong)), describe(wrong)))
        else:
            fitting.append(contribution)
    return fitting, rejected


def _try_average(
    expected: Mapping[str, _Array], contributions: Sequence[Contribution]
) -> tuple[Arrays | None, list[Rejected]]:
    """The mean if all values are finite, or all contributions that have one that is not.

    The search goes on after a find: one pass tells every slot that must be left out.
    """
    if not contributions:
        return None, []
    mean: Arrays = {}
    rejected: dict[int, Rejected] = {}
    total = sum(c.weight for c in contributions)
    weights = [c.weight / total for c in contributions]
    for name, like in expected.items():
        arrays = [np.asarray(c.arrays[name]).reshape(-1) for c in contributions]
        if like.dtype.kind in "biu":
            mean[name] = np.maximum.reduce(arrays).reshape(like.shape)
            continue
        values, bad = _mean(arrays, weights, like.dtype)
        mean[name] = values.reshape(like.shape)
        for slot in (contributions[i].slot for i in bad):
            rejected.setdefault(slot, Rejected(slot, name, "not finite"))
    return (None if rejected else mean), list(rejected.values())


def _mean(
    arrays: Sequence[_Array], weights: Sequence[float], dtype: np.dtype[Any]
) -> tuple[_Array, set[int]]:
    """Mean of flat float arrays, and which of them have a value that is not finite."""
    size = arrays[0].size
    mean = np.empty(size, dtype)
    buffer = np.empty((len(arrays), min(size, _BLOCK)))
    bad: set[int] = set()
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, size, _BLOCK):
            blocks = [array[start : start + _BLOCK] for array in arrays]
            values = _mean_of_block(blocks, weights, buffer[:, : len(blocks[0])])
            if not np.isfinite(values).all():
                bad.update(i for i, block in enumerate(blocks) if not np.isfinite(block).all())
                # If all are finite a difference has overflowed; the first form cannot.
                values = np.einsum("i,ij->j", weights, np.array(blocks, np.float64))
            mean[start : start + _BLOCK] = values
    return mean, bad


def _mean_of_block(
    blocks: Sequence[_Array], weights: Sequence[float], buffer: NDArray[np.float64]
) -> NDArray[np.float64]:
    """W_0 - sum_{i > 0} w_i (W_0 - W_i) of (B,) blocks, in float64, by way of an (N, B) buffer."""
    for row, block in zip(buffer, blocks, strict=True):
        row[:] = block
    first, others = buffer[0], buffer[1:]
    np.subtract(first, others, out=others)
    shift: NDArray[np.float64] = np.einsum("i,ij->j", weights[1:], others)  # in slot order
    np.subtract(first, shift, out=shift)
    return shift
