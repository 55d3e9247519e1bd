"""Whole runs whose workers connect over TCP, and what a run without them listens to: nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import inprocess
from mapreduce_rnn.runlog import read_lines
from runs_real import SMALL, FinishedRun, command, lines, result_bytes

MAPREDUCE = [sys.executable, "-W", "error", "-m", "mapreduce_rnn"]
PATIENCE = 90.0  # four processes import torch, on two cores


@contextmanager
def started(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, killed at the end if it still runs."""
    with subprocess.Popen(
        [*MAPREDUCE, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    assert command("keys", tmp_path / "keys").returncode == 0
    return tmp_path / "keys"


def listening(master: subprocess.Popen[str]) -> str:
    """The address in what the master says while it waits for workers."""
    assert master.stdout is not None
    for line in master.stdout:
        if found := re.search(r"tcp://\S+:\d+", line):
            return found[0]
    raise AssertionError(master.stderr.read() if master.stderr else "")


def test_two_workers_over_tcp_make_the_same_bytes_as_two_here(
    finished: FinishedRun, keys: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("--listen", "tcp://127.0.0.1:*", "--keys", keys, "--cpu-workers", "2")
    with started(
        "train", finished.store, "--run-dir", run, "--epochs", "3", *options, *SMALL
    ) as master:
        work = ("worker", "--connect", listening(master), "--store", finished.store, "--device",
                "cpu", "--key", keys / "worker.key")  # fmt: skip
        with started(*work) as first, started(*work) as second:
            _, errors = master.communicate(timeout=PATIENCE)
            assert (master.returncode, errors) == (0, "")
            assert [w.wait(PATIENCE) for w in (first, second)] == [0, 0]
    assert result_bytes(run) == result_bytes(finished.path)
    assert sorted(ready(run)) == [0, 1]
    assert "warn" not in (run / "master.log").read_text().lower()


def test_a_default_run_listens_to_nothing_on_the_network(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--run-dir", run, "--cpu-workers", "1", "--epochs", "500", *SMALL)
    with started("train", store, *options) as master:
        until(lambda: (run / "metrics.jsonl").exists())
        pids = [master.pid, *children(master.pid)]
        assert len(pids) == 2
        held = {inode for pid in pids for inode in sockets(pid)}
        assert held  # the run's own, through a file
        assert not held & network_sockets()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def sockets(pid: int) -> set[str]:
    """Inodes of a process's open sockets."""
    links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def network_sockets() -> set[str]:
    """Inodes of all TCP and UDP sockets of this machine."""
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")]
    rows = [row for table in tables if table.exists() for row in table.read_text().splitlines()[1:]]
    return {row.split()[9] for row in rows}


@pytest.mark.faults
def test_a_worker_that_is_killed_is_replaced_by_one_that_comes_later(
    small_store: Path, keys: Path, tmp_path: Path
) -> None:
    """And then the master is: its workers end by themselves, in the wait they were given."""
    run = tmp_path / "run"
    options = ("--listen", "tcp://127.0.0.1:*", "--keys", keys, "--cpu-workers", "2", "--epochs",
               "100000", "--silence-seconds", "3", *SMALL)  # fmt: skip
    with started("train", small_store, "--run-dir", run, *options) as master:
        work = ("worker", "--connect", listening(master), "--store", small_store, "--device",
                "cpu", "--key", keys / "worker.key", "--wait", "5")  # fmt: skip
        with started(*work) as first, started(*work) as second:
            until(lambda: len(ready(run)) == 2)
            first.kill()
            with started(*work) as third:
                until(lambda: len(ready(run)) == 3)
                assert ready(run)[2] == next(e["place"] for e in workers(run, "lost"))
                master.kill()
                assert [w.wait(PATIENCE) for w in (second, third)] == [1, 1]
                assert third.stderr is not None
                assert "no message from the master at tcp://127.0.0.1" in third.stderr.read()
    assert_as_calm(small_store, run)


@pytest.mark.faults
def test_a_worker_that_stood_still_for_too_long_comes_back_too_late(
    small_store: Path, keys: Path, tmp_path: Path
) -> None:
    """Its task ran elsewhere: what it answers after all is named and changes nothing."""
    run, log = tmp_path / "run", tmp_path / "run" / "master.log"
    options = ("--listen", "tcp://127.0.0.1:*", "--keys", keys, "--cpu-workers", "2", "--epochs",
               "100000", "--silence-seconds", "5", *SMALL)  # fmt: skip
    with started("train", small_store, "--run-dir", run, *options) as master:
        work = ("worker", "--connect", listening(master), "--store", small_store, "--device",
                "cpu", "--key", keys / "worker.key")  # fmt: skip
        with started(*work) as first, started(*work):
            until(lambda: len(ready(run)) == 2)
            (name,) = (e["name"] for e in workers(run, "started") if e["pid"] == first.pid)
            first.send_signal(signal.SIGSTOP)
            until(lambda: workers(run, "lost"))
            first.send_signal(signal.SIGCONT)
            assert first.wait(PATIENCE) == 1
            assert first.stderr is not None
            assert "it was given up, silent or hung" in first.stderr.read()
            late = r"it was given up: discarded its answer to \w+ of slot \d in round \d"
            until(lambda: re.search(rf"from worker {name}\S*: {late}", log.read_text()))
            assert_goes_on_and_stops(master, run)
    assert_as_calm(small_store, run)


def assert_goes_on_and_stops(master: subprocess.Popen[str], run: Path) -> None:
    rounds = len(read_lines(run / "metrics.jsonl").records)
    until(lambda: len(read_lines(run / "metrics.jsonl").records) > rounds)
    master.send_signal(signal.SIGTERM)
    assert master.wait(PATIENCE) == 143


def assert_as_calm(store: Path, run: Path) -> None:
    """Resumed by a round, metrics are those of a run without remote workers."""
    resumed = inprocess.resume(run, rounds=len(lines(run / "metrics.jsonl")) + 1)
    calm = run.with_name("calm")
    inprocess.train(store, calm, map_tasks=2, epochs=100_000, rounds=resumed.rounds)
    assert (run / "metrics.jsonl").read_bytes() == (calm / "metrics.jsonl").read_bytes()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def workers(run: Path, what: str) -> list[dict[str, Any]]:
    """The events of a run's workers, as far as they are written."""
    told = read_lines(run / "events.jsonl").records
    return [e for e in told if e["event"] == "worker" and e["what"] == what]


def ready(run: Path) -> list[int]:
    return [event["place"] for event in workers(run, "ready")]
