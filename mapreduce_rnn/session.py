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
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mapreduce_rnn
from mapreduce_rnn import checkpoint, machine, prepare, runfolder, runlog, warmstart
from mapreduce_rnn.changes import check_given, devices_to_go_on
from mapreduce_rnn.config import TrainConfig, override, to_dict
from mapreduce_rnn.errors import (
    CheckpointError,
    Interrupted,
    MapReduceRnnError,
)
from mapreduce_rnn.keys import read_master
from mapreduce_rnn.launch.base import Launcher
from mapreduce_rnn.launch.connect import ConnectLauncher, Terms
from mapreduce_rnn.launch.local import LocalLauncher
from mapreduce_rnn.master import Master, save_state
from mapreduce_rnn.plan import (
    MEASURED,
    Plan,
    make_plan,
    message_bytes,
    usable,
    with_bucket_cost,
)
from mapreduce_rnn.pool import Pool
from mapreduce_rnn.probe import make_probe, measured_cost
from mapreduce_rnn.progress import Console
from mapreduce_rnn.protocol.curve import Door, check_address
from mapreduce_rnn.protocol.messages import ProbeResult, Setup
from mapreduce_rnn.protocol.transport import MasterSocket
from mapreduce_rnn.report import try_report
from mapreduce_rnn.resumption import Resumed, check_same_store, resumed
from mapreduce_rnn.rounds import FAILED_STARTS
from mapreduce_rnn.runfolder import BEST_MODEL, EVENTS, EXAMPLES, METRICS, Recorded, RunFolder
from mapreduce_rnn.runlog import JsonLines
from mapreduce_rnn.runstate import Best, RunState
from mapreduce_rnn.signals import StopSignals
from mapreduce_rnn.summaries import describe_places, end_summary, start_summary
from mapreduce_rnn.tensorboard import Board, check_installed
from mapreduce_rnn.warmstart import WarmStart

if TYPE_CHECKING:
    from mapreduce_rnn.tasks import Task  # imports torch, which help and errors shall not wait for

log = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]


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
    init_from: str | Path | None = None,
    count_training: bool = False,
    quiet: bool = False,
    report: bool = True,
) -> RunResult:
    """Train from a new run folder.

    May be called any number of times in a process. While it runs in the main thread it handles
    SIGINT and SIGTERM; workers end when the thread that called it does.

    Args:
        store: folder made by ``mapreduce-rnn data import`` or :func:`write_store`.
        config: options; what they leave open is resolved before round 1.
        run_dir: a folder that does not exist yet, or where a run was killed before it began;
            default ``runs/<store>-<time>``.
        init_from: a model to start from, or the folder of a run with one; default: a random one.
        count_training: ``max_seconds`` are seconds of training over all sessions of the run, as
            the report counts them, and not since this call.
        quiet: say nothing on standard output.
        report: draw report.html at the end; ``mapreduce-rnn report`` does it at any time.

    Raises:
        UsageError: options that exclude each other, a GPU that is not there, a folder in use.
        StoreError: a store that is missing, damaged, or has nothing to train on.
        CheckpointError: a model to start from that is missing or damaged; files of the run that
            cannot be written.
        TrainingFailed: workers that do not start or a task that raises.
        Interrupted: SIGINT or SIGTERM; the last whole round is on disk.
    """
    store = Path(store)
    run_dir = runfolder.default_path(store) if run_dir is None else Path(run_dir)
    return _Session(
        store,
        config or TrainConfig(),
        run_dir,
        init_from=None if init_from is None else Path(init_from),
        count_training=count_training,
        quiet=quiet,
        report=report,
    ).run()


