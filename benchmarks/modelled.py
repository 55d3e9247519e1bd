"""Runs in this process whose training is real and whose time is modelled, for rules.py.

A task of batches of b sequences, padded to L frames, takes the sum of A + P L + C b L; a round the
makespan of its tasks on N devices, a constant per task for messages, and one for the reduce. The
constants are measured once. So a run says the same however busy the machine is, several can train
side by side, and none needs a worker.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from curve import Point
from trials import LARGE_BATCH, TARGET_REACHED, Record, Trial
from trialscore import Bar

import mapreduce_rnn
from mapreduce_rnn import prepare
from mapreduce_rnn.bucketing.cost import BatchTime
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.errors import ReduceError, TrainingFailed, UsageError
from mapreduce_rnn.master import Master
from mapreduce_rnn.plan import MEASURED, Plan, make_plan, resolve_config
from mapreduce_rnn.pool import Done, Pool
from mapreduce_rnn.progress import Console
from mapreduce_rnn.protocol.messages import AnyResult, AnyTask, MapTask, ScoreTask, TaskKey
from mapreduce_rnn.report.roundtimes import RoundTimes, round_times
from mapreduce_rnn.runfolder import EVENTS, METRICS, read_config
from mapreduce_rnn.runlog import JsonLines, read_lines
from mapreduce_rnn.runstate import RunState
from mapreduce_rnn.simulate import makespan
from mapreduce_rnn.workers.device import prepare_device
from mapreduce_rnn.workers.maptask import Context, Step, make_context, map_task, score_task, work_of

PROBED = {"cpu_workers": 6, "simulate": True, "sync_steps": 5, "rounds": 9, "epochs": 9,
          "bucket_cost": MEASURED, "threads": 1}  # fmt: skip
"""Options of the run that the constants are taken from."""


class Costs(NamedTuple):
    """What everything takes, in seconds."""

    fixed: float  # A, of a batch
    per_step: float  # P, per frame that a batch is padded to
    per_frame: float  # C, per frame of a padded batch
    per_task: float  # a task's messages there and back, with their codec
    per_round: float  # reduce, and what else the master does in a round

    def training(self, steps: list[Step], devices: int = 1) -> float:
        """Seconds of some batches, one after the other, each dealt to so many devices."""
        sizes = -(-np.array([len(step.indices) for step in steps]) // devices)
        limit = None, 1  # no part of a batch's time
        model = BatchTime(self.fixed, self.per_step, self.per_frame, *limit)
        return float(model.time(sizes, [step.padded for step in steps]).sum())

    def round(self, slots: list[list[Step]], devices: int) -> float:
        """Seconds of a round whose slots have these batches."""
        busy = [self.training(steps) for steps in slots]
        return makespan(busy, devices) + len(slots) * self.per_task + self.per_round

    def large_batches(self, slots: list[list[Step]], devices: int) -> float:
        """Seconds of one slot's batches, each dealt to all devices, their gradients averaged.

        That average is taken to cost as much as messages and reduce of a round.
        """
        (steps,) = slots
        averages = len(steps) * (devices * self.per_task + self.per_round)
        return self.training(steps, devices) + averages


def measure(store: Path) -> Costs:
    """The constants of a store, from a short run with one real worker; wants a core to itself.

    Raises:
        UsageError: No model of the batches' times could be fitted.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        config = override(TrainConfig(), PROBED, "benchmark")
        mapreduce_rnn.train(store, config, run_dir=run, quiet=True, report=False)
        cost = read_config(run).config.batches.bucket_cost
        rounds = list(round_times(read_lines(run / EVENTS).records).values())[1:]  # the first warms
    if cost.count(",") != 2:
        raise UsageError(f"{store}: no times of batches could be fitted: give --costs")
    fixed, per_step, per_frame = map(float, cost.split(","))
    transfers = [task.transfer for times in rounds for task in times.map.tasks]
    own = statistics.median(map(_own, rounds))
    return Costs(fixed, per_step, per_frame, statistics.median(transfers), own)


def _own(times: RoundTimes) -> float:
    """Seconds of a round that go into neither training nor messages."""
    tasks = times.map.tasks
    training = makespan([task.busy for task in tasks], times.devices)
    return times.map.seconds - training - sum(task.transfer for task in tasks) + times.reduce


