"""A run that starts from another one's model: checked, recorded, and on its own from then on."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inprocess import interrupted_in, resume, train
from mapreduce_rnn import checkpoint, cli
from mapreduce_rnn.data.store import Sequence, Store, write_store
from mapreduce_rnn.errors import CheckpointError, Interrupted, MapReduceRnnError, UsageError
from runs_real import lines, result_bytes
from smalltask import SmallTask
from stores import FEATURES, tiny_store

OPTIONS: dict[str, Any] = {
    "units": 4, "batch_size": 3, "buckets": 2, "epochs": 2, "schedule": "constant",
    "optimizer": "sgd", "momentum": 0.0, "validate_every": 1, "make_task": SmallTask,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny", n=20)


@pytest.fixture(scope="module")
def done(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done") / "run"
    train(store, path, **OPTIONS)
    return path


def plan(run: Path) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((run / "config.toml").read_text())["plan"]
    return table


def test_a_run_starts_from_the_best_model_of_another_and_says_which(
    done: Path, store: Path, tmp_path: Path
) -> None:
    """At a learning rate that changes no number the model stays what it was."""
    train(store, tmp_path / "run", init_from=done, **OPTIONS | {"learning_rate": 1e-38})
    best = (done / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == best
    assert plan(tmp_path / "run")["init_from"] == str(done / "model.safetensors")
    assert plan(tmp_path / "run")["init_sha256"] == hashlib.sha256(best).hexdigest()


@pytest.mark.parametrize("stopped_in", [1, 2])
def test_it_goes_on_without_the_file_and_ends_in_the_same_bytes(
    done: Path, store: Path, tmp_path: Path, stopped_in: int
) -> None:
    """Also when it was stopped before its first round was done."""
    file = shutil.copy(done / "checkpoints" / "round-000001" / "model.safetensors", tmp_path)
    train(store, tmp_path / "whole", init_from=Path(file), **OPTIONS)
    stop = interrupted_in(stopped_in)
    with pytest.raises(Interrupted):
        train(store, tmp_path / "run", init_from=Path(file), compute=stop, **OPTIONS)
    Path(file).unlink()
    resume(tmp_path / "run", make_task=SmallTask)
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "whole")
    assert [line["round"] for line in lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2]
    assert plan(tmp_path / "run")["init_from"] == file


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"w": np.zeros(2)}, UsageError, "missing: hidden.bias.*; not expected: w"),
        ({"hidden.bias": np.zeros(5, np.float32)}, UsageError, r"float32 \[5\] instead of .*\[4\]"),
        ({"hidden.bias": np.zeros(4)}, UsageError, r"float64 \[4\] instead of float32 \[4\]"),
        (b"half a file", CheckpointError, "model.safetensors is no safetensors file"),
        (None, CheckpointError, "model.safetensors: No such file"),
    ],
    ids=["names", "shape", "dtype", "damaged", "missing"],
)
def test_a_model_that_does_not_fit_is_refused_with_the_difference_and_no_run_is_left(
    done: Path, store: Path, tmp_path: Path,
    change: Any, error: type[MapReduceRnnError], message: str,
) -> None:  # fmt: skip
    file = tmp_path / "model.safetensors"
    if isinstance(change, bytes):
        file.write_bytes(change)
    elif change is not None:
        own = {} if "w" in change else dict(checkpoint.load_model(done / "model.safetensors"))
        checkpoint.save_model(file, own | change)
    with pytest.raises(error, match=message):
        train(store, tmp_path / "run", init_from=file, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_model_of_other_labels_is_refused(done: Path, store: Path, tmp_path: Path) -> None:
    """Of equal shapes: only its run's config.toml tells."""
    opened = Store.open(store)
    sequences = [
        Sequence(f"s{i}", opened.frames(i), [1], ("train", "validation")[i % 2]) for i in range(4)
    ]
    letters = [*reversed(opened.meta.alphabet)]
    write_store(tmp_path / "store", sequences, alphabet=letters, feature_names=FEATURES)
    with pytest.raises(UsageError, match="its run has another alphabet than this store"):
        train(tmp_path / "store", tmp_path / "run", init_from=done, **OPTIONS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run", "--init-from", "gone.safetensors"], "gone.safetensors: No such file"),
        (["--resume", "run", "--init-from", "x"], "leave out --init-from"),
    ],
)
def test_mistakes_on_the_command_line_are_one_line(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    named = [] if "--resume" in arguments else [str(store)]
    assert cli.main(["train", *named, "--cpu-workers", "1", *arguments]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
