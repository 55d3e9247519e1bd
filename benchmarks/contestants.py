"""The ways to train a model that ddp.py compares.

All take a store and a config: model, initial parameters, optimizer, batch size of a rank, schedule
and target are the same. All give points of a curve, one per epoch, validation outside the clock.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from curve import Curve, Point
from numpy.typing import NDArray
from plainloop import Batch, Item, Sequences, collate, train_step
from processgroup import process_group
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import mapreduce_rnn
from mapreduce_rnn import BucketBatchSampler, optim
from mapreduce_rnn.config import TrainConfig, override
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.epochs import length_batches
from mapreduce_rnn.plan import resolve_config, usable
from mapreduce_rnn.report.run import read_run
from mapreduce_rnn.seeds import model_seed
from mapreduce_rnn.tasks import Task, make_task

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
PARTS = 4  # of a batch of the stand-in for packed training

Found = TypeVar("Found")
Loader = DataLoader[Any]  # of batches, each a list of its parts


def device_kind() -> str:
    """What everything is trained on here."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def ours(store: Path, config: TrainConfig, ranks: int) -> Curve:
    """A run with a worker for each rank; seconds of map, reduce and checkpoints."""
    devices = {"gpus": str(ranks)} if device_kind() == "cuda" else {"cpu_workers": ranks}
    config = override(config, devices, "ours")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        mapreduce_rnn.train(store, config, run_dir=run, quiet=True, report=False)
        rounds = read_run(run).rounds
    return [Point(r.epoch, r.elapsed, r.validation.loss) for r in rounds if r.validation]


def ddp(store: Path, config: TrainConfig, ranks: int) -> Curve:
    """DistributedDataParallel on batches from the same kind of buckets."""
    return _spawned(_ddp, ranks, store, config)


def packed(store: Path, config: TrainConfig) -> Curve:
    """One process, shuffled batches through pack_padded_sequence."""
    return _spawned(_packed, 1, store, config)


def stand_in(store: Path, config: TrainConfig) -> Curve:
    """As :func:`packed`, on the same batches with equal results, but sooner on a CPU.

    A batch is computed in parts of similar length, padded: their gradients add up to the batch's.
    The seconds mean nothing.
    """
    return _spawned(_stand_in, 1, store, config)


def estimated(store: Path, config: TrainConfig, stand_in: Curve, batches: int) -> Curve:
    """Losses of a stand-in, with the seconds that :func:`packed` takes for some batches."""
    seconds = _spawned(partial(_packed_epoch, batches), 1, store, config)
    return [point._replace(elapsed=point.epochs * seconds) for point in stand_in]


# In the processes


