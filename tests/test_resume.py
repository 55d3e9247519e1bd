"""Stop and resume: the same bytes as never stopped, for every rule, optimizer and schedule."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import inprocess
from contributions import OUTER, RULES
from inprocess import Compute, interrupted_in, resume, train
from mapreduce_rnn import checkpoint
from mapreduce_rnn.errors import CheckpointError, Interrupted, StoreError
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask, ScoreTask
from mapreduce_rnn.tasks import Task
from mapreduce_rnn.workers.maptask import Context
from runs_real import lines, result_bytes
from smalltask import NormalisedTask, SmallTask, TiedTask
from stores import tiny_store

SMALL = {"units": 4, "batch_size": 3, "buckets": 2, "map_tasks": 3, "epochs": 2}
WINDOWS = {"batch_size": 2, "buckets": 1, "sync_steps": 2}
"""Of epochs of three steps: two windows each."""
LSTM = {"map_tasks": 4, "epochs": 4, "dropout": 0.2, "seed": 7}
PEAK = 0.01


@pytest.fixture(scope="module")
def done(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four rounds of four slots; only read."""
    path = tmp_path_factory.mktemp("done") / "run"
    train(small_store, path, **LSTM)
    return path


def whole_and_resumed(
    store: Path,
    folder: Path,
    *,
    after: int = 1,
    make_task: Callable[..., Task] = SmallTask,
    compute: Compute = inprocess.compute,
    **options: Any,
) -> tuple[Path, Path]:
    """Run folders of one run in one go, and of one that goes on after a round.

    As after a kill: metrics and the best model may be ahead of the newest checkpoint.
    """
    whole, resumed = folder / "whole", folder / "resumed"
    train(store, whole, compute=compute, make_task=make_task, checkpoint_every=1, **options)
    shutil.copytree(whole, resumed)
    for newer in (resumed / "checkpoints").iterdir():
        if newer.name > f"round-{after:06d}":
            shutil.rmtree(newer)
    resume(resumed, compute=compute, make_task=make_task)
    told = [e["round"] for e in lines(resumed / "events.jsonl") if e["event"] == "resume"]
    assert told == [after]
    return whole, resumed


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("after", "epochs_done", "rounds"),
    [(1, 1, {}), (3, 1 + 2 / 3, WINDOWS)],
    ids=["epochs", "windows"],
)
def test_every_rule_ends_in_the_same_bytes(
    small_store: Path, tmp_path: Path, rule: str,
    after: int, epochs_done: float, rounds: dict[str, int],
) -> None:  # fmt: skip
    """With dropout, running statistics and a counter; windows stop in the middle of an epoch."""
    options = SMALL | {"reduce": rule, "dropout": 0.2, "make_task": NormalisedTask} | rounds
    whole, resumed = whole_and_resumed(small_store, tmp_path, after=after, **options)
    assert result_bytes(resumed) == result_bytes(whole)
    assert lines(whole / "metrics.jsonl")[after - 1]["epochs_done"] == pytest.approx(epochs_done)
    state = checkpoint.load(whole).state
    assert any(name.startswith("rule/") for name in state) == (rule in [*OUTER, "consensus"])


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adadelta"])
@pytest.mark.parametrize("policy", ["reset", "average", "keep"])
def test_local_optimizers_go_on_as_if_never_saved(
    small_store: Path, tmp_path: Path, optimizer: str, policy: str
) -> None:
    options = SMALL | {"optimizer": optimizer, "optimizer_state": policy}
    whole, resumed = whole_and_resumed(small_store, tmp_path, **options)
    assert result_bytes(resumed) == result_bytes(whole)
    slots = {name.split("/")[0] for name in checkpoint.load(whole).state}
    assert slots == (set() if policy == "reset" else {"slot-0", "slot-1", "slot-2"})


@pytest.mark.parametrize(
    ("options", "shares"),
    [
        ({"schedule": "constant"}, [1, 1, 1, 1]),
        ({"schedule": "constant", "warmup": 2.0}, [0.01, 0.505, 1, 1]),
        ({"schedule": "step", "step_epochs": 2.0, "step_factor": 0.1}, [1, 1, 0.1, 0.1]),
        (
            {"schedule": "cosine"},
            [0.01 + 0.99 * (1 + math.cos(math.pi * done / 4)) / 2 for done in range(4)],
        ),
    ],
    ids=["constant", "warm-up", "step", "cosine"],
)
def test_schedules_go_on_where_they_were(
    small_store: Path, tmp_path: Path, options: dict[str, Any], shares: list[float]
) -> None:
    """One step an epoch, so that the rates of all steps are in the metrics."""
    steps = {"batch_size": 64, "buckets": 1, "epochs": 4, "learning_rate": PEAK}
    whole, resumed = whole_and_resumed(small_store, tmp_path, after=2, **SMALL | steps | options)
    assert result_bytes(resumed) == result_bytes(whole)
    assert rates(resumed) == pytest.approx([PEAK * share for share in shares])


