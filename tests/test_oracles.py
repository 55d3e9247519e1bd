"""Whole runs against what they must equal: plain training, and training on one big batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from inprocess import train
from mapreduce_rnn import checkpoint, optim, runfolder
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.shard import epoch_shards
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import slot_epoch
from mapreduce_rnn.reduce.params import module_arrays
from mapreduce_rnn.seeds import model_seed
from mapreduce_rnn.tasks import CtcTask, Task
from runs_real import lines
from smalltask import DoubleTask, SmallTask, TiedTask

Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
Batches = list[list[np.ndarray]]

PLAIN: dict[str, Optimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": lambda parameters: torch.optim.AdamW(parameters, weight_decay=0.0),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9),
    "adadelta": torch.optim.Adadelta,
}
"""What each local optimizer is, without the learning rate, which the schedule sets."""

SMALL = {"units": 4, "batch_size": 6, "buckets": 2, "epochs": 3}
BIG_BATCH = {
    "optimizer": "sgd", "optimizer_state": "average", "schedule": "constant", "clip_norm": 0.0,
    "learning_rate": 0.01, "sync_steps": 1, "epochs": 2, "units": 3,
}  # fmt: skip


class Plain:
    """Training as in any PyTorch script, on the batches of a run."""

    def __init__(self, run_dir: Path, make_task: Callable[..., Task]) -> None:
        recorded = runfolder.read_config(run_dir)
        self.config: TrainConfig = recorded.config
        self._store = Store.open(recorded.store)
        self._task = make_task(self.config, self._store.meta)
        torch.set_num_threads(1)
        torch.manual_seed(model_seed(self.config.run.seed))
        self.model = self._task.build_model()

    def batches(self, epoch: int) -> Batches:
        """Indices of each step of an epoch, per slot that has that step."""
        train, seed = self._store.split("train"), self.config.run.seed
        lengths = self._store.lengths[train]
        shards = epoch_shards(lengths, self.config.mapreduce.map_tasks or 0, seed, epoch)
        slots = [
            [train[shard[at]] for at in self._drawn(lengths[shard], epoch, slot)]
            for slot, shard in enumerate(shards)
        ]
        longest = max(map(len, slots))
        return [[slot[step] for slot in slots if step < len(slot)] for step in range(longest)]

    def _drawn(self, lengths: np.ndarray, epoch: int, slot: int) -> list[np.ndarray]:
        return slot_epoch(lengths, self.config.batches, self.config.run.seed, epoch, slot).batches

    def epoch(self, optimizer: torch.optim.Optimizer, epoch: int) -> None:
        """One step per step of the run, on all of its slots' sequences."""
        options, steps = self.config.optimizer, self.batches(epoch)
        for done, step in enumerate(steps):
            indices = np.concatenate(step)
            rate = optim.learning_rate(options, epoch - 1 + done / len(steps))
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            losses = self._task.losses(self.model, self._task.collate(self._store, indices))
            (losses.sum() / len(indices)).backward()
            if options.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), options.clip_norm)
            optimizer.step()


def plain_bytes(run_dir: Path, make_task: Callable[..., Task], optimizer: Optimizer) -> Any:
    """The model after the epochs of a run of one slot, trained without any of it."""
    plain = Plain(run_dir, make_task)
    kept = optimizer(plain.model.parameters())
    for epoch in range(1, plain.config.stop.epochs + 1):
        anew = plain.config.optimizer.optimizer_state == "reset"
        plain.epoch(optimizer(plain.model.parameters()) if anew else kept, epoch)
    return as_bytes(module_arrays(plain.model))


def as_bytes(arrays: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in sorted(arrays.items())}


