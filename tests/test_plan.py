"""What is resolved before round 1."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.plan import Plan, Usable, make_plan, resolve_config
from mapreduce_rnn.protocol.codec import encode
from mapreduce_rnn.protocol.messages import Message, ScoreResult, ScoreTask
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.tasks import make_task


@pytest.fixture(scope="module")
def plan(store: Path) -> Plan:
    return planned(store, override(TrainConfig(), {"units": 2}, "test"))


def planned(store: Path, config: TrainConfig) -> Plan:
    config = resolve_config(config, slots=1, threads=1, device="cpu")
    opened = Store.open(store)
    task = make_task(config, opened.meta)
    model = module_arrays(task.build_model())
    return make_plan(config, "cpu", opened, task, model, frozenset(model))


def size(message: Message) -> int:
    return sum(map(len, encode(message, "run")))


def test_no_honest_message_is_over_the_limit_however_many_sequences_are_scored(plan: Plan) -> None:
    """A small model and a million validation sequences, all scored by one slot."""
    n = 10**6
    plan = dataclasses.replace(plan, validation=Usable(np.arange(n), 0))
    zeros = np.zeros(n, np.int64)
    scores = {"loss": zeros.astype(float), "edits": zeros, "reference": zeros}
    assert size(ScoreResult(1, 0, 1, 0.0, scores)) <= plan.message_bytes
    assert size(ScoreTask(1, 0, 1, {"indices": zeros})) <= plan.message_bytes


def test_nothing_is_left_open(plan: Plan) -> None:
    config = plan.config
    assert config.model.kernel == "padded"
    assert (config.run.threads, config.mapreduce.map_tasks) == (1, 1)
    assert config.optimizer.horizon == config.stop.epochs == plan.rounds


@pytest.mark.parametrize(
    ("options", "rounds"),
    [({"sync_steps": 3}, 36), ({"sync_steps": 3, "rounds": 7}, 7), ({"local_epochs": 2}, 3)],
)
def test_rounds_are_counted_ahead(store: Path, options: dict[str, int], rounds: int) -> None:
    """16 batches a slot and epoch."""
    small = {"units": 2, "batch_size": 1, "epochs": 6, "map_tasks": 2}
    assert planned(store, override(TrainConfig(), small | options, "test")).rounds == rounds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sync_steps": 3, "local_epochs": 2}, "not both"),
        ({"epochs": 5, "local_epochs": 2}, "multiple of --local-epochs 2, got 5"),
        ({"reduce_option": ("eta=0.5",)}, "mean has no option 'eta'"),
    ],
)
def test_rounds_that_cannot_be_are_refused_before_anything_starts(
    options: dict[str, Any], message: str
) -> None:
    config = override(TrainConfig(), options, "test")
    with pytest.raises(UsageError, match=message):
        resolve_config(config, slots=2, threads=1, device="cpu")


def test_the_number_of_buckets_is_a_number_in_the_plan(store: Path) -> None:
    config = override(TrainConfig(), {"units": 2, "buckets": "auto", "batch_size": 2}, "test")
    plan = planned(store, config)
    assert plan.config.batches.buckets == plan.epoch.choice.n_buckets
    assert plan.facts()["bucket_choice"] == plan.epoch.choice.reason
    assert plan.notes() == [f"--buckets auto: {plan.epoch.choice.reason}"]


def test_padding_to_boundaries_is_in_the_expected_padding(store: Path) -> None:
    options = {"units": 2, "batch_size": 4, "buckets": 2}
    longest = planned(store, override(TrainConfig(), options, "test"))
    static = override(TrainConfig(), options | {"pad_to": "boundary"}, "test")
    assert planned(store, static).epoch.padding > longest.epoch.padding


def test_what_a_curriculum_or_a_frame_limit_leaves_out_is_said(store: Path) -> None:
    limit = int(np.sort(Store.open(store).lengths[Store.open(store).split("train")])[-3])
    options = {"units": 2, "max_frames": limit, "curriculum": "competence"}
    alone, held = planned(store, override(TrainConfig(), options, "test")).notes()
    assert f"of more than {limit} frames" in alone
    assert "held back until epoch 5" in held


@pytest.mark.parametrize("cost", ["1,2", "a,b,c", "1,2,-3", "10:2,5:3", ""])
def test_a_bucket_cost_that_cannot_be_read_is_refused_before_anything_starts(cost: str) -> None:
    config = override(TrainConfig(), {"bucket_cost": cost}, "test")
    with pytest.raises(UsageError, match="--bucket-cost"):
        resolve_config(config, slots=1, threads=1, device="cpu")


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"horizon": 5.0}, ["the learning rate stays at its last value after epoch 5 (--horizon)"]),
        (
            {"horizon": 9.5},
            ["the run ends before epoch 9.5, where the learning rate is lowest (--horizon)"],
        ),
        ({}, []),
        ({"horizon": 5.0, "schedule": "constant"}, []),
    ],
)
def test_a_schedule_that_ends_elsewhere_than_the_run_is_told(
    store: Path, options: dict[str, Any], note: list[str]
) -> None:
    config = override(TrainConfig(), {"units": 2, "epochs": 7, **options}, "test")
    assert planned(store, config).notes() == note
