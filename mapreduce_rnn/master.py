"""The master's loop: shard, map, reduce, validate, checkpoint.

Khomenko et al. 2016 (arXiv 1708.05604): a master CPU process shuffles the data and splits it into
equal parts, worker processes train on one part each, and the master averages the returned
parameters into the next global model.

Promise: what a run computes is a function of (store, config, code version, device type). Workers
may die, be replaced or be fewer than slots; the model and metrics.jsonl keep their bytes. On
failure or interruption at most the round in progress is lost; ``resume=True`` goes on from the
last whole one and ends in the bytes of a run that was never stopped.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mapreduce_rnn import checkpoint, runstate, simulate, visits
from mapreduce_rnn.config import TrainConfig, fixed_options
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import curriculum_holds_back, deal_by_length
from mapreduce_rnn.errors import CheckpointError, MapReduceRnnError, TrainingFailed
from mapreduce_rnn.plan import Plan, epoch_of_slots
from mapreduce_rnn.pool import Done, Pool
from mapreduce_rnn.progress import Console, RoundLine
from mapreduce_rnn.protocol.messages import (
    MapResult,
    MapTask,
    ScoreResult,
    ScoreTask,
    TaskKey,
    prefixed,
    under,
)
from mapreduce_rnn.reduce import Contribution, Reduction, make_rule
from mapreduce_rnn.runfolder import BEST_MODEL
from mapreduce_rnn.runlog import JsonLines
from mapreduce_rnn.runstate import RunState, Validation
from mapreduce_rnn.tensorboard import Board

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 10.0  # at most one checkpoint in this time, unless asked for otherwise
SKIPPED_STEPS = 10  # of a round, or
SKIPPED_SHARE = 0.05  # of its steps, whichever is more, may be skipped


@dataclass
class Clock:
    """Seconds of one round by what they were spent on."""

    map: float = 0.0  # broadcast, training, answers
    reduce: float = 0.0
    validation: float = 0.0
    checkpoint: float = 0.0


class Master:
    """Carries a run from one whole round to the next."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        pool: Pool,
        run_dir: Path,
        metrics: JsonLines,
        events: JsonLines,
        console: Console,
        *,
        elapsed: float,
        count_training: bool,
        board: Board | None,
    ) -> None:
        self._plan = plan
        self._store = store
        self._pool = pool
        self._run_dir = run_dir
        self._metrics = metrics
        self._events = events
        self._console = console
        self._elapsed = elapsed  # training seconds of earlier rounds, over all sessions
        self._count_training = count_training  # they are what --max-seconds limits
        self._board = board
        self._simulated = plan.config.devices.simulated
        self._rule = make_rule(plan.config.mapreduce)
        self._steps = self._steps_done = 0  # of the epoch, for the bar
        self._saved_round = -1
        self._saved_at = -CHECKPOINT_SECONDS

    def run(self, state: RunState, started: float) -> tuple[RunState, str]:
        """Rounds until something says stop; the last whole one is on disk afterwards.

        Args:
            state: where to go on from.
            started: ``time.monotonic()`` of the start of this session, for ``--max-seconds``.

        Returns:
            The last state and why the run ended, in words.
        """
        if not state.rule:
            trained = {name: state.model[name] for name in self._plan.trainable}
            state = dataclasses.replace(state, rule=self._rule.init(trained))
        self._saved_round = state.round
        try:
            while (reason := self._stop_reason(state, started)) is None:
                state = self._round(state)
        except CheckpointError:
            raise
        except MapReduceRnnError:
            self._save(state)
            raise
        self._save(state)
        return state, reason

    def _stop_reason(self, state: RunState, started: float) -> str | None:
        seconds = self._elapsed if self._count_training else time.monotonic() - started
        return runstate.stop_reason(state, self._plan.config.stop, seconds)

    def _round(self, before: RunState) -> RunState:
        clock = Clock()
        self._begin_on_console(before)
        with _timed(clock, "map"):
            done = self._map(before)
            check_skipped(before.round + 1, [r.statistics for r in _map_results(done)])
        with _timed(clock, "reduce"):
            reduction = self._reduce(before, done)
            state = self._next(before, reduction, done)
        with _timed(clock, "validation"):
            state, validation, scored = self._validate(state, before)
        entry = _metrics(state, done, reduction, validation)
        state = dataclasses.replace(state, metrics_bytes=self._metrics.write(entry))
        with _timed(clock, "checkpoint"):
            self._checkpoint(state)
        self._log_round(clock, done, scored, entry)
        self._end_on_console(state, entry)
        return state

    def _begin_on_console(self, state: RunState) -> None:
        """A bar for the epoch, or for the epochs of this round."""
        if state.first == 0 or not self._steps:
            epochs = range(state.epoch, state.epoch + self._plan.config.mapreduce.local_epochs)
            self._steps = sum(map(self._epoch_steps, epochs))
            self._steps_done = state.first * self._plan.slots
        self._console.round_begin(state.round + 1, self._plan.rounds, self._steps, self._steps_done)

    def _epoch_steps(self, epoch: int) -> int:
        """Batches of an epoch over all slots, for the bar; about as many, with a frame limit."""
        if not curriculum_holds_back(self._plan.config.batches, epoch):
            return sum(self._plan.epoch.steps)
        lengths = self._store.lengths[self._plan.train.indices]
        slots = epoch_of_slots(self._plan.config, lengths, epoch)
        return sum(len(slot.batches) for _, slot in slots)

    def _map(self, state: RunState) -> dict[TaskKey, Done]:
        """Shuffle, shard, and train every slot on its shard."""
        indices = self._plan.train.indices
        lengths, seed = self._store.lengths[indices], self._plan.config.run.seed
        shards = epoch_shards(lengths, self._plan.slots, seed, state.epoch)
        tasks = [
            MapTask(
                round=state.round + 1,
                slot=slot,
                attempt=1,
                epoch=state.epoch,
                first=state.first,
                drops=state.drops,
                arrays={
                    **prefixed("model/", self._rule.start(state.model, state.rule, slot)),
                    **prefixed("state/", state.slots.get(slot, {})),
                    "shard": indices[shard],
                },
            )
            for slot, shard in enumerate(shards)
        ]
        return self._pool.run(tasks, self._console.round_progress)

    def _reduce(self, state: RunState, done: Mapping[TaskKey, Done]) -> Reduction:
        contributions = [
            Contribution(result.slot, result.weight, under("model/", result.arrays))
            for result in _map_results(done)
        ]
        rate = _learning_rate(done)
        reduction = self._rule.apply(state.model, state.rule, contributions, rate)
        for rejected in reduction.rejected:
            line = f"slot {rejected.slot} left out: {rejected.name}: {rejected.reason}"
            log.warning(line)
            self._console.note(line)
        return reduction

    def _next(
        self, state: RunState, reduction: Reduction, done: Mapping[TaskKey, Done]
    ) -> RunState:
        """The state after the reduce. A slot that was left out starts its optimizer anew."""
        bad = {rejected.slot for rejected in reduction.rejected}
        states = [
            Contribution(result.slot, result.weight, under("state/", result.arrays))
            for result in _map_results(done)
            if result.slot not in bad
        ]
        config = self._plan.config
        policy = config.optimizer.optimizer_state
        steps = max(result.statistics["epoch_steps"] for result in _map_results(done))
        epoch, first = runstate.next_window(config.mapreduce, state.epoch, state.first, steps)
        return dataclasses.replace(
            state,
            round=state.round + 1,
            epoch=epoch,
            first=first,
            model=reduction.model,
            rule=reduction.state,
            slots=runstate.next_slots(policy, states, self._plan.slots),
        )

    def _validate(
        self, state: RunState, before: RunState
    ) -> tuple[RunState, Validation | None, dict[TaskKey, Done]]:
        """Score the global model on all validation sequences, if this round is to be scored."""
        config = self._plan.config
        if not _to_be_validated(config, before, state):
            return state, None, {}
        indices = self._plan.validation.indices
        positions = deal_by_length(self._store.lengths[indices], self._plan.slots)
        model = prefixed("model/", state.model)
        tasks = [
            ScoreTask(state.round, slot, attempt=1, arrays={**model, "indices": indices[dealt]})
            for slot, dealt in enumerate(positions)
        ]
        done = self._pool.run(tasks, lambda steps: None)
        results = [done[task.key].result for task in tasks]
        scored = zip(positions, results, strict=True)
        validation = runstate.summarize(
            len(indices), [(at, r) for at, r in scored if isinstance(r, ScoreResult)]
        )
        plateau = config.optimizer.plateau_validations
        return state.validated(validation, plateau), validation, done

    def _checkpoint(self, state: RunState) -> None:
        """Save the state if it is the best, or due by rounds or time."""
        every = self._plan.config.run.checkpoint_every
        if every is None:
            due = time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS
        else:
            due = state.round % every == 0
        if due or state.is_best:
            self._save(state)

    def _save(self, state: RunState) -> None:
        """Put a state on disk, unless it is there."""
        if state.round == self._saved_round:
            return
        if state.is_best:
            checkpoint.save_model(self._run_dir / BEST_MODEL, state.model)
        self._metrics.sync()  # a checkpoint counts on its lines
        save_state(self._run_dir, state, self._plan.config)
        best = {state.best.round} if state.best else set()
        checkpoint.prune(self._run_dir, state.round, keep=self._plan.config.run.keep, also=best)
        self._saved_round, self._saved_at = state.round, time.monotonic()

    def _log_round(
        self,
        clock: Clock,
        done: Mapping[TaskKey, Done],
        scored: Mapping[TaskKey, Done],
        entry: dict[str, Any],
    ) -> None:
        """Tell times to events.jsonl; what counts as training time is all but validation."""
        map_seconds, told = clock.map, {}
        if self._simulated is not None:
            map_seconds = self._simulated_map(clock, done)
            told = {"simulated": {"devices": self._simulated, "map_seconds": map_seconds}}
        self._elapsed += map_seconds + clock.reduce + clock.checkpoint
        self._events.write(
            {
                "event": "round",
                "time": time.time(),
                "round": entry["round"],
                "elapsed": self._elapsed,
                **told,
                **{f"{name}_seconds": spent for name, spent in dataclasses.asdict(clock).items()},
                "tasks": [_timeline(key, d) for key, d in (*done.items(), *scored.items())],
            }
        )
        if self._board is not None:
            self._board.round(entry, self._elapsed)

    def _simulated_map(self, clock: Clock, done: Mapping[TaskKey, Done]) -> float:
        assert self._simulated is not None
        tasks = [done[key] for key in sorted(done) if isinstance(done[key].result, MapResult)]
        timed = [simulate.Timed(d.sent, d.received, d.result.seconds) for d in tasks]
        return simulate.map_seconds(clock.map, timed, self._simulated)

    def _end_on_console(self, state: RunState, entry: dict[str, Any]) -> None:
        """A line where an epoch ends or something was validated; else the bar goes on."""
        self._steps_done += entry["steps"]
        if state.first > 0 and entry["validation"] is None:
            return
        validation = entry["validation"] or {"loss": None, "label_error": None}
        self._console.round_end(
            RoundLine(
                epoch=entry["epoch"],
                train_loss=entry["train_loss"],
                validation_loss=validation["loss"],
                label_error=validation["label_error"],
                trained=self._elapsed if self._count_training else None,
            )
        )


