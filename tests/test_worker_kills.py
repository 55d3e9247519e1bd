"""Workers are killed at random moments, and nothing of it is seen in the result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

import inprocess
from killing import (
    Ended,
    all_ready,
    ended_in,
    kill_at_random,
    losses,
    started,
    workers_of,
)
from mapreduce_rnn import checkpoint
from mapreduce_rnn.runlog import read_lines
from runs_real import SMALL, all_bytes, command, result_bytes
from stores import tiny_store

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

PAUSE_SECONDS = 2.0  # at most, between two kills
OPTIONS = [
    "--map-tasks", "6", "--epochs", "4", "--checkpoint-every", "1", "--keep", "4",
    "--dropout", "0.2", *SMALL,
]  # fmt: skip


@pytest.fixture(scope="module")
def large_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task takes two seconds or so."""
    return tiny_store(tmp_path_factory.mktemp("store") / "large", n=6000)


@pytest.fixture(scope="module")
def calm(large_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("calm") / "run"
    done = command(
        "train", large_store, "--run-dir", run, "--cpu-workers", "2", *OPTIONS, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.parametrize(("workers", "kills"), [(3, 20), (2, 10), (1, 5)])
def test_workers_killed_at_random_moments_leave_no_trace_in_the_result(
    large_store: Path, calm: Path, tmp_path: Path, workers: int, kills: int
) -> None:
    run, events = tmp_path / "run", tmp_path / "run" / "events.jsonl"
    many = ["--cpu-workers", str(workers), "--max-attempts", "1000"]
    with started("train", large_store, "--run-dir", run, *many, *OPTIONS) as process:
        ended = partial(ended_in, process)
        kill_at_random(
            process.pid, events, Random(workers), ended, kills=kills, pause=PAUSE_SECONDS
        )
        assert process.communicate(timeout=600)[1] == ""
        assert process.returncode == 0
    assert losses(events) == ["signal 9 (SIGKILL)"] * kills
    assert len(all_bytes(run)) == 2 + 4 * 3
    assert all_bytes(run) == all_bytes(calm)


def test_workers_that_are_all_killed_again_and_again_end_the_run_in_one_line(
    small_store: Path, tmp_path: Path
) -> None:
    """Three lost starts of each place, and at most four more of a task; the resume is calm."""
    run, options = tmp_path / "run", {"epochs": 3, "map_tasks": 6}
    inprocess.train(small_store, run, **options, rounds=2)
    inprocess.train(small_store, tmp_path / "calm", **options)
    began = time.monotonic()
    with started("train", "--resume", run, "--rounds", "3", "--cpu-workers", "3") as process:
        while not ended_in(process, 0.05):
            for victim in workers_of(process.pid).values():
                with suppress(ProcessLookupError):  # the master ends the last ones itself
                    os.kill(victim, signal.SIGKILL)
        assert time.monotonic() - began < 60
        assert process.returncode == 1
        assert process.communicate()[1].count("\n") == 1
    inprocess.resume(run, rounds=3)
    assert result_bytes(run) == result_bytes(tmp_path / "calm")


def test_a_worker_that_stood_still_answers_into_a_later_round_and_works_on(
    small_store: Path, tmp_path: Path
) -> None:
    """A copy of its task was faster; it gets the model of the round that is under way."""
    run = tmp_path / "run"
    options = ["--cpu-workers", "3", "--map-tasks", "6", "--epochs", "100000", "--backup-tasks",
               "--silence-seconds", "600"]  # fmt: skip
    with started("train", small_store, "--run-dir", run, *options, *SMALL) as process:
        try:
            stand_still(process, run)
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=60)[1].startswith("mapreduce-rnn: stopped")
        finally:
            process.kill()
    done = inprocess.resume(run, rounds=checkpoint.load(run).round + 1).rounds
    calm = tmp_path / "calm"
    inprocess.train(small_store, calm, map_tasks=6, epochs=100_000, rounds=done)
    assert result_bytes(run) == result_bytes(calm)


def stand_still(process: subprocess.Popen[str], run: Path) -> None:
    """Worker 0, for two rounds; it has trained again when this returns."""
    ended, log = partial(ended_in, process), run / "master.log"
    all_ready(run / "events.jsonl", 3, ended)
    slow, before = workers_of(process.pid)[0], len(rounds_of(run))
    os.kill(slow, signal.SIGSTOP)
    until(lambda: len(rounds_of(run)) >= before + 2, ended)
    os.kill(slow, signal.SIGCONT)
    late = r"from worker 0\.1: .*discarded its answer to \w+ of slot \d in round \d"
    until(lambda: re.search(late, log.read_text()), ended)
    last = rounds_of(run)[-1]
    until(lambda: rounds_of(run, worker=0)[-1:] > [last], ended)


def until(condition: Callable[[], object], ended: Ended) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        assert not ended(0.02)


def rounds_of(run: Path, worker: int | None = None) -> list[int]:
    """Whole rounds so far, or those in which a worker trained."""
    told = [e for e in read_lines(run / "events.jsonl").records if e["event"] == "round"]
    return [e["round"] for e in told if worker in (None, *(t["worker"] for t in e["tasks"]))]
