"""Whole runs with real workers: same bytes whoever computes, resume, stops, stores as they come."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mapreduce_rnn
from mapreduce_rnn import checkpoint, optim, runfolder
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Sequence, Store, write_store
from mapreduce_rnn.epochs import slot_epoch
from mapreduce_rnn.errors import ReduceError, StoreError, TrainingFailed, UsageError
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.seeds import model_seed
from mapreduce_rnn.workers.maptask import Context, make_context
from runs_real import SMALL, FinishedRun, command, lines, result_bytes
from stores import ALPHABET, FEATURES, tiny_store

TINY = {"units": 8, "batch_size": 4, "buckets": 3, "cpu_workers": 1}
FOUR = {"map_tasks": 4, "epochs": 4, "dropout": 0.2, "seed": 7}


def train(store: Path, run_dir: Path, **options: Any) -> mapreduce_rnn.RunResult:
    config = override(TrainConfig(), TINY | options, "test")
    return mapreduce_rnn.train(store, config, run_dir=run_dir, quiet=True, report=False)


def resume(run_dir: Path, **changes: Any) -> mapreduce_rnn.RunResult:
    return mapreduce_rnn.resume(run_dir, changes, quiet=True, report=False)


@pytest.fixture(scope="module")
def four_slots(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds of four slots, computed by one worker."""
    path = tmp_path_factory.mktemp("four") / "run"
    train(store, path, **FOUR)
    return path


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_bytes(
    four_slots: Path, store: Path, tmp_path: Path, workers: int
) -> None:
    train(store, tmp_path / "run", **FOUR, cpu_workers=workers)
    assert result_bytes(tmp_path / "run") == result_bytes(four_slots)


