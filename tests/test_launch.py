"""Worker processes: how they start, what they see, and that none is left."""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mapreduce_rnn.launch import local
from mapreduce_rnn.launch.base import Place, describe_exit
from mapreduce_rnn.launch.local import (
    PACKAGE_ROOT,
    WORKER_COMMAND,
    LocalLauncher,
    worker_environment,
)

FAKE = str(Path(__file__).parent / "fake_worker.py")
PATIENCE = 20.0


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., LocalLauncher]]:
    """Makes launchers of fake workers with one behaviour; ends what they leave."""
    made: list[LocalLauncher] = []

    def make(behaviour: str, *places: Place) -> LocalLauncher:
        made.append(
            LocalLauncher(
                places or (Place("cpu"),),
                address="ipc:///tmp/none",
                run_id="run-1",
                store=tmp_path / "store",
                log_folder=tmp_path / "workers",
                threads=1,
                command=(sys.executable, "-P", FAKE, behaviour),
            )
        )
        return made[-1]

    yield make
    for launcher in made:
        launcher.stop_all(0.0)


def until(condition: Callable[[], Any]) -> Any:
    """What ``condition`` gives once that is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline
        os.sched_yield()
    return value


def reports(folder: Path, place: int = 0) -> list[dict[str, Any]]:
    """What the fake workers of a place have written, once there is something."""
    log = folder / "workers" / f"{place}.log"
    text = until(lambda: _whole(log))
    return [json.loads(line) for line in text.splitlines()]


def _whole(log: Path) -> str:
    """The text of a log, empty while its last line is being written."""
    text = log.read_text() if log.exists() else ""
    return text if text.endswith("\n") else ""


def running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


Launch = Callable[..., LocalLauncher]


def test_each_worker_has_its_own_device_session_options_and_log(
    launch: Launch, tmp_path: Path
) -> None:
    places = (Place("cuda", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), Place("cpu"))
    launcher = launch("wait", *places)
    assert [launcher.start(0), launcher.start(1)] == ["0.1", "1.1"]
    for place, expected in enumerate(places):
        (report,) = reports(tmp_path, place)
        options = report["options"]
        assert report["environment"]["CUDA_VISIBLE_DEVICES"] == expected.token
        assert report["session"] == report["pid"]
        assert parent_of(report["pid"]) == os.getpid()
        assert (options["place"], options["device"]) == (str(place), expected.device)
        assert options["store"] == str(tmp_path / "store")
        assert options["parent"] == str(os.getpid())


def test_the_end_of_a_worker_is_told_once(launch: Launch) -> None:
    launcher = launch("fail")
    launcher.start(0)
    assert until(launcher.poll) == [(0, "exit code 3")]
    assert launcher.poll() == []


def test_a_killed_worker_is_told_by_its_signal_and_can_be_started_again(
    launch: Launch, tmp_path: Path
) -> None:
    launcher = launch("wait")
    launcher.start(0)
    (report,) = reports(tmp_path)
    os.kill(report["pid"], signal.SIGKILL)
    assert until(launcher.poll) == [(0, "signal 9 (SIGKILL)")]
    assert launcher.start(0) == "0.2"
    until(lambda: len(reports(tmp_path)) == 2)  # the log goes on


def test_stop_kills_and_reaps_at_once_without_a_report(launch: Launch, tmp_path: Path) -> None:
    launcher = launch("ignore")
    launcher.start(0)
    pid = reports(tmp_path)[0]["pid"]
    launcher.stop(0)
    assert not Path(f"/proc/{pid}").exists()  # reaped, not a zombie
    assert launcher.poll() == []
    launcher.stop(0)  # nothing there is no error


def test_stop_all_asks_first_and_kills_after_the_grace_time(launch: Launch, tmp_path: Path) -> None:
    launcher = launch("wait", *[Place("cpu")] * 2)
    launcher.start(0)
    reports(tmp_path, 0)
    began = time.monotonic()
    launcher.stop_all(PATIENCE)
    assert time.monotonic() - began < PATIENCE  # asking was enough
    stubborn = launch("ignore", *[Place("cpu")] * 2)
    stubborn.start(1)
    (report,) = reports(tmp_path, 1)
    stubborn.stop_all(0.1)
    assert not Path(f"/proc/{report['pid']}").exists()


def test_a_stopped_process_is_ended_too(launch: Launch, tmp_path: Path) -> None:
    launcher = launch("wait")
    launcher.start(0)
    (report,) = reports(tmp_path)
    os.kill(report["pid"], signal.SIGSTOP)
    launcher.stop_all(0.1)
    assert not Path(f"/proc/{report['pid']}").exists()


ORPHAN_MAKER = """
import os, signal, sys
from pathlib import Path
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.launch.local import LocalLauncher

