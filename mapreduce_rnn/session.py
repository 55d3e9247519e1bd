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

    May be called several times in a process, from any thread but the workers' parent-death signal
    wants one that lives until the end. Stop signals are handled while it runs in the main thread.

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
    console = Console(None if quiet else sys.stdout)
    return _session(store, config or TrainConfig(), run_dir, console, resume=False)


def resume(run_dir: str | Path, config: TrainConfig | None = None, *, quiet: bool = False) -> RunResult:
    """Go on with a run from its newest whole checkpoint.

    Args:
        config: the run's own options (the default) or those with other [stop] and [devices].
    """
    run_dir = Path(run_dir)
    store, own = runfolder.read_config(run_dir)
    console = Console(None if quiet else sys.stdout)
    return _session(store, config or own, run_dir, console, resume=True)