@pytest.mark.parametrize("optimizer", PLAIN)
@pytest.mark.parametrize("policy", ["keep", "average", "reset"])
def test_one_slot_is_plain_training_byte_for_byte(
    small_store: Path, tmp_path: Path, optimizer: str, policy: str
) -> None:
    """Or, with the state reset, plain training with a new optimizer for every epoch."""
    options = {"optimizer": optimizer, "optimizer_state": policy, "learning_rate": 0.05}
    train(small_store, tmp_path / "run", make_task=SmallTask, **SMALL | options)
    expected = plain_bytes(tmp_path / "run", SmallTask, PLAIN[optimizer])
    assert as_bytes(checkpoint.load(tmp_path / "run").model) == expected


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduce": "momentum"},
        {"reduce": "momentum", "reduce_option": ("eta=0", "zeta=1")},
        {"sync_steps": 2},
        {"local_epochs": 3},
    ],
    ids=["mean", "momentum", "momentum-0-1", "windows", "local-epochs"],
)
def test_one_slot_of_lstm_and_ctc_is_plain_training_byte_for_byte(
    small_store: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Momentum's default is 1 - 1/N, which is 0 for one slot; how rounds are cut is no matter."""
    train(small_store, tmp_path / "run", epochs=3, batch_size=4, **options)
    expected = plain_bytes(tmp_path / "run", CtcTask, torch.optim.Adam)
    assert as_bytes(checkpoint.load(tmp_path / "run").model) == expected


@settings(max_examples=6)
@given(
    make_task=st.sampled_from([DoubleTask, TiedTask]),
    momentum=st.sampled_from([0.0, 0.9]),
    slots=st.integers(2, 5),
    batch_size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_reducing_after_every_batch_is_training_on_one_big_batch(
    small_store: Path, tmp_path_factory: pytest.TempPathFactory, make_task: type[SmallTask],
    momentum: float, slots: int, batch_size: int, seed: int,
) -> None:  # fmt: skip
    """SGD is linear in the gradient, so the mean of steps is the step of the mean."""
    run, options = tmp_path_factory.mktemp("run") / "run", BIG_BATCH | {"momentum": momentum}
    drawn = {"map_tasks": slots, "batch_size": batch_size, "seed": seed}
    train(small_store, run, make_task=make_task, **options | drawn)
    assert_big_batch(run, make_task, momentum)


def assert_big_batch(run: Path, make_task: type[SmallTask], momentum: float) -> None:
    plain = Plain(run, make_task)
    optimizer = torch.optim.SGD(plain.model.parameters(), momentum=momentum)
    for epoch in (1, 2):
        plain.epoch(optimizer, epoch)
    saved = checkpoint.load(run).model
    for name, array in module_arrays(plain.model).items():
        np.testing.assert_allclose(saved[name], array, rtol=1e-12, atol=1e-12, err_msg=name)


def test_slots_count_by_their_sequences_and_not_once_their_list_has_ended(
    small_store: Path, tmp_path: Path
) -> None:
    """16 sequences on 3 slots, in batches of up to 60 frames: nothing is even."""
    options = BIG_BATCH | {"map_tasks": 3, "max_frames": 60}
    train(small_store, tmp_path / "run", make_task=DoubleTask, **options)
    weights = [line["weights"] for line in lines(tmp_path / "run" / "metrics.jsonl")]
    plain = Plain(tmp_path / "run", DoubleTask)
    steps = [step for epoch in (1, 2) for step in plain.batches(epoch)]
    assert [[w for w in line if w] for line in weights] == [list(map(len, step)) for step in steps]
    assert any(0 in line for line in weights)
    assert any(len(set(line) - {0}) > 1 for line in weights)
    assert_big_batch(tmp_path / "run", DoubleTask, momentum=0.9)


def test_block_momentum_0_is_the_mean_bit_for_bit(small_store: Path, tmp_path: Path) -> None:
    options = SMALL | {"map_tasks": 3, "make_task": SmallTask}
    momentum = {"reduce": "momentum", "reduce_option": ("eta=0",)}
    train(small_store, tmp_path / "mean", **options)
    train(small_store, tmp_path / "run", **options | momentum)
    mean, run = (checkpoint.load(tmp_path / name).model for name in ("mean", "run"))
    assert as_bytes(run) == as_bytes(mean)
