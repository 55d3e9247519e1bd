"""Slots that return what cannot be averaged: left out by name, or the run ends with its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import inprocess
from inprocess import resume, train
from mapreduce_rnn import checkpoint
from mapreduce_rnn.errors import ReduceError
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask, Arrays, MapTask, prefixed, under
from mapreduce_rnn.reduce import Contribution, average
from mapreduce_rnn.workers.maptask import Context
from runs_real import lines, result_bytes
from smalltask import NormalisedTask, SmallTask
from stores import tiny_store

Change = Callable[[Arrays], Arrays]

SMALL = {"units": 4, "buckets": 1, "epochs": 3, "checkpoint_every": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 sequences to train on: equal weights for 2, 3 and 4 slots."""
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny", n=15)


class Slots:
    """Computes tasks as ever, but changes the models that slots return from round 2."""

    def __init__(self, *changes: Change | None) -> None:
        self._changes = dict(enumerate(changes))
        self.tasks: dict[tuple[int, int], MapTask] = {}  # by round and slot
        self.answers: dict[tuple[int, int], AnyResult] = {}

    def compute(self, context: Context, task: AnyTask) -> AnyResult:
        answer = inprocess.compute(context, task)
        if not isinstance(task, MapTask):
            return answer
        self.tasks[task.round, task.slot] = task
        change = self._changes.get(task.slot) if task.round == 2 else None
        if change is not None:
            model = prefixed("model/", change(under("model/", answer.arrays)))
            state = prefixed("state/", under("state/", answer.arrays))
            answer = dataclasses.replace(answer, arrays={**model, **state})
        self.answers[task.round, task.slot] = answer
        return answer

    def state_before(self, round: int, slot: int) -> Arrays:
        """The local optimizer state that a slot was given."""
        return under("state/", self.tasks[round, slot].arrays)

    def mean(self, part: str, *slots: int) -> dict[str, np.ndarray]:
        """Of the models or states that these slots returned from round 2."""
        answers = [self.answers[2, slot] for slot in slots]
        arrays = [under(part, answer.arrays) for answer in answers]
        return average(arrays[0], [Contribution(i, 1, a) for i, a in enumerate(arrays)])[0]


def filled(value: float) -> Change:
    """All floats replaced."""

    def change(model: Arrays) -> Arrays:
        return {
            name: np.full_like(a, value if a.dtype.kind == "f" else a) for name, a in model.items()
        }

    return change


def without_bias(model: Arrays) -> Arrays:
    return {name: array for name, array in model.items() if name != "hidden.bias"}


def wrapped(model: Arrays) -> Arrays:
    return prefixed("module.", model)


def reshaped(model: Arrays) -> Arrays:
    return {**model, "output.weight": model["output.weight"].T}


def metrics(run: Path, round: int) -> dict[str, object]:
    return lines(run / "metrics.jsonl")[round - 1]


def model_after(run: Path, round: int) -> Arrays:
    return checkpoint.load(run, round).model


def test_1_nan_3_is_2_with_slot_and_tensor_named(store: Path, tmp_path: Path) -> None:
    slots, run = Slots(filled(1.0), filled(np.nan), filled(3.0)), tmp_path / "run"
    train(store, run, compute=slots.compute, make_task=SmallTask, map_tasks=3, **SMALL)
    assert metrics(run, 2)["weights"] == [4, 4, 4]
    assert metrics(run, 2)["rejected"] == [
        {"slot": 1, "name": "hidden.weight", "reason": "not finite"}
    ]
    assert all((array == 2.0).all() for array in model_after(run, 2).values())
    assert "slot 1 left out: hidden.weight: not finite" in (run / "master.log").read_text()
    assert metrics(run, 3)["rejected"] == []


@pytest.mark.parametrize("policy", ["keep", "average"])
def test_the_optimizer_of_a_slot_that_was_left_out_does_not_go_on(
    store: Path, tmp_path: Path, policy: str
) -> None:
    slots = Slots(None, filled(np.inf))
    options = SMALL | {"map_tasks": 3, "optimizer_state": policy}
    train(store, tmp_path / "run", compute=slots.compute, make_task=SmallTask, **options)
    expected = {} if policy == "keep" else slots.mean("state/", 0, 2)
    given = slots.state_before(3, 1)
    assert given.keys() == expected.keys()
    assert all((given[name] == expected[name]).all() for name in expected)
    assert slots.state_before(2, 1)
    assert slots.state_before(3, 0)


def test_models_that_do_not_fit_are_refused_by_name_and_the_others_go_on(
    store: Path, tmp_path: Path
) -> None:
    slots, run = Slots(without_bias, wrapped, None, reshaped), tmp_path / "run"
    train(store, run, compute=slots.compute, make_task=SmallTask, map_tasks=4, **SMALL)
    reasons = {r["slot"]: r["reason"] for r in metrics(run, 2)["rejected"]}
    assert reasons == {
        0: "missing: hidden.bias",
        1: "missing: hidden.bias, hidden.weight, output.bias and 1 more; not expected: "
        "module.hidden.bias, module.hidden.weight, module.output.bias and 1 more",
        3: "float32 [4, 1] instead of float32 [1, 4]: output.weight",
    }
    alone = slots.mean("model/", 2)
    assert all((array == alone[name]).all() for name, array in model_after(run, 2).items())
    assert len(lines(run / "metrics.jsonl")) == 3


def test_where_no_slot_is_finite_the_run_ends_with_its_last_model(
    store: Path, tmp_path: Path
) -> None:
    """And can go on from there, to where it would have come."""
    slots, run, options = Slots(filled(np.nan), filled(np.inf)), tmp_path / "run", SMALL
    with pytest.raises(ReduceError, match=r"model kept \(slot 0: .*not finite; slot 1:") as ended:
        train(store, run, compute=slots.compute, make_task=SmallTask, map_tasks=2, **options)
    assert ended.value.exit_code == 1
    assert checkpoint.load(run).round == len(lines(run / "metrics.jsonl")) == 1
    train(store, tmp_path / "calm", make_task=SmallTask, map_tasks=2, **options)
    resume(run, make_task=SmallTask)
    assert result_bytes(run) == result_bytes(tmp_path / "calm")


@pytest.mark.parametrize("rule", ["mean", "momentum"])
def test_statistics_are_averaged_and_counters_take_the_largest_value(
    store: Path, tmp_path: Path, rule: str
) -> None:
    """Whatever the rule does with parameters."""

    def normalised(mean: float, counter: int) -> Change:
        counted = {"between.0.num_batches_tracked": np.array(counter)}
        return lambda model: {
            **model,
            "between.0.running_mean": np.full(4, mean, np.float32),
            **counted,
        }

    slots, run = Slots(normalised(0.0, 1), normalised(2.0, 2)), tmp_path / "run"
    options = SMALL | {"map_tasks": 2, "reduce": rule}
    train(store, run, compute=slots.compute, make_task=NormalisedTask, **options)
    model = model_after(run, 2)
    assert model["between.0.running_mean"].tolist() == [1.0] * 4
    assert model["between.0.num_batches_tracked"] == 2
    assert model["between.0.num_batches_tracked"].dtype == np.int64
