"""What a reduce rule gets and gives.

A rule is ``init``, ``start`` and ``apply``; all it keeps from round to round is named arrays,
which go into every checkpoint. Names are those of a model's state dict, or any others that all
sides share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Kind = tuple[tuple[int, ...], np.dtype[Any]]  # shape, dtype; names of dtypes are slow to get
Layout = dict[str, Kind]

_LISTED = 3  # differing names spelt out; a prefix on every name would fill the screen


@dataclass(frozen=True)
class Contribution:
    """What a slot returns from a round; its arrays may be read-only and misaligned."""

    slot: int
    weight: int  # n_i: sequence visits whose step was applied
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Rejected:
    """A contribution that was left out, and why."""

    slot: int
    name: str  # of the first array at fault
    reason: str  # one line


@dataclass(frozen=True)
class Reduction:
    """The next global model, and what the rule keeps for the next round."""

    model: Arrays
    state: Arrays
    rejected: tuple[Rejected, ...]  # in slot order


@dataclass(frozen=True)
class Rule(ABC):
    """A reduce rule; its fields are its options."""

    @classmethod
    def for_slots(cls, n_slots: int, **given: Any) -> Self:
        """The rule for runs of ``n_slots`` slots; options that are not ``given`` by default.

        Raises:
            UsageError: An option out of its range, or too few slots for the rule.
        """
        return cls(**given)

    def init(self, parameters: Mapping[str, NDArray[Any]]) -> Arrays:
        """State before round 1; empty unless the rule says otherwise.

        Args:
            parameters: Those arrays of the model that optimizers step on. Buffers, such as
                running statistics, are left out: no outer step is for them.
        """
        return {}

    def start(
        self,
        model: Mapping[str, NDArray[Any]],
        state: Mapping[str, NDArray[Any]],
        slot: int,
    ) -> Mapping[str, NDArray[Any]]:
        """What a slot starts the next round from; the global model unless the rule says otherwise.

        Args:
            model: The global model.
            state: The rule's.
            slot: From 0.
        """
        return model

    @abstractmethod
    def apply(
        self,
        model: Mapping[str, NDArray[Any]],
        state: Mapping[str, NDArray[Any]],
        contributions: Iterable[Contribution],
        learning_rate: float | None = None,
    ) -> Reduction:
        """Reduce one round; arguments are never modified.

        Args:
            model: The global model from before the round.
            state: The rule's, from before the round.
            contributions: In any order.
            learning_rate: The round's, of the slots; only ``slowmo`` asks for it.

        Raises:
            ReduceError: Nothing can be averaged; the old model and state stay valid.
        """


def layout(arrays: Mapping[str, NDArray[Any]]) -> Layout:
    """Shapes and dtypes by name."""
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def differences(expected: Layout, got: Layout) -> dict[str, str]:
    """What ``got`` has different from ``expected``: name -> a few words. Order does not count."""
    wrong = {name: "missing" for name in expected if name not in got}
    wrong |= {name: "not expected" for name in got if name not in expected}
    for name in expected.keys() & got.keys():
        if expected[name] != got[name]:
            wrong[name] = f"{_spelt(got[name])} instead of {_spelt(expected[name])}"
    return dict(sorted(wrong.items()))


def describe(wrong: Mapping[str, str]) -> str:
    """Differences as one line; the first few of each kind, so that no kind hides another."""
    kinds: dict[str, list[str]] = {}
    for name, what in wrong.items():
        kinds.setdefault(what, []).append(name)
    return "; ".join(f"{what}: {_shortened(names)}" for what, names in kinds.items())


def _spelt(kind: Kind) -> str:
    shape, dtype = kind
    return f"{dtype.name} {list(shape)}"


def _shortened(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
