"""Rounds that are windows of an epoch (--sync-steps) or several epochs (--local-epochs)."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

import inprocess
from inprocess import interrupted_in, resume, train
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import Interrupted
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask, MapTask
from mapreduce_rnn.workers.maptask import Context
from runs_real import lines, result_bytes
from smalltask import SmallTask

SMALL = {"units": 4, "map_tasks": 3, "buckets": 2, "make_task": SmallTask}
WINDOWS = SMALL | {"batch_size": 1, "sync_steps": 5, "epochs": 2}
"""32 sequences on 3 slots make lists of 11, 11 and 10 batches, so windows of 5, 5 and 1 or 0."""
THIRDS = [5 / 11, 10 / 11, 1.0]
LOCAL_EPOCHS = SMALL | {"batch_size": 4, "local_epochs": 2, "epochs": 4}


class Visits:
    """The sequences that every step of every map task trained on."""

    def __init__(self) -> None:
        self.shards: dict[tuple[int, int], list[int]] = {}  # by round and slot
        self.steps: dict[tuple[int, int], list[list[int]]] = {}

    def compute(self, context: Context, task: AnyTask) -> AnyResult:
        with mock.patch.object(context.task, "collate", wraps=context.task.collate) as collate:
            answer = inprocess.compute(context, task)
        if isinstance(task, MapTask):
            at = task.round, task.slot
            self.shards[at] = task.arrays["shard"].tolist()
            self.steps[at] = [call.args[1].tolist() for call in collate.call_args_list]
        return answer

    def of_slot(self, slot: int, *rounds: int) -> list[list[int]]:
        """A slot's steps, one round after the other."""
        return [step for round in rounds for step in self.steps[round, slot]]

    def sequences(self, *rounds: int) -> list[int]:
        """All that was visited in these rounds, sorted."""
        slots = (self.of_slot(slot, *rounds) for slot in range(3))
        return sorted(chain.from_iterable(chain.from_iterable(slots)))


class Watched(NamedTuple):
    visits: Visits
    run: Path

    def metrics(self, name: str) -> list[object]:
        return [line[name] for line in lines(self.run / "metrics.jsonl")]


def watched(store: Path, run: Path, **options: object) -> Watched:
    visits = Visits()
    train(store, run, compute=visits.compute, **options)
    return Watched(visits, run)


@pytest.fixture(scope="module")
def windows(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return watched(store, tmp_path_factory.mktemp("windows") / "run", **WINDOWS)


@pytest.fixture(scope="module")
def doubles(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    return watched(store, tmp_path_factory.mktemp("doubles") / "run", **LOCAL_EPOCHS)


def test_the_windows_of_an_epoch_visit_every_sequence_once(windows: Watched, store: Path) -> None:
    everything = Store.open(store).split("train").tolist()
    assert windows.visits.sequences(1, 2, 3) == everything
    assert windows.visits.sequences(4, 5, 6) == everything


def test_windows_are_cut_from_the_lists_of_whole_epochs(
    windows: Watched, store: Path, tmp_path: Path
) -> None:
    whole = watched(store, tmp_path / "run", **WINDOWS | {"sync_steps": None})
    for slot in range(3):
        assert windows.visits.of_slot(slot, 1, 2, 3) == whole.visits.of_slot(slot, 1)
        assert windows.visits.of_slot(slot, 4, 5, 6) == whole.visits.of_slot(slot, 2)


def test_a_slot_whose_list_has_ended_weighs_nothing(windows: Watched) -> None:
    weights = [sorted(line) for line in windows.metrics("weights")]
    assert weights == [[5, 5, 5], [5, 5, 5], [0, 1, 1]] * 2


def test_parts_of_epochs_are_counted_and_whole_ones_validated(windows: Watched) -> None:
    assert windows.metrics("epoch") == [1, 1, 1, 2, 2, 2]
    assert windows.metrics("epochs_done") == pytest.approx([*THIRDS, *(1 + t for t in THIRDS)])
    validated = [validation is not None for validation in windows.metrics("validation")]
    assert validated == [False, False, True] * 2


def test_a_planned_end_inside_an_epoch_is_validated(store: Path, tmp_path: Path) -> None:
    short = watched(store, tmp_path / "run", **WINDOWS, rounds=2)
    assert short.metrics("epochs_done") == pytest.approx(THIRDS[:2])
    assert [validation is not None for validation in short.metrics("validation")] == [False, True]


def test_an_epoch_that_was_stopped_inside_visits_every_sequence_once(
    windows: Watched, store: Path, tmp_path: Path
) -> None:
    visits = Visits()
    with pytest.raises(Interrupted):
        train(store, tmp_path / "run", compute=interrupted_in(3, visits.compute), **WINDOWS)
    resume(tmp_path / "run", compute=visits.compute, make_task=SmallTask)
    assert visits.steps == windows.visits.steps
    assert result_bytes(tmp_path / "run") == result_bytes(windows.run)


def test_local_epochs_train_on_the_same_shard_in_other_batches(doubles: Watched) -> None:
    for round, slot in ((1, 0), (1, 1), (2, 2)):
        shard, steps = doubles.visits.shards[round, slot], doubles.visits.steps[round, slot]
        first, second = steps[: len(steps) // 2], steps[len(steps) // 2 :]
        assert sorted(chain.from_iterable(first)) == shard
        assert sorted(chain.from_iterable(second)) == shard
        assert first != second
    assert doubles.visits.shards[1, 0] != doubles.visits.shards[2, 0]


def test_local_epochs_count_as_epochs_and_each_visit_as_weight(doubles: Watched) -> None:
    assert doubles.metrics("epoch") == doubles.metrics("epochs_done") == [2, 4]
    assert [sorted(line) for line in doubles.metrics("weights")] == [[20, 22, 22]] * 2
    assert all(validation is not None for validation in doubles.metrics("validation"))


@pytest.mark.parametrize(
    ("options", "validated"),
    [
        (WINDOWS | {"sync_steps": 6, "epochs": 3, "validate_every": 2}, [4, 6]),
        (LOCAL_EPOCHS | {"epochs": 8, "validate_every": 3}, [2, 3, 4]),
        (SMALL | {"epochs": 3, "validate_every": 2}, [2, 3]),
    ],
    ids=["windows", "local-epochs", "epochs"],
)
def test_validations_are_counted_in_epochs_and_the_last_one_is_always_due(
    store: Path, tmp_path: Path, options: dict[str, object], validated: list[int]
) -> None:
    """With two epochs a round, 3 and 6 are passed inside the rounds 2 and 3."""
    run = watched(store, tmp_path / "run", **options)
    found = [n for n, v in enumerate(run.metrics("validation"), start=1) if v is not None]
    assert found == validated
