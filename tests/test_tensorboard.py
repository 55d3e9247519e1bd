"""TensorBoard's files: the points of a run at its training times, over all sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inprocess import resume, train
from mapreduce_rnn import tensorboard
from mapreduce_rnn.errors import UsageError
from runs_real import lines
from smalltask import SmallTask

OPTIONS = {"units": 4, "batch_size": 4, "buckets": 2, "tensorboard": True, "make_task": SmallTask}

Points = list[tuple[int, float, float]]  # step, seconds since the first start, value


def points(run: Path, name: str) -> Points:
    """Of a curve, as TensorBoard reads them."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator(str(run / "tensorboard"))
    accumulator.Reload()
    began = lines(run / "events.jsonl")[0]["time"]
    return [(p.step, p.wall_time - began, p.value) for p in accumulator.Scalars(name)]


def told(run: Path) -> Points:
    """What the run's own files say of the validation loss."""
    rounds = [e for e in lines(run / "events.jsonl") if e["event"] == "round"]
    elapsed = {event["round"]: event["elapsed"] for event in rounds}
    return [
        (line["round"], elapsed[line["round"]], line["validation"]["loss"])
        for line in lines(run / "metrics.jsonl")
    ]


def test_each_round_is_a_point_at_its_training_time(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "run", epochs=2, **OPTIONS)
    resume(tmp_path / "run", epochs=4, make_task=SmallTask)
    written = points(tmp_path / "run", "loss/validation")
    assert [step for step, _, _ in written] == [1, 2, 3, 4]
    for (_, *got), (_, *expected) in zip(written, told(tmp_path / "run"), strict=True):
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-3)


def test_rounds_that_come_again_after_a_kill_are_not_there_twice(
    store: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(store, run, epochs=3, checkpoint_every=1, **OPTIONS)
    (run / "checkpoints" / "round-000003" / "manifest.json").unlink()
    resume(run, epochs=4, make_task=SmallTask)
    assert [step for step, _, _ in points(run, "loss/train")] == [1, 2, 3, 4]


def test_what_has_no_number_is_left_out() -> None:
    entry: dict[str, Any] = {
        "round": 1, "validation": None, "train_loss": None, "learning_rate": 0.1,
        "epochs_done": 1.0, "skipped_steps": 0, "rejected": [],
    }  # fmt: skip
    assert tensorboard.points(entry | {"validation": {"loss": float("nan"), "label_error": 1.0}}) \
        == tensorboard.points(entry) | {"label error/validation": 1.0}  # fmt: skip
    assert not {"loss/train", "loss/validation"} & tensorboard.points(entry).keys()


def test_without_the_extra_one_line_says_how_to_get_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'mapreduce-rnn\[tensorboard\]'"):
        train(store, tmp_path / "run", epochs=1, **OPTIONS)
    assert not (tmp_path / "run").exists()