def _to_be_validated(config: TrainConfig, before: RunState, after: RunState) -> bool:
    """Every ``--validate-every`` epochs, and in the last planned round.

    So a run that ends as planned has a score of its last model. A run that is made longer
    afterwards keeps that line, one more than a run that was planned as long; the models of all
    rounds are the same. The plateau schedule counts validations, so there is none beyond them.
    """
    every = config.run.validate_every
    if before.epochs_done // every < after.epochs_done // every:
        return True
    last = runstate.planned_end(after, config.stop) is not None
    return last and config.optimizer.schedule != "plateau"


def save_state(run_dir: Path, state: RunState, config: TrainConfig) -> None:
    """Write the checkpoint of a state, with the options that it was computed with."""
    content = {**state.content(), "config": fixed_options(config)}
    checkpoint.save(run_dir, state.round, state.model, state.arrays(), content)


def check_skipped(number: int, statistics: Iterable[Mapping[str, Any]]) -> None:
    """Raise TrainingFailed when more steps of a round were skipped than a few bad batches cause.

    A step is skipped when its gradient norm is not finite.
    """
    statistics = list(statistics)
    steps = sum(s["steps"] for s in statistics)
    skipped = sum(s["skipped_steps"] for s in statistics)
    if skipped > max(SKIPPED_STEPS, SKIPPED_SHARE * steps):
        raise TrainingFailed(
            f"{skipped} of {steps} steps of round {number} had a gradient that is not finite: "
            "lower --learning-rate, or raise --warmup"
        )


