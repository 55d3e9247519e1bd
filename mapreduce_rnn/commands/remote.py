"""``mapreduce-rnn keys`` and ``worker``: workers on other machines."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapreduce_rnn.commands import add_command
from mapreduce_rnn.config import DeviceConfig
from mapreduce_rnn.errors import UsageError

if TYPE_CHECKING:
    from mapreduce_rnn.launch.base import Place

WAIT_SECONDS = 30.0

KEYS_DESCRIPTION = """\
Make the keys without which nobody connects to a master over TCP: one for the
master, one for each NAME (worker). Secret files have mode 0600; existing ones
are never changed.

A worker is let in as long as DIR/NAME.pub is there when the master starts. Any
number of workers may use one key; several keys can be taken back one by one.
"""

KEYS_EPILOG = """\
examples:
  mapreduce-rnn keys keys                      master.key, worker.key, worker.pub
  mapreduce-rnn keys keys lab cluster          two more: lab.key, cluster.key, ...
"""

WORKER_DESCRIPTION = """\
Work for a run on another machine (or this one) whose master was started with
train --listen. The worker computes what it is told until the run ends. Exit
codes: 0 the run has ended, 1 the master is gone or refuses this worker.

The connection is encrypted; the worker talks to the master of its key only.
Package version, store and kind of device must be the master's; the number of
threads is the run's. torch should be the same build everywhere.
"""

WORKER_EPILOG = """\
examples:
  mapreduce-rnn worker --connect tcp://10.0.0.1:5555 --store kanji.store \\
      --key worker.key
  ssh gpu7 mapreduce-rnn worker --connect tcp://10.0.0.1:5555 \\
      --store /data/kanji.store --key .config/worker.key --device cuda:0
  srun --ntasks 6 --gpus-per-task 1 mapreduce-rnn worker --device cuda \\
      --connect tcp://login1:5555 --store /scratch/kanji.store --key worker.key
"""


def add_arguments(subparsers: Any) -> None:
    """Add both commands to those of the program."""
    _add_keys(subparsers)
    _add_worker(subparsers)


def _add_keys(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "keys", "make keys for workers on other machines",
        description=KEYS_DESCRIPTION, epilog=KEYS_EPILOG,
    )  # fmt: skip
    parser.add_argument("folder", metavar="DIR", type=Path, help="where the keys lie; made if new")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="of the worker's key (worker: one key for all)"
    )
    parser.set_defaults(run=_keys)


def _add_worker(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "worker", "work for a run on another machine",
        description=WORKER_DESCRIPTION, epilog=WORKER_EPILOG,
    )  # fmt: skip
    parser.add_argument(
        "--connect", required=True, metavar="ADDRESS", help="tcp://HOST:PORT of the master"
    )
    parser.add_argument(
        "--store", required=True, metavar="PATH", type=Path, help="the run's store, or a copy of it"
    )
    parser.add_argument(
        "--key", required=True, metavar="FILE", type=Path, help="NAME.key of `mapreduce-rnn keys`"
    )
    parser.add_argument(
        "--device", metavar="cpu|cuda|cuda:TOKEN",
        help="cuda: the first visible GPU; TOKEN: an index, a UUID or a MIG id (cuda where a GPU "
        "is visible, else cpu)",
    )  # fmt: skip
    parser.add_argument(
        "--wait", metavar="SECONDS", type=_seconds, default=WAIT_SECONDS,
        help="end after so long without a word from the master, whether it has not started yet or "
        f"has ended ({WAIT_SECONDS:g}: it speaks every 2 s)",
    )  # fmt: skip
    parser.set_defaults(run=_worker)


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value


_seconds.__name__ = "number of seconds"  # argparse names it


def _keys(args: argparse.Namespace) -> int:
    from mapreduce_rnn.keys import make_keys
    from mapreduce_rnn.protocol.curve import make_pair

    names = args.names or ["worker"]
    written = make_keys(args.folder, names, make_pair)
    print("\n".join(_instructions(args.folder, names, written)))
    return 0


def _instructions(folder: Path, names: Sequence[str], written: Sequence[Path]) -> list[str]:
    key = f"{names[0]}.key"
    return [
        f"new in {folder}: {', '.join(path.name for path in written)}",
        "",
        "on the machine of the master, where this folder stays:",
        f"  mapreduce-rnn train STORE --listen 'tcp://*:5555' --keys {folder} --gpus N",
        "on each worker's machine, with the one file it needs, which is secret:",
        f"  scp -p {folder / key} WORKER:{key}",
        f"  mapreduce-rnn worker --connect tcp://MASTER:5555 --store STORE --key {key}",
        "",
        f"to let {names[0]} in no longer: delete {folder / names[0]}.pub, start the master again",
    ]


def _worker(args: argparse.Namespace) -> int:
    from mapreduce_rnn.data.store import Store
    from mapreduce_rnn.keys import read_worker
    from mapreduce_rnn.protocol.curve import check_address

    address = check_address(args.connect, "--connect")
    key = read_worker(args.key)
    place = _place(args.device)
    store = Store.open(args.store)
    os.environ["CUDA_VISIBLE_DEVICES"] = place.token  # CUDA reads it when torch is loaded
    from mapreduce_rnn.workers.remote import join

    join(address, key, store, place.device, args.wait)
    return 0


def _place(device: str | None) -> Place:
    """The device of this worker, checked as ``train`` checks its own."""
    from mapreduce_rnn.launch import devices

    chosen = {None: DeviceConfig(), "cpu": DeviceConfig(cpu_workers=1),
              "cuda": DeviceConfig(gpus="1")}  # fmt: skip
    kind, _, token = (device or "").partition(":")
    if kind == "cuda" and token:
        chosen[device] = DeviceConfig(devices=(token,))
    if device not in chosen:
        raise UsageError(f"--device {device}: expected cpu, cuda or cuda:TOKEN")
    places = devices.resolve_places(
        chosen[device], environ=os.environ, count_gpus=devices.cuda_device_count, cores=1
    )
    return places[0]
