"""Consensus: Jiang et al. 2017, Collaborative deep learning in fixed topology networks (CDSGD,
arXiv 1706.07880), equation 5.

Every slot keeps a model x_j of its own. It trains from it, and then the models mix:

    x_j = sum_l Pi_jl x_l,    Pi symmetric, non-negative, each row with sum 1

Mixing leaves the mean over slots as it is, and shrinks what the models differ by to at most
lambda_2, the second largest absolute eigenvalue of Pi, of what it was. The global model, which is
validated and saved, is the mean over slots. Local momentum is not mixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from mapreduce_rnn.reduce.base import Arrays, Contribution, Reduction, Rule
from mapreduce_rnn.reduce.combine import Array, Float64, blockwise, is_float
from mapreduce_rnn.reduce.mean import average, weighted_mean
from mapreduce_rnn.reduce.options import require

TOLERANCE = 1e-9
"""How far a given matrix may be from symmetric and from rows with sum 1."""


@dataclass(frozen=True)
class Consensus(Rule):
    """Models that slots keep to themselves and mix with those of their neighbours.

    In state: ``slot-<k>/<name>``, the model that slot k starts the next round from, dtypes as in
    the global model; nothing before round 1, when all start from that.
    """

    n_slots: int
    topology: str = "ring"  # who mixes with whom, all in equal shares
    matrix: str = ""  # Pi instead of a topology: numbers with spaces, rows with semicolons

    def __post_init__(self) -> None:
        _ = self.mixing  # refused here rather than in round 1

    @classmethod
    def for_slots(cls, n_slots: int, **given: Any) -> Self:
        """See :meth:`Rule.for_slots`."""
        return cls(n_slots, **given)

    @cached_property
    def mixing(self) -> Float64:
        """Pi, (n_slots, n_slots)."""
        return given_matrix(self.matrix, self.n_slots) if self.matrix else self._of_topology()

    def _of_topology(self) -> Float64:
        n = self.n_slots
        known = self.topology in ("ring", "torus", "full")
        require(known, "topology", "ring, torus or full", self.topology)
        if self.topology == "full":
            return np.full((n, n), 1 / n)
        rows = 1 if self.topology == "ring" else _most_square(n)
        return torus(rows, n // rows)

    def start(
        self, model: Mapping[str, Array], state: Mapping[str, Array], slot: int
    ) -> Mapping[str, Array]:
        """The slot's own model."""
        return {name: state.get(f"slot-{slot}/{name}", array) for name, array in model.items()}

    def apply(
        self,
        model: Mapping[str, Array],
        state: Mapping[str, Array],
        contributions: Iterable[Contribution],
        learning_rate: float | None = None,
    ) -> Reduction:
        """Mix the slots' models; n_i only tells whether a slot has trained at all.

        A slot that has not, or that is left out, enters the mix with the model it had before the
        round. Counters take the largest value of those that have trained, in every slot.
        """
        contributions = list(contributions)
        newest, rejected = average(model, contributions)  # for its checks and its counters
        out = {r.slot for r in rejected}
        trained = {c.slot: c.arrays for c in contributions if c.weight > 0 and c.slot not in out}
        slots = range(self.n_slots)
        models = [trained.get(slot, self.start(model, state, slot)) for slot in slots]
        mixed = [self._mix(models, slot, newest) for slot in slots]
        mean, _ = average(model, [Contribution(slot, 1, mixed[slot]) for slot in slots])
        own = {f"slot-{k}/{name}": a for k in slots for name, a in mixed[k].items()}
        return Reduction(mean, own, rejected)

    def _mix(self, models: Sequence[Mapping[str, Array]], slot: int, newest: Arrays) -> Arrays:
        """x_j of a slot; its own model first, so that equal ones stay, bit for bit."""
        shares = self.mixing[slot]
        sources = [slot, *(k for k in range(self.n_slots) if k != slot and shares[k])]
        weights = [float(shares[source]) for source in sources]
        mixed: Arrays = {}
        for name, like in newest.items():
            arrays = [np.asarray(models[source][name]).reshape(-1) for source in sources]
            if is_float(like):
                values, _ = blockwise(arrays, weights, like.dtype, weighted_mean)
                mixed[name] = values.reshape(like.shape)
            else:
                mixed[name] = like.copy()
        return mixed


def torus(rows: int, columns: int) -> Float64:
    """Pi of slots on a grid whose edges meet: equal shares for a slot and its neighbours.

    A slot has up to four; on a grid of one row, a ring, up to two. Slot = row x columns + column.
    """
    n = rows * columns
    mixing = np.zeros((n, n))
    for slot in range(n):
        row, column = divmod(slot, columns)
        for down, right in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)):
            mixing[slot, (row + down) % rows * columns + (column + right) % columns] = 1
    shares: Float64 = mixing / mixing.sum(axis=1, keepdims=True)
    return shares


def _most_square(n: int) -> int:
    """Rows of the grid of ``n`` slots that is nearest to a square."""
    rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    require(rows > 1, "topology", f"ring or full: {n} slots make no grid", "torus")
    return rows


def given_matrix(text: str, n_slots: int) -> Float64:
    """Pi from ``"0.5 0.5; 0.5 0.5"``.

    Raises:
        UsageError: It is not (n_slots, n_slots), symmetric, of numbers from 0 to 1, rows of sum 1.
    """
    rows = [row.split() for row in text.split(";")]
    square = all(len(row) == len(rows) == n_slots for row in rows)
    require(square, "matrix", f"{n_slots} rows of {n_slots} numbers", text)
    try:
        mixing = np.array(rows, np.float64)
    except ValueError:
        mixing = np.full((n_slots, n_slots), np.nan)
    shares = (mixing >= 0) & (mixing <= 1 + TOLERANCE)  # not a number is neither
    require(bool(shares.all()), "matrix", "of numbers from 0 to 1", text)
    require(bool((abs(mixing - mixing.T) <= TOLERANCE).all()), "matrix", "symmetric", text)
    sums = mixing.sum(axis=1)
    require(bool((abs(sums - 1) <= TOLERANCE).all()), "matrix", "of rows with sum 1", text)
    return mixing