@contextmanager
def _timed(clock: Clock, what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    setattr(clock, what, getattr(clock, what) + time.monotonic() - began)


def _map_results(done: Mapping[TaskKey, Done]) -> list[MapResult]:
    """Map results in slot order, whatever the order of arrival."""
    results = [done[key].result for key in sorted(done)]
    return [result for result in results if isinstance(result, MapResult)]


def _learning_rate(done: Mapping[TaskKey, Done]) -> float:
    """Of the last step of the lowest slot that had one; 0 without any, for the rule to refuse."""
    statistics = [result.statistics for result in _map_results(done)]
    return next((float(s["learning_rate"]) for s in statistics if s["steps"]), 0.0)


def _metrics(
    after: RunState,
    done: Mapping[TaskKey, Done],
    reduction: Reduction,
    validation: Validation | None,
) -> dict[str, Any]:
    """A round's line in metrics.jsonl: results only, so that equal runs give equal bytes.

    ``epoch`` is the one that the round ended in, ``epochs_done`` counts the part of it that is
    done, in batches of the slot that has most. ``visited`` is what was fed in this round; over the
    rounds of an epoch both numbers add up (see :mod:`mapreduce_rnn.visits`) to those of all its
    sequences, once each.
    """
    results = _map_results(done)
    statistics = [result.statistics for result in results]
    sums = [s["loss_sum"] for s in statistics]
    sequences = sum(s["sequences"] for s in statistics)
    whole = after.first == 0
    part = 0.0 if whole else after.first / max(s["epoch_steps"] for s in statistics)
    return {
        "round": after.round,
        "epoch": after.epochs_done if whole else after.epoch,
        "epochs_done": after.epochs_done + part,
        "train_loss": None if None in sums else sum(sums) / sequences,
        "learning_rate": _learning_rate(done),
        "weights": [result.weight for result in results],
        "steps": sum(s["steps"] for s in statistics),
        "skipped_steps": sum(s["skipped_steps"] for s in statistics),
        "held_back": sum(s["held_back"] for s in statistics),
        "visited": {
            "sequences": sequences,
            "hash": visits.spelt(visits.total(s["visits"] for s in statistics)),
        },
        "rejected": [dataclasses.asdict(r) for r in reduction.rejected],
        "validation": None if validation is None else dataclasses.asdict(validation),
    }


def _timeline(key: TaskKey, done: Done) -> dict[str, Any]:
    return {
        "kind": key.kind,
        "slot": key.slot,
        "worker": done.place,
        "attempt": done.result.attempt,
        "start": done.sent,
        "seconds": done.received - done.sent,
        "busy_seconds": done.result.seconds,
    }
