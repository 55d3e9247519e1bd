"""The command line. Every command's ``--help`` teaches it with an example.

Only what parsing needs is imported here: help and usage errors come without waiting for torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from mapreduce_rnn import __version__, bucketcommand, remotecommand, runfolder
from mapreduce_rnn.config import TrainConfig, fields, override
from mapreduce_rnn.data import commands as data_commands
from mapreduce_rnn.errors import Interrupted, MapReduceRnnError, UsageError
from mapreduce_rnn.options import add_options, given_options
from mapreduce_rnn.signals import interruptible

DESCRIPTION = """\
Train recurrent networks on sequences of very different lengths: optimal length
buckets on each device, map-reduce parameter averaging across devices.
"""

EPILOG = """\
examples:
  mapreduce-rnn data import kanjivg kanji.store   make a store from KanjiVG
  mapreduce-rnn buckets kanji.store               what its length buckets save
  mapreduce-rnn train kanji.store                 all GPUs, or 2 CPU workers
  mapreduce-rnn report runs/NAME                  draw a run, finished or not

exit codes: 0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal
"""

TRAIN_USAGE = """\
mapreduce-rnn train STORE [options]
       mapreduce-rnn train --resume RUN [options]"""

TRAIN_DESCRIPTION = """\
Train a model. Each device gets a worker process; each round every worker trains
on its shard of the shuffled data, in batches of similar length, and the master
averages what they return into the next global model.
"""

TRAIN_EPILOG = """\
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


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line and say where help is; options are written out."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    try:
        args = build_parser().parse_args(arguments)
        code: int = args.run(args)
        return code
    except Interrupted as stop:
        where = f"; go on with --resume {stop.run_dir}" if stop.run_dir else ""
        print(f"mapreduce-rnn: {stop}{where}", file=sys.stderr)
        return stop.exit_code
    except KeyboardInterrupt as stop:
        signum = signal.Signals(stop.args[0] if stop.args else signal.SIGINT)
        print(f"mapreduce-rnn: stopped by {signum.name}", file=sys.stderr)
        return 128 + signum
    except MapReduceRnnError as error:
        print(f"mapreduce-rnn: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"mapreduce-rnn: {error}", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(
        prog="mapreduce-rnn",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mapreduce-rnn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_train(commands)
    data_commands.add_arguments(commands)
    bucketcommand.add_arguments(commands)
    _add_report(commands)
    remotecommand.add_arguments(commands)
    return parser


def _add_train(commands: Any) -> None:
    parser = commands.add_parser(
        "train",
        help="train a model on a store",
        usage=TRAIN_USAGE,
        description=TRAIN_DESCRIPTION,
        epilog=TRAIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
    parser.set_defaults(run=_train)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="draw a run's figures and report.html",
        description="Draw report.html and figures/ of a run from its files, finished or not.",
        epilog="example:\n  mapreduce-rnn report runs/kanji-20260101-120000\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", metavar="RUN", help="run folder, or `latest`")
    parser.set_defaults(run=_report)


def _train(args: argparse.Namespace) -> int:
    given = given_options(args)
    if args.resume is not None:
        return _resume(args, given)
    if args.allow_changes:
        raise UsageError("--allow-changes is for a run that goes on: add --resume RUN")
    if args.store is None:
        raise UsageError("train: name a store, or a run to go on with (--resume RUN)")
    config = TrainConfig()
    if args.config is not None:
        file = Path(args.config)
        config = runfolder.options_in(runfolder.read_toml(file), file)
    config = override(config, given, "train")
    from mapreduce_rnn import session

    if args.dry_run:
        session.dry_run(args.store, config, args.init_from)
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


def _report(args: argparse.Namespace) -> int:
    run_dir = runfolder.find(args.run_dir)
    from mapreduce_rnn.report import write_report

    with interruptible():
        print(write_report(run_dir))
    return 0
