"""Options that are changed when a run goes on: refused, or stated, recorded and done right."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from contributions import RULES
from inprocess import interrupted_in, resume, train
from mapreduce_rnn import checkpoint, cli
from mapreduce_rnn.errors import CheckpointError, Interrupted, UsageError
from runs_real import lines, result_bytes
from smalltask import SmallTask
from stores import tiny_store

OPTIONS = {
    "units": 4, "batch_size": 3, "buckets": 2, "map_tasks": 3, "schedule": "constant",
    "learning_rate": 0.01, "checkpoint_every": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny", n=20)


@pytest.fixture(scope="module")
def done(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of three slots; only read."""
    path = tmp_path_factory.mktemp("done") / "run"
    train(store, path, make_task=SmallTask, epochs=2, **OPTIONS)
    return path


@pytest.fixture
def run(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "run")


def go_on(run: Path, **changes: Any) -> None:
    resume(run, make_task=SmallTask, **{"epochs": 4} | changes)


def config(run: Path) -> dict[str, Any]:
    return tomllib.loads((run / "config.toml").read_text())


def rates(run: Path) -> list[float]:
    return [line["learning_rate"] for line in lines(run / "metrics.jsonl")]


def resume_events(run: Path) -> list[dict[str, Any]]:
    return [e for e in lines(run / "events.jsonl") if e["event"] == "resume"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout": 0.5}, r"--dropout would change the result of this run \(0.0 -> 0.5\)"),
        ({"max_frames": 99}, r"--max-frames would change the result .*none -> 99"),
        ({"seed": 2, "epochs": 9}, "--seed would change the result .* add --allow-changes"),
        ({"reduce": "momentum"}, r"--reduce would change the result .*mean -> momentum"),
        ({"units": 9}, r"--units would change the shape of the model \(4 -> 9\)"),
        ({"units": 9, "allow_changes": True}, "--units would change the shape of the model"),
        ({"layers": 2, "allow_changes": True}, "--layers would change the shape of the model"),
    ],
)
def test_what_would_change_the_result_is_refused_by_name_and_nothing_happens(
    run: Path, done: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        go_on(run, **changes)
    assert result_bytes(run) == result_bytes(done)
    assert config(run) == config(done)


def test_options_that_say_how_far_where_and_how_safely_need_no_permission(
    run: Path, store: Path, tmp_path: Path
) -> None:
    """And change no byte; values that the run has are no change."""
    free = {"max_attempts": 9, "keep": "all", "checkpoint_every": 2, "cpu_workers": 2}
    same = {"learning_rate": 0.01, "units": 4, "kernel": "auto", "map_tasks": 3}
    go_on(run, **free, **same)
    whole = tmp_path / "whole"
    train(store, whole, make_task=SmallTask, epochs=4, horizon=2.0, **OPTIONS)
    assert result_bytes(run) == result_bytes(whole)
    assert "changes" not in config(run)


def test_an_allowed_change_holds_from_the_next_round_on_and_is_told_and_recorded(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on(run, learning_rate=0.002, max_frames=99, allow_changes=True, quiet=False)
    assert rates(run) == [0.01, 0.01, 0.002, 0.002]
    line = (
        "learning_rate 0.01 -> 0.002 from round 3 on: "
        "this run is no longer repeatable from its config alone"
    )
    said = capsys.readouterr().out.replace("\n", " ")
    assert line in " ".join(said.split())
    assert line in (run / "master.log").read_text()
    assert line in resume_events(run)[0]["changes"]
    recorded = config(run)
    assert recorded["optimizer"]["learning_rate"] == 0.002
    assert recorded["changes"] == [
        {"option": "learning_rate", "old": 0.01, "new": 0.002, "round": 3},
        {"option": "max_frames", "new": 99, "round": 3},
    ]


def test_later_sessions_go_on_with_the_change_and_keep_its_record(run: Path) -> None:
    go_on(run, learning_rate=0.002, epochs=3, allow_changes=True)
    go_on(run)
    go_on(run, epochs=5, learning_rate=0.001, allow_changes=True)
    assert rates(run) == [0.01, 0.01, 0.002, 0.002, 0.001]
    assert [change["round"] for change in config(run)["changes"]] == [3, 5]
    assert [len(event["changes"]) for event in resume_events(run)] == [1, 0, 1]


def test_a_change_whose_first_round_was_lost_needs_no_second_permission(run: Path) -> None:
    """The run has its options, and no checkpoint yet that was computed with them."""
    with pytest.raises(Interrupted):
        go_on(run, reduce="momentum", compute=interrupted_in(3), allow_changes=True)
    go_on(run, epochs=3)
    assert [change["round"] for change in config(run)["changes"]] == [3, 3]
    assert any(name.startswith("rule/") for name in checkpoint.load(run).state)


def test_a_config_changed_by_hand_needs_permission_like_an_option(run: Path) -> None:
    file = run / "config.toml"
    file.write_text(file.read_text().replace("[batches]", "[batches]\nmax_frames = 99"))
    with pytest.raises(CheckpointError, match=r"max_frames was None up to round 2, now it is 99"):
        go_on(run)
    go_on(run, allow_changes=True)
    assert [change["option"] for change in config(run)["changes"]] == ["max_frames"]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_any_rule_takes_over_from_the_mean_and_hands_back(run: Path, rule: str) -> None:
    """Its options are its own, and its state starts anew."""
    go_on(run, reduce=rule, epochs=3, allow_changes=True)
    go_on(run, reduce="mean", reduce_option=(), epochs=4, allow_changes=True)
    assert len(rates(run)) == 4
    assert not any(name.startswith("rule/") for name in checkpoint.load(run).state)


@pytest.mark.parametrize(
    "changes",
    [{"optimizer": "sgd"}, {"optimizer": "rmsprop", "momentum": 0.0}, {"optimizer_state": "reset"}],
)
def test_another_local_optimizer_starts_anew(run: Path, changes: dict[str, Any]) -> None:
    go_on(run, epochs=3, allow_changes=True, **changes)
    go_on(run, epochs=4, allow_changes=True, momentum=0.5)
    kept = {name.rpartition("/")[2] for name in checkpoint.load(run).state}
    assert "exp_avg" not in kept
    assert len(rates(run)) == 4


@pytest.mark.parametrize("rule", ["mean", "consensus"])
@pytest.mark.parametrize("slots", [2, 5])
def test_fewer_or_more_slots_go_on_with_what_those_that_stay_have_kept(
    store: Path, tmp_path: Path, rule: str, slots: int
) -> None:
    run = tmp_path / "run"
    train(store, run, make_task=SmallTask, epochs=2, reduce=rule, **OPTIONS)
    go_on(run, map_tasks=slots, epochs=3, allow_changes=True)
    kept = {name.split("/")[0] for name in checkpoint.load(run).state if name[:5] == "slot-"}
    assert kept == {f"slot-{slot}" for slot in range(slots)}
    assert len(lines(run / "metrics.jsonl")[-1]["weights"]) == slots


def test_the_batches_of_an_epoch_in_progress_stay_as_they_are(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(store, run, make_task=SmallTask, epochs=2, rounds=1, sync_steps=1, **OPTIONS)
    with pytest.raises(UsageError, match=r"batch_size decides .* epoch 1 is in progress.*epochs 1"):
        go_on(run, rounds=9, batch_size=4, allow_changes=True)
    go_on(run, rounds=9, epochs=1)
    go_on(run, rounds=9, epochs=2, batch_size=4, allow_changes=True)
    assert lines(run / "metrics.jsonl")[-1]["epochs_done"] == 2


def test_permission_belongs_to_a_run_that_goes_on(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", str(store), "--allow-changes"]) == 2
    assert "--allow-changes is for a run that goes on" in capsys.readouterr().err