def test_plateaus_drop_the_rate_and_are_counted_on_after_a_resume(
    small_store: Path, tmp_path: Path
) -> None:
    """Each two validations in a row without a new best; the stop comes between two such."""
    losses = [3, 4, 4, 2, 4, 4, 4]
    options = {"schedule": "plateau", "plateau_validations": 2, "epochs": 7, "learning_rate": PEAK}
    whole, resumed = whole_and_resumed(
        small_store, tmp_path, after=5, compute=validated_with(losses), **SMALL | options
    )
    assert result_bytes(resumed) == result_bytes(whole)
    shares = [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    assert rates(resumed) == pytest.approx([PEAK * share for share in shares])


def validated_with(losses: list[float]) -> Compute:
    """Tasks computed as ever, but for the loss of every validation sequence, by round."""

    def scripted(context: Context, task: AnyTask) -> AnyResult:
        answer = inprocess.compute(context, task)
        if not isinstance(task, ScoreTask):
            return answer
        loss = np.full(len(task.arrays["indices"]), float(losses[task.round - 1]))
        return dataclasses.replace(answer, arrays={**answer.arrays, "loss": loss})

    return scripted


def rates(run: Path) -> list[float]:
    return [line["learning_rate"] for line in lines(run / "metrics.jsonl")]


def test_tied_weights_are_saved_once_and_still_shared_after_a_resume(
    small_store: Path, tmp_path: Path
) -> None:
    shared = []

    def looking(context: Context, task: AnyTask) -> AnyResult:
        answer = inprocess.compute(context, task)
        shared.append(context.model.between.weight is context.model.hidden.weight)
        return answer

    options = SMALL | {"units": 3, "make_task": TiedTask}
    whole, resumed = whole_and_resumed(small_store, tmp_path, compute=looking, **options)
    assert result_bytes(resumed) == result_bytes(whole)
    assert all(shared)
    saved = checkpoint.load(resumed).model
    assert "hidden.weight" in saved
    assert "between.weight" not in saved


@pytest.mark.parametrize("rounds", [{}, WINDOWS], ids=["epochs", "windows"])
def test_an_interrupted_round_is_lost_and_done_again(
    small_store: Path, tmp_path: Path, rounds: dict[str, int]
) -> None:
    options = SMALL | {"make_task": SmallTask} | rounds
    train(small_store, tmp_path / "whole", **options)
    with pytest.raises(Interrupted):
        train(small_store, tmp_path / "run", compute=interrupted_in(2), **options)
    assert checkpoint.load(tmp_path / "run").round == 1
    resume(tmp_path / "run", make_task=SmallTask)
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "whole")


def test_a_run_made_longer_ends_in_the_same_bytes(
    small_store: Path, tmp_path: Path, done: Path
) -> None:
    """It had ended as planned, with the schedule of the whole."""
    train(small_store, tmp_path / "run", **LSTM, rounds=2)
    assert resume(tmp_path / "run", rounds=4).rounds == 4
    assert result_bytes(tmp_path / "run") == result_bytes(done)


def test_plateaus_of_a_run_made_longer_are_those_of_the_whole(
    small_store: Path, tmp_path: Path
) -> None:
    """No validation is added at the planned end, which the schedule would count."""
    options = {"schedule": "plateau", "plateau_validations": 1, "validate_every": 2, "epochs": 7}
    computed = validated_with([9, 1, 9, 2, 9, 3, 9])
    train(small_store, tmp_path / "whole", compute=computed, **SMALL | options)
    train(small_store, tmp_path / "run", compute=computed, **SMALL | options, rounds=5)
    resume(tmp_path / "run", compute=computed, rounds=7)
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "whole")
    assert rates(tmp_path / "run")[-1] < rates(tmp_path / "run")[0]


def test_more_epochs_than_planned_keep_the_last_learning_rate(
    small_store: Path, tmp_path: Path
) -> None:
    train(small_store, tmp_path / "run", make_task=SmallTask, epochs=2)
    resume(tmp_path / "run", make_task=SmallTask, epochs=4)
    first, second, third, fourth = rates(tmp_path / "run")
    assert third == fourth < second < first


def test_resume_mends_what_was_lost_and_ends_in_the_same_bytes(done: Path, tmp_path: Path) -> None:
    """The newest checkpoint is damaged, the best model gone, the last event not yet written."""
    run = shutil.copytree(done, tmp_path / "run")
    before = [e for e in lines(run / "events.jsonl") if e["event"] == "round"]
    os.truncate(run / "checkpoints" / "round-000004" / "model.safetensors", 100)
    (run / "model.safetensors").unlink()
    (run / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in before[:2]))
    resume(run)
    assert result_bytes(run) == result_bytes(done)
    last = [e for e in lines(run / "events.jsonl") if e["event"] == "round"][-1]
    assert last["round"] == 4
    assert last["elapsed"] > before[1]["elapsed"]


