"""Sample-weighted mean, the reduce of Khomenko et al. 2016 (arXiv 1708.05604, section 4).

With w_i = n_i / sum n over the contributions that count, in slot order,

    mean = sum_i w_i W_i = W_0 - sum_{i > 0} w_i (W_0 - W_i),

computed in float64 by the second form and rounded once to the model's dtype. Where all W_i are
equal the differences are exact zeros, so identical copies and a single contribution come back bit
for bit; the first form would round. Subtracting, not adding, keeps the sign of a negative zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mapreduce_rnn.reduce.base import Arrays, Contribution, Reduction, Rejected, Rule
from mapreduce_rnn.reduce.combine import Array, Float64, all_finite, combine


@dataclass(frozen=True)
class Mean(Rule):
    """The mean of the slots' models, weighted by their sequence visits. Keeps no state."""

    def apply(
        self,
        model: Mapping[str, Array],
        state: Mapping[str, Array],
        contributions: Iterable[Contribution],
        learning_rate: float | None = None,
    ) -> Reduction:
        """See :func:`average`."""
        mean, rejected = average(model, contributions)
        return Reduction(mean, {}, rejected)


def average(
    expected: Mapping[str, Array], contributions: Iterable[Contribution]
) -> tuple[Arrays, tuple[Rejected, ...]]:
    """Weighted mean of named arrays, and the contributions that were left out.

    Who counts, and what is raised: :func:`mapreduce_rnn.reduce.combine.combine`.
    """
    return combine(expected, contributions, weighted_mean)


def weighted_mean(values: Sequence[Array], weights: Sequence[float], scratch: Float64) -> Float64:
    """W_0 - sum_{i > 0} w_i (W_0 - W_i) of N arrays (B,), in float64 and in their order.

    A :data:`mapreduce_rnn.reduce.combine.OfBlock`.
    """
    first: Float64 = scratch[0]
    shift: Float64 = scratch[1]
    difference: Float64 = scratch[2]
    first[:] = values[0]
    if len(values) == 1:
        return first
    _weigh_difference(first, values[1], weights[1], out=shift)
    for value, weight in zip(values[2:], weights[2:], strict=True):
        _weigh_difference(first, value, weight, out=difference)
        shift += difference
    np.subtract(first, shift, out=shift)
    if not all_finite(shift):  # a difference may have overflowed; the first form cannot
        np.einsum("i,ij->j", weights, np.array(values, np.float64), out=shift)
    return shift


def _weigh_difference(first: Float64, value: Array, weight: float, out: Float64) -> None:
    out[:] = value  # cast alone and then subtracted: faster than a subtraction of two dtypes
    np.subtract(first, out, out=out)
    out *= weight
