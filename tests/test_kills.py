"""The whole command is killed at random moments and resumed each time, with real processes."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from killing import ended_in, started, workers_of
from mapreduce_rnn import checkpoint
from runs_real import SMALL, all_bytes, command
from stores import tiny_store

KILLS = 20
ORPHAN_SECONDS = 10.0
ROUNDS = "300"  # of about a tenth of a second: far more than the kills leave time for


def newest(run: Path) -> int:
    """Round of the newest checkpoint; none is damaged."""
    loaded = checkpoint.load(run)
    assert loaded.warnings == ()
    return loaded.round


def trained_on(process: subprocess.Popen[str], run: Path, before: int) -> None:
    """Wait until a process has written a checkpoint of a later round."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if any(int(p.name[6:]) > before for p in (run / "checkpoints").glob("round-*")):
            return
        assert not ended_in(process, 0.02)
    raise AssertionError(f"no checkpoint after round {before}")


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL the master; its workers are gone within the time that is promised."""
    workers = [Path(f"/proc/{pid}") for pid in workers_of(process.pid).values()]
    process.send_signal(signal.SIGKILL)
    assert process.communicate()[1] == ""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while any(commanded(worker) for worker in workers):
        assert time.monotonic() < deadline


def commanded(process: Path) -> bool:
    """Whether it runs: an ended one that nobody has waited for has no command line."""
    try:
        return bool((process / "cmdline").read_bytes())
    except OSError:
        return False


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_killed_20_times_a_run_goes_on_each_time_and_ends_in_the_same_bytes(
    tmp_path: Path,
) -> None:
    """Short rounds with a checkpoint each; every other kill comes early or while it starts."""
    store, run, calm = tiny_store(tmp_path / "store"), tmp_path / "run", tmp_path / "calm"
    workers = ["--cpu-workers", "3"]
    options = ["--map-tasks", "6", "--epochs", ROUNDS, "--checkpoint-every", "1", "--keep", "9",
               *workers, *SMALL]  # fmt: skip
    process, moments, reached = started("train", store, "--run-dir", run, *options), Random(1), [0]
    for number in range(KILLS):
        if number % 2 == 0:
            trained_on(process, run, reached[-1])
        assert not ended_in(process, moments.uniform(0, [1, 8][number % 2]))
        kill(process)
        reached.append(newest(run))
        process = started("train", "--resume", run, *workers)
    assert process.communicate(timeout=600)[1] == ""
    assert process.returncode == 0
    assert reached == sorted(reached)
    assert len(set(reached)) > KILLS // 2
    done = command("train", store, "--run-dir", calm, *options, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all_bytes(run) == all_bytes(calm)
