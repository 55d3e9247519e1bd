"""``mapreduce-rnn train``."""

from __future__ import annotations

import argparse
from typing import Any

from mapreduce_rnn import runfolder
from mapreduce_rnn.commands import add_command
from mapreduce_rnn.commands.options import add_options, chosen_config, given_options
from mapreduce_rnn.config import fields
from mapreduce_rnn.errors import UsageError

USAGE = """\
mapreduce-rnn train STORE [options]
       mapreduce-rnn train --resume RUN [options]"""

DESCRIPTION = """\
Train a model. Each device gets a worker process; each round every worker trains
on its shard of the shuffled data, in batches of similar length, and the master
averages what they return into the next global model.
"""

EPILOG = """\
examples:
  mapreduce-rnn train kanji.store
      all visible GPUs; without one, CPU workers: as many as cores, at most 2
  mapreduce-rnn train kanji.store --gpus 6 --epochs 40
  mapreduce-rnn train kanji.store --cpu-workers 2 --max-seconds 240
  mapreduce-rnn train kanji.store --cpu-workers 1 --map-tasks 6
      the model that six workers make, on one
  mapreduce-rnn train kanji.store --gpus 6 --listen tcp://10.0.0.1:5555 --keys keys
      six GPUs on other machines, see `mapreduce-rnn worker --help`
  mapreduce-rnn train kanji.store --dry-run
      show the plan: buckets, padding, memory; train nothing
  mapreduce-rnn train --resume latest --epochs 60
      go on with the newest run under runs/
  mapreduce-rnn train kanji.store --config runs/NAME/config.toml --seed 2
      the options of an earlier run, one of them changed
"""


def add_arguments(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = add_command(
        subparsers, "train", "train a model on a store",
        usage=USAGE, description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("store", nargs="?", help="folder made by `mapreduce-rnn data import`")
    group = parser.add_argument_group("this command")
    group.add_argument("--run-dir", metavar="DIR", help="new folder for this run (runs/STORE-TIME)")
    group.add_argument(
        "--resume", metavar="RUN",
        help="go on with this run folder, or `latest`; options that change the result are refused",
    )  # fmt: skip
    group.add_argument(
        "--allow-changes", action="store_true",
        help="go on with options that change the result: config.toml records which, and from "
        "which round on",
    )  # fmt: skip
    group.add_argument(
        "--config", metavar="FILE", help="read options from a TOML file; options here override it"
    )
    group.add_argument(
        "--init-from", metavar="FILE",
        help="start from this model, or from the best one of this run folder (random)",
    )  # fmt: skip
    group.add_argument("--dry-run", action="store_true", help="show the plan and stop")
    add_options(parser, fields())
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run ``train``; returns the exit code."""
    given = given_options(args)
    if args.resume is not None:
        return _resume(args, given)
    if args.allow_changes:
        raise UsageError("--allow-changes is for a run that goes on: add --resume RUN")
    if args.store is None:
        raise UsageError("train: name a store, or a run to go on with (--resume RUN)")
    config = chosen_config(args, "train")
    from mapreduce_rnn import prepare, session

    if args.dry_run:
        prepare.dry_run(args.store, config, args.init_from)
    else:
        session.train(args.store, config, run_dir=args.run_dir, init_from=args.init_from)
    return 0


def _resume(args: argparse.Namespace, given: dict[str, Any]) -> int:
    misplaced = [
        option
        for option, value in (
            ("--run-dir", args.run_dir),
            ("--config", args.config),
            ("--init-from", args.init_from),
        )
        if value is not None
    ]
    if args.store is not None or misplaced or args.dry_run:
        named = misplaced or (["--dry-run"] if args.dry_run else [f"the store {args.store}"])
        raise UsageError(f"--resume goes on with a run as it is: leave out {named[0]}")
    from mapreduce_rnn import session

    session.resume(runfolder.find(args.resume), given, allow_changes=args.allow_changes)
    return 0
