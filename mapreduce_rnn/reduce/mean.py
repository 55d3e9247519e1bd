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


def weighted_mean(values: Sequence[Array], weights: Sequence[float]) -> Float64:
    """W_0 - sum_{i > 0} w_i (W_0 - W_i) of N arrays (B,), in float64 and in their order."""
    first = values[0].astype(np.float64)
    shift, difference = np.zeros_like(first), np.empty_like(first)
    for value, weight in zip(values[1:], weights[1:], strict=True):
        difference[:] = value
        np.subtract(first, difference, out=difference)
        difference *= weight
        shift += difference
    np.subtract(first, shift, out=shift)
    if not all_finite(shift):  # a difference may have overflowed; the first form cannot
        np.einsum("i,ij->j", weights, np.array(values, np.float64), out=shift)
    return shift
