"""``mapreduce-rnn buckets``: look at the buckets of a store before training."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from pathlib import Path
from typing import Any

from mapreduce_rnn.commands import add_command
from mapreduce_rnn.commands.options import add_options, given_options
from mapreduce_rnn.config import Field, TrainConfig, fields, override
from mapreduce_rnn.errors import UsageError
from mapreduce_rnn.lines import path_lines

DESCRIPTION = """\
Show the length buckets of a store's training sequences, and what an epoch costs
in them, without buckets, and in buckets as others cut them. Nothing is trained.
The same options give training the same buckets, unless sequences are too short
for their labels: training leaves them out.
"""

EPILOG = """\
examples:
  mapreduce-rnn buckets kanji.store --buckets auto
  mapreduce-rnn buckets kanji.store --map-tasks 6 --figures figures
      what the first of six workers gets; draw lengths and planned costs
  mapreduce-rnn buckets kanji.store --bucket-cost 2e-3,4e-5,2e-6
      in seconds: 2 ms a batch, 40 us a frame of its length, 2 us a frame in it;
      for the numbers of your device, start a run with --bucket-cost measured
      and read bucket_cost under [batches] in its config.toml
"""

_OPTIONS = ("batch_size", "max_frames", "buckets", "bucket_cost", "pad_to", "map_tasks", "seed")
_ONE_SHARD = {"map_tasks": 1}
_SILENT = logging.NullHandler()


def add_arguments(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = add_command(
        subparsers, "buckets", "show the length buckets of a store and what they save",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("store", help="folder made by `mapreduce-rnn data import`")
    group = parser.add_argument_group("this command")
    group.add_argument(
        "--figures", metavar="DIR", type=Path,
        help="draw the lengths and the planned cost by number of buckets (off: text is faster)",
    )  # fmt: skip
    add_options(parser, _options())
    parser.set_defaults(run=run)


def _options() -> list[Field]:
    """What decides the buckets and batches of a run, its defaults too but for the workers."""
    return [
        _with_default(f, 1, "one shard of all sequences") if f.name in _ONE_SHARD else f
        for f in fields()
        if f.name in _OPTIONS
    ]


def _with_default(f: Field, default: int, why: str) -> Field:
    return dataclasses.replace(f, default=default, option=dataclasses.replace(f.option, why=why))


def run(args: argparse.Namespace) -> int:
    """Run ``buckets``; returns the exit code."""
    config = override(TrainConfig(), _ONE_SHARD | given_options(args), "buckets")
    if config.batches.bucket_cost == "measured":
        raise UsageError(
            "buckets: --bucket-cost measured needs a device: give the numbers A,P,C that a run "
            "started with it has in its config.toml, [batches] bucket_cost"
        )
    if args.figures is not None and args.figures.exists() and not args.figures.is_dir():
        raise UsageError(f"--figures: expected a folder, got the file {args.figures}")
    # Of sequences that go alone the text tells; buckets of others have no use for the warning.
    logging.getLogger("mapreduce_rnn.bucketing").addHandler(_SILENT)
    print("\n".join(_text(args.store, config, args.figures)))
    return 0


def _text(store_path: str, config: TrainConfig, figures: Path | None) -> list[str]:
    from mapreduce_rnn.commands.bucketsurvey import survey
    from mapreduce_rnn.commands.buckettable import lines
    from mapreduce_rnn.data.store import Store

    store = Store.open(store_path)
    found = survey(config, store.lengths[store.split("train")])
    text = lines(found, store.path.absolute().name)
    if figures is None:
        return [*text, "", "--figures DIR draws the lengths and the cost of other numbers"]
    from mapreduce_rnn.report.bucketplots import write

    written = write(figures, found.lengths, found.ours.boundaries.tolist(), found.choice.planned)
    return [*text, "", *(line for path in written for line in path_lines("figure", path))]
