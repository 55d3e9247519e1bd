"""``mapreduce-rnn compare``: the same training on several numbers of devices and of buckets."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapreduce_rnn.commands import add_command
from mapreduce_rnn.commands.options import add_options, chosen_config
from mapreduce_rnn.comparison import AUTO, NO_BUCKETS, Cell, Progress, grid
from mapreduce_rnn.config import Field, TrainConfig, fields
from mapreduce_rnn.errors import Interrupted, MapReduceRnnError, TrainingFailed, UsageError
from mapreduce_rnn.lines import Output, item, path_lines
from mapreduce_rnn.runfolder import store_name
from mapreduce_rnn.signals import StopSignals
from mapreduce_rnn.text import counted

if TYPE_CHECKING:
    from mapreduce_rnn.cells import Cells  # imports numpy, which help shall not wait for

USAGE = "mapreduce-rnn compare STORE [options]"

DESCRIPTION = """\
Train with several numbers of devices, of buckets, or both, from the same initial
model with the same seed and options, and draw one report of all: validation loss
and label error against wall-clock and against epochs, and where the time went.

Each run has a folder of its own under --dir. The same command again goes on
where an interrupted one stopped, and a larger one adds what is not there yet.
"""

EPILOG = """\
examples:
  mapreduce-rnn compare kanji.store
      1 GPU against 6; without a GPU, 1 CPU worker against 6; with fewer devices
      than that the time of 6 is simulated: see --simulate
  mapreduce-rnn compare kanji.store --gpus 1,2,4 --epochs 40
  mapreduce-rnn compare kanji.store --cpu-workers 1,6 --simulate --seeds 3
  mapreduce-rnn compare kanji.store --cpu-workers 1 --buckets none,1,2,4,8,16,auto
      what buckets are worth beside shuffled batches without any
  mapreduce-rnn compare kanji.store --gpus 1,6 --buckets none,16 --target-loss 15
      both crossed, each run until it is as good as that
  mapreduce-rnn report comparisons/kanji.store
      draw the report anew, of a comparison in progress too