class ModelledPool:
    """Stands where a :class:`Pool` does; ``seconds`` are those of each round so far."""

    def __init__(self, context: Context, seconds: Callable[[list[list[Step]]], float]) -> None:
        self._context = context
        self._seconds = seconds
        self.seconds: list[float] = []

    def run(self, tasks: Iterable[AnyTask], on_steps: Callable[[int], None]) -> dict[TaskKey, Done]:
        """Compute the tasks, as :meth:`Pool.run`."""
        tasks = list(tasks)
        training = [work_of(self._context, t).steps for t in tasks if isinstance(t, MapTask)]
        if training:
            self.seconds.append(self._seconds(training))
        return {t.key: Done(self._answer(t), place=0, sent=0.0, received=0.0) for t in tasks}

    def _answer(self, task: AnyTask) -> AnyResult:
        assert isinstance(task, MapTask | ScoreTask)
        if isinstance(task, MapTask):
            return map_task(self._context, task, _unseen)
        return score_task(self._context, task, _unseen)


def _unseen(steps: int) -> None:
    """Nobody watches the steps of a task."""


def train(trial: Trial, store: Path, costs: Costs, bar: Bar) -> Record:
    """Make a trial: all its passes, or until its last target is reached or it is lost.

    Every validation sequence is scored after every pass, which takes 4 to 8 % of the CPU time of
    training (measured on the three sets).
    """
    began = time.process_time()
    with tempfile.TemporaryDirectory() as name, _logs(Path(name)) as logs:
        try:
            seconds, end = _Training(trial, store, costs, bar).run(Path(name), *logs)
        except UsageError as error:  # a rule that is not for so few slots
            seconds, end = [], f"refused: {error}"
        entries = read_lines(Path(name, METRICS)).records
    elapsed = list(accumulate(seconds))
    validated = [(e, e["validation"]) for e in entries if e["validation"] is not None]
    return Record(
        curve=[
            Point(e["epochs_done"], elapsed[e["round"] - 1], _loss(v["loss"])) for e, v in validated
        ],
        label_errors=tuple(v["label_error"] for _, v in validated),
        end=end,
        cpu_seconds=time.process_time() - began,
    )


def _loss(value: float | None) -> float:
    return math.nan if value is None else value


@contextmanager
def _logs(folder: Path) -> Iterator[tuple[JsonLines, JsonLines]]:
    """The files that a master writes its rounds to."""
    with JsonLines(folder / METRICS) as metrics, JsonLines(folder / EVENTS) as events:
        yield metrics, events


class _Training:
    """What a trial's master works with."""

    def __init__(self, trial: Trial, path: Path, costs: Costs, bar: Bar) -> None:
        self._trial, self._bar = trial, bar
        self._store = prepare.open_store(path)
        large = trial.setting.reduce == LARGE_BATCH
        config = override(TrainConfig(), trial.options(), "benchmark")
        config = resolve_config(config, slots=1 if large else trial.slots, threads=1, device="cpu")
        task, self._model, trainable = prepare.build_model(config, self._store)
        self._plan = make_plan(config, "cpu", self._store, task, self._model, trainable)
        device = prepare_device("cpu", threads=1, deterministic=False)
        context = make_context(self._plan.config, self._store, device)
        seconds = costs.large_batches if large else costs.round
        self._pool = ModelledPool(context, partial(seconds, devices=trial.slots))

    def run(self, folder: Path, metrics: JsonLines, events: JsonLines) -> tuple[list[float], str]:
        """Simulated seconds of each round, and why there is no other one."""
        state = RunState(0, self._model)
        for look, passes in enumerate(_looks(self._trial.passes)):
            plan = self._until(passes)
            master = Master(
                plan, self._store, cast(Pool, self._pool), folder, metrics, events,
                Console(None), elapsed=0.0, count_training=False, board=None,
            )  # fmt: skip
            try:
                state, _ = master.run(state, time.monotonic())
            except (TrainingFailed, ReduceError) as error:
                return self._pool.seconds, f"failed: {error}"
            if (end := self._end(state, look)) is not None:
                return self._pool.seconds, end
        return self._pool.seconds, "all passes"

    def _until(self, passes: int) -> Plan:
        """The plan with an earlier end; its schedule stays that of all passes."""
        config = override(
            self._plan.config, {"epochs": passes, "target_loss": self._trial.target}, "benchmark"
        )
        return dataclasses.replace(self._plan, config=config)

    def _end(self, state: RunState, look: int) -> str | None:
        loss = state.last_loss
        assert loss is not None  # every pass is validated
        if loss <= self._trial.target:
            return TARGET_REACHED
        early = state.epochs_done < self._trial.passes
        if early and self._bar.lost(look, sum(self._pool.seconds), loss):
            return f"lost after {state.epochs_done} passes"
        return None


def _looks(passes: int) -> tuple[int, ...]:
    """Passes after which to look whether a trial goes on: a third, two thirds, and all."""
    return round(passes / 3), round(passes * 2 / 3), passes
