"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mapreduce_rnn.errors import TrainingFailed
from mapreduce_rnn.launch.base import Place, describe_exit
from mapreduce_rnn.protocol.messages import Hello

# -P: without it a random.py in the current folder would be imported instead of Python's.
WORKER_COMMAND = (sys.executable, "-P", "-m", "mapreduce_rnn.workers")
KILL_SECONDS = 5.0  # a process that outlives SIGKILL by this much hangs in the kernel
PACKAGE_ROOT = Path(__file__).parents[2]  # the folder that holds mapreduce_rnn


class LocalLauncher:
    """Starts one process per place, each with its own device, session and log file.

    Use it from a thread that lives as long as the run: the parent-death signal of a worker
    (:mod:`mapreduce_rnn.workers.lifeline`) fires when the *thread* that started it ends.
    """

    remote = False

    def __init__(
        self,
        places: Sequence[Place],
        *,
        address: str,
        run_id: str,
        store: Path,
        log_folder: Path,
        threads: int,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """
        Args:
            address: Of the master's socket.
            store: Opened by every worker for itself; a relative path is made absolute.
            log_folder: Gets ``<place>.log``, appended to when a worker is started again.
            threads: CPU threads of each worker.
            command: What to run; the worker's options are added to it.
        """
        self._places = places
        self._options = ("--connect", address, "--run", run_id, "--store", os.path.abspath(store))
        self._log_folder = log_folder
        self._threads = threads
        self._command = command
        self._starts = [0] * len(places)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, place: int) -> str:
        """Start the worker of a place; see :class:`mapreduce_rnn.launch.base.Launcher`.

        The environment is complete before the process exists: CUDA and OpenMP read theirs when
        they are loaded, which is too early for anything a worker could set itself.
        """
        self._starts[place] += 1
        name = f"{place}.{self._starts[place]}"
        self._log_folder.mkdir(parents=True, exist_ok=True)
        with open(self._log_folder / f"{place}.log", "ab") as log:
            self._processes[place] = subprocess.Popen(
                [*self._command, *self._options, *self._own_options(place, name)],
                env=worker_environment(os.environ, self._places[place], self._threads),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C on a terminal reaches the master alone
            )
        return name

    def admit(self, hello: Hello) -> int | None:
        """Nobody: all workers of this run are started here."""
        return None

    def _own_options(self, place: int, name: str) -> list[str]:
        device = self._places[place].device
        return [
            "--place", str(place), "--name", name, "--device", device,
            "--parent", str(os.getpid()),
        ]  # fmt: skip

    def poll(self) -> list[tuple[int, str]]:
        """Workers that ended since the last call, each once: (place, how it ended)."""
        codes = {place: process.poll() for place, process in self._processes.items()}
        ended = {place: code for place, code in codes.items() if code is not None}
        for place in ended:
            del self._processes[place]
        return [(place, describe_exit(code)) for place, code in ended.items()]

    def stop(self, place: int) -> None:
        """SIGKILL and reap the place's worker, and whatever it started; none there is no error."""
        process = self._processes.pop(place, None)
        if process is not None:
            _kill(process)

    def stop_all(self, grace_seconds: float) -> None:
        """SIGTERM to all at once, SIGKILL after ``grace_seconds``; none is left, all are reaped.

        Raises:
            TrainingFailed: The kernel does not let go of one.
        """
        deadline = time.monotonic() + grace_seconds
        for process in self._processes.values():
            _signal(process, signal.SIGTERM)
        try:
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:  # at once, if a second signal ends the wait
            for place in list(self._processes):
                self.stop(place)


def _signal(process: subprocess.Popen[bytes], signum: signal.Signals) -> None:
    """Signal the process's group, which nothing else can have while it is not reaped."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGKILL)
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TrainingFailed(
            f"worker process {process.pid} still runs {KILL_SECONDS:g} s after SIGKILL: it hangs "
            "in the kernel (a device or a network disk); see dmesg"
        ) from error


def worker_environment(base: Mapping[str, str], place: Place, threads: int) -> dict[str, str]:
    """``base`` with the device, the threads and the import path of one worker.

    The user's PYTHONPATH is kept (clusters put torch there). The folder of this package goes in
    front of it where it would not be found otherwise, so that the worker runs the master's code.
    """
    count = str(threads)
    return {
        **base,
        "CUDA_VISIBLE_DEVICES": place.token,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        **_import_path(base.get("PYTHONPATH", ""), PACKAGE_ROOT),
    }


def _import_path(inherited: str, root: Path) -> dict[str, str]:
    """PYTHONPATH of a worker.

    An installed package is left to ``site``: PYTHONPATH comes before the standard library, and
    site-packages there would let any package in it shadow a standard module.
    """
    entries = inherited.split(os.pathsep) if inherited else []
    found = [*site.getsitepackages(), site.getusersitepackages(), *entries[:1]]
    if os.path.realpath(root) in map(os.path.realpath, found):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(root.absolute()), *entries])}
