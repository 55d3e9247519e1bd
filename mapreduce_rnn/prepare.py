"""What a run can know before a worker is started: store, devices, initial model, plan.

``train --dry-run`` ends here, and a comparison looks here at what its runs will record.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mapreduce_rnn import warmstart
from mapreduce_rnn.config import TrainConfig
from mapreduce_rnn.data.store import Store
from mapreduce_rnn.errors import StoreError, UsageError
from mapreduce_rnn.launch import devices
from mapreduce_rnn.launch.base import Place
from mapreduce_rnn.plan import MEASURED, Plan, make_plan, resolve_config, with_bucket_cost
from mapreduce_rnn.progress import Console
from mapreduce_rnn.seeds import model_seed
from mapreduce_rnn.summaries import start_summary
from mapreduce_rnn.text import counted
from mapreduce_rnn.warmstart import WarmStart

if TYPE_CHECKING:
    from mapreduce_rnn.tasks import Task  # imports torch, which help and errors shall not wait for

Arrays = dict[str, np.ndarray]


def dry_run(store: str | Path, config: TrainConfig, init_from: str | Path | None = None) -> None:
    """Say what a run would do; starts no worker and writes nothing.

    Raises as :func:`mapreduce_rnn.train`.
    """
    console = Console(sys.stdout)
    opened, places, plan, _ = _plan(Path(store), config, init_from, console)
    console.start(start_summary(plan, opened, places, run_dir=None, resumed_after=None))
    for note in plan.notes():
        console.note(note)
    console.note(
        f"dry run: nothing was started; a task takes up to {plan.message_bytes / 1e6:.1f} MB"
    )


@dataclass(frozen=True)
class Planned:
    """What a new run would record.

    Attributes:
        fingerprint: of the store.
        config: its options, nothing left open.
        init_sha256: of the model that it starts from; None: a random one.
    """

    fingerprint: str
    config: TrainConfig
    init_sha256: str | None


def planned(store: str | Path, config: TrainConfig, init_from: str | Path | None = None) -> Planned:
    """What :func:`mapreduce_rnn.train` would record; starts no worker and writes nothing.

    Raises as it does. A bucket cost that workers are to measure counts frames here.
    """
    opened, _, plan, warm = _plan(Path(store), config, init_from, Console(None))
    return Planned(opened.fingerprint, plan.config, warm.sha256 if warm else None)


def _plan(
    path: Path, config: TrainConfig, init_from: str | Path | None, console: Console
) -> tuple[Store, tuple[Place, ...], Plan, WarmStart | None]:
    """All of a run that needs no worker."""
    store = open_store(path)
    places, config = resolve(config, console)
    if config.batches.bucket_cost == MEASURED:
        console.note("the bucket cost is measured by workers; this plan counts frames")
        config = with_bucket_cost(config, "frames")
    task, model, trainable = build_model(config, store)
    plan = make_plan(config, places[0].kind, store, task, model, trainable)
    warm = None if init_from is None else warmstart.load(Path(init_from), model, store.meta)
    return store, places, plan, warm


def open_store(path: Path) -> Store:
    """A store that can be trained on. Raises StoreError."""
    store = Store.open(path)
    for split in ("train", "validation"):
        if not len(store.split(split)):
            raise StoreError(
                f"{path} has no {split} sequences: a run needs both train and validation"
            )
    return store


def resolve(config: TrainConfig, console: Console) -> tuple[tuple[Place, ...], TrainConfig]:
    """Choose the devices and close what the config leaves open."""
    cores = devices.usable_cores()
    places = devices.resolve_places(
        config.devices,
        environ=os.environ,
        count_gpus=devices.cuda_device_count,
        cores=cores,
    )
    threads = devices.resolve_threads(config.run.threads, os.environ)
    kind = places[0].kind
    here = kind == "cpu" and config.devices.listen is None
    warning = devices.thread_warning(threads, len(places), cores) if here else None
    if warning:
        console.note(warning)
    slots = config.devices.simulated or len(places)
    config = resolve_config(config, slots=slots, threads=threads, device=kind)
    slots = config.mapreduce.map_tasks or 0
    if slots < len(places):
        console.note(
            f"{counted(slots, 'map task')} per round for {len(places)} workers: "
            f"{len(places) - slots} of them will be idle; --map-tasks sets the number"
        )
    return places, config


def build_model(config: TrainConfig, store: Store) -> tuple[Task, Arrays, frozenset[str]]:
    """The task, the initial model, built on the CPU, and which of its arrays are parameters.

    Imports torch, which takes a while.
    """
    import torch

    from mapreduce_rnn.reduce.params import module_arrays, parameter_arrays
    from mapreduce_rnn.tasks import make_task

    task = make_task(config, store.meta)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(model_seed(config.run.seed))
        try:
            model = task.build_model()
        except RuntimeError as error:  # torch's for memory that is not there
            what = str(error).splitlines()[0]
            raise UsageError(
                f"a model of this size cannot be built ({what}): lower --units"
            ) from None
    return task, module_arrays(model), frozenset(parameter_arrays(model))
