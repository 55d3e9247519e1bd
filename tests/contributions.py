"""Made-up contributions, and rules by name, for the tests of the reduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.config import MapReduceConfig
from mapreduce_rnn.reduce import Arrays, Contribution, Rule, make_rule

RULES = [
    "mean", "momentum", "nesterov", "slowmo", "adam", "median", "trimmed-mean", "consensus",
]  # fmt: skip
OUTER = ["momentum", "nesterov", "slowmo", "adam"]


def rule(name: str, *options: str, slots: int = 3) -> Rule:
    """The rule of that name, as the options of a run choose it."""
    return make_rule(MapReduceConfig(reduce=name, reduce_option=options, map_tasks=slots))


def value(x: float, dtype: str = "float32") -> Arrays:
    return {"w": np.array([x], dtype)}


def contributions(
    *arrays: Mapping[str, NDArray[Any]], weights: Sequence[int] | None = None
) -> list[Contribution]:
    """One per slot; weight 1 unless told."""
    pairs = zip(weights or [1] * len(arrays), arrays, strict=True)
    return [Contribution(slot, weight, a) for slot, (weight, a) in enumerate(pairs)]


def drawn(rng: np.random.Generator, n: int, dtype: str = "float32", size: int = 50) -> list[Arrays]:
    """``n`` models of one parameter."""
    return [{"w": rng.standard_normal(size).astype(dtype)} for _ in range(n)]
