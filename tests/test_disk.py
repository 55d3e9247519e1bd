"""Killed, or out of room, at any step of writing: the last whole round is there, and goes on."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import numpy as np
import pytest

from faultydisk import Killed, full_after, killed_after
from inprocess import resume, train
from mapreduce_rnn import checkpoint
from mapreduce_rnn.errors import CheckpointError
from runs_real import result_bytes
from smalltask import SmallTask
from stores import tiny_store

OPTIONS = {
    "units": 4, "batch_size": 3, "buckets": 2, "map_tasks": 2, "epochs": 5, "checkpoint_every": 1,
    "keep": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny", n=20)


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rounds that nothing disturbs; only read."""
    path = tmp_path_factory.mktemp("whole") / "run"
    train(store, path, make_task=SmallTask, **OPTIONS)
    return path


@pytest.fixture
def begun(store: Path, tmp_path: Path) -> Path:
    """The first of the five rounds."""
    path = tmp_path / "run"
    train(store, path, make_task=SmallTask, **OPTIONS, rounds=1)
    return path


def save(run: Path, number: int, value: float) -> None:
    checkpoint.save(run, number, {"w": np.full(3, value)}, {}, {"value": value})


def save_the_next(run: Path) -> None:
    save(run, 2, 2.0)
    checkpoint.prune(run, 2, keep=1)


def save_the_same_again(run: Path) -> None:
    save(run, 1, 2.0)


@pytest.mark.parametrize("saving", [save_the_next, save_the_same_again])
@pytest.mark.parametrize("harm", [killed_after, full_after])
def test_at_any_step_of_a_save_an_older_checkpoint_or_the_new_one_is_whole(
    tmp_path: Path, saving: Callable[[Path], None], harm: Callable[..., Any]
) -> None:
    """And the next save works and tidies up."""
    for step in range(_steps(tmp_path / "calm", saving, harm)):
        run = _two_checkpoints(tmp_path / str(step))
        with pytest.raises((Killed, CheckpointError)), harm(step):
            saving(run)
        loaded = checkpoint.load(run)
        assert loaded.warnings == ()
        assert loaded.content["value"] == loaded.model["w"][0] in (0.0, 1.0, 2.0)
        saving(run)
        assert checkpoint.load(run).content == {"value": 2.0}
        assert not list((run / "checkpoints").glob(".*"))


def _two_checkpoints(run: Path) -> Path:
    for number in (0, 1):
        save(run, number, float(number))
    return run


def _steps(run: Path, saving: Callable[[Path], None], harm: Callable[..., Any]) -> int:
    _two_checkpoints(run)
    with harm() as disk:
        saving(run)
    assert disk.steps >= 9  # three files and their folders
    return int(disk.steps)


def test_at_any_step_of_writing_the_best_model_the_old_or_the_new_one_is_whole(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.safetensors"
    for step in range(6):
        checkpoint.save_model(path, {"w": np.zeros(3)})
        try:
            with killed_after(step):
                checkpoint.save_model(path, {"w": np.ones(3)})
        except Killed:
            pass
        values = checkpoint.load_model(path)["w"]
        assert values.tolist() in ([0.0] * 3, [1.0] * 3)
    assert values.tolist() == [1.0] * 3


@pytest.mark.parametrize("seed", range(4))
def test_a_run_killed_again_and_again_ends_in_the_same_bytes(
    begun: Path, whole: Path, seed: int
) -> None:
    """And goes back by at most the round in progress."""
    random_steps = random.Random(seed)
    rounds = 1
    for _ in range(10):
        with pytest.raises(Killed), killed_after(random_steps.randrange(60)):
            _resume_for_ever(begun)
        loaded = checkpoint.load(begun)
        assert loaded.warnings == ()
        assert loaded.round >= rounds
        rounds = loaded.round
    resume(begun, make_task=SmallTask, rounds=5)
    assert result_bytes(begun) == result_bytes(whole)


def _resume_for_ever(run: Path) -> Never:
    while True:  # a session on a run that is done writes too
        resume(run, make_task=SmallTask, rounds=5)


def test_a_disk_that_fills_up_is_one_line_and_the_run_goes_on_when_there_is_room(
    begun: Path, whole: Path, tmp_path: Path
) -> None:
    errors = []
    for step in range(0, 60, 5):
        run = shutil.copytree(begun, tmp_path / str(step))
        errors.append(_resumed_until_full(run, step))
        resume(run, make_task=SmallTask, rounds=5)
        assert result_bytes(run) == result_bytes(whole)
    assert all("No space left on device" in error for error in errors)
    assert not any("\n" in error for error in errors)


def _resumed_until_full(run: Path, steps: int) -> str:
    with pytest.raises(CheckpointError) as caught, full_after(steps):
        resume(run, make_task=SmallTask, rounds=5)
    return str(caught.value)
