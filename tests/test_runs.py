"""Whole runs of one process: plans and ends, stores as they come, training that diverges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapreduce_rnn
from inprocess import TINY, train, without_processes
from mapreduce_rnn import runfolder
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Sequence, Store, write_store
from mapreduce_rnn.errors import ReduceError, StoreError, TrainingFailed
from mapreduce_rnn.master import check_skipped
from mapreduce_rnn.session import RunResult
from runs_real import lines, result_bytes
from stores import ALPHABET, FEATURES, tiny_store

DIVERGING = {"optimizer": "sgd", "clip_norm": 0.0, "epochs": 1}


def spoken(store: Path, run_dir: Path, **options: Any) -> RunResult:
    """As :func:`train`, but not quiet."""
    config = override(TrainConfig(), TINY | options, "test")
    with without_processes():
        return mapreduce_rnn.train(store, config, run_dir=run_dir, report=False)


def test_another_seed_gives_another_model(store: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        train(store, tmp_path / str(seed), epochs=1, seed=seed)
    assert result_bytes(tmp_path / "1") != result_bytes(tmp_path / "2")


def test_the_last_planned_epoch_is_always_validated(store: Path, tmp_path: Path) -> None:
    result = train(store, tmp_path / "run", epochs=3, validate_every=2, checkpoint_every=2)
    metrics = lines(tmp_path / "run" / "metrics.jsonl")
    losses = {n: m["validation"]["loss"] for n, m in enumerate(metrics, 1) if m["validation"]}
    assert list(losses) == [2, 3]
    assert result.best is not None
    assert result.best.round == min(losses, key=losses.__getitem__)
    checkpoints = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert checkpoints == {"round-000002", "round-000003"}


def test_fewer_sequences_than_slots_and_than_a_batch(tmp_path: Path) -> None:
    """Two training sequences, four slots, batch 64, warm-up: idle slots weigh nothing."""
    store = tiny_store(tmp_path / "store", n=2)
    _add_validation(store, tmp_path / "both")
    options = {"batch_size": 64, "map_tasks": 4, "warmup": 1.0, "epochs": 3}
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


def test_sequences_too_short_for_their_labels_are_counted_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Sequence("v", np.ones((9, 3), np.float32), [], "validation")
    write_store(
        tmp_path / "store", [*_short_sequences(30, 70), good],
        alphabet=ALPHABET, feature_names=FEATURES,
    )  # fmt: skip
    spoken(tmp_path / "store", tmp_path / "run", epochs=1)
    told = capsys.readouterr().out
    assert "70 training" in told
    assert "left out 30 of 101 sequences: fewer frames than their labels need" in told
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
    result = train(store, tmp_path / "run", learning_rate=1e38, **DIVERGING)
    assert result.best is None
    (line,) = lines(tmp_path / "run" / "metrics.jsonl")
    assert line["validation"]["loss"] is None
    assert line["skipped_steps"] > 0
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "checkpoints" / "round-000001").is_dir()


def test_a_run_that_ends_before_its_first_round_names_only_what_is_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spoken(store, tmp_path / "run", max_seconds=1e-6).rounds == 0
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
    with pytest.raises(TrainingFailed, match="not finite: lower --learning-rate"):
        train(store, tmp_path / "run", learning_rate=1e38, **DIVERGING)


@pytest.mark.parametrize(("skipped", "steps"), [(10, 10), (10, 200), (50, 1000)])
def test_ten_bad_steps_or_5_percent_of_a_round_are_let_pass_and_no_more(
    skipped: int, steps: int
) -> None:
    half = {"steps": steps // 2, "skipped_steps": skipped // 2}
    check_skipped(3, [half, half])
    with pytest.raises(TrainingFailed, match=f"^{skipped + 1} of {steps} steps of round 3 had"):
        check_skipped(3, [half, {**half, "skipped_steps": skipped // 2 + 1}])


def test_models_that_are_not_finite_are_refused_by_slot_and_name(
    store: Path, tmp_path: Path
) -> None:
    """All slots return infinite parameters: the run ends, nothing is averaged or saved."""
    with pytest.raises(ReduceError, match=r"model kept \(slot 0: output.bias: not finite"):
        train(store, tmp_path / "run", learning_rate=3e38, **DIVERGING)
    assert not (tmp_path / "run" / "model.safetensors").exists()
