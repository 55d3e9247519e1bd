"""What goes from round to round: the best so far, reasons to stop, the way through a checkpoint."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest

from mapreduce_rnn import runstate
from mapreduce_rnn.config import MapReduceConfig, StopConfig
from mapreduce_rnn.protocol.messages import ScoreResult
from mapreduce_rnn.reduce import Contribution
from mapreduce_rnn.runstate import Best, RunState, Validation


def validated(*losses: float | None) -> RunState:
    """The state after rounds with these validation losses; None: a round without validation."""
    state = RunState(0, {})
    for round, loss in enumerate(losses, 1):
        state = dataclasses.replace(state, round=round, epoch=round + 1)
        if loss is not None:
            state = state.validated(Validation(loss, 0.5, 1, 2, 3), plateau=2)
    return state


def test_the_best_is_the_earliest_of_equal_ones_and_never_nan_or_missing() -> None:
    best = validated(math.nan, 0.9, 0.2, None, 0.9, 0.2, math.nan).best
    assert best == Best(round=3, loss=0.2, label_error=0.5)
    assert validated(math.nan, None, math.inf).best is None


def test_a_state_survives_the_way_through_a_checkpoint() -> None:
    """Names of the model's parameters may hold slashes."""
    state = RunState(
        7, {"w": np.ones(2)}, 3, 20, {"momentum/w": np.zeros(2)}, {3: {"w/exp_avg": np.ones(1)}},
        Best(4, 0.5, None), waited=2, drops=1, last_loss=0.75, metrics_bytes=99,
    )  # fmt: skip
    again = runstate.restore(7, state.model, state.arrays(), state.content())
    assert again == state


@pytest.mark.parametrize(
    ("state", "stop", "seconds", "reason"),
    [
        (validated(3, 2), StopConfig(epochs=3), 5.0, None),
        (validated(3, 2, 1), StopConfig(epochs=3), 5.0, "3 epochs done"),
        (validated(3), StopConfig(rounds=1), 5.0, "1 round done"),
        (validated(3), StopConfig(max_seconds=5.0), 5.0, "5 s are over"),
        (validated(3), StopConfig(target_loss=3.0), 0.0, "validation loss 3 reached the target 3"),
        (validated(math.nan), StopConfig(target_loss=3.0), 0.0, None),
        (validated(3, 4), StopConfig(patience=1), 0.0, "1 validation without a new best"),
        (validated(3, None), StopConfig(patience=1), 0.0, None),
    ],
)
def test_a_run_stops_for_the_first_reason_there_is(
    state: RunState, stop: StopConfig, seconds: float, reason: str | None
) -> None:
    assert runstate.stop_reason(state, stop, seconds) == reason


def test_each_plateau_is_a_drop_of_the_learning_rate() -> None:
    assert validated(3, 4, 4).drops == 1  # two validations without a new best
    assert validated(3, 4, 4, 4).drops == 1
    assert validated(3, 4, math.nan, 4, 3).drops == 2
    assert validated(3, 4, 2, 4).drops == 0


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({}, [(1, 0), (2, 0), (3, 0)]),
        ({"sync_steps": 4}, [(1, 0), (1, 4), (1, 8), (2, 0), (2, 4)]),
        ({"sync_steps": 5}, [(1, 0), (1, 5), (2, 0)]),
        ({"sync_steps": 99}, [(1, 0), (2, 0)]),
        ({"local_epochs": 3}, [(1, 0), (4, 0), (7, 0)]),
    ],
)
def test_rounds_are_windows_of_an_epoch_or_several_epochs(
    options: dict[str, int], rounds: list[tuple[int, int]]
) -> None:
    """Epochs of 10 batches."""
    for before, after in pairwise(rounds):
        assert runstate.next_window(MapReduceConfig(**options), *before, epoch_steps=10) == after


def test_scores_are_put_in_the_order_of_the_sequences_before_they_are_summed() -> None:
    """In float64 1e16 + 1 + 1 depends on the order; the slots' arrival must not matter."""

    def scored(*loss: float) -> ScoreResult:
        ones = np.ones(len(loss), np.int64)
        arrays = {"loss": np.array(loss), "edits": ones, "reference": 2 * ones}
        return ScoreResult(1, 0, 1, 0.0, arrays)

    slots = [(np.array([0, 2]), scored(1e16, 1.0)), (np.array([1]), scored(1.0))]
    forwards, backwards = runstate.summarize(3, slots), runstate.summarize(3, reversed(slots))
    assert forwards == backwards
    assert forwards.label_error == 0.5


def test_local_optimizer_states_are_dropped_averaged_or_kept() -> None:
    states = [Contribution(slot, slot, {"m": np.full(2, float(slot))}) for slot in (0, 1, 3)]
    assert runstate.next_slots("reset", states, 4) == {}
    assert list(runstate.next_slots("keep", states, 4)) == [0, 1, 3]
    averaged = runstate.next_slots("average", states, 4)
    assert list(averaged) == [0, 1, 2, 3]
    assert averaged[2]["m"].tolist() == [2.5, 2.5]  # weights 1 and 3; slot 0 did not train