def test_what_is_damaged_is_named_to_the_user_and_done_again(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best model is damaged too, and its checkpoint: what cannot be mended is said."""
    run = shutil.copytree(done, tmp_path / "run")
    best = min(lines(run / "metrics.jsonl"), key=lambda line: line["validation"]["loss"])["round"]
    assert best == 4
    for file in ["model.safetensors", "checkpoints/round-000004/model.safetensors"]:
        (run / file).write_bytes(b"")
    resume(run, quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "checkpoint of round 4 is damaged: model.safetensors has another sha256" in said
    assert result_bytes(run) == result_bytes(done)
    assert checkpoint.load(run).warnings == ()


def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_anew(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(done, tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    resume(run, quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "there is no checkpoint of the 4 rounds done: the run begins anew" in said
    assert result_bytes(run) == result_bytes(done)


def test_a_best_model_that_cannot_be_mended_is_told(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(done, tmp_path / "run")
    best = dict(checkpoint.load(run).content["best"], round=3)
    last = checkpoint.load(run)
    checkpoint.save(run, 4, last.model, last.state, {**last.content, "best": best})
    (run / "checkpoints" / "round-000003" / "manifest.json").unlink()
    resume(run, quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "model.safetensors is left as it is" in said
    assert "checkpoint of round 3 is damaged: manifest.json: No such file" in said


def test_metrics_that_lost_lines_go_on_from_a_checkpoint_that_has_all_of_its_own(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of round 4 is gone, and half of that of round 3."""
    run = shutil.copytree(done, tmp_path / "run")
    sizes = [checkpoint.load(run, round).content["metrics_bytes"] for round in (2, 3, 4)]
    cut = (sizes[0] + sizes[1]) // 2
    os.truncate(run / "metrics.jsonl", cut)
    resume(run, quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    for round, size in zip((3, 4), sizes[1:], strict=True):
        lacking = f"metrics.jsonl has {cut} of the {size} bytes up to it"
        assert f"checkpoint of round {round} lacks its metrics: {lacking}" in said
    assert result_bytes(run) == result_bytes(done)


@pytest.mark.parametrize("left", [None, 100])
def test_metrics_that_no_checkpoint_has_all_lines_of_are_refused_and_nothing_is_changed(
    done: Path, tmp_path: Path, left: int | None
) -> None:
    run = shutil.copytree(done, tmp_path / "run")
    os.truncate(run / "metrics.jsonl", left or 0)
    if left is None:
        (run / "metrics.jsonl").unlink()
    before = files(run)
    expected = rf"round 4 lacks its metrics: metrics.jsonl has {left or 0} of the \d+ bytes"
    with pytest.raises(CheckpointError, match=expected) as error:
        resume(run, epochs=5)
    assert str(error.value).endswith(
        "; nor can 2 older ones be used; put the run's own files back, or start a new run"
    )
    assert files(run) == before


def files(run: Path) -> dict[Path, bytes]:
    """What is in a run folder, but for its logs."""
    everything = [path for path in run.rglob("*") if path.is_file()]
    return {p: p.read_bytes() for p in everything if p.name not in ("events.jsonl", "master.log")}


def test_going_on_with_other_versions_or_devices_is_told_and_recorded(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not again by a later session on the same machine."""
    run = shutil.copytree(done, tmp_path / "run")
    events = lines(run / "events.jsonl")
    events[0] |= {"devices": ["cuda:0"], "versions": events[0]["versions"] | {"torch": "2.0.0"}}
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for epochs in (5, 6):
        resume(run, epochs=epochs, quiet=False)
    told = f"device cuda -> cpu, torch 2.0.0 -> {torch.__version__} from round 5 on"
    assert " ".join(capsys.readouterr().out.split()).count(told) == 1
    assert (run / "master.log").read_text().count(told) == 1
    first, second = (e for e in lines(run / "events.jsonl") if e["event"] == "resume")
    assert [warning.partition(":")[0] for warning in first["warnings"]] == [told]
    assert second["warnings"] == []


def test_another_store_is_refused(small_store: Path, tmp_path: Path) -> None:
    own = shutil.copytree(small_store, tmp_path / "store")
    train(own, tmp_path / "run", make_task=SmallTask, epochs=1)
    own.rename(tmp_path / "old")
    tiny_store(own, seed=1)
    with pytest.raises(StoreError, match="not the store this run was started on"):
        resume(tmp_path / "run", epochs=2)