def resume(
    run_dir: str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    allow_changes: bool = False,
    count_training: bool = False,
    quiet: bool = False,
    report: bool = True,
) -> RunResult:
    """Go on with a run from its newest whole checkpoint.

    Args:
        changes: options by name: how far, where and how safely; with ``allow_changes`` others
            too.
        allow_changes: whether options may change the result; the run is then no longer
            repeatable from its config alone, which config.toml records.
        count_training: as in :func:`train`.

    Raises:
        CheckpointError: none of the run's checkpoints is whole, or its config.toml was changed.
        UsageError: there is no such run, or ``changes`` holds an option that would change the
            result and is not allowed, or never is.
        Otherwise as :func:`train`.
    """
    run_dir = Path(run_dir)
    recorded = runfolder.read_config(run_dir)
    check_same_store(recorded, run_dir)
    return _Session(
        recorded.store,
        _changed(recorded.config, changes or {}),
        run_dir,
        recorded=recorded,
        allow_changes=allow_changes,
        count_training=count_training,
        quiet=quiet,
        report=report,
    ).run()


def _changed(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The options of a run that goes on with ``changes``.

    Another reduce rule does not have the options of the run's.
    """
    config = dataclasses.replace(config, devices=devices_to_go_on(config.devices, changes))
    if changes.get("reduce", config.mapreduce.reduce) != config.mapreduce.reduce:
        changes = {"reduce_option": (), **changes}
    return override(config, changes, "--resume")


class _Session:
    """What a session opens, uses and closes again."""

    def __init__(
        self,
        store: Path,
        config: TrainConfig,
        run_dir: Path,
        *,
        init_from: Path | None = None,
        recorded: Recorded | None = None,
        allow_changes: bool = False,
        count_training: bool = False,
        quiet: bool,
        report: bool,
    ) -> None:
        """``init_from`` is for a new run; ``recorded``, ``allow_changes`` for one that goes on."""
        self._started = time.monotonic()
        if config.run.tensorboard:
            check_installed()
        self._store = prepare.open_store(store)
        self._console = Console(None if quiet else sys.stdout)
        self._places, self._config = prepare.resolve(config, self._console)
        if recorded is not None:
            check_given(recorded.config, self._config, allowed=allow_changes)
        self._run_dir = run_dir
        self._init_from = init_from
        self._recorded = recorded
        self._allow_changes = allow_changes
        self._count_training = count_training or self._config.devices.simulated is not None
        self._report = report

    def run(self) -> RunResult:
        """Train to the end; workers are gone and files closed afterwards, whatever happens."""
        with (
            StopSignals() as signals,
            closing(self._console),
            RunFolder(self._run_dir, resume=self._recorded is not None) as folder,
            runlog.log_to(self._run_dir / "master.log"),
            JsonLines(self._run_dir / EVENTS) as events,
        ):
            try:
                plan, state, reason = self._trained(folder, events, signals)
                self._finish(plan, state, reason, signals)
            except Interrupted as stop:
                stop.go_on = f"--resume {self._run_dir}" if folder.began else None
                raise
        return RunResult(self._run_dir, reason, state.round, state.best)

    def _trained(
        self, folder: RunFolder, events: JsonLines, signals: StopSignals
    ) -> tuple[Plan, RunState, str]:
        try:
            plan, state, reason = self._train(folder, events, signals)
        except MapReduceRnnError as error:
            self._log_end(events, str(error).splitlines()[0], done=False)
            raise
        self._log_end(events, reason, done=True)
        return plan, state, reason

    def _train(
        self, folder: RunFolder, events: JsonLines, signals: StopSignals
    ) -> tuple[Plan, RunState, str]:
        run_id = secrets.token_hex(8)
        self._log_start(events)
        start = self._resumed(events)
        with (
            MasterSocket(run_id, door=self._door()) as socket,
            self._pool(socket, run_id, events, signals) as pool,
        ):
            if self._config.mapreduce.message_limit is None:
                pool.start()  # workers and master import torch at the same time
            with signals.at_once():  # the import of torch takes seconds
                task, initial, trainable = prepare.build_model(self._config, self._store)
            self._open(socket, initial)
            config = self._measured(pool, task, initial)
            kind = self._places[0].kind
            plan = make_plan(config, kind, self._store, task, initial, trainable)
            warm = self._warm_start(initial)
            state = start.state or RunState(0, warm.model if warm else initial)
            facts = plan.facts() | (warm.facts() if warm else {})
            if warm:  # before the run has begun: going on must not need the file
                save_state(self._run_dir, state, plan.config)
            folder.write_config(plan.config, self._store_facts(), facts, start.changes)
            pool.set_up(self._setup(plan.config))
            self._say_start(plan, state)
            with JsonLines(self._run_dir / METRICS) as metrics, self._board(state) as board:
                master = Master(
                    plan, self._store, pool, self._run_dir, metrics, events, self._console,
                    elapsed=_elapsed(self._run_dir / EVENTS, state.round),
                    count_training=self._count_training,
                    board=board,
                )  # fmt: skip
                return plan, *master.run(state, self._started)

    def _board(self, state: RunState) -> AbstractContextManager[Board | None]:
        if not self._config.run.tensorboard:
            return nullcontext()
        first = next(e for e in _events(self._run_dir / EVENTS) if e.get("event") == "start")
        return Board(self._run_dir, began=first["time"], rounds=state.round)

    def _warm_start(self, initial: Arrays) -> WarmStart | None:
        if self._init_from is None:
            return None
        warm = warmstart.load(self._init_from, initial, self._store.meta)
        log.info("starts from the model %s, sha256 %s", warm.path, warm.sha256)
        return warm

    def _door(self) -> Door | None:
        """Where remote workers connect; checked before anything is started."""
        listen, keys = self._config.devices.listen, self._config.devices.keys
        if listen is None:
            return None
        assert keys is not None  # devices.resolve_places has looked
        return Door(check_address(listen, "--listen", free_port=True), read_master(Path(keys)))

    def _open(self, socket: MasterSocket, model: Arrays) -> None:
        """Let messages of the model's size in, and over TCP the workers that send them."""
        model_bytes = sum(array.nbytes for array in model.values())
        sequences = (len(self._store.split(split)) for split in ("train", "validation"))
        socket.open(message_bytes(model_bytes, *sequences))
        if self._config.devices.listen is not None:
            workers = describe_places(self._places, remote=True)
            self._console.note(
                f"waiting for {workers} at {socket.address}, each started by mapreduce-rnn worker "
                f"--connect; who is refused, and why, is in {self._run_dir / 'master.log'}"
            )

    def _measured(self, pool: Pool, task: Task, model: Arrays) -> TrainConfig:
        """The config with the numbers of a probe for a bucket cost that is to be measured."""
        if self._config.batches.bucket_cost != MEASURED:
            return self._config
        pool.set_up(self._setup(self._config))
        probe = make_probe(model, usable(self._store, task, "train").indices)
        result = pool.run([probe], lambda steps: None)[probe.key].result
        assert isinstance(result, ProbeResult)
        measured = measured_cost(result, self._places[0].kind)
        log.info(measured.line)
        self._console.note(measured.line)
        return with_bucket_cost(self._config, measured.bucket_cost)

    def _setup(self, config: TrainConfig) -> Setup:
        return Setup(to_dict(config), self._store.fingerprint)

    def _pool(
        self, socket: MasterSocket, run_id: str, events: JsonLines, signals: StopSignals
    ) -> Pool:
        def log_worker(**facts: Any) -> None:
            events.write(_event("worker", **facts))

        return Pool(
            socket,
            self._launcher(socket.address, run_id),
            range(len(self._places)),
            version=mapreduce_rnn.__version__,
            options=self._config.workers,
            check_signals=signals.check,
            on_worker=log_worker,
        )

    def _resumed(self, events: JsonLines) -> Resumed:
        """Where to go on from, if the run is not new."""
        if self._recorded is None:
            return Resumed(None)
        start = resumed(self._run_dir, self._recorded, self._config, allowed=self._allow_changes)
        for line in (*start.warnings, *start.effects):
            log.warning(line)
            self._console.note(line)
        if start.state is not None:
            facts = {"changes": start.effects, "warnings": start.warnings}
            events.write(_event("resume", round=start.state.round, **facts))
        return start

    def _launcher(self, address: str, run_id: str) -> Launcher:
        if self._config.devices.listen is not None:
            kind = self._places[0].kind
            return ConnectLauncher(
                Terms(mapreduce_rnn.__version__, self._store.fingerprint, kind),
                patience_seconds=self._config.workers.hang_seconds / FAILED_STARTS,
            )
        threads = self._config.run.threads
        assert threads is not None
        return LocalLauncher(
            self._places,
            address=address,
            run_id=run_id,
            store=self._store.path,
            log_folder=self._run_dir / "workers",
            threads=threads,
        )

    def _log_start(self, events: JsonLines) -> None:
        events.write(
            _event(
                "start",
                command=machine.command(),
                versions=machine.versions(),
                host=platform.node(),
                cpu=machine.cpu(),
                devices=[place.device for place in self._places],
                workers=len(self._places),
                simulated_devices=self._config.devices.simulated,
            )
        )

    def _log_end(self, events: JsonLines, reason: str, *, done: bool) -> None:
        """As far as the disk has room: the reason itself must reach the user.

        Args:
            done: Whether an option said that the run ends here; no: an error or a signal did.
        """
        seconds = time.monotonic() - self._started
        with suppress(CheckpointError):
            events.write(_event("end", reason=reason, done=done, seconds=seconds))

    def _store_facts(self) -> dict[str, Any]:
        """The [store] table: what predictions with this model need to know, and where it was."""
        meta = self._store.meta
        return {
            "path": os.path.abspath(self._store.path),
            "fingerprint": self._store.fingerprint,
            "features": list(meta.feature_names),
            "alphabet": list(meta.alphabet),
        }

    def _say_start(self, plan: Plan, state: RunState) -> None:
        resumed_after = state.round if self._recorded else None
        self._console.start(
            start_summary(plan, self._store, self._places, self._run_dir, resumed_after)
        )
        for note in plan.notes():
            log.info(note)
            self._console.note(note)

    def _finish(self, plan: Plan, state: RunState, reason: str, signals: StopSignals) -> None:
        """Examples, report and the last words. No failure here takes a trained model away."""
        seconds = time.monotonic() - self._started
        signals.check()
        self._write_examples(plan, state)
        signals.check()
        drawn = try_report(self._run_dir, log) if self._report else None
        if self._report and drawn is None:
            self._console.note(f"no report could be drawn: see {self._run_dir / 'master.log'}")
        signals.check()
        self._console.end(
            end_summary(
                plan, state, reason, seconds, self._run_dir,
                elapsed=_elapsed(self._run_dir / EVENTS, state.round),
                places=self._places, report=drawn is not None,
            )
        )  # fmt: skip

    def _write_examples(self, plan: Plan, state: RunState) -> None:
        """The report does without them: when the store is gone by now, say."""
        try:
            runlog.write_json(self._run_dir / EXAMPLES, self._examples(plan, state))
        except (OSError, MapReduceRnnError) as error:
            log.warning("no examples for the report: %s", error)
            self._console.note(f"no examples for the report: {error}")

    def _examples(self, plan: Plan, state: RunState) -> dict[str, Any]:
        from mapreduce_rnn.examples import make_examples
        from mapreduce_rnn.tasks import make_task

        model = state.model
        if state.best is not None:
            model = dict(checkpoint.load_model(self._run_dir / BEST_MODEL))
        task = make_task(plan.config, self._store.meta)
        return make_examples(self._store, task, model, plan.validation.indices)


def _event(kind: str, **facts: Any) -> dict[str, Any]:
    return {"event": kind, "time": time.time(), **facts}


def _events(path: Path) -> tuple[Mapping[str, Any], ...]:
    return runlog.read_lines(path).records


def _elapsed(events: Path, round: int) -> float:
    """Training seconds up to the end of a round, as the newest event tells.

    Its own event is missing if the master was killed between the checkpoint and the event: then
    the round before has to do.
    """
    told = [e for e in _events(events) if e.get("event") == "round"]
    return next((float(e["elapsed"]) for e in reversed(told) if e["round"] <= round), 0.0)
