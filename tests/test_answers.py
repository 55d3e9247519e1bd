"""Answers against the tasks they are to: what the master computes with has its form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce_rnn.answers import STATISTICS, misfit
from mapreduce_rnn.protocol.messages import (
    AnyResult,
    MapResult,
    MapTask,
    ProbeResult,
    ProbeTask,
    ScoreResult,
    ScoreTask,
)

WEIGHT = np.ones((2, 3), np.float32)
MAP = MapTask(1, 0, 1, 1, arrays={"model/w": WEIGHT, "model/n": np.array(3), "shard": np.arange(4)})
SCORE = ScoreTask(1, 0, 1, {"model/w": WEIGHT, "indices": np.arange(5)})
PROBE = ProbeTask(0, 0, 1, {"model/w": WEIGHT, "indices": np.arange(5)})
STEPS = {"loss_sum": 1.5, "sequences": 4, "steps": 2, "skipped_steps": 1, "learning_rate": 0.1,
         "held_back": 0, "epoch_steps": 2, "visits": 2**64 - 1}  # fmt: skip
TRAINED = {"model/w": WEIGHT, "model/n": np.array(4), "state/w/exp_avg": WEIGHT,
           "state/w/step": np.array(2, np.float32)}  # fmt: skip
SCORES = {"loss": np.full(5, np.nan), "edits": np.zeros(5, np.int64), "reference": np.arange(5)}
POINTS = {"sizes": np.arange(1, 4), "lengths": np.arange(1, 4), "seconds": np.full(3, 0.5)}


def trained(arrays: dict[str, np.ndarray] = TRAINED, weight: int = 3, **changes: Any) -> MapResult:
    return MapResult(1, 0, 1, weight, {**STEPS, **changes}, 0.1, arrays)


def without(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key: array for key, array in arrays.items() if key != name}


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        (MAP, trained()),
        (MAP, trained(loss_sum=None, weight=0, skipped_steps=2)),
        (SCORE, ScoreResult(1, 0, 1, 0.1, SCORES)),
        (PROBE, ProbeResult(0, 0, 1, 0.1, POINTS)),
        (PROBE, ProbeResult(0, 0, 1, 0.1, {name: a[:0] for name, a in POINTS.items()})),
    ],
)
def test_what_a_worker_answers_fits(task: Any, answer: AnyResult) -> None:
    assert misfit(task, answer) is None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (dataclasses.replace(trained(), statistics={}), "expected the statistics epoch_steps"),
        (trained(more=1), "expected the statistics"),
        (trained(steps="2"), "statistics.steps is no count"),
        (trained(held_back=-1), "statistics.held_back is no count"),
        (trained(visits=True), "statistics.visits is no count"),
        (trained(loss_sum=math.nan), "loss_sum is neither"),
        (trained(learning_rate=math.inf), "learning_rate is no rate"),
        (trained(epoch_steps=10**18), "too many steps of an epoch, of the shard"),
        (trained(skipped_steps=3), "too many skipped steps, of all"),
        (trained(steps=5), "too many steps, of the sequences"),
        (trained(sequences=9), "too many sequences, of steps on the shard"),
        (trained(weight=5), "too many weight, of the sequences"),
        (trained(without(TRAINED, "model/w")), "missing: w"),
        (trained({**TRAINED, "model/w": WEIGHT.T}), "float32 [3, 2] instead of float32 [2, 3]: w"),
        (trained({**TRAINED, "model/w": WEIGHT.astype("f8")}), "float64 [2, 3] instead of"),
        (trained({**TRAINED, "model/v": WEIGHT}), "not expected: v"),
        (trained({**TRAINED, "shard": WEIGHT}), "'shard' belongs to no parameter"),
        (trained({**TRAINED, "state/v/step": WEIGHT}), "'state/v/step' belongs to no parameter"),
        (trained({**TRAINED, "state/w/step": WEIGHT[0]}), "the shape [3] of no optimizer state"),
        (ScoreResult(1, 0, 1, 0.1), "a ScoreResult to a MapTask"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_no_worker_answers_to_a_map_task_is_told(answer: AnyResult, told: str) -> None:
    assert told in (misfit(MAP, answer) or "")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        (without(SCORES, "edits"), "missing: edits"),
        ({**SCORES, "loss": np.zeros(4)}, "float64 [4] instead of float64 [5]: loss"),
        ({**SCORES, "edits": np.zeros(5)}, "float64 [5] instead of int64 [5]: edits"),
        ({**SCORES, "reference": np.arange(5) - 1}, "negative counts"),
    ],
)  # fmt: skip
def test_what_no_worker_answers_to_a_score_task_is_told(
    arrays: dict[str, np.ndarray], told: str
) -> None:
    assert told in (misfit(SCORE, ScoreResult(1, 0, 1, 0.1, arrays)) or "")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({}, "missing: lengths, seconds, sizes"),
        ({**POINTS, "sizes": np.arange(1, 5)}, "int64 [4] instead of int64 [3]: sizes"),
        ({**POINTS, "seconds": np.array(0.5)}, "instead of float64 [1]: seconds"),
        ({**POINTS, "seconds": np.array([0.5, np.nan, 1.0])}, "that are not positive"),
        ({**POINTS, "lengths": np.arange(3)}, "that are not positive"),
    ],
)
def test_what_no_worker_answers_to_a_probe_is_told(
    arrays: dict[str, np.ndarray], told: str
) -> None:
    assert told in (misfit(PROBE, ProbeResult(0, 0, 1, 0.1, arrays)) or "")


plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()


@given(st.fixed_dictionaries(dict.fromkeys(sorted(STATISTICS), plain | st.integers(0, 5))))
def test_statistics_that_pass_are_such_that_a_round_can_be_made_of_them(
    statistics: dict[str, Any],
) -> None:
    answer = MapResult(1, 0, 1, 0, statistics, 0.1, TRAINED)
    if misfit(MAP, answer) is None:
        counted = statistics["steps"] + statistics["epoch_steps"] + statistics["visits"]
        assert 0 <= counted < 2**66
        assert statistics["loss_sum"] is None or math.isfinite(statistics["loss_sum"])
        assert (statistics["steps"] == 0) == (statistics["sequences"] == 0)
