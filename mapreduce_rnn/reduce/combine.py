"""What every rule begins with: find out who counts, and reduce the arrays that fit, name by name.

Whatever a rule makes of floats, these hold: contributions are taken in slot order; weight 0 or less
is skipped without a look; other names, shapes or dtypes, and values that are not finite, are left
out by name; integers and booleans (counters) become their largest value; results are fresh arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce.base import (
    Arrays,
    Contribution,
    Rejected,
    describe,
    differences,
    layout,
)

Array = NDArray[Any]
Float64 = NDArray[np.float64]

OfBlock = Callable[[Sequence[Array], Sequence[float], Float64], Float64]
"""What a rule makes of N values at each of B positions.

Gets the slots' (B,) floats in slot order, which it must not change; their N weights, which sum to
1; and room to compute in, (SCRATCH_ROWS, B), where the result may lie: fresh memory for each block
would cost a fifth of the time. Gives (B,), not finite where one of the values is not.
"""

SCRATCH_ROWS = 3

_BLOCK = 1 << 15  # positions reduced at a time: a few float64 rows of 256 kB stay in the cache


def combine(
    expected: Mapping[str, Array], contributions: Iterable[Contribution], of_block: OfBlock
) -> tuple[Arrays, tuple[Rejected, ...]]:
    """Reduced arrays like ``expected``, and in slot order the contributions that were left out.

    Args:
        expected: Names, shapes and dtypes that a contribution must have; values are not read.
        contributions: In any order.
        of_block: For the floats.

    Raises:
        ReduceError: No contribution of positive weight is left.
    """
    weighted = sorted((c for c in contributions if c.weight > 0), key=lambda c: c.slot)
    if not weighted:
        raise ReduceError("expected a contribution of positive weight, got none; model kept")
    fitting, rejected = _split_off_misfits(expected, weighted)
    reduced, not_finite = _try(expected, fitting, of_block)
    if not_finite:
        rejected += not_finite
        out = {r.slot for r in not_finite}
        reduced, _ = _try(expected, [c for c in fitting if c.slot not in out], of_block)
    rejected.sort(key=lambda r: r.slot)
    if reduced is None:
        faults = "; ".join(f"slot {r.slot}: {r.name}: {r.reason}" for r in rejected)
        raise ReduceError(f"no contribution can be averaged, model kept ({faults})")
    return reduced, tuple(rejected)


def blockwise(
    arrays: Sequence[Array], weights: Sequence[float], dtype: np.dtype[Any], of_block: OfBlock
) -> tuple[Array, set[int]]:
    """``of_block`` over flat arrays of one size, in blocks that stay in the cache.

    Returns:
        The result in ``dtype``, and the positions of the arrays that are not finite everywhere.
    """
    result = np.empty(arrays[0].size, dtype)
    scratch = np.empty((SCRATCH_ROWS, min(result.size, _BLOCK)))
    bad: set[int] = set()
    with np.errstate(invalid="ignore", over="ignore"):
        for at in blocks(result.size):
            pieces = [array[at] for array in arrays]
            result[at] = values = of_block(pieces, weights, scratch[:, : pieces[0].size])
            if not all_finite(values):
                bad |= {i for i, piece in enumerate(pieces) if not all_finite(piece)}
    return result, bad


def blocks(size: int) -> Iterator[slice]:
    """Slices over ``size`` positions, a block each."""
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def all_finite(values: Array) -> bool:
    """Whether all floats are finite. Their sum tells most times, in a single pass."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum()
    return math.isfinite(total) or bool(np.isfinite(values).all())


def is_float(array: Array) -> bool:
    """Whether an array is reduced by the rule's formula; all others are counters."""
    return array.dtype.kind == "f"


def _split_off_misfits(
    expected: Mapping[str, Array], contributions: Sequence[Contribution]
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


def _try(
    expected: Mapping[str, Array], contributions: Sequence[Contribution], of_block: OfBlock
) -> tuple[Arrays | None, list[Rejected]]:
    """The result if all values are finite, or all contributions that have one that is not.

    The search goes on after a find: one pass tells every slot that must be left out.
    """
    if not contributions:
        return None, []
    reduced: Arrays = {}
    rejected: dict[int, Rejected] = {}
    total = sum(c.weight for c in contributions)
    weights = [c.weight / total for c in contributions]
    for name, like in expected.items():
        arrays = [np.asarray(c.arrays[name]).reshape(-1) for c in contributions]
        if is_float(like):
            values, bad = blockwise(arrays, weights, like.dtype, of_block)
        else:
            values, bad = np.maximum.reduce(arrays), set()
        reduced[name] = values.reshape(like.shape)
        for slot in (contributions[i].slot for i in bad):
            rejected.setdefault(slot, Rejected(slot, name, "not finite"))
    return (None if rejected else reduced), list(rejected.values())
