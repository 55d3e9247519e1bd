"""Whole runs on a GPU. Skipped where there is none; not run on one yet."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

import mapreduce_rnn
from mapreduce_rnn.config import TrainConfig, override
from runs_real import SMALL, command, lines, result_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def train(store: Path, run: Path, *options: str) -> list[dict[str, Any]]:
    """Metrics of a run of the small model, which must end well and without a word on stderr."""
    done = command("train", store, "--run-dir", run, *SMALL, *options, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return lines(run / "metrics.jsonl")


def test_a_round_on_a_gpu_equals_one_on_a_cpu(store: Path, tmp_path: Path) -> None:
    cpu = train(store, tmp_path / "cpu", "--cpu-workers", "1", "--epochs", "1")
    gpu = train(store, tmp_path / "gpu", "--gpus", "1", "--epochs", "1")
    assert gpu[0]["train_loss"] == pytest.approx(cpu[0]["train_loss"], rel=1e-4)
    assert gpu[0]["validation"]["loss"] == pytest.approx(cpu[0]["validation"]["loss"], rel=1e-3)


def test_new_parameters_every_round_bring_no_warning(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", "--gpus", "1", "--epochs", "5")
    for log in [tmp_path / "run" / "master.log", *(tmp_path / "run" / "workers").iterdir()]:
        assert "warn" not in log.read_text().lower()


def test_deterministic_runs_have_the_same_bytes(store: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        train(store, tmp_path / name, "--gpus", "1", "--epochs", "2", "--deterministic")
    assert result_bytes(tmp_path / "first") == result_bytes(tmp_path / "second")


def test_two_workers_on_one_gpu_make_the_model_of_one(store: Path, tmp_path: Path) -> None:
    options = ("--epochs", "2", "--map-tasks", "2", "--deterministic")
    train(store, tmp_path / "two", "--devices", "0,0", *options)
    train(store, tmp_path / "one", "--devices", "0", *options)
    assert result_bytes(tmp_path / "two") == result_bytes(tmp_path / "one")


def test_a_checkpoint_of_a_gpu_goes_on_on_a_cpu(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", "--gpus", "1", "--epochs", "1")
    changes = {"epochs": 2, "cpu_workers": 1}
    result = mapreduce_rnn.resume(tmp_path / "run", changes, quiet=True, report=False)
    assert result.rounds == 2


def test_each_worker_of_a_resumed_run_has_a_gpu_of_its_own(store: Path, tmp_path: Path) -> None:
    """A worker refuses to compute where CUDA shows it more than its own."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    run = tmp_path / "run"
    train(store, run, "--gpus", "1", "--map-tasks", "2", "--epochs", "1")
    mapreduce_rnn.resume(run, {"epochs": 2, "gpus": "2"}, quiet=True, report=False)
    began = [e for e in lines(run / "events.jsonl") if e.get("what") == "started"]
    assert len({(e["pid"], e["device"]) for e in began[1:]}) == 2
    assert len({e["device"] for e in began[1:]}) == 2


def test_a_caller_that_has_used_cuda_and_forks_by_default_trains(
    store: Path, tmp_path: Path
) -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    config = override(TrainConfig(), {"units": 8, "epochs": 1, "gpus": "1"}, "test")
    torch.ones(1, device="cuda").sum().item()
    multiprocessing.set_start_method("fork", force=True)
    try:
        result = mapreduce_rnn.train(
            store, config, run_dir=tmp_path / "run", quiet=True, report=False
        )
        assert multiprocessing.get_start_method() == "fork"
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert result.rounds == 1
