"""The map task is a pure function; one slot is plain training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mapreduce_rnn import optim
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import slot_epoch
from mapreduce_rnn.plan import resolve_config
from mapreduce_rnn.protocol.messages import MapResult, MapTask, ScoreTask
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.seeds import task_seed
from mapreduce_rnn.workers.maptask import Context, make_context, map_task, score_task

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def context(store: Path, **options: Any) -> Context:
    small = {"units": 8, "batch_size": 4, "buckets": 3, "epochs": 3}
    config = override(TrainConfig(), small | options, "test")
    return make_context(
        resolve_config(config, slots=2, threads=1, device="cpu"), Store.open(store), CPU
    )


def task_of(context: Context, shard: np.ndarray | None = None, **changes: Any) -> MapTask:
    """A task that starts from the context's freshly built model."""
    arrays = {f"model/{k}": v for k, v in module_arrays(context.model).items()}
    arrays["shard"] = context.store.split("train") if shard is None else shard
    task = MapTask(round=1, slot=0, attempt=1, epoch=1, arrays=arrays)
    return dataclasses.replace(task, **changes)


def run(context: Context, task: MapTask) -> MapResult:
    return map_task(context, task, lambda steps: None)


def score(context: Context, indices: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {f"model/{k}": v for k, v in module_arrays(context.model).items()}
    task = ScoreTask(round=1, slot=0, attempt=1, arrays={**arrays, "indices": indices})
    return score_task(context, task, lambda steps: None).arrays


def same(a: MapResult, b: MapResult) -> bool:
    """Whether two results have the same bytes."""
    return a.arrays.keys() == b.arrays.keys() and all(
        a.arrays[k].tobytes() == b.arrays[k].tobytes() for k in a.arrays
    )


def test_the_same_task_gives_the_same_bytes_whatever_ran_before(store: Path) -> None:
    here = context(store, dropout=0.3)
    task = task_of(here)
    first = run(here, task)
    run(here, dataclasses.replace(task, round=2, slot=1, epoch=2))
    score(here, here.store.split("validation"))
    assert same(first, run(here, task))
    assert same(first, run(context(store, dropout=0.3), task))


@pytest.mark.parametrize("change", [{"slot": 1}, {"round": 2}], ids=["slot", "round"])
def test_dropout_draws_differ_between_slots_and_rounds(store: Path, change: Any) -> None:
    """The batches are the same (one bucket, one batch), so that only the draws can differ."""
    here = context(store, dropout=0.5, batch_size=64, buckets=1)
    task = task_of(here)
    first, second = run(here, task), run(here, dataclasses.replace(task, **change))
    assert first.statistics["steps"] == second.statistics["steps"] == 1
    assert first.statistics["loss_sum"] != pytest.approx(second.statistics["loss_sum"], rel=1e-6)


def test_a_task_equals_a_plain_pytorch_loop_byte_for_byte(store: Path) -> None:
    here = context(store, dropout=0.2)
    task = task_of(here)
    model = here.task.build_model()
    model.load_state_dict(here.model.state_dict())
    result = run(here, task)

    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    shard = here.store.split("train")
    batches = slot_epoch(here.store.lengths[shard], here.config.batches, 1, 1, 0).batches
    torch.manual_seed(task_seed(1, 1, 0))
    for done, positions in enumerate(batches):
        rate = optim.learning_rate(here.config.optimizer, done / len(batches))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        losses = here.task.losses(model, here.task.collate(here.store, shard[positions]))
        (losses.sum() / len(positions)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), here.config.optimizer.clip_norm)
        optimizer.step()
    for name, array in module_arrays(model).items():
        assert array.tobytes() == result.arrays[f"model/{name}"].tobytes(), name


def test_kept_optimizer_state_continues_where_it_was(store: Path) -> None:
    """Two tasks that hand the state on differ from two that start the optimizer anew."""
    keep, reset = context(store), context(store, optimizer_state="reset")
    task = task_of(keep)
    first = run(keep, task)
    assert any(name.startswith("state/") for name in first.arrays)
    assert not any(name.startswith("state/") for name in run(reset, task).arrays)
    model = {k: v for k, v in first.arrays.items() if k.startswith("model/")}
    second = dataclasses.replace(task, round=2, epoch=2)
    kept = dataclasses.replace(second, arrays={**first.arrays, "shard": task.arrays["shard"]})
    anew = dataclasses.replace(second, arrays={**model, "shard": task.arrays["shard"]})
    assert not same(run(keep, kept), run(keep, anew))


def test_an_empty_shard_changes_nothing_and_weighs_nothing(store: Path) -> None:
    here = context(store)
    task = task_of(here, shard=np.zeros(0, dtype=np.int64))
    result = run(here, task)
    assert result.weight == result.statistics["steps"] == 0
    for name in (name for name in result.arrays if name.startswith("model/")):
        assert result.arrays[name].tobytes() == task.arrays[name].tobytes()


def test_a_step_with_a_gradient_that_is_not_finite_is_skipped_and_counted(store: Path) -> None:
    here = context(store, learning_rate=1e30, clip_norm=0.0)  # diverges in the second step
    result = run(here, task_of(here))
    assert 0 < result.statistics["skipped_steps"] < result.statistics["steps"]
    assert 0 < result.weight < result.statistics["sequences"] == 32


def test_progress_counts_every_batch(store: Path) -> None:
    here, seen = context(store), []
    result = map_task(here, task_of(here), seen.append)
    assert seen == list(range(1, result.statistics["steps"] + 1))


def test_scores_come_in_the_order_of_the_indices(store: Path) -> None:
    here = context(store, dropout=0.5)  # nothing is dropped here
    indices = here.store.split("validation")[::-1].copy()
    scores = score(here, indices)
    assert scores["reference"].tolist() == here.store.label_lengths[indices].tolist()
    for at, index in enumerate(indices):
        alone = here.task.score(here.model, here.task.collate(here.store, np.array([index])))
        assert scores["loss"][at] == pytest.approx(alone.loss[0], abs=1e-4)
        assert scores["edits"][at] == alone.edits[0]
