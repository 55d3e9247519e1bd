"""Everything that is measured, guessed or defaulted, resolved before round 1.

The plan turns a config with open ends into one of numbers only (:attr:`Plan.config`, written to
the run's config.toml) and the facts that follow from it and the store. From there the result is
a function of (store, config, code version, device type); workers decide nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mapreduce_rnn.bucketing import Buckets, Choice, choose_n_buckets
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import (
    SlotEpoch,
    alignment,
    cost_of,
    curriculum_holds_back,
    slot_epoch,
)
from mapreduce_rnn.errors import StoreError, UsageError
from mapreduce_rnn.reduce import resolved_options
from mapreduce_rnn.scoring import best_constant_output
from mapreduce_rnn.text import counted

if TYPE_CHECKING:
    from mapreduce_rnn.tasks import Task  # imports torch, which workers shall not wait for

Indices = NDArray[np.int64]
Positions = NDArray[np.int64]

MESSAGE_OVERHEAD = 1 << 20  # bytes for a header and counters beside the arrays
MEASURED = "measured"  # the bucket cost that a probe replaces by numbers
SCORE_BYTES = 3 * 8  # loss, edits and reference length of a sequence
STATES_PER_PARAMETER = 3  # model, and the two moments of Adam


@dataclass(frozen=True)
class Usable:
    """Sequences of a split that can be trained or scored, and how many cannot."""

    indices: Indices
    infeasible: int


@dataclass(frozen=True)
class Epoch:
    """What epoch 1 looks like without a curriculum; later ones differ by the shuffle only."""

    steps: tuple[int, ...]  # batches per slot
    padding: float  # share of processed frames that is padding
    buckets: Buckets  # of slot 0
    choice: Choice  # planned cost of slot 0's epoch by number of buckets
    automatic: bool  # whether the number of buckets was left to the plan


@dataclass(frozen=True)
class Plan:
    """A run without open questions."""

    config: TrainConfig
    device: str  # "cpu" or "cuda"
    train: Usable
    validation: Usable
    epoch: Epoch
    rounds: int  # until --epochs or --rounds; about, where epochs differ in their batches
    trainable: frozenset[str]  # names of the model's arrays that optimizers step on
    parameters: int  # numbers in the model
    model_bytes: int
    constant_label_error: float | None  # of the best constant output on the validation labels
    attribution: str  # of the store's source
    oversized: int  # training sequences longer than the limit in frames

    @property
    def slots(self) -> int:
        return _slots(self.config)

    @property
    def message_bytes(self) -> int:
        """Upper bound of an honest message: model, optimizer state, indices, scores."""
        sequences = len(self.train.indices), len(self.validation.indices)
        return message_bytes(self.model_bytes, *sequences)

    def notes(self) -> list[str]:
        """What people should hear of before round 1."""
        batches, epoch = self.config.batches, self.epoch
        alone = (
            f"{counted(self.oversized, 'sequence')} of more than {batches.max_frames} frames"
            " (--max-frames): each goes alone in a batch"
        )
        held = (
            f"long sequences are held back until epoch {batches.curriculum_epochs} (--curriculum)"
        )
        notes = {
            f"--buckets auto: {epoch.choice.reason}": epoch.automatic,
            alone: self.oversized > 0,
            held: curriculum_holds_back(batches, epoch=1),
            _off_horizon(self.config): _leaves_horizon(self.config),
        }
        return [note for note, holds in notes.items() if holds]

    def facts(self) -> dict[str, Any]:
        """The [plan] table of config.toml: for people and the report, never read back."""
        facts = {
            "device": self.device,
            "slots": self.slots,
            "threads": self.config.run.threads,
            "kernel": self.config.model.kernel,
            "rounds": self.rounds,
            "parameters": self.parameters,
            "train_sequences": len(self.train.indices),
            "validation_sequences": len(self.validation.indices),
            "infeasible": self.train.infeasible + self.validation.infeasible,
            "steps_per_epoch": sum(self.epoch.steps),
            "boundaries": [int(b) for b in self.epoch.buckets.boundaries],
            "planned_cost": [float(f"{cost:.6g}") for cost in self.epoch.choice.planned],
            "bucket_choice": self.epoch.choice.reason if self.epoch.automatic else None,
            "expected_padding": round(self.epoch.padding, 6),
            "constant_label_error": self.constant_label_error,
            "attribution": self.attribution,
        }
        return {name: value for name, value in facts.items() if value is not None}


def resolve_config(config: TrainConfig, *, slots: int, threads: int, device: str) -> TrainConfig:
    """``config`` with nothing left open.

    What depends on the store or on a measurement, a number of buckets or a cost that was left to
    the plan, is settled by :func:`make_plan` and by the probe before it.

    Args:
        slots: Map tasks per round where the config names none: the number of workers.
        threads: CPU threads per worker where the config names none.
        device: "cpu" or "cuda"; decides the kernel. On a CPU training through
            pack_padded_sequence takes several times as long as the padded kernel; on a GPU cuDNN
            runs both directions of a packed batch at once (not measured here).

    Raises:
        UsageError: ``--bucket-cost`` is none of its forms, the reduce rule has no such options, or
            rounds do not fit into epochs.
    """
    _check_rounds(config)
    if config.batches.bucket_cost != MEASURED:
        cost_of(config.batches)
    replace = dataclasses.replace
    model, run, mapreduce = config.model, config.run, config.mapreduce
    if model.kernel == "auto":
        model = replace(model, kernel="padded" if device == "cpu" else "packed")
    if run.threads is None:
        run = replace(run, threads=threads)
    if mapreduce.map_tasks is None:
        mapreduce = replace(mapreduce, map_tasks=slots)
    mapreduce = replace(mapreduce, reduce_option=resolved_options(mapreduce))
    optimizer = config.optimizer
    if optimizer.horizon is None:
        optimizer = replace(optimizer, horizon=float(config.stop.epochs))
    return replace(config, model=model, run=run, mapreduce=mapreduce, optimizer=optimizer)


def _check_rounds(config: TrainConfig) -> None:
    mapreduce, epochs = config.mapreduce, config.stop.epochs
    if mapreduce.sync_steps is not None and mapreduce.local_epochs > 1:
        raise UsageError(
            "a round is a part of an epoch (--sync-steps) or several epochs (--local-epochs), not "
            "both: leave out one"
        )
    if epochs % mapreduce.local_epochs:
        raise UsageError(
            f"--epochs must be a multiple of --local-epochs {mapreduce.local_epochs}, got {epochs}"
        )


def message_bytes(model_bytes: int, train: int, validation: int) -> int:
    """Upper bound of an honest message of a run.

    Args:
        model_bytes: Of all arrays of the model.
        train: Training sequences, at most.
        validation: Validation sequences, at most.
    """
    arrays = model_bytes * STATES_PER_PARAMETER + 8 * train + SCORE_BYTES * validation
    return arrays + MESSAGE_OVERHEAD


def with_bucket_cost(config: TrainConfig, cost: str) -> TrainConfig:
    """``config`` with another bucket cost."""
    batches = dataclasses.replace(config.batches, bucket_cost=cost)
    return dataclasses.replace(config, batches=batches)


def make_plan(
    config: TrainConfig,
    device: str,
    store: Store,
    task: Task,
    model: Mapping[str, np.ndarray],
    trainable: frozenset[str],
) -> Plan:
    """Derive all facts of a run.

    Args:
        config: Resolved by :func:`resolve_config`, its bucket cost measured by now.
        model: The initial model, by name; only sizes are read.
        trainable: Names of those arrays that optimizers step on.

    Raises:
        StoreError: A split is empty or no sequence of it can be trained.
        UsageError: ``--message-limit`` is below what the model needs.
    """
    train = usable(store, task, "train")
    validation = usable(store, task, "validation")
    lengths = store.lengths[train.indices]
    choice = choose_buckets(config, lengths)
    automatic = not isinstance(config.batches.buckets, int)
    if automatic:
        config = with_buckets(config, choice.n_buckets)
    epoch = _first_epoch(config, lengths, choice, automatic)
    plan = Plan(
        config=config,
        device=device,
        train=train,
        validation=validation,
        epoch=epoch,
        rounds=_rounds(config, max(epoch.steps)),
        trainable=trainable,
        parameters=sum(a.size for a in model.values()),
        model_bytes=sum(a.nbytes for a in model.values()),
        constant_label_error=_constant_label_error(store, validation.indices),
        attribution=store.meta.attribution,
        oversized=_oversized(config, lengths),
    )
    _check_message_limit(plan)
    return plan


def usable(store: Store, task: Task, split: str) -> Usable:
    """The sequences of a split whose labels fit into their frames.

    Raises:
        StoreError: The split has no sequence, or none that fits.
    """
    indices = store.split(split)
    if not len(indices):
        raise StoreError(f"{store.path} has no {split} sequences: a run needs train and validation")
    fits = task.usable(store, indices)
    if not fits.any():
        raise StoreError(
            f"{store.path}: none of the {len(indices)} {split} sequences has as many frames as its "
            "labels need; sample the features more densely"
        )
    return Usable(indices[fits], int((~fits).sum()))


def with_buckets(config: TrainConfig, n_buckets: int) -> TrainConfig:
    """``config`` with a number of buckets."""
    batches = dataclasses.replace(config.batches, buckets=n_buckets)
    return dataclasses.replace(config, batches=batches)


def choose_buckets(config: TrainConfig, lengths: NDArray[np.int64]) -> Choice:
    """The number of buckets that ``--buckets auto`` takes, with what each number would cost.

    Args:
        lengths: int64 (n,), n >= 1, of all training sequences; a shard of epoch 1 stands for all.
    """
    batches = config.batches
    shards = epoch_shards(lengths, _slots(config), config.run.seed, epoch=1)
    return choose_n_buckets(
        lengths[max(shards, key=len)],
        cost=cost_of(batches),
        batch_size=batches.batch_size,
        max_frames=batches.max_frames,
        align=alignment(batches),
    )


def epoch_of_slots(
    config: TrainConfig, lengths: NDArray[np.int64], epoch: int
) -> list[tuple[Positions, SlotEpoch]]:
    """Shard and batches of every slot that has sequences in this epoch.

    Args:
        lengths: int64 (n,), of all training sequences.

    Returns:
        Positions in ``lengths``, and what the slot makes of them, in slot order.
    """
    seed = config.run.seed
    shards = epoch_shards(lengths, _slots(config), seed, epoch)
    return [
        (shard, slot_epoch(lengths[shard], config.batches, seed, epoch, slot))
        for slot, shard in enumerate(shards)
        if len(shard)
    ]


def _first_epoch(
    config: TrainConfig, lengths: NDArray[np.int64], choice: Choice, automatic: bool
) -> Epoch:
    batches = dataclasses.replace(config.batches, curriculum="none")
    slots = epoch_of_slots(dataclasses.replace(config, batches=batches), lengths, epoch=1)
    fed = sum(
        int(frames) * len(batch)
        for _, slot in slots
        for frames, batch in zip(slot.padded, slot.batches, strict=True)
    )
    steps = [len(slot.batches) for _, slot in slots]
    return Epoch(
        steps=(*steps, *[0] * (_slots(config) - len(steps))),
        padding=1 - int(lengths.sum()) / fed,
        buckets=slots[0][1].buckets,
        choice=choice,
        automatic=automatic,
    )


def _rounds(config: TrainConfig, epoch_steps: int) -> int:
    """Rounds until the planned end.

    Args:
        epoch_steps: Batches in the epoch's longest list of a slot.
    """
    mapreduce, stop = config.mapreduce, config.stop
    windows = 1 if mapreduce.sync_steps is None else -(-epoch_steps // mapreduce.sync_steps)
    rounds = stop.epochs * windows // mapreduce.local_epochs
    return min(rounds, stop.rounds or rounds)


def _oversized(config: TrainConfig, lengths: NDArray[np.int64]) -> int:
    limit = config.batches.max_frames
    return 0 if limit is None else int(np.count_nonzero(lengths > limit))


def _leaves_horizon(config: TrainConfig) -> bool:
    """Whether the run ends elsewhere than its schedule, as after a resume with more epochs."""
    falls = config.optimizer.schedule in ("cosine", "step")
    return falls and config.optimizer.horizon != config.stop.epochs


def _off_horizon(config: TrainConfig) -> str:
    horizon = config.optimizer.horizon or 0.0
    if horizon < config.stop.epochs:
        return f"the learning rate stays at its last value after epoch {horizon:g} (--horizon)"
    return f"the run ends before epoch {horizon:g}, where the learning rate is lowest (--horizon)"


def _slots(config: TrainConfig) -> int:
    assert config.mapreduce.map_tasks is not None
    return config.mapreduce.map_tasks


def _constant_label_error(store: Store, indices: Indices) -> float | None:
    return best_constant_output([store.labels(int(i)) for i in indices]).label_error


def _check_message_limit(plan: Plan) -> None:
    limit = plan.config.mapreduce.message_limit
    if limit is not None and plan.message_bytes > limit * 1e6:
        raise UsageError(
            f"--message-limit {limit:g} MB is less than the {plan.message_bytes / 1e6:.1f} MB that "
            f"a task with this model can take: raise the limit or leave it out"
        )
