"""The map task and the score task: pure functions of (context, message).

    map_task(global parameters, slot state, shard, config, seed)
        -> (parameters, weight, slot state, statistics)

The context is what every task of a run shares: the resolved config, the store and a model whose
parameters every task overwrites before it reads them. Whoever runs a task, whenever and however
often, the answer has the same bytes (same CPU type, torch build and thread count).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mapreduce_rnn import optim
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import SlotEpoch, length_batches, slot_epoch
from mapreduce_rnn.protocol.messages import (
    Arrays,
    MapResult,
    MapTask,
    ScoreResult,
    ScoreTask,
    prefixed,
    under,
)
from mapreduce_rnn.reduce.params import load_arrays, module_arrays
from mapreduce_rnn.seeds import task_seed
from mapreduce_rnn.tasks import Task, make_task
from mapreduce_rnn.visits import visit_sum
from mapreduce_rnn.workers.device import told_if_too_large

OnStep = Callable[[int], None]


@dataclass(frozen=True)
class Context:
    """What every task of a run shares."""

    config: TrainConfig
    store: Store
    task: Task
    model: nn.Module
    device: torch.device
    drawn: dict[int, tuple[int, np.ndarray, SlotEpoch]] = field(default_factory=dict)
    """By slot: epoch, shard, and the batches drawn from it, so as not to draw them every round."""


def make_context(config: TrainConfig, store: Store, device: torch.device) -> Context:
    """Build the model once; tasks only ever replace its values."""
    task = make_task(config, store.meta)
    model = task.build_model().to(device)
    # The first optimizer of a process makes torch import its compiler, which takes seconds that
    # are start-up and not part of round 1.
    optim.build_optimizer(config.optimizer, model.parameters())
    return Context(config, store, task, model, device)


def map_task(context: Context, message: MapTask, on_step: OnStep) -> MapResult:
    """Train on one slot's shard, in mini-batches drawn inside optimal length buckets.

    Args:
        context: Shared by the tasks of the run.
        message: Arrays ``model/<name>`` (the global model), ``state/<name>`` (the slot's local
            optimizer state, may be absent), ``shard`` int64 (indices into the store).
        on_step: Called with the number of batches done, after each.

    Returns:
        The trained parameters, the new optimizer state, the weight (sequence visits whose step
        was applied) and statistics: ``loss_sum`` (sum of per-sequence losses, None when not
        finite), ``sequences``, ``steps``, ``skipped_steps``, ``learning_rate`` (of the last step),
        ``held_back`` (sequences of the shard that the curriculum keeps out of this epoch),
        ``epoch_steps`` (batches of the slot's whole epoch, of which the round may be a window),
        ``visits`` (of all sequences that were fed, see :mod:`mapreduce_rnn.visits`).
    """
    started = time.monotonic()
    load_arrays(context.model, under("model/", message.arrays))
    torch.manual_seed(task_seed(context.config.run.seed, message.round, message.slot))
    trainer = Trainer(context, under("state/", message.arrays))
    work = work_of(context, message)
    for done, step in enumerate(work.steps, start=1):
        trainer.step(step.indices, step.padded, step.epochs_done, message.drops)
        on_step(done)
    return MapResult(
        round=message.round,
        slot=message.slot,
        attempt=message.attempt,
        weight=trainer.weight,
        statistics={
            **trainer.statistics(),
            "held_back": work.held_back,
            "epoch_steps": work.epoch_steps,
            "visits": visit_sum(work.indices),
        },
        seconds=time.monotonic() - started,
        arrays={
            **prefixed("model/", module_arrays(context.model)),
            **prefixed("state/", trainer.state()),
        },
    )


class Step(NamedTuple):
    """A batch of a task."""

    indices: np.ndarray  # int64 (B,), sequences of the store
    padded: int  # frames that the batch is padded to
    epochs_done: float  # before the step


class Work(NamedTuple):
    """What a task trains on."""

    steps: list[Step]
    held_back: int  # sequences of the shard that the curriculum keeps out
    epoch_steps: int  # batches of the slot's whole epoch

    @property
    def indices(self) -> np.ndarray:
        """int64 (n,), the sequences of all steps."""
        return np.concatenate([np.empty(0, np.int64), *(step.indices for step in self.steps)])


def work_of(context: Context, message: MapTask) -> Work:
    """The batches of a task: a window of its epoch, all of it, or several epochs.

    A slot whose list ends before the window has nothing to do.
    """
    shard, options = message.arrays["shard"], context.config.mapreduce
    if not len(shard):
        return Work([], 0, 0)
    epochs = range(message.epoch, message.epoch + options.local_epochs)
    drawn = {epoch: _draw(context, shard, epoch, message.slot) for epoch in epochs}
    steps = [step for epoch, slot in drawn.items() for step in _steps(shard, slot, epoch)]
    if options.sync_steps is not None:
        steps = steps[message.first : message.first + options.sync_steps]
    held_back = sum(slot.held_back for slot in drawn.values())
    return Work(steps, held_back, len(drawn[message.epoch].batches))


def _draw(context: Context, shard: np.ndarray, epoch: int, slot: int) -> SlotEpoch:
    """The slot's batches; drawn once where an epoch takes several rounds."""
    known = context.drawn.get(slot)
    if known is not None and known[0] == epoch and np.array_equal(known[1], shard):
        return known[2]
    config = context.config
    lengths = context.store.lengths[shard]
    drawn = slot_epoch(lengths, config.batches, config.run.seed, epoch, slot)
    if config.mapreduce.sync_steps is not None:
        context.drawn[slot] = (epoch, np.array(shard), drawn)
    return drawn


def _steps(shard: np.ndarray, drawn: SlotEpoch, epoch: int) -> list[Step]:
    batches = zip(drawn.batches, drawn.padded, strict=True)
    return [
        Step(shard[positions], int(padded), epoch - 1 + done / len(drawn.batches))
        for done, (positions, padded) in enumerate(batches)
    ]


class Trainer:
    """One task's optimizer, loss sums and counters."""

    def __init__(self, context: Context, state: Arrays) -> None:
        self._context = context
        self._options = context.config.optimizer
        self._optimizer = optim.build_optimizer(self._options, context.model.parameters())
        optim.load_optimizer_arrays(context.model, self._optimizer, state)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=context.device)
        self._rate = 0.0
        self.weight = self._sequences = self._steps = self._skipped = 0
        context.model.train()

    def step(self, indices: np.ndarray, padded: int, epochs_done: float, drops: int = 0) -> None:
        """One optimizer step; skipped and counted when the gradient norm is not finite.

        Args:
            indices: int64 (B,), sequences of the store.
            padded: Frames that the batch is padded to.
            epochs_done: Before the step; with ``drops``, what the learning rate depends on.
            drops: Of the plateau schedule.

        Raises:
            TrainingFailed: The batch does not fit into the memory of the device.
        """
        with told_if_too_large(len(indices), padded):
            self._step(indices, padded, epochs_done, drops)

    def _step(self, indices: np.ndarray, padded: int, epochs_done: float, drops: int) -> None:
        options, model = self._options, self._context.model
        self._rate = optim.learning_rate(options, epochs_done, drops)
        optim.set_learning_rate(self._optimizer, self._rate)
        self._optimizer.zero_grad(set_to_none=True)
        losses = self._losses(indices, padded)
        (losses.sum() / len(indices)).backward()  # type: ignore[no-untyped-call]
        applied = optim.clip_gradients(model.parameters(), options.clip_norm)
        if applied:
            self._optimizer.step()
        self._count(losses.detach(), applied)

    def _losses(self, indices: np.ndarray, padded: int) -> Tensor:
        batch = self._context.task.collate(self._context.store, indices, padded)
        return self._context.task.losses(self._context.model, batch)

    def _count(self, losses: Tensor, applied: bool) -> None:
        self._loss_sum += losses.double().sum()
        self._sequences += len(losses)
        self._steps += 1
        self._skipped += not applied
        self.weight += len(losses) if applied else 0

    def state(self) -> Arrays:
        """The local optimizer state to carry into the next round; empty under ``reset``."""
        if self._options.optimizer_state == "reset":
            return {}
        return optim.optimizer_arrays(self._context.model, self._optimizer)

    def statistics(self) -> dict[str, Any]:
        """Results only: nothing here may depend on time, place or attempt."""
        loss_sum = float(self._loss_sum)
        return {
            "loss_sum": loss_sum if np.isfinite(loss_sum) else None,
            "sequences": self._sequences,
            "steps": self._steps,
            "skipped_steps": self._skipped,
            "learning_rate": self._rate,
        }


def score_task(context: Context, message: ScoreTask, on_step: OnStep) -> ScoreResult:
    """Loss, edits and reference length of each sequence in ``indices``, in that order."""
    started = time.monotonic()
    load_arrays(context.model, under("model/", message.arrays))
    context.model.eval()
    indices = message.arrays["indices"]
    order = length_batches(context.store.lengths[indices], context.config.batches)
    loss = np.zeros(len(indices), dtype=np.float64)
    edits = np.zeros(len(indices), dtype=np.int64)
    reference = np.zeros(len(indices), dtype=np.int64)
    with torch.inference_mode():
        for done, at in enumerate(order):
            batch = context.task.collate(context.store, indices[at])
            with told_if_too_large(len(at), int(context.store.lengths[indices[at]].max())):
                loss[at], edits[at], reference[at] = context.task.score(context.model, batch)
            on_step(done + 1)
    return ScoreResult(
        round=message.round,
        slot=message.slot,
        attempt=message.attempt,
        seconds=time.monotonic() - started,
        arrays={"loss": loss, "edits": edits, "reference": reference},
    )
