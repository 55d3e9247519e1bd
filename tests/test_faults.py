"""Whatever goes wrong with a worker, the run ends in the bytes of a calm one, or says why not."""

from __future__ import annotations

import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

import inprocess
import mapreduce_rnn
from faulty_worker import LONG_STEP_SECONDS, ROUND, SLOT, Fault, not_finite
from faultyruns import TOLD, faulty
from inprocess import TINY
from killing import all_ready, workers_of
from mapreduce_rnn import checkpoint
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask, MapResult
from mapreduce_rnn.runfolder import EVENTS
from mapreduce_rnn.workers.maptask import Context
from runs_real import FinishedRun, all_bytes, lines, result_bytes

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

OPTIONS = {"units": 4, "map_tasks": 3, "epochs": 3, "dropout": 0.2}
LIMITS = {"silence_seconds": 10.0, "hang_seconds": 25.0}  # a start takes seconds on a busy machine
NOTICE_SECONDS = 2.0  # the end of a process is looked for ten times a second
WORKERS = pytest.mark.parametrize("workers", [1, 2, 3])
HARMLESS = [fault for fault in Fault if fault is not Fault.NOT_FINITE_ANSWER]


def train(store: Path, run: Path, workers: int, **options: Any) -> None:
    config = override(
        TrainConfig(), TINY | OPTIONS | LIMITS | {"cpu_workers": workers} | options, "test"
    )
    mapreduce_rnn.train(store, config, run_dir=run, quiet=True, report=False)


@pytest.fixture(scope="module")
def calm(small_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    inprocess.train(small_store, path, **OPTIONS)
    return path


@WORKERS
@pytest.mark.parametrize("fault", HARMLESS, ids=lambda fault: fault.name.lower())
def test_after_any_fault_a_run_ends_in_the_same_bytes(
    small_store: Path, calm: Path, tmp_path: Path, fault: Fault, workers: int
) -> None:
    with faulty(fault):
        train(small_store, tmp_path / "run", workers)
    log = (tmp_path / "run" / "master.log").read_text()
    assert re.search(TOLD[fault], log)
    if "gone" not in TOLD[fault]:
        assert "gone" not in log  # a long step on a busy core, say, is no death
    assert result_bytes(tmp_path / "run") == result_bytes(calm)


def poisoned(context: Context, task: AnyTask) -> AnyResult:
    answer = inprocess.compute(context, task)
    hit = isinstance(answer, MapResult) and (answer.round, answer.slot) == (ROUND, SLOT)
    return not_finite(answer) if hit else answer


@WORKERS
def test_an_answer_that_is_not_finite_is_left_out_by_name_whoever_gave_it(
    small_store: Path, tmp_path: Path, workers: int
) -> None:
    inprocess.train(small_store, tmp_path / "calm", compute=poisoned, **OPTIONS)
    with faulty(Fault.NOT_FINITE_ANSWER):
        train(small_store, tmp_path / "run", workers)
    assert re.search(TOLD[Fault.NOT_FINITE_ANSWER], (tmp_path / "run" / "master.log").read_text())
    told = [line["rejected"] for line in lines(tmp_path / "run" / "metrics.jsonl")]
    assert [len(rejected) for rejected in told] == [0, 1, 0]
    assert result_bytes(tmp_path / "run") == result_bytes(tmp_path / "calm")


@WORKERS
@pytest.mark.parametrize("fault", [Fault.IMPORT_ERROR, Fault.KILLED_BEFORE_START])
def test_workers_that_fail_at_every_start_end_a_resumed_run_soon_and_harm_nothing(
    small_store: Path, calm: Path, tmp_path: Path, fault: Fault, workers: int
) -> None:
    """Three starts of each, in parallel: half a minute is plenty on a busy machine."""
    run, began = tmp_path / "run", time.monotonic()
    inprocess.train(small_store, run, **OPTIONS, rounds=2)
    with (
        faulty(fault, always=True),
        pytest.raises(TrainingFailed, match="no worker starts") as told,
    ):
        mapreduce_rnn.resume(run, {"rounds": 3, "cpu_workers": workers}, quiet=True, report=False)
    assert time.monotonic() - began < 30
    assert "\n" not in str(told.value)
    assert checkpoint.load(run).round == 2
    inprocess.resume(run, rounds=3)
    assert result_bytes(run) == result_bytes(calm)


def test_a_task_that_is_always_lost_ends_a_resumed_run_and_harms_nothing(
    small_store: Path, calm: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    inprocess.train(small_store, run, **OPTIONS, rounds=2)
    changes = {"rounds": 3, "cpu_workers": 1, "max_attempts": 2}
    with faulty(Fault.KILLED_IN_TASK, always=True), pytest.raises(TrainingFailed) as told:
        mapreduce_rnn.resume(run, changes, quiet=True, report=False)
    assert re.fullmatch(r"training of slot 0 .*lost with its worker 2 times.*", str(told.value))
    assert checkpoint.load(run).round == 2
    inprocess.resume(run, rounds=3)
    assert result_bytes(run) == result_bytes(calm)


@pytest.mark.parametrize("workers", [2, 3])
def test_with_backup_tasks_a_worker_that_is_far_slower_is_not_waited_for(
    small_store: Path, tmp_path: Path, workers: int
) -> None:
    """Tasks take a fraction of a second, those of worker 0 take 12 s and more."""
    run, calm = tmp_path / "run", tmp_path / "calm"
    options = {"map_tasks": 6, "epochs": 4, "checkpoint_every": 1, "keep": "all"}
    inprocess.train(small_store, calm, **OPTIONS | options)
    with faulty(Fault.SLOW, always=True):
        train(small_store, run, workers, backup_tasks=True, **options)
    rounds = FinishedRun(run, small_store, "").events("round")
    assert all(line["map_seconds"] < LONG_STEP_SECONDS for line in rounds)
    assert "attempt 2" in (run / "master.log").read_text()
    assert all_bytes(run) == all_bytes(calm)


def test_on_one_core_a_long_step_is_no_death_and_a_kill_is_noticed_all_the_same(
    small_store: Path, calm: Path, tmp_path: Path
) -> None:
    """The steps of worker 0 are longer than the silence after which a worker counts as lost."""
    run, cores = tmp_path / "run", os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with faulty(Fault.SLOW, always=True), ThreadPoolExecutor(1) as thread:
            training = thread.submit(train, small_store, run, 2)
            all_ready(run / EVENTS, 2, lambda seconds: bool(wait([training], seconds).done))
            killed = time.time()
            os.kill(workers_of(os.getpid())[1], signal.SIGKILL)
            training.result(200)
    finally:
        os.sched_setaffinity(0, cores)
    (lost,) = (e for e in lines(run / EVENTS) if e.get("what") == "lost")
    assert (lost["place"], lost["reason"]) == (1, "signal 9 (SIGKILL)")
    assert lost["time"] - killed < NOTICE_SECONDS
    assert result_bytes(run) == result_bytes(calm)
