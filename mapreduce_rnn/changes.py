"""Options of a run that are changed when it goes on: what is refused, and what the rest do.

An option that decides the result stays as it is over all sessions of a run, unless the user
allows a change. The new value then holds from the next round on, which config.toml records as
``[[changes]]``: since then the config alone does not say what was computed. All pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapreduce_rnn.config import DeviceConfig, TrainConfig, fields, fixed_options
from mapreduce_rnn.errors import UsageError

if TYPE_CHECKING:
    from mapreduce_rnn.runstate import RunState  # imports numpy, which help shall not wait for

Options = Mapping[str, Any]
"""As :func:`mapreduce_rnn.config.fixed_options` gives them; what is not set is absent."""

_MODEL_SHAPE = {"layers", "units", "bidirectional"}
_OPTIMIZER_KIND = {"optimizer", "momentum"}  # they decide which arrays an optimizer keeps
_EPOCH = {"seed", "map_tasks", "sync_steps", "local_epochs"}  # and all of [batches]
_EFFECTS = {
    "optimizer": ", local optimizers start anew",
    "momentum": ", local optimizers start anew",
    "reduce": ", its rule starts anew",
    "map_tasks": ", slots that are gone or new keep nothing",
}
"""What a change does beside its own sense."""


@dataclass(frozen=True)
class Change:
    """An option with another value from a round on; None: not set."""

    option: str
    old: Any
    new: Any
    round: int  # the first one with the new value

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return next(f.flag for f in fields() if f.name == self.option)

    @property
    def values(self) -> str:
        """Both values, "8 -> 16"."""
        return f"{_shown(self.old)} -> {_shown(self.new)}"

    @property
    def line(self) -> str:
        """The change in words."""
        return f"{self.option} {self.values} from round {self.round} on"


def differences(before: Options, now: Options, round: int) -> tuple[Change, ...]:
    """What is not the same in ``now``, which holds from ``round`` on, in the options' order."""
    return tuple(
        Change(f.name, before.get(f.name), now.get(f.name), round)
        for f in fields()
        if f.option.decides_result and before.get(f.name) != now.get(f.name)
    )


def check_given(before: TrainConfig, now: TrainConfig, *, allowed: bool) -> None:
    """Refuse options that a user gave for a run that has others, by the first one's name.

    Args:
        before: The run's.
        now: With the given options, resolved.
        allowed: Whether the user allows changes of the result.

    Raises:
        UsageError: A change that is not allowed, or of the model's shape, which never is.
    """
    for change in differences(fixed_options(before), fixed_options(now), round=0):
        what = f"--resume: {change.flag} would change"
        if change.option in _MODEL_SHAPE:
            raise UsageError(
                f"{what} the shape of the model ({change.values}), which this run has been "
                "training: start a new one for that"
            )
        if not allowed:
            raise UsageError(
                f"{what} the result of this run ({change.values}): start a new one, or add "
                "--allow-changes"
            )


def devices_to_go_on(before: DeviceConfig, changes: Options) -> DeviceConfig:
    """The devices of a run that goes on, before ``changes``: none, for they may differ.

    Where time is simulated they stay: a sum of real and simulated seconds is neither.

    Raises:
        UsageError: ``changes`` would make it one.
    """
    named = [f for f in fields() if f.section == "devices" and f.name in changes]
    if before.simulate and named:
        raise UsageError(
            f"--resume: this run counts the time of {before.simulated} simulated devices, which "
            f"stay the same: leave out {named[0].flag}"
        )
    if changes.get("simulate"):
        raise UsageError(
            "--resume: this run has counted real time so far, --simulate would add another kind: "
            "start a new run"
        )
    return before if before.simulate else DeviceConfig()


def carry_over(
    state: RunState, changes: Sequence[Change], config: TrainConfig
) -> tuple[RunState, tuple[str, ...]]:
    """The state that rounds with the changed options start from, and a line per change.

    Args:
        state: As the checkpoint has it.
        changes: Of the options that the checkpoint was computed with.
        config: With the changes, resolved.

    Raises:
        UsageError: A change that an epoch in progress or the model does not allow.
    """
    names = {change.option for change in changes}
    _check_shape(names)
    _check_epoch(state, names)
    after = dataclasses.replace(
        state,
        rule={} if "reduce" in names else state.rule,
        slots=_kept_slots(state, names, config),
    )
    return after, tuple(map(_line, changes))


def _check_shape(names: set[str]) -> None:
    for name in sorted(_MODEL_SHAPE & names):
        raise UsageError(
            f"--allow-changes: {name} is the shape of the model, which this run has been "
            "training: set it back, or start a new run"
        )


def _check_epoch(state: RunState, names: set[str]) -> None:
    """Another list of batches in the middle of an epoch would repeat and skip sequences."""
    batches = {f.name for f in fields() if f.section == "batches"}
    wrong = sorted(names & (batches | _EPOCH)) if state.first else []
    if wrong:
        raise UsageError(
            f"--allow-changes: {wrong[0]} decides the batches of an epoch, and epoch "
            f"{state.epoch} is in progress: go on to its end first (--epochs {state.epoch})"
        )


def _kept_slots(state: RunState, names: set[str], config: TrainConfig) -> Mapping[int, Any]:
    """State of local optimizers that still has an owner and a use."""
    if names & _OPTIMIZER_KIND or config.optimizer.optimizer_state == "reset":
        return {}
    slots = config.mapreduce.map_tasks
    assert slots is not None
    return {slot: kept for slot, kept in state.slots.items() if slot < slots}


def _line(change: Change) -> str:
    effect = _EFFECTS.get(change.option, "")
    return f"{change.line}{effect}: this run is no longer repeatable from its config alone"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
