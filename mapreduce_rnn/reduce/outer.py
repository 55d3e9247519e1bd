"""What the rules with an outer step share: the mean, then a step of an optimizer on it.

With W the model of the round's start and G = mean - W, the next model is W + S, where the step S
depends on G and on moments that are kept for every parameter.

W + S is computed as mean - (G - S), in float64, and rounded once to the model's dtype. Where a
rule's options make S equal to G, G - S is an exact zero and the mean comes back bit for bit; W + G
would round. G is taken from the mean as the model's dtype holds it.

Outer steps are for parameters. A buffer becomes the mean: with momentum a running variance could
turn negative.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.reduce.base import Arrays, Contribution, Reduction, Rule
from mapreduce_rnn.reduce.combine import Array, Float64, all_finite, blocks, is_float
from mapreduce_rnn.reduce.mean import average


class OuterRule(Rule):
    """A rule that is its ``moments`` and its ``step``.

    Its state is ``<moment>/<parameter>``, float64, for each of them. It also tells which arrays
    of the model are parameters.
    """

    @abstractmethod
    def moments(self) -> Mapping[str, float]:
        """The moments' names, and what their values are before round 1."""

    @abstractmethod
    def step(
        self, change: Float64, moments: Sequence[Float64], learning_rate: float | None
    ) -> tuple[Float64, Sequence[Float64]]:
        """S and the new moments.

        Args:
            change: G, (B,).
            moments: (B,) each, in their order; not to be modified.
            learning_rate: As in :meth:`apply`.
        """

    def init(self, parameters: Mapping[str, Array]) -> Arrays:
        """Moments of every parameter, filled with what they are before round 1."""
        return {
            f"{moment}/{name}": np.full(array.shape, value)
            for moment, value in self.moments().items()
            for name, array in parameters.items()
            if is_float(array)
        }

    def apply(
        self,
        model: Mapping[str, Array],
        state: Mapping[str, Array],
        contributions: Iterable[Contribution],
        learning_rate: float | None = None,
    ) -> Reduction:
        """The mean, with an outer step on the parameters.

        Raises:
            ReduceError: Nothing can be averaged, or the step leaves the range of the model's
                dtype; the old model and state stay valid.
        """
        result, rejected = average(model, contributions)
        new_state: Arrays = {}
        for name in self._parameters(state):
            keys = [f"{moment}/{name}" for moment in self.moments()]
            old = [state[key].reshape(-1) for key in keys]
            start, mean = model[name].reshape(-1), result[name].reshape(-1)
            moved, new = self._moved(start, mean, old, learning_rate)
            if not all_finite(moved):
                raise ReduceError(
                    f"{name}: the outer step leaves the range of {moved.dtype}, model kept; "
                    "choose smaller --reduce-option values"
                )
            shape = result[name].shape
            result[name] = moved.reshape(shape)
            new_state |= {key: a.reshape(shape) for key, a in zip(keys, new, strict=True)}
        return Reduction(result, new_state, rejected)

    def _parameters(self, state: Mapping[str, Array]) -> list[str]:
        first = next(iter(self.moments())) + "/"
        return [key.removeprefix(first) for key in state if key.startswith(first)]

    def _moved(
        self, start: Array, mean: Array, old: Sequence[Array], learning_rate: float | None
    ) -> tuple[Array, list[Float64]]:
        """W + S and the new moments, flat."""
        moved = np.empty_like(mean)
        new = [np.empty(mean.size) for _ in old]
        with np.errstate(over="ignore", invalid="ignore"):
            for at in blocks(mean.size):
                change = mean[at].astype(np.float64) - start[at]
                step, moments = self.step(change, [moment[at] for moment in old], learning_rate)
                # + 0.0 turns a negative zero, of G = -0.0, into one that leaves a mean of -0.0
                moved[at] = mean[at] - (change - step + 0.0)
                for array, moment in zip(new, moments, strict=True):
                    array[at] = moment
        return moved, new