@dataclass(frozen=True)
class _Rank:
    """What one process trains with."""

    rank: int
    ranks: int
    device: torch.device
    store: Store
    config: TrainConfig
    task: Task
    train: Sequences
    validation: NDArray[np.int64]

    def model(self) -> nn.Module:
        """The model that a run of ours starts from."""
        torch.manual_seed(model_seed(self.config.run.seed))
        return self.task.build_model().to(self.device)

    def meet(self) -> None:
        """Wait until all ranks are here and their devices have done their work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        distributed.barrier()

    def validated(self, model: nn.Module) -> float:
        """Mean loss of all validation sequences; each rank scores a part of them."""
        own = self.validation[self.rank :: self.ranks]
        model.eval()
        total = torch.zeros(1, dtype=torch.float64, device=self.device)
        for at in length_batches(self.store.lengths[own], self.config.batches):
            total += self.task.score(model, self.task.collate(self.store, own[at])).loss.sum()
        distributed.all_reduce(total)
        return total.item() / len(self.validation)


def _spawned(main: Callable[[_Rank], Found], ranks: int, store: Path, config: TrainConfig) -> Found:
    """What ``main`` returns on rank 0 of a group of new processes."""
    answer = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        args = (ranks, Path(folder, "group"), store, config, main, answer)
        spawn(_rank_main, args, nprocs=ranks)  # type: ignore[no-untyped-call]
    found: Found = answer.get()
    return found


def _rank_main(
    rank: int,
    ranks: int,
    file: Path,
    store: Path,
    config: TrainConfig,
    main: Callable[[_Rank], Any],
    answer: Any,
) -> None:
    torch.set_num_threads(1)
    with process_group(rank, ranks, file, BACKENDS[device_kind()]):
        found = main(_make_rank(rank, ranks, Store.open(store), config))
        if rank == 0:
            answer.put(found)


def _make_rank(rank: int, ranks: int, store: Store, config: TrainConfig) -> _Rank:
    device = torch.device("cpu")
    if device_kind() == "cuda":
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        # Float32 as workers of ours have it.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    config = resolve_config(config, slots=ranks, threads=1, device=device.type)
    task = make_task(config, store.meta)
    train = Sequences(store, usable(store, task, "train").indices)
    validation = usable(store, task, "validation").indices
    return _Rank(rank, ranks, device, store, config, task, train, validation)


def _ddp(rank: _Rank) -> Curve:
    batches = rank.config.batches
    assert isinstance(batches.buckets, int)
    sampler = BucketBatchSampler(
        rank.train.lengths, batches.buckets, batch_size=batches.batch_size,
        seed=rank.config.run.seed, rank=rank.rank, world_size=rank.ranks,
    )  # fmt: skip
    # Its defaults would send the buffers, which never change, before every batch, and copy
    # gradients once more.
    model = DistributedDataParallel(
        rank.model(), forward_sync_buffers=False, gradient_as_bucket_view=True
    )
    loader = DataLoader(rank.train, batch_sampler=sampler, collate_fn=_whole)
    return _train(rank, model, model.module, loader)


def _packed(rank: _Rank) -> Curve:
    model = _with_kernel(rank, "packed")
    return _train(rank, model, model, _shuffled(rank, _whole))


def _stand_in(rank: _Rank) -> Curve:
    model = _with_kernel(rank, "padded")
    return _train(rank, model, model, _shuffled(rank, _in_parts))


def _packed_epoch(batches: int, rank: _Rank) -> float:
    """Seconds of an epoch, from some of its batches; one before them warms up."""
    model = _with_kernel(rank, "packed")
    optimizer = optim.build_optimizer(rank.config.optimizer, model.parameters())
    loader = _shuffled(rank, _whole)
    times = [time.perf_counter()]
    for batch in itertools.islice(loader, batches + 1):
        train_step(model, optimizer, batch, rank.config.optimizer.clip_norm)
        rank.meet()
        times.append(time.perf_counter())
    return (times[-1] - times[1]) / batches * len(loader)


def _with_kernel(rank: _Rank, kernel: str) -> nn.Module:
    model = rank.model()
    model.kernel = kernel  # type: ignore[assignment]
    return model


def _shuffled(rank: _Rank, collate: Callable[[Sequence[Item]], list[Batch]]) -> Loader:
    order = torch.Generator().manual_seed(rank.config.run.seed)
    size = rank.config.batches.batch_size
    return DataLoader(rank.train, size, shuffle=True, generator=order, collate_fn=collate)


def _whole(items: Sequence[Item]) -> list[Batch]:
    return [collate(items)]


def _in_parts(items: Sequence[Item]) -> list[Batch]:
    """A batch cut by length."""
    items = sorted(items, key=lambda item: len(item[0]))
    cuts = np.array_split(np.arange(len(items)), min(PARTS, len(items)))
    return [collate([items[k] for k in cut]) for cut in cuts]


def _train(rank: _Rank, model: nn.Module, own: nn.Module, loader: Loader) -> Curve:
    """Train up to the target or the last epoch; ``own`` is the model without wrappers."""
    options, stop = rank.config.optimizer, rank.config.stop
    optimizer = optim.build_optimizer(options, model.parameters())
    curve: Curve = []
    elapsed = 0.0
    for epoch in range(stop.epochs):
        model.train()
        rank.meet()
        began = time.perf_counter()
        for done, batch in enumerate(loader):
            rate = optim.learning_rate(options, epoch + done / len(loader))
            optim.set_learning_rate(optimizer, rate)
            train_step(model, optimizer, batch, options.clip_norm)
        rank.meet()
        elapsed += time.perf_counter() - began
        curve.append(Point(epoch + 1, elapsed, rank.validated(own)))
        if stop.target_loss is not None and curve[-1].loss <= stop.target_loss:
            break
    return curve
