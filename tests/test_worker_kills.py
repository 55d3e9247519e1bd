"""Workers are killed at random moments, and nothing of it is seen in the result."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from killing import ended_in, kill_a_worker, started
from mapreduce_rnn.runlog import read_lines
from runs_real import SMALL, command, result_bytes
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


def all_bytes(run: Path) -> dict[str, bytes]:
    """What :func:`result_bytes` compares, and every checkpoint."""
    saved = sorted(p for p in run.glob("checkpoints/*/*") if p.is_file())
    assert len(saved) == 4 * 3
    return {str(p.relative_to(run)): p.read_bytes() for p in saved} | result_bytes(run)


@pytest.mark.parametrize(("workers", "kills"), [(3, 20), (2, 10), (1, 5)])
def test_workers_killed_at_random_moments_leave_no_trace_in_the_result(
    large_store: Path, calm: Path, tmp_path: Path, workers: int, kills: int
) -> None:
    run, moments, done = tmp_path / "run", Random(workers), 0
    many = ["--cpu-workers", str(workers), "--max-attempts", "1000"]
    with started("train", large_store, "--run-dir", run, *many, *OPTIONS) as process:
        while done < kills:
            assert not ended_in(process, moments.uniform(0, PAUSE_SECONDS)), "too few kills"
            done += kill_a_worker(process.pid, run / "events.jsonl", moments)
        assert process.communicate(timeout=600)[1] == ""
        assert process.returncode == 0
    lost = [e for e in read_lines(run / "events.jsonl").records if e.get("what") == "lost"]
    assert [e["reason"] for e in lost] == ["signal 9 (SIGKILL)"] * kills
    assert all_bytes(run) == all_bytes(calm)