"""

COMPARISONS = Path("comparisons")
PAPER = (1, 6)  # numbers of GPUs in Khomenko et al. 2016

_OWN = {"buckets", "map_tasks"}  # options of train that this command sets, cell by cell
_TRAINING_SECONDS = "seconds of training of each run, start-up and validation apart"


def add_arguments(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = add_command(
        subparsers, "compare", "train on several numbers of devices or buckets, one report",
        usage=USAGE, description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("store", help="folder made by `mapreduce-rnn data import`")
    group = parser.add_argument_group("this command")
    devices = group.add_mutually_exclusive_group()
    devices.add_argument(
        "--gpus", dest="gpu_counts", metavar="N,...", type=_counts,
        help="numbers of GPUs (1,6 where a GPU is visible: the paper's)",
    )  # fmt: skip
    devices.add_argument(
        "--cpu-workers", dest="cpu_counts", metavar="N,...", type=_counts,
        help="numbers of CPU workers (1,6 without a GPU)",
    )  # fmt: skip
    group.add_argument(
        "--simulate", dest="simulated", action="store_true",
        help="run on the devices that are here, each map task alone, and count the time that all "
        "would take; same models (off, but where nothing is said and devices are too few)",
    )  # fmt: skip
    group.add_argument(
        "--buckets", dest="bucket_counts", metavar="Q,...", type=_buckets,
        help="numbers of length buckets per shard, auto, or none: shuffled batches, padded to "
        "their own longest (one number, that of train)",
    )  # fmt: skip
    group.add_argument(
        "--seeds", metavar="N", type=_number, default=1,
        help="repeat all with N seeds from --seed on, for the spread (1: time is short)",
    )  # fmt: skip
    group.add_argument(
        "--dir", metavar="DIR", type=Path,
        help="folder of the runs and the report, new or not (comparisons/STORE)",
    )  # fmt: skip
    group.add_argument(
        "--config", metavar="FILE", help="read options from a TOML file; options here override it"
    )
    group.add_argument(
        "--init-from", metavar="FILE", type=Path,
        help="start all from this model, or from the best one of this run folder (random)",
    )  # fmt: skip
    add_options(parser, _options())
    parser.set_defaults(run=run)


def _options() -> list[Field]:
    """The options of train that all runs have in common."""
    kept = [f for f in fields() if f.section != "devices" and f.name not in _OWN]
    return [_in_training_seconds(f) if f.name == "max_seconds" else f for f in kept]


def _in_training_seconds(f: Field) -> Field:
    return dataclasses.replace(f, option=dataclasses.replace(f.option, help=_TRAINING_SECONDS))


def _number(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    """Numbers of devices, such as "1,6"."""
    counts = tuple(_number(part.strip()) for part in text.split(","))
    _check_once(counts)
    return counts


def _buckets(text: str) -> tuple[int | str, ...]:
    """Numbers of buckets and words, such as "none,1,2,auto"."""
    words = tuple(_bucket_count(part.strip()) for part in text.split(","))
    _check_once(words)
    return words


def _bucket_count(text: str) -> int | str:
    if text in (NO_BUCKETS, AUTO):
        return text
    try:
        return _number(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"expected numbers from 1 on, auto or none, got {text!r}"
        ) from None


def _check_once(values: tuple[int | str, ...]) -> None:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise argparse.ArgumentTypeError(f"{twice[0]} is there twice")


def run(args: argparse.Namespace) -> int:
    """Run ``compare``; returns the exit code."""
    config = chosen_config(args, "compare")
    kind, counts, simulate = _devices(args, config)
    buckets = args.bucket_counts or (config.batches.buckets,)
    seeds = range(config.run.seed, config.run.seed + args.seeds)
    cells = grid(kind, counts, buckets, seeds, config, simulate=simulate)
    store = Path(args.store)
    folder = args.dir or COMPARISONS / store_name(store)
    with StopSignals() as signals:
        try:
            with signals.at_once():
                from mapreduce_rnn.cells import Cells

                runs = Cells(folder, store, args.init_from)
                runs.check(cells)
            _Comparison(runs, cells, signals).run(told=simulate and not args.simulated)
        except Interrupted as stop:
            stop.go_on = "the same command"
            raise
    return 0


def _devices(args: argparse.Namespace, config: TrainConfig) -> tuple[str, tuple[int, ...], bool]:
    """Kind and numbers of devices, and whether the time of several is simulated.

    Raises UsageError: fewer GPUs are visible than are asked for.
    """
    from mapreduce_rnn.launch import devices  # imports numpy

    if args.cpu_counts:
        return "cpu", args.cpu_counts, args.simulated
    tokens = os.environ.get(devices.VISIBLE)
    gpus = len(devices.visible_tokens(tokens, devices.cuda_device_count()))
    if args.gpu_counts:
        most = max(args.gpu_counts)
        if 0 < gpus < most and not args.simulated:
            raise UsageError(
                f"--gpus {most}: only {gpus} visible; add --simulate to count the time of {most}"
            )
        return "gpu", args.gpu_counts, args.simulated
    if gpus:
        return "gpu", PAPER, args.simulated or gpus < max(PAPER)
    threads = devices.resolve_threads(config.run.threads, os.environ)
    too_few = devices.usable_cores() < threads * max(PAPER)
    return "cpu", PAPER, args.simulated or too_few


def _too_few(cell: Cell) -> str:
    workers = counted(cell.count, f"{cell.kind.upper()} worker")
    return f"too few devices for {workers}: their time is simulated (--simulate)"


class _Comparison:
    """The runs of all cells in turn, and what is said of them."""

    def __init__(
        self, runs: Cells, cells: Mapping[Cell, TrainConfig], signals: StopSignals
    ) -> None:
        self._runs = runs
        self._cells = cells
        self._signals = signals
        self._out = Output(sys.stdout)

    def run(self, *, told: bool) -> None:
        """Bring every cell to its end, then draw the report.

        Args:
            told: Say that time is simulated, which nobody asked for.

        Raises:
            TrainingFailed: At the end, where some did not come to theirs.
            Interrupted: A signal came.
        """
        if told:
            self._say(item("note", _too_few(max(self._cells, key=lambda cell: cell.count))))
        number = len(self._cells)
        missing = [
            cell
            for i, (cell, config) in enumerate(self._cells.items(), start=1)
            if not self._ends(f"{i} of {number}: {cell.title}", cell, config)
        ]
        if len(missing) < number:
            self._report()
        if missing:
            raise TrainingFailed(
                f"{len(missing)} of {counted(number, 'run')} did not come to an end, see above; "
                "the same command tries again"
            )

    def _ends(self, title: str, cell: Cell, config: TrainConfig) -> bool:
        """Bring a cell to its end, or say why it does not come there: others do not need it."""
        self._signals.check()
        try:
            progress = self._runs.progress(cell, config)
            self._say([f"{title}{progress.value}"])
            if progress is not Progress.FINISHED:
                self._train(cell, config, progress)
        except Interrupted:
            raise
        except (MapReduceRnnError, OSError) as error:
            self._out.flush()
            print(f"mapreduce-rnn: {cell.name}: {error}", file=sys.stderr)
            return False
        return True

    def _train(self, cell: Cell, config: TrainConfig, progress: Progress) -> None:
        source = self._runs.borrowed_cost(cell, config)
        if source and progress is Progress.NEW:
            self._say(item("note", f"bucket cost as {source} measured it"))
        self._runs.run(cell, config)
        self._say([""])

    def _report(self) -> None:
        with self._signals.at_once():
            from mapreduce_rnn.report import comparison_lines, write_comparison

            page = write_comparison(self._runs.folder)
            self._say([*comparison_lines(self._runs.folder), *path_lines("report", page)])

    def _say(self, lines: list[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()
