"""What one round hands to the next, what a checkpoint holds, and when a run is over. All pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.config import MapReduceConfig, StopConfig
from mapreduce_rnn.protocol.messages import ScoreResult
from mapreduce_rnn.reduce import Contribution, average
from mapreduce_rnn.scoring import label_error
from mapreduce_rnn.text import counted

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Validation:
    """Scores of the global model on all validation sequences."""

    loss: float  # mean over sequences; may be nan
    label_error: float | None  # total edits / total reference labels; None without any label
    edits: int
    reference: int  # total reference labels
    sequences: int


def summarize(n: int, scored: Iterable[tuple[np.ndarray, ScoreResult]]) -> Validation:
    """Put the slots' scores in sequence order and sum them, in float64.

    Args:
        n: Number of validation sequences.
        scored: Of each slot: positions int64 (n_slot,) among the n sequences, and its scores.
    """
    loss = np.zeros(n, dtype=np.float64)
    edits = np.zeros(n, dtype=np.int64)
    reference = np.zeros(n, dtype=np.int64)
    for positions, result in scored:
        loss[positions] = result.arrays["loss"]
        edits[positions] = result.arrays["edits"]
        reference[positions] = result.arrays["reference"]
    return Validation(
        loss=float(loss.sum() / n),
        label_error=label_error(edits, reference),
        edits=int(edits.sum()),
        reference=int(reference.sum()),
        sequences=n,
    )


@dataclass(frozen=True)
class Best:
    """The validation with the lowest loss so far; ties keep the earlier, nan is never best."""

    round: int
    loss: float
    label_error: float | None


@dataclass(frozen=True)
class RunState:
    """All that the next round depends on, besides config and store."""

    round: int  # whole rounds done
    model: Arrays
    epoch: int = 1  # that the next round begins in
    first: int = 0  # batch of it that the next round begins with
    rule: Arrays = field(default_factory=dict)  # state of the reduce rule
    slots: Mapping[int, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    # local optimizer state by slot
    best: Best | None = None
    waited: int = 0  # validations since the best
    drops: int = 0  # plateaus met: each time that many validations brought no new best
    last_loss: float | None = None  # of the newest validation
    metrics_bytes: int = 0  # of metrics.jsonl up to this round

    @property
    def is_best(self) -> bool:
        """Whether this state's model is the best so far."""
        return self.best is not None and self.best.round == self.round

    @property
    def epochs_done(self) -> int:
        """Whole epochs done."""
        return self.epoch - 1

    def validated(self, validation: Validation, plateau: int) -> RunState:
        """The state after its model was scored.

        Args:
            plateau: Validations in a row without a new best that count as a plateau.
        """
        loss = validation.loss
        if math.isfinite(loss) and (self.best is None or loss < self.best.loss):
            best = Best(self.round, loss, validation.label_error)
            return dataclasses.replace(self, last_loss=loss, best=best, waited=0)
        waited = self.waited + 1
        drops = self.drops + (waited % plateau == 0)
        return dataclasses.replace(self, last_loss=loss, waited=waited, drops=drops)

    def arrays(self) -> Arrays:
        """Everything but the model as named arrays: ``rule/<name>``, ``slot-<k>/<name>``."""
        rule = {f"rule/{name}": array for name, array in self.rule.items()}
        slots = {
            f"slot-{slot}/{name}": array
            for slot, arrays in self.slots.items()
            for name, array in arrays.items()
        }
        return rule | slots

    def content(self) -> dict[str, Any]:
        """Everything but the arrays as strict JSON values."""
        return {
            "epoch": self.epoch,
            "first": self.first,
            "best": None if self.best is None else dataclasses.asdict(self.best),
            "drops": self.drops,
            "waited": self.waited,
            "last_loss": _finite(self.last_loss),
            "metrics_bytes": self.metrics_bytes,
        }


def next_slots(
    policy: str, states: Sequence[Contribution], n_slots: int
) -> Mapping[int, Mapping[str, NDArray[Any]]]:
    """Local optimizer state that each slot starts the next round with.

    Args:
        policy: ``reset``: none; ``keep``: its own; ``average``: the mean over the slots that
            trained, weighted like the models.
        states: What the slots returned, without those that the reduce left out.
    """
    trained = [state for state in states if state.weight and state.arrays]
    if policy == "reset" or not trained:
        return {}
    if policy == "keep":
        return {state.slot: state.arrays for state in states if state.arrays}
    averaged, _ = average(trained[0].arrays, trained)
    return dict.fromkeys(range(n_slots), averaged)


def restore(round: int, model: Arrays, arrays: Arrays, content: Mapping[str, Any]) -> RunState:
    """The inverse of :meth:`RunState.arrays` and :meth:`RunState.content`."""
    groups: dict[str, Arrays] = {}
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    rule = groups.pop("rule", {})
    return RunState(
        round=round,
        model=model,
        epoch=content["epoch"],
        first=content["first"],
        rule=rule,
        slots={int(group.removeprefix("slot-")): named for group, named in groups.items()},
        best=None if content["best"] is None else Best(**content["best"]),
        waited=content["waited"],
        drops=content["drops"],
        last_loss=content["last_loss"],
        metrics_bytes=content["metrics_bytes"],
    )


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def next_window(
    options: MapReduceConfig, epoch: int, first: int, epoch_steps: int
) -> tuple[int, int]:
    """Epoch and first batch of the round after one that began at ``epoch`` and ``first``.

    Args:
        epoch_steps: Batches in the epoch's longest list of a slot.
    """
    if options.sync_steps is not None and first + options.sync_steps < epoch_steps:
        return epoch, first + options.sync_steps
    return epoch + options.local_epochs, 0


def planned_end(state: RunState, stop: StopConfig) -> str | None:
    """Why the run is over as planned, in words; None while it goes on."""
    if state.epochs_done >= stop.epochs:
        return f"{counted(stop.epochs, 'epoch')} done"
    if stop.rounds is not None and state.round >= stop.rounds:
        return f"{counted(stop.rounds, 'round')} done"
    return None


def stop_reason(state: RunState, stop: StopConfig, seconds: float) -> str | None:
    """Why the run is over, in words; None while it goes on.

    Args:
        seconds: Since the master started; looked at between rounds only.
    """
    if (planned := planned_end(state, stop)) is not None:
        return planned
    if stop.max_seconds is not None and seconds >= stop.max_seconds:
        return f"{stop.max_seconds:g} s are over"
    loss = state.last_loss
    if stop.target_loss is not None and loss is not None and loss <= stop.target_loss:
        return f"validation loss {loss:.4g} reached the target {stop.target_loss:g}"
    if stop.patience is not None and state.waited >= stop.patience:
        return f"{counted(state.waited, 'validation')} without a new best"
    return None
