"""One session of a run: claim the folder, start workers, plan, train, report.

The I/O around the loop of :mod:`mapreduce_rnn.master`. A run may take several sessions: each
later one resumes from the newest whole checkpoint.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import platform
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mapreduce_rnn
from mapreduce_rnn import checkpoint, runfolder, runlog, runstate
from mapreduce_rnn.config import TrainConfig, to_dict
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import StoreError
from mapreduce_rnn.launch import devices
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.launch.local import LocalLauncher
from mapreduce_rnn.progress import Console, EndSummary, StartSummary
from mapreduce_rnn.protocol.messages import Setup
from mapreduce_rnn.protocol.transport import MasterSocket
from mapreduce_rnn.runfolder import RunFolder
from mapreduce_rnn.runlog import JsonLines
from mapreduce_rnn.runstate import Best, RunState
from mapreduce_rnn.signals import StopSignals

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        run_dir: folder with models, metrics and report.
        reason: why it stopped, in words.
        rounds: whole rounds done, over all sessions.
        best: the best validation, None if none was finite.
    """

    run_dir: Path
    reason: str
    rounds: int
    best: Best | None


def train(
    store: str | Path,
    config: TrainConfig | None = None,
    *,
    run_dir: str | Path | None = None,
    quiet: bool = False,
) -> RunResult:
    """Train from a new run folder.

    May be called any number of times in a process. While it runs in the main thread it handles
    SIGINT and SIGTERM; workers end when the thread that called it does.

    Args:
        store: folder made by ``mapreduce-rnn data import`` or :func:`write_store`.
        config: options; what they leave open is resolved before round 1.
        run_dir: a folder that does not exist yet; default ``runs/<store>-<time>``.
        quiet: say nothing on standard output.

    Raises:
        UsageError: options that exclude each other, a GPU that is not there, a folder in use.
        StoreError: a store that is missing, damaged, or has nothing to train on.
        TrainingFailed: workers that do not start or a task that raises.
        Interrupted: SIGINT or SIGTERM; the last whole round is on disk.
    """
    store = Path(store)
    run_dir = runfolder.default_path(store) if run_dir is None else Path(run_dir)
    session = _Session(store, config or TrainConfig(), run_dir, _console(quiet), resume=False)
    return session.run()


def resume(
    run_dir: str | Path, changes: Mapping[str, Any] | None = None, *, quiet: bool = False
) -> RunResult:
    """Go on with a run from its newest whole checkpoint.

    Args:
        changes: stop and device options by name; any other would change what was computed.

    Raises:
        CheckpointError: there is no such run, or none of its checkpoints is whole.
        UsageError: ``changes`` holds an option that would change the result.
        Otherwise as :func:`train`.
    """
    run_dir = Path(run_dir)
    store, config = runfolder.read_config(run_dir)
    config = dataclasses.replace(config, devices=DeviceConfig())  # may differ from session to session
    for f in fields():
        if f.name in (changes or {}) and f.section not in CHANGEABLE_ON_RESUME:
            raise UsageError(
                f"--resume: {f.flag} would change the result of this run; start a new one for that"
            )
    config = override(config, changes or {}, "--resume")
    return _Session(store, config, run_dir, _console(quiet), resume=True).run()


def dry_run(store: str | Path, config: TrainConfig) -> None:
    """Say what a run would do; start nothing and write nothing."""
    opened = _open_store(Path(store))
    places, config = _resolve(config, _Console(sys.stdout))
    plan, _ = _plan(config, places, opened)
    ...


def _console(quiet: bool) -> Console:
    return Console(None if quiet else sys.stdout)


class _Session:
    """Everything a session opens and has to close again."""

    def __init__(
        self, store: Path, config: TrainConfig, run_dir: Path, console: Console, *, resume: bool
    ) -> None:
        self._started = time.monotonic()
        self._store = open_store(store)
        self._places, self._config = resolve(config, console)
        self._run_dir = run_dir
        self._console = console
        self._resume = resume

    def run(self) -> RunResult:
        """Train to the end; workers are gone and files closed afterwards, whatever happens."""
        with (
            StopSignals() as signals,
            closing(self._console),
            RunFolder(self._run_dir, resume=self._resume) as folder,
            runlog.log_to(self._run_dir / "master.log"),
            JsonLines(self._run_dir / EVENTS) as events,
        ):
            state, reason = self._train(folder, events, signals)
            signals.check()
            self._finish(state)
            ...
            signals.check()
        return RunResult(self._run_dir, reason, state.round, state.best)
