"""mapreduce-rnn compare, as it is typed; runs are real, but without processes."""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import inprocess
from inprocess import Compute, interrupted_in, without_processes
from mapreduce_rnn import cli, report
from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.launch import devices
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask
from mapreduce_rnn.runlog import JsonLines
from mapreduce_rnn.workers.maptask import Context
from runs_real import lines, result_bytes
from smalltask import SmallTask

SMALL = ("--units", "3", "--batch-size", "4", "--epochs", "2", "--checkpoint-every", "1")
TWO = ("--cpu-workers", "1,2")
CPU_1, CPU_2 = "cpu-1_buckets-16_seed-1", "cpu-2_buckets-16_seed-1"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Compare:
    """Runs the command on one store; the report is a stand-in."""

    def __init__(self, store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *options: object, compute: Compute = inprocess.compute) -> Answer:
        arguments = ["compare", self.store, "--dir", self.folder, *SMALL, *options]
        try:
            with without_processes(compute, SmallTask):
                code = cli.main(list(map(str, arguments)))
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Answer(code, *self._capsys.readouterr())

    def fails(self, *options: object) -> str:
        """The one line of a command that is refused before anything runs."""
        before = self.sessions
        code, out, err = self(*options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert self.sessions == before
        return err

    @property
    def sessions(self) -> dict[str, int]:
        """Sessions of each run."""
        return {
            run.name: sum(e["event"] == "start" for e in lines(run / "events.jsonl"))
            for run in sorted(self.folder.iterdir() if self.folder.exists() else ())
            if (run / "events.jsonl").exists()
        }

    def config(self, run: str) -> dict[str, Any]:
        return tomllib.loads((self.folder / run / "config.toml").read_text())


@pytest.fixture
def compare(
    small_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Compare:  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(report, "write_comparison", lambda f: f / "report.html", raising=False)
    monkeypatch.setattr(report, "comparison_lines", lambda f: ["the table"], raising=False)
    return Compare(small_store, tmp_path / "compared", capsys)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """As another process that has the run open."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield
    os.close(descriptor)


def test_a_grid_is_run_and_reported_and_a_second_time_only_reported(compare: Compare) -> None:
    first = compare(*TWO, "--buckets", "none,2")
    assert (first.code, first.err) == (0, "")
    titles = [line for line in first.out.splitlines() if " of 4: " in line]
    assert titles == [
        "1 of 4: 1 CPU worker, no buckets, seed 1", "2 of 4: 2 CPU workers, no buckets, seed 1",
        "3 of 4: 1 CPU worker, 2 buckets, seed 1", "4 of 4: 2 CPU workers, 2 buckets, seed 1",
    ]  # fmt: skip
    assert "\n\nthe table\nreport" in first.out
    assert set(compare.sessions.values()) == {1}
    again = compare(*TWO, "--buckets", "none,2")
    assert again.code == 0
    assert again.out.count(": there already\n") == 4
    assert "there already\nthe table\nreport" in again.out
    assert set(compare.sessions.values()) == {1}


def test_a_cell_is_the_run_that_train_makes_with_its_options(
    compare: Compare, tmp_path: Path
) -> None:
    compare("--cpu-workers", "2", "--buckets", "none", "--seed", "5", "--pad-to", "boundary")
    alone = tmp_path / "alone"
    inprocess.train(
        compare.store, alone, make_task=SmallTask, units=3, batch_size=4, epochs=2, buckets=1,
        checkpoint_every=1, map_tasks=2, seed=5,
    )  # fmt: skip
    assert result_bytes(compare.folder / "cpu-2_buckets-none_seed-5") == result_bytes(alone)


def test_a_larger_grid_adds_what_is_not_there(compare: Compare) -> None:
    compare("--cpu-workers", "1")
    assert compare(*TWO, "--seeds", "2").code == 0
    assert compare.sessions == {
        f"cpu-{count}_buckets-16_seed-{seed}": 1 for count in (1, 2) for seed in (1, 2)
    }


def test_an_interrupted_comparison_goes_on_to_the_same_bytes(
    compare: Compare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = compare(*TWO, compute=interrupted_in(round=2))
    message = "mapreduce-rnn: stopped by SIGINT; go on with the same command\n"
    assert (stopped.code, stopped.err) == (130, message)
    gone_on = compare(*TWO)
    assert gone_on.code == 0
    assert "1 of 2: 1 CPU worker, 16 buckets, seed 1: goes on\n" in gone_on.out
    assert compare.sessions == {CPU_1: 2, CPU_2: 1}
    ends = [e for e in lines(compare.folder / CPU_1 / "events.jsonl") if e["event"] == "end"]
    assert [end["done"] for end in ends] == [False, True]
    calm = Compare(compare.store, tmp_path / "calm", capsys)
    calm(*TWO)
    for run in (CPU_1, CPU_2):
        assert result_bytes(compare.folder / run) == result_bytes(calm.folder / run)


def test_runs_go_on_to_more_epochs_on_the_same_horizon(compare: Compare) -> None:
    compare(*TWO, "--horizon", "2")
    assert compare(*TWO, "--horizon", "2", "--epochs", "3").code == 0
    assert len(lines(compare.folder / CPU_2 / "metrics.jsonl")) == 3
    assert compare(*TWO, "--horizon", "2").out.count("there already") == 2


def test_simulated_devices_make_the_model_of_real_ones(
    compare: Compare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(*TWO)
    simulated = Compare(compare.store, tmp_path / "simulated", capsys)
    assert "2 CPU workers (simulated)" in simulated(*TWO, "--simulate").out
    for run in (CPU_1, CPU_2):
        assert result_bytes(compare.folder / run) == result_bytes(simulated.folder / run)
    assert not simulated.config(CPU_1)["devices"]["simulate"]
    assert simulated.config(CPU_2)["devices"]["simulate"]
    assert "counts real time (without --simulate)" in compare.fails(*TWO, "--simulate")


@pytest.mark.parametrize(("cores", "simulated"), [(5, True), (6, False)])
def test_without_devices_named_it_is_the_papers_comparison(
    compare: Compare, monkeypatch: pytest.MonkeyPatch, cores: int, simulated: bool
) -> None:
    monkeypatch.setattr(devices, "usable_cores", lambda: cores)
    said = "too few devices for 6 CPU workers: their time is simulated"
    assert (said in compare().out) == simulated
    assert list(compare.sessions) == ["cpu-1_buckets-16_seed-1", "cpu-6_buckets-16_seed-1"]
    assert compare.config("cpu-6_buckets-16_seed-1")["devices"]["simulate"] == simulated


def test_too_few_gpus_are_refused_unless_simulated(
    compare: Compare, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no GPU is visible" in compare.fails("--gpus", "1,6")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(devices, "cuda_device_count", lambda: 2)
    assert "--gpus 6: only 2 visible; add --simulate" in compare.fails("--gpus", "1,6")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--gpus", "0"], "argument --gpus: expected a number from 1 on, got '0'"),
        (["--cpu-workers", "1,x"], "argument --cpu-workers: expected a number from 1 on, got 'x'"),
        (["--cpu-workers", "1,"], "expected a number from 1 on, got ''"),
        (["--cpu-workers", "1,2,1"], "argument --cpu-workers: 1 is there twice"),
        (["--cpu-workers", "2000"], "--cpu-workers must be at most 1024, got 2000"),
        (["--gpus", "1", "--cpu-workers", "1"], "not allowed with argument --gpus"),
        (["--buckets", "none,some"], "expected numbers from 1 on, auto or none, got 'some'"),
        (["--buckets", "2,auto,auto"], "argument --buckets: auto is there twice"),
        (["--seeds", "0"], "argument --seeds: expected a number from 1 on, got '0'"),
        (["--listen", "tcp://*:1"], "unrecognized arguments: --listen"),
        (["--map-tasks", "3"], "unrecognized arguments: --map-tasks"),
        ([*TWO, "--reduce", "median"], "median"),
        ([*TWO, "--bucket-cost", "cheap"], "--bucket-cost must be frames"),
        ([*TWO, "--message-limit", "0.01"], "--message-limit 0.01 MB is less than"),
        ([*TWO, "--config", "missing.toml"], "cannot read missing.toml"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_runs(
    compare: Compare, options: list[str], expected: str
) -> None:
    assert expected in compare.fails(*options)
    assert not compare.folder.exists()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["--learning-rate", "0.5"], "made with another --learning-rate (0.005 -> 0.5)"),
        (["--epochs", "3"], "made with another --horizon (2.0 -> 3.0): give its value"),
        (["--buckets", "2", "--units", "4"], "made with another --units (3 -> 4)"),
    ],
)
def test_runs_of_other_options_are_refused_by_the_options_name(
    compare: Compare, changes: list[str], expected: str
) -> None:
    compare(*TWO)
    line = compare.fails(*TWO, *changes)
    assert expected in line
    assert line.endswith("or choose another --dir\n")


def test_runs_that_began_with_another_model_are_refused(compare: Compare, tmp_path: Path) -> None:
    compare("--cpu-workers", "1")
    model = compare.folder / CPU_1
    assert "started from another model (--init-from)" in compare.fails(*TWO, "--init-from", model)
    other = tmp_path / "other"
    assert compare(*TWO, "--init-from", model, "--dir", other).code == 0
    assert compare(*TWO, "--init-from", model, "--dir", other).out.count("there already") == 2


def test_a_run_that_was_changed_on_its_way_is_refused(compare: Compare) -> None:
    compare(*TWO, compute=interrupted_in(round=2))
    inprocess.resume(
        compare.folder / CPU_1, make_task=SmallTask, allow_changes=True, learning_rate=0.1
    )
    assert "made with another --learning-rate (0.1 -> 0.005)" in compare.fails(*TWO)
    assert "was changed on its way" in compare.fails(*TWO, "--learning-rate", "0.1")


def test_a_folder_for_other_things_is_refused(
    compare: Compare, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare("--cpu-workers", "1")
    other = Compare(store, compare.folder, capsys)
    assert "was made from another store" in other.fails("--cpu-workers", "2")
    assert "is a run, not a comparison" in compare.fails(*TWO, "--dir", compare.folder / CPU_1)
    (tmp_path / "file").touch()
    assert "is a file" in compare.fails(*TWO, "--dir", tmp_path / "file")


def test_a_run_that_fails_takes_no_other_with_it(compare: Compare) -> None:
    def failing(context: Context, task: AnyTask) -> AnyResult:
        if task.slot == 1:
            raise TrainingFailed("it diverged")
        return inprocess.compute(context, task)

    code, out, err = compare("--cpu-workers", "2,1", compute=failing)
    told, last = err.splitlines()
    assert code == 1
    assert told == f"mapreduce-rnn: {CPU_2}: it diverged"
    assert "1 of 2 runs did not come to an end" in last
    assert "the table" in out
    assert compare("--cpu-workers", "2,1").code == 0
    assert compare.sessions == {CPU_1: 1, CPU_2: 2}


def test_what_cannot_be_gone_on_with_is_named_and_left_alone(compare: Compare) -> None:
    compare(*TWO, "--seeds", "2", compute=interrupted_in(round=2))  # a run with one checkpoint
    manifest = compare.folder / CPU_1 / "checkpoints" / "round-000001" / "manifest.json"
    manifest.write_text("{}")
    foreign = compare.folder / CPU_2
    foreign.mkdir()
    (foreign / "mine.txt").touch()
    compare("--cpu-workers", "1", "--seed", "2", compute=interrupted_in(round=2))
    used = compare.folder / "cpu-1_buckets-16_seed-2"
    with locked(used):
        code, _, err = compare(*TWO, "--seeds", "2")
    damaged, no_run, in_use, last = err.splitlines()
    assert code == 1
    assert f"{CPU_1}: " in damaged
    assert "checkpoint" in damaged
    assert f"{foreign} is no run" in no_run
    assert f"{used} is in use by another mapreduce-rnn" in in_use
    assert "3 of 4 runs did not come to an end" in last
    assert list(foreign.iterdir()) == [foreign / "mine.txt"]
    assert compare.sessions["cpu-2_buckets-16_seed-2"] == 1


def test_numbers_of_a_bucket_cost_are_measured_once(compare: Compare) -> None:
    compare("--cpu-workers", "1", "--bucket-cost", "1e-3,2e-5,3e-7")
    out = compare(*TWO, "--bucket-cost", "measured").out
    assert "1 CPU worker, 16 buckets, seed 1: there already" in out
    assert f"bucket cost as {CPU_1} measured it" in out
    assert compare.config(CPU_2)["batches"]["bucket_cost"] == "1e-3,2e-5,3e-7"


def test_a_limit_in_seconds_counts_the_training_of_all_sessions(compare: Compare) -> None:
    compare("--cpu-workers", "1", "--horizon", "2", compute=interrupted_in(round=2))
    run = compare.folder / CPU_1
    with JsonLines(run / "events.jsonl") as events:
        events.write({"event": "round", "round": 1, "elapsed": 1000.0})
    assert compare("--cpu-workers", "1", "--max-seconds", "900").code == 0
    assert len(lines(run / "metrics.jsonl")) == 1
    assert compare("--cpu-workers", "1", "--max-seconds", "1100").code == 0
    assert len(lines(run / "metrics.jsonl")) == 2
