"""Whole runs with real workers: they give the bytes that a run without any process gives."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from typing import Any

import pytest

import inprocess
import mapreduce_rnn
from inprocess import TINY
from killing import all_ready, kill_at_random, losses
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.runfolder import EVENTS
from runs_real import SMALL, FinishedRun, all_bytes, command, lines, result_bytes
from stores import tiny_store

FOUR = {"map_tasks": 4, "epochs": 4, "dropout": 0.2, "seed": 7}


def train(store: Path, run_dir: Path, **options: Any) -> mapreduce_rnn.RunResult:
    config = override(TrainConfig(), TINY | options, "test")
    return mapreduce_rnn.train(store, config, run_dir=run_dir, quiet=True, report=False)


@pytest.fixture(scope="module")
def four_slots(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds of four slots, computed in this process."""
    path = tmp_path_factory.mktemp("four") / "run"
    inprocess.train(store, path, **FOUR)
    return path


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.faults)])
def test_any_number_of_workers_gives_the_same_bytes(
    four_slots: Path, store: Path, tmp_path: Path, workers: int
) -> None:
    train(store, tmp_path / "run", **FOUR, cpu_workers=workers)
    assert result_bytes(tmp_path / "run") == result_bytes(four_slots)


def test_other_workers_may_resume_and_end_in_the_same_bytes(
    four_slots: Path, store: Path, tmp_path: Path
) -> None:
    inprocess.train(store, tmp_path / "run", **FOUR, rounds=2)
    changes = {"rounds": 4, "cpu_workers": 2}
    result = mapreduce_rnn.resume(tmp_path / "run", changes, quiet=True, report=False)
    assert result.rounds == 4
    assert result_bytes(tmp_path / "run") == result_bytes(four_slots)


def test_the_command_gives_the_same_bytes_and_slots_train_on_different_shards(
    finished: FinishedRun, tmp_path: Path
) -> None:
    inprocess.train(finished.store, tmp_path / "run", cpu_workers=2, epochs=3)
    assert result_bytes(tmp_path / "run") == result_bytes(finished.path)
    assert [line["weights"] for line in finished.metrics()] == [[16, 16]] * 3


def test_three_workers_killed_at_random_moments_leave_no_trace_in_the_result(
    tmp_path: Path,
) -> None:
    """In little of what test_worker_kills.py does at length."""
    store, run = tiny_store(tmp_path / "store", n=500), tmp_path / "run"
    options = {"epochs": 3, "map_tasks": 6, "dropout": 0.2, "checkpoint_every": 1, "keep": "all"}
    inprocess.train(store, tmp_path / "calm", **options)
    with ThreadPoolExecutor(1) as thread:
        many = {"cpu_workers": 3, "max_attempts": 1000}
        training = thread.submit(train, store, run, **options, **many)

        def ended(seconds: float) -> bool:
            return bool(wait([training], seconds).done)

        all_ready(run / EVENTS, 3, ended)
        kill_at_random(os.getpid(), run / EVENTS, Random(1), ended, kills=3, pause=0.2)
        training.result(90)
    assert losses(run / EVENTS) == ["signal 9 (SIGKILL)"] * 3
    assert all_bytes(run) == all_bytes(tmp_path / "calm")


def test_training_works_twice_in_a_process_that_forks_by_default(
    store: Path, tmp_path: Path
) -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("fork", force=True)
    try:
        train(store, tmp_path / "first", epochs=1)
        train(store, tmp_path / "second", epochs=1)
        assert multiprocessing.get_start_method() == "fork"
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert result_bytes(tmp_path / "first") == result_bytes(tmp_path / "second")


@pytest.mark.slow
def test_a_model_of_110_mebibytes_trains_a_round(store: Path, tmp_path: Path) -> None:
    """Far over msgpack's default limits; the tiny rest of the run keeps it short."""
    train(store, tmp_path / "run", units=1898, batch_size=32, buckets=1, epochs=1)
    assert (tmp_path / "run" / "model.safetensors").stat().st_size >= 110 * 2**20
    assert len(lines(tmp_path / "run" / "metrics.jsonl")) == 1


def test_a_worker_that_cannot_start_ends_the_run(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start fails: the run ends and says where to look."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(TrainingFailed, match=r"no worker starts.*exit code 3"):
        train(store, tmp_path / "run", epochs=1)


def test_long_folders_odd_plot_settings_and_the_users_threads(tmp_path: Path, store: Path) -> None:
    """Paths of 150 characters, a plot backend without display, OMP_NUM_THREADS of the user."""
    deep = tmp_path / ("d" * 150)
    deep.mkdir()
    odd = {"TMPDIR": str(deep), "MPLBACKEND": "TkAgg", "OMP_NUM_THREADS": "2", "DISPLAY": ""}
    done = command(
        "train", store, "--run-dir", deep / "run", "--cpu-workers", "1", "--epochs", "1", *SMALL,
        env={**odd, "XDG_RUNTIME_DIR": str(deep)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "threads = 2" in (deep / "run" / "config.toml").read_text()
    assert (deep / "run" / "figures" / "training.png").stat().st_size > 0
