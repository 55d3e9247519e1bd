"""Each completed epoch visits every sequence once, which metrics.jsonl can prove."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inprocess import interrupted_in, resume, train
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import Interrupted
from mapreduce_rnn.visits import spelt, total, visit_sum
from runs_real import lines
from smalltask import SmallTask
from stores import tiny_store

RESUME_SECONDS = 5.0  # more than a start from nothing; also pays for the rounds that are left
INDICES = st.lists(st.integers(0, 2**40), max_size=50)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 sequences to train on."""
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny", n=50)


@given(INDICES, INDICES)
def test_sums_are_equal_for_equal_visits_in_any_order_and_parts(
    some: list[int], others: list[int]
) -> None:
    whole = visit_sum(np.array(some + others, np.int64))
    parts = total(visit_sum(np.array(part, np.int64)) for part in (others, some))
    assert (whole == visit_sum(np.array(some, np.int64))) == (not others)
    assert whole == parts < 2**64


@given(st.lists(st.integers(0, 10_000), min_size=1, unique=True), st.data())
def test_a_sequence_skipped_or_repeated_changes_the_sum(indices: list[int], data: Any) -> None:
    at = data.draw(st.integers(0, len(indices) - 1))
    skipped = indices[:at] + indices[at + 1 :]
    sums = {
        visit_sum(np.array(visits, np.int64))
        for visits in (indices, skipped, [*indices, indices[at]], [*skipped, 10_001])
    }
    assert len(sums) == 4


def visited(run: Path) -> dict[int, tuple[int, str]]:
    """By epoch: sequences visited and their sum, over all of its rounds."""
    found: dict[int, tuple[int, int]] = {}
    for line in lines(run / "metrics.jsonl"):
        count, so_far = found.get(line["epoch"], (0, 0))
        new = int(line["visited"]["hash"], 16)
        found[line["epoch"]] = (
            count + line["visited"]["sequences"],
            total([so_far, new]),
        )
    return {epoch: (count, spelt(visits)) for epoch, (count, visits) in found.items()}


def once(store: Path) -> tuple[int, str]:
    indices = Store.open(store).split("train")
    return len(indices), spelt(visit_sum(indices))


@pytest.mark.parametrize("slots", [1, 2, 3, 50])
@pytest.mark.parametrize("rounds", [{}, {"sync_steps": 2}], ids=["epochs", "windows"])
def test_every_epoch_visits_every_sequence_once_also_after_a_stop(
    store: Path, tmp_path: Path, slots: int, rounds: dict[str, int]
) -> None:
    """Stopped in round 2; windows stop in the middle of an epoch."""
    options = {"map_tasks": slots, "epochs": 3, **rounds}
    began = time.monotonic()
    with pytest.raises(Interrupted):
        train(store, tmp_path / "run", make_task=SmallTask, compute=interrupted_in(2), **options)
    stopped = time.monotonic()
    resume(tmp_path / "run", make_task=SmallTask, cpu_workers=3)
    assert visited(tmp_path / "run") == dict.fromkeys([1, 2, 3], once(store))
    assert time.monotonic() - stopped < stopped - began + RESUME_SECONDS


def test_rounds_of_several_epochs_count_each_visit(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", make_task=SmallTask, epochs=2, local_epochs=2)
    count, visits = once(store)
    assert visited(tmp_path / "run") == {2: (2 * count, spelt(total(2 * [int(visits, 16)])))}


def test_a_curriculum_visits_fewer_until_all_are_in_play(store: Path, tmp_path: Path) -> None:
    options = {"curriculum": "growing-buckets", "curriculum_epochs": 2, "epochs": 2}
    train(store, tmp_path / "run", make_task=SmallTask, **options)
    first, second = visited(tmp_path / "run").values()
    assert first[0] < second[0]
    assert second == once(store)
