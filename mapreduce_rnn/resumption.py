"""Where a run goes on: the newest whole checkpoint, with what the options have become since.

Reads and mends the run folder: metrics.jsonl is cut back to the checkpoint and model.safetensors
is made that of the best round up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mapreduce_rnn import checkpoint, machine, runfolder, runlog, runstate
from mapreduce_rnn.changes import Change, carry_over, differences
from mapreduce_rnn.checkpoint import Checkpoint
from mapreduce_rnn.config import TrainConfig, fixed_options
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import CheckpointError, StoreError
from mapreduce_rnn.runfolder import BEST_MODEL, EVENTS, METRICS, Recorded
from mapreduce_rnn.runstate import RunState
from mapreduce_rnn.text import counted


@dataclass(frozen=True)
class Resumed:
    """Where and with what a session goes on.

    Attributes:
        state: None: at the beginning, since the run was stopped before its first checkpoint.
        changes: Of options, over all sessions; for config.toml.
        effects: What the changes of this session do, a line each.
        warnings: What is damaged and how it was met, and what is not as it was on the machine; a
            line each.
    """

    state: RunState | None
    changes: tuple[Change, ...] = ()
    effects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_same_store(recorded: Recorded, run_dir: Path) -> None:
    """Raise StoreError where the run's store is gone, or another one is in its place."""
    if not recorded.store.is_dir():
        raise StoreError(
            f"the store of this run is no longer at {recorded.store}: put it back, or set its path "
            f"under [store] in {run_dir / runfolder.CONFIG}"
        )
    if Store.open(recorded.store).fingerprint != recorded.fingerprint:
        raise StoreError(
            f"{recorded.store} is not the store this run was started on: import the same source "
            "with the same options again, or start a new run"
        )


def resumed(run_dir: Path, recorded: Recorded, config: TrainConfig, *, allowed: bool) -> Resumed:
    """Load what the run folder holds.

    Args:
        recorded: What config.toml says.
        config: The options of this session, resolved.
        allowed: Whether the user allows options that change the result.

    Raises:
        CheckpointError: No checkpoint is whole with its metrics, or config.toml was changed by
            hand without permission.
        UsageError: A change that cannot be.
    """
    if not checkpoint.any_in(run_dir):
        return Resumed(None, warnings=_begun_anew(run_dir / METRICS))
    loaded = checkpoint.load(run_dir, unusable=partial(_without_metrics, run_dir / METRICS))
    changes = _changes(loaded, recorded, fixed_options(config), allowed)
    state = runstate.restore(loaded.round, dict(loaded.model), dict(loaded.state), loaded.content)
    state, effects = carry_over(state, changes, config)
    runlog.truncate(run_dir / METRICS, state.metrics_bytes)
    moved = machine.moved(runlog.read_lines(run_dir / EVENTS).records, state.round)
    warnings = (*loaded.warnings, *_restore_best(run_dir, state), *filter(None, [moved]))
    earlier = tuple(change for change in recorded.changes if change.round <= loaded.round)
    return Resumed(state, (*earlier, *changes), effects, warnings)


def _begun_anew(metrics: Path) -> tuple[str, ...]:
    """Drop the lines of rounds that have to be computed again; says so, where there are any."""
    if not metrics.exists():
        return ()
    done = len(runlog.read_lines(metrics).records)
    metrics.unlink()
    if not done:
        return ()
    return (f"there is no checkpoint of the {counted(done, 'round')} done: the run begins anew",)


def _without_metrics(metrics: Path, content: Mapping[str, Any]) -> str | None:
    """Why a checkpoint cannot be used: of the lines up to its round some are lost."""
    found = metrics.stat().st_size if metrics.exists() else 0
    expected = content["metrics_bytes"]
    if found >= expected:
        return None
    return f"lacks its metrics: {metrics.name} has {found} of the {expected} bytes up to it"


def _changes(
    loaded: Checkpoint, recorded: Recorded, now: Mapping[str, Any], allowed: bool
) -> tuple[Change, ...]:
    """What the checkpoint was computed with and is otherwise now.

    An earlier session may have changed an option and not come to a checkpoint: that is recorded
    and was allowed. What is neither was changed in config.toml by hand.
    """
    changes = differences(loaded.content["config"], now, loaded.round + 1)
    known = {change.option for change in recorded.changes if change.round > loaded.round}
    for change in changes:
        if not allowed and change.option not in known:
            raise CheckpointError(
                f"{runfolder.CONFIG}: {change.option} was {change.old!r} up to round "
                f"{loaded.round}, now it is {change.new!r}: set it back, or start a new run"
            )
    return changes


def _restore_best(run_dir: Path, state: RunState) -> tuple[str, ...]:
    """Make model.safetensors that of the best round; else a line that says why not.

    It is not where it was lost, or where rounds after the checkpoint were.
    """
    if state.best is None:
        return ()
    try:
        best = checkpoint.load(run_dir, state.best.round)
    except CheckpointError as error:
        return (f"{BEST_MODEL} is left as it is: {error}",)
    checkpoint.save_model(run_dir / BEST_MODEL, best.model)
    return ()