def test_another_seed_gives_another_model(four_slots: Path, store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", **FOUR | {"seed": 2})
    assert result_bytes(tmp_path / "run") != result_bytes(four_slots)


def test_resume_after_a_whole_round_ends_in_the_same_bytes(
    four_slots: Path, store: Path, tmp_path: Path
) -> None:
    train(store, tmp_path / "run", **FOUR, rounds=2)
    result = resume(tmp_path / "run", rounds=4, cpu_workers=2)
    assert result.rounds == 4
    assert result_bytes(tmp_path / "run") == result_bytes(four_slots)


def test_more_epochs_than_planned_keep_the_last_learning_rate(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", epochs=2)
    resume(tmp_path / "run", epochs=4, cpu_workers=1)
    rates = [line["learning_rate"] for line in lines(tmp_path / "run" / "metrics.jsonl")]
    assert len(rates) == 4
    assert rates[2] == rates[3] < rates[1]


def test_resume_mends_what_was_lost_and_ends_in_the_same_bytes(
    four_slots: Path, tmp_path: Path
) -> None:
    """The newest checkpoint is damaged, the best model gone, the last event not yet written."""
    run = shutil.copytree(four_slots, tmp_path / "run")
    before = [e for e in lines(run / "events.jsonl") if e["event"] == "round"]
    os.truncate(run / "checkpoints" / "round-000004" / "model.safetensors", 100)
    (run / "model.safetensors").unlink()
    (run / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in before[:2]))
    resume(run, cpu_workers=1)
    assert result_bytes(run) == result_bytes(four_slots)
    last = [e for e in lines(run / "events.jsonl") if e["event"] == "round"][-1]
    assert last["round"] == 4
    assert last["elapsed"] > before[1]["elapsed"]


def test_the_last_planned_epoch_is_always_validated(store: Path, tmp_path: Path) -> None:
    result = train(store, tmp_path / "run", epochs=3, validate_every=2, checkpoint_every=2)
    metrics = lines(tmp_path / "run" / "metrics.jsonl")
    losses = {n: m["validation"]["loss"] for n, m in enumerate(metrics, 1) if m["validation"]}
    assert list(losses) == [2, 3]
    assert result.best is not None
    assert result.best.round == min(losses, key=losses.__getitem__)
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert checkpoints == {"round-000002", "round-000003"}


def test_resume_refuses_an_option_that_changes_the_result(four_slots: Path) -> None:
    with pytest.raises(UsageError, match="--dropout would change the result"):
        resume(four_slots, dropout=0.1)


def test_resume_refuses_another_store(store: Path, tmp_path: Path) -> None:
    own = tiny_store(tmp_path / "store")
    train(own, tmp_path / "run", epochs=1)
    own.rename(tmp_path / "old")
    tiny_store(own, seed=1)
    with pytest.raises(StoreError, match="not the store this run was started on"):
        resume(tmp_path / "run", epochs=2)


def test_a_killed_workers_task_runs_again_with_the_same_bytes(tmp_path: Path) -> None:
    """One of two workers is killed as soon as both train; a new one takes its place."""
    store = tiny_store(tmp_path / "store", n=400)
    options = ("--epochs", "3", "--map-tasks", "3", "--cpu-workers", "2", *SMALL)
    train(store, tmp_path / "calm", epochs=3, map_tasks=3, cpu_workers=2)
    arguments = ["train", store, "--run-dir", tmp_path / "hurt", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", *map(str, arguments)], stdout=subprocess.DEVNULL
    ) as process:
        os.kill(_worker_in_training(tmp_path / "hurt" / "events.jsonl"), signal.SIGKILL)
        assert process.wait(60) == 0
    events = lines(tmp_path / "hurt" / "events.jsonl")
    lost = [e for e in events if e.get("what") == "lost"]
    assert [e["reason"] for e in lost] == ["signal 9 (SIGKILL)"]
    assert result_bytes(tmp_path / "hurt") == result_bytes(tmp_path / "calm")


def _worker_in_training(events: Path, seconds: float = 60) -> int:
    """Process id of the first worker, once all of them are ready."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        told = [json.loads(line) for line in _whole_lines(events)]
        ready = [e for e in told if e.get("what") == "ready"]
        pids = [e["pid"] for e in told if e.get("what") == "started" and e["place"] == 0]
        if len(ready) == 2:
            return int(pids[0])
    raise AssertionError("the workers did not get ready")


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def test_two_runs_of_a_seed_are_equal_and_slots_train_on_different_shards(
    finished: FinishedRun, tmp_path: Path
) -> None:
    done = command(
        "train", finished.store, "--run-dir", tmp_path / "again", "--cpu-workers", "2",
        "--epochs", "3", *SMALL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert result_bytes(tmp_path / "again") == result_bytes(finished.path)
    assert [line["weights"] for line in finished.metrics()] == [[16, 16]] * 3


def test_one_worker_equals_a_plain_pytorch_loop_byte_for_byte(store: Path, tmp_path: Path) -> None:
    """Three epochs with the optimizer state kept: what travels and is averaged changes no bit."""
    train(store, tmp_path / "run", epochs=3)
    config = runfolder.read_config(tmp_path / "run").config
    torch.set_num_threads(1)
    here = make_context(config, Store.open(store), torch.device("cpu"))
    torch.manual_seed(model_seed(config.run.seed))
    model = here.task.build_model()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in (1, 2, 3):
        _plain_epoch(here, model, optimizer, epoch)
    saved = checkpoint.load(tmp_path / "run").model
    assert saved.keys() == module_arrays(model).keys()
    for name, array in module_arrays(model).items():
        assert array.tobytes() == saved[name].tobytes(), name


def _plain_epoch(
    here: Context, model: torch.nn.Module, optimizer: torch.optim.Optimizer, epoch: int
) -> None:
    shard = here.store.split("train")
    config = here.config
    lengths = here.store.lengths[shard]
    batches = slot_epoch(lengths, config.batches, config.run.seed, epoch, slot=0).batches
    for done, positions in enumerate(batches):
        epochs_done = epoch - 1 + done / len(batches)
        optimizer.param_groups[0]["lr"] = optim.learning_rate(config.optimizer, epochs_done)
        optimizer.zero_grad()
        losses = here.task.losses(model, here.task.collate(here.store, shard[positions]))
        (losses.sum() / len(positions)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.clip_norm)
        optimizer.step()


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


def test_fewer_sequences_than_slots_and_than_a_batch(tmp_path: Path) -> None:
    """Two training sequences, four slots, batch 64, warm-up: idle slots weigh nothing."""
    store = tiny_store(tmp_path / "store", n=2)
    _add_validation(store, tmp_path / "both")
    options = {"batch_size": 64, "map_tasks": 4, "warmup": 1.0, "epochs": 3, "cpu_workers": 2}
    train(tmp_path / "both", tmp_path / "run", **options)
    metrics = lines(tmp_path / "run" / "metrics.jsonl")
    assert [sorted(line["weights"]) for line in metrics] == [[0, 0, 1, 1]] * 3
    rates = [line["learning_rate"] for line in metrics]
    assert rates[0] < rates[1] > rates[2]


def _add_validation(source: Path, target: Path) -> None:
    """A store with the sequences of another for training and their copies for validation."""
    opened = Store.open(source)
    write_store(
        target,
        [
            Sequence(f"{split}-{i}", opened.frames(i), opened.labels(i), split)
            for split in ("train", "validation")
            for i in range(len(opened))
        ],
        alphabet=ALPHABET,
        feature_names=FEATURES,
    )


def _short_sequences(unusable: int, usable: int) -> list[Sequence]:
    """Sequences of 2 frames that cannot carry their 3 labels, then ones that can."""
    rng = np.random.default_rng(0)
    frames = [2] * unusable + [12] * usable
    return [
        Sequence(f"s{i}", rng.normal(size=(n, 3)).astype(np.float32), [1, 2, 3], "train")
        for i, n in enumerate(frames)
    ]


def test_sequences_too_short_for_their_labels_are_counted_and_left_out(tmp_path: Path) -> None:
    good = Sequence("v", np.ones((9, 3), np.float32), [], "validation")
    write_store(
        tmp_path / "store", [*_short_sequences(30, 70), good],
        alphabet=ALPHABET, feature_names=FEATURES,
    )  # fmt: skip
    done = command(
        "train", tmp_path / "store", "--run-dir", tmp_path / "run", "--cpu-workers", "1",
        "--epochs", "1", *SMALL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "70 training" in done.stdout
    assert "left out 30 of 101 sequences: fewer frames than their labels need" in done.stdout
    (line,) = lines(tmp_path / "run" / "metrics.jsonl")
    assert line["weights"] == [70]
    assert line["train_loss"] > 0
    assert line["validation"]["label_error"] is None  # nothing but an empty reference


def test_nothing_but_too_short_sequences_is_an_error(tmp_path: Path) -> None:
    good = Sequence("v", np.ones((9, 3), np.float32), [1], "validation")
    write_store(
        tmp_path / "store", [*_short_sequences(5, 0), good],
        alphabet=ALPHABET, feature_names=FEATURES,
    )  # fmt: skip
    with pytest.raises(StoreError, match="none of the 5 train sequences"):
        train(tmp_path / "store", tmp_path / "run", epochs=1)
    assert not (tmp_path / "run").exists()


def test_losses_that_are_not_finite_are_null_and_never_best(store: Path, tmp_path: Path) -> None:
    """A run that diverges within few steps: strict JSON everywhere, a checkpoint, no best."""
    options = {"learning_rate": 1e38, "clip_norm": 0.0, "optimizer": "sgd", "epochs": 1}
    result = train(store, tmp_path / "run", **options)
    assert result.best is None
    (line,) = lines(tmp_path / "run" / "metrics.jsonl")
    assert line["validation"]["loss"] is None
    assert line["skipped_steps"] > 0
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "checkpoints" / "round-000001").is_dir()


def test_a_run_that_ends_before_its_first_round_names_only_what_is_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = override(TrainConfig(), TINY | {"max_seconds": 1e-6}, "test")
    result = mapreduce_rnn.train(store, config, run_dir=tmp_path / "run", report=False)
    assert result.rounds == 0
    assert f"files    {runfolder.METRICS}\n" in capsys.readouterr().out


def test_a_store_that_vanishes_costs_the_examples_only(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*arguments: object) -> None:
        raise FileNotFoundError("no such file: ids.txt")

    monkeypatch.setattr("mapreduce_rnn.examples.make_examples", gone)
    assert train(store, tmp_path / "run", epochs=1).rounds == 1
    assert "no examples for the report: no such file" in (tmp_path / "run/master.log").read_text()


def test_too_many_skipped_steps_end_the_run(tmp_path: Path) -> None:
    store = tiny_store(tmp_path / "store", n=100)
    options = {"learning_rate": 1e38, "clip_norm": 0.0, "optimizer": "sgd", "epochs": 1}
    with pytest.raises(TrainingFailed, match="not finite: lower --learning-rate"):
        train(store, tmp_path / "run", **options)


def test_models_that_are_not_finite_are_refused_by_slot_and_name(
    store: Path, tmp_path: Path
) -> None:
    """All slots return infinite parameters: the run ends, nothing is averaged or saved."""
    options = {"optimizer": "sgd", "clip_norm": 0.0, "learning_rate": 3e38}
    with pytest.raises(ReduceError, match=r"model kept \(slot 0: output.bias: not finite"):
        train(store, tmp_path / "run", epochs=1, **options)
    assert not (tmp_path / "run" / "model.safetensors").exists()


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
