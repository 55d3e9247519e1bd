"""SIGINT and SIGTERM at any moment: soon, one line, nothing left, and the run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import inprocess
from killing import ended_in, workers_of
from mapreduce_rnn import checkpoint
from mapreduce_rnn.data.store import Sequence, write_store
from mapreduce_rnn.runfolder import METRICS
from mapreduce_rnn.runlog import read_lines
from runs_real import SMALL, result_bytes
from stores import ALPHABET, FEATURES

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

SIGNALS = [signal.SIGINT, signal.SIGTERM]
STOP_SECONDS = 10.0
OPTIONS = ["--cpu-workers", "2", "--map-tasks", "2", "--checkpoint-every", "1", *SMALL]


class Running(NamedTuple):
    """A run that is under way."""

    process: subprocess.Popen[str]
    store: Path
    run: Path

    @property
    def rounds(self) -> int:
        return len(read_lines(self.run / METRICS).records)


def imports_torch(now: Running) -> bool:
    return "libtorch_cpu" in Path(f"/proc/{now.process.pid}/maps").read_text()


def starts_workers(now: Running) -> bool:
    return len(workers_of(now.process.pid)) == 2


def trains(now: Running) -> bool:
    return now.rounds >= 2


def saves(now: Running) -> bool:
    return now.rounds >= 2 and any((now.run / "checkpoints").glob(".*"))


def draws(now: Running) -> bool:
    return (now.run / "examples.json").exists()


class Moment(NamedTuple):
    """When the signal comes: as soon as ``has_come`` says so."""

    has_come: Callable[[Running], bool]
    epochs: int = 500
    units: int = 8
    validation: int = 8  # sequences, beside 40 to train on


MOMENTS = {
    "importing torch": Moment(imports_torch),
    "starting workers": Moment(starts_workers),
    "training": Moment(trains),
    "validating": Moment(trains, validation=4000),  # which takes nearly all of the time
    "saving": Moment(saves, units=300),
    "drawing": Moment(draws, epochs=2),
}


def store_of(path: Path, validation: int) -> Path:
    random = np.random.default_rng(0)
    splits = ["train"] * 40 + ["validation"] * validation
    write_store(
        path,
        (
            Sequence(f"s{n}", random.random((8 + n % 9, 3), np.float32), [1, 2 + n % 3], split)
            for n, split in enumerate(splits)
        ),
        alphabet=ALPHABET, feature_names=FEATURES,
    )  # fmt: skip
    return path


@pytest.mark.parametrize("signum", SIGNALS, ids=["int", "term"])
@pytest.mark.parametrize("name", MOMENTS)
def test_a_stop_signal_ends_a_run_soon_and_what_is_left_goes_on(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str, signum: signal.Signals
) -> None:
    with at_moment(MOMENTS[name], tmp_path, tmp_path_factory) as now:
        now.process.send_signal(signum)
        assert_stopped(now, signum)
    assert_goes_on(now, MOMENTS[name])


@pytest.mark.parametrize("signum", SIGNALS, ids=["int", "term"])
@pytest.mark.parametrize("pause", [None, 0.0, 0.05, 0.3], ids=str)
def test_a_signal_to_the_whole_group_or_two_of_them_end_it_no_other_way(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory,
    signum: signal.Signals, pause: float | None,
) -> None:  # fmt: skip
    """As a terminal and a cluster send them; the second, if any, within a second."""
    with at_moment(MOMENTS["training"], tmp_path, tmp_path_factory) as now:
        os.killpg(now.process.pid, signum)
        if pause is not None and not ended_in(now.process, pause):
            os.killpg(now.process.pid, signum)
        assert_stopped(now, signum)
    assert_goes_on(now, MOMENTS["training"])


@contextmanager
def at_moment(moment: Moment, folder: Path, others: pytest.TempPathFactory) -> Iterator[Running]:
    """A run in a process group of its own, when its moment has come; it leaves nothing behind."""
    store, run, sockets = (
        store_of(folder / "store", moment.validation),
        folder / "run",
        others.mktemp("s"),
    )
    extra = ["--epochs", str(moment.epochs), "--units", str(moment.units)]
    with subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", "train", store, "--run-dir", run, *OPTIONS, *extra],
        env=os.environ | {
            "TMPDIR": str(sockets), "XDG_RUNTIME_DIR": "",
            "TORCHINDUCTOR_CACHE_DIR": str(others.mktemp("torch")),  # torch keeps that
        },
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0,
    ) as process:  # fmt: skip
        try:
            wait_until(moment, Running(process, store, run))
            yield Running(process, store, run)
        finally:
            process.kill()
    assert_nothing_is_left(folder, sockets)


def assert_stopped(now: Running, signum: signal.Signals) -> None:
    """In time, with the right code, and one line that says how to go on if that is possible."""
    errors = now.process.communicate(timeout=STOP_SECONDS)[1]
    assert now.process.returncode == 128 + signum
    assert errors.startswith(f"mapreduce-rnn: stopped by {signum.name}")
    assert errors.count("\n") == 1
    if now.run.exists():
        assert errors.endswith(f"; go on with --resume {now.run}\n")


def wait_until(moment: Moment, now: Running) -> None:
    deadline = time.monotonic() + 120
    while not moment.has_come(now):
        assert time.monotonic() < deadline
        assert not ended_in(now.process, 0.001)


def assert_nothing_is_left(folder: Path, sockets: Path) -> None:
    assert not list(sockets.iterdir())
    assert not [p for p in folder.rglob("*") if p.name.startswith(".") or p.suffix == ".partial"]
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert not [command for command in commands if os.fsencode(folder) in command]


def assert_goes_on(now: Running, moment: Moment) -> None:
    """One round more, if there is a run, as in one that was never stopped."""
    if not now.run.exists():
        return
    rounds = min(saved_rounds(now.run) + 1, moment.epochs)
    options = {"map_tasks": 2, "checkpoint_every": 1, "epochs": moment.epochs}
    inprocess.resume(now.run, rounds=rounds)
    calm = now.run.with_name("calm")
    inprocess.train(now.store, calm, **options, units=moment.units, rounds=rounds)
    assert result_bytes(now.run) == result_bytes(calm)


def saved_rounds(run: Path) -> int:
    try:
        return checkpoint.load(run).round
    except checkpoint.CheckpointError:  # stopped before the first round
        return 0
