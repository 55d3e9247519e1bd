"""Simulated wall-clock: what N devices would take, counted where there are fewer."""

from __future__ import annotations

import dataclasses
import io
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mapreduce_rnn
from inprocess import interrupted_in, train, without_processes
from mapreduce_rnn.config import DeviceConfig, TrainConfig, override
from mapreduce_rnn.errors import Interrupted, UsageError
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.launch.devices import resolve_places
from mapreduce_rnn.progress import Console, RoundLine
from mapreduce_rnn.simulate import Timed, makespan, map_seconds, schedule
from runs_real import lines, result_bytes
from smalltask import SmallTask
from test_progress import START, Clock

SECONDS = st.lists(st.integers(0, 50), max_size=6)
OPTIONS = {"units": 4, "batch_size": 4, "buckets": 2, "epochs": 3}
SIX = {"cpu_workers": 6, "simulate": True}


def small(store: Path, run: Path, **options: Any) -> None:
    train(store, run, make_task=SmallTask, **OPTIONS | options)


def rounds(run: Path) -> list[dict[str, Any]]:
    return [e for e in lines(run / "events.jsonl") if e["event"] == "round"]


@given(SECONDS, st.integers(1, 4))
def test_a_device_runs_one_task_at_a_time_and_never_waits(seconds: list[int], devices: int) -> None:
    placed = schedule(seconds, devices)
    assert [task.end - task.start for task in placed] == seconds
    for device in range(devices):
        own = [task for task in placed if task.device == device]
        assert [task.start for task in own] == [0.0, *(task.end for task in own)][: len(own)]
    assert [task.start for task in placed] == sorted(task.start for task in placed)


@given(SECONDS, st.integers(1, 4))
def test_the_makespan_is_at_most_twice_the_best_there_is(seconds: list[int], devices: int) -> None:
    """Graham 1966: list scheduling takes at most 2 - 1/devices times the optimum."""
    assignments = product(range(devices), repeat=len(seconds))
    best = min(
        max(sum(s for s, d in zip(seconds, dealt, strict=True) if d == device)
            for device in range(devices))
        for dealt in assignments
    )  # fmt: skip
    assert best <= makespan(seconds, devices) <= (2 - 1 / devices) * best


def test_transfer_and_the_masters_work_are_not_done_side_by_side() -> None:
    """Two tasks of 3 and 4 s, 0.5 s of transfer each, 1 s of the master's own."""
    tasks = [Timed(0.0, 3.5, 3.0), Timed(3.5, 8.0, 4.0)]
    assert map_seconds(9.0, tasks, 1) == pytest.approx(9.0)
    assert map_seconds(9.0, tasks, 2) == pytest.approx(4.0 + 1.0 + 1.0)


def test_the_model_is_that_of_as_many_workers(store: Path, tmp_path: Path) -> None:
    small(store, tmp_path / "real", cpu_workers=6)
    small(store, tmp_path / "simulated", **SIX)
    assert result_bytes(tmp_path / "simulated") == result_bytes(tmp_path / "real")


def test_every_round_says_that_its_time_is_simulated(store: Path, tmp_path: Path) -> None:
    small(store, tmp_path / "run", **SIX)
    small(store, tmp_path / "real", cpu_workers=6)
    told = rounds(tmp_path / "run")
    assert [event["simulated"]["devices"] for event in told] == [6, 6, 6]
    assert all(0 < e["simulated"]["map_seconds"] <= e["map_seconds"] for e in told)
    assert told[-1]["elapsed"] == pytest.approx(sum(
        e["simulated"]["map_seconds"] + e["reduce_seconds"] + e["checkpoint_seconds"] for e in told
    ))  # fmt: skip
    assert all("simulated" not in event for event in rounds(tmp_path / "real"))


def test_the_times_of_scoring_are_told_too(store: Path, tmp_path: Path) -> None:
    small(store, tmp_path / "run", **SIX, validate_every=2)
    kinds = [[task["kind"] for task in event["tasks"]] for event in rounds(tmp_path / "run")]
    assert kinds[0] == ["map"] * 6
    assert sorted(kinds[1]) == ["map"] * 6 + ["score"] * 6


def test_the_limit_in_seconds_is_of_simulated_ones(store: Path, tmp_path: Path) -> None:
    """None of the seconds of start-up and validation count: a tiny limit allows one round."""
    small(store, tmp_path / "run", **SIX, max_seconds=1e-6)
    assert len(rounds(tmp_path / "run")) == 1


def test_a_simulated_run_goes_on_simulated(store: Path, tmp_path: Path) -> None:
    small(store, tmp_path / "whole", **SIX)
    with pytest.raises(Interrupted):
        small(store, tmp_path / "run", **SIX, compute=interrupted_in(2))
    with without_processes(make_task=SmallTask):
        mapreduce_rnn.resume(tmp_path / "run", quiet=True, report=False)
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "whole")
    assert [event["simulated"]["devices"] for event in rounds(tmp_path / "run")] == [6, 6, 6]


@pytest.mark.parametrize(
    ("before", "changes", "named"),
    [
        (SIX, {"cpu_workers": 6}, "--cpu-workers"),
        (SIX, {"simulate": False}, "--simulate"),
        ({"cpu_workers": 6}, {"simulate": True}, "--simulate"),
    ],
)
def test_real_and_simulated_seconds_are_never_added(
    store: Path, tmp_path: Path, before: dict[str, Any], changes: dict[str, Any], named: str
) -> None:
    small(store, tmp_path / "run", **before)
    with pytest.raises(UsageError, match=named), without_processes(make_task=SmallTask):
        mapreduce_rnn.resume(tmp_path / "run", {"epochs": 5, **changes}, quiet=True, report=False)


def places(visible: int = 0, **devices: Any) -> tuple[Place, ...]:
    return resolve_places(
        DeviceConfig(simulate=True, **devices), environ={}, count_gpus=lambda: visible, cores=8
    )


def test_tasks_run_one_at_a_time_on_the_cpu_and_on_the_gpus_there_are() -> None:
    """Two CPU workers would share memory and caches that each would have alone."""
    assert places(cpu_workers=6) == (Place("cpu"),)
    assert places(visible=2, gpus="6") == (Place("cuda", "0"), Place("cuda", "1"))
    assert places(visible=8, gpus="6") == tuple(Place("cuda", str(n)) for n in range(6))


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({}, "of how many devices"),
        ({"gpus": "auto"}, "not --gpus auto"),
        ({"devices": ("0",)}, "Give --gpus N"),
        ({"gpus": "6"}, "no GPU is visible"),
        ({"cpu_workers": 2, "listen": "tcp://127.0.0.1:5555", "keys": "k"}, "leave out --listen"),
    ],
)
def test_what_cannot_be_simulated_is_refused(devices: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        places(**devices)


def test_the_time_left_is_real_where_the_limit_is_simulated() -> None:
    """10 simulated seconds of 100 took 60 real ones: 540 are left."""
    clock, stream = Clock(), io.StringIO()
    console = Console(stream, clock)
    stop = override(TrainConfig(), {"max_seconds": 100.0}, "test").stop
    console.start(dataclasses.replace(START, stop=stop))
    console.round_begin(1, None, 10)
    clock.now += 60.0
    console.round_end(RoundLine(1, 2.0, 2.0, 0.5, trained=10.0))
    assert stream.getvalue().splitlines()[-1].endswith("9 min 00 s")
