"""What is resolved before round 1."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.plan import Plan, Usable, make_plan, resolve_config
from mapreduce_rnn.protocol.codec import encode
from mapreduce_rnn.protocol.messages import Message, ScoreResult, ScoreTask
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.tasks import make_task


@pytest.fixture(scope="module")
def plan(store: Path) -> Plan:
    config = override(TrainConfig(), {"units": 2}, "test")
    config = resolve_config(config, slots=1, threads=1, device="cpu")
    opened = Store.open(store)
    task = make_task(config, opened.meta)
    return make_plan(config, "cpu", opened, task, module_arrays(task.build_model()))


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