folder, command = Path(sys.argv[1]), sys.argv[2:]
launcher = LocalLauncher(
    [Place("cpu")], address="", run_id="", store=folder, log_folder=folder / "workers",
    threads=1, command=command,
)
launcher.start(0)
log = folder / "workers" / "0.log"
while not log.read_bytes().endswith(b"\\n"):
    os.sched_yield()
os.kill(os.getpid(), signal.SIGKILL)
"""


SLOW_TORCH = """
import json, os, signal
print(json.dumps({"pid": os.getpid()}), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("command", [("-P", FAKE, "ignore"), WORKER_COMMAND[1:]])
def test_workers_do_not_outlive_a_killed_master(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Nor does a real one that is not done with its imports."""
    (tmp_path / "torch.py").write_text(SLOW_TORCH)
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE_ROOT}:{tmp_path}"}
    master = subprocess.run(
        [sys.executable, "-P", "-c", ORPHAN_MAKER, str(tmp_path), sys.executable, *command],
        env=environment, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert master.returncode == -signal.SIGKILL
    (report,) = reports(tmp_path)
    until(lambda: not running(report["pid"]))


def test_a_worker_whose_master_has_already_ended_ends_at_once(tmp_path: Path) -> None:
    gone = subprocess.run(
        [sys.executable, "-P", FAKE, "wait", "--parent", "1"],
        env=os.environ | {"PYTHONPATH": str(PACKAGE_ROOT)},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert gone.returncode == 1
    assert gone.stderr == "the master (process 1) has ended: nothing to do\n"


def test_the_real_worker_ignores_decoys_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for decoy in ("random", "torch", "workers", "mapreduce_rnn"):
        (tmp_path / f"{decoy}.py").write_text("raise SystemExit('decoy')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    launcher = LocalLauncher(
        (Place("cpu"),), address="ipc:///tmp/none", run_id="run-1", store=Path("no-such-store"),
        log_folder=tmp_path / "workers", threads=1,
    )  # fmt: skip
    launcher.start(0)
    assert until(launcher.poll) == [(0, "exit code 1")]
    log = (tmp_path / "workers" / "0.log").read_text()
    assert str(tmp_path / "no-such-store") in log
    assert "decoy" not in log


# The environment


def test_the_environment_is_the_masters_with_device_and_threads() -> None:
    base = {"HOME": "/home/u", "CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "8"}
    environment = worker_environment(base, Place("cuda", "1"), threads=3)
    assert environment["HOME"] == "/home/u"
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "3"
    assert base["OMP_NUM_THREADS"] == "8"
    assert worker_environment(base, Place("cpu"), threads=1)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_package_that_is_not_installed_is_put_in_front_of_the_users_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "PACKAGE_ROOT", tmp_path)
    for inherited, expected in (
        ({}, str(tmp_path)),
        ({"PYTHONPATH": "/opt/torch"}, f"{tmp_path}:/opt/torch"),
        ({"PYTHONPATH": f"{tmp_path}:/opt/torch"}, f"{tmp_path}:/opt/torch"),
    ):
        environment = worker_environment(inherited, Place("cpu"), threads=1)
        assert environment["PYTHONPATH"] == expected


def test_an_installed_package_leaves_the_users_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "PACKAGE_ROOT", Path(site.getsitepackages()[0]))
    assert "PYTHONPATH" not in worker_environment({}, Place("cpu"), threads=1)
    inherited = worker_environment({"PYTHONPATH": "/opt/torch"}, Place("cpu"), threads=1)
    assert inherited["PYTHONPATH"] == "/opt/torch"


@pytest.mark.parametrize(
    ("returncode", "text"),
    [(0, "exit code 0"), (1, "exit code 1"), (-9, "signal 9 (SIGKILL)"), (-40, "signal 40")],
)
def test_exits_are_told_in_words(returncode: int, text: str) -> None:
    assert describe_exit(returncode).startswith(text)
