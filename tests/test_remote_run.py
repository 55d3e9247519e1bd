"""Whole runs whose workers connect over TCP, and what a run without them listens to: nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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
    events = [e for e in lines(run / "events.jsonl") if e["event"] == "worker"]
    assert sorted(e["place"] for e in events if e["what"] == "ready") == [0, 1]
    assert "warn" not in (run / "master.log").read_text().lower()


def test_a_default_run_listens_to_nothing_on_the_network(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("--run-dir", run, "--cpu-workers", "1", "--epochs", "500", *SMALL)
    with started("train", store, *options) as master:
        deadline = time.monotonic() + PATIENCE
        while not (run / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
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
