"""The command line. Every command's ``--help`` teaches it with an example.

Only what parsing needs is imported here: help and usage errors come without waiting for torch.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from mapreduce_rnn import __version__
from mapreduce_rnn.commands import buckets, compare, data, remote, report, train
from mapreduce_rnn.errors import Interrupted, MapReduceRnnError

DESCRIPTION = """\
Train recurrent networks on sequences of very different lengths: optimal length
buckets on each device, map-reduce parameter averaging across devices.
"""

EPILOG = """\
examples:
  mapreduce-rnn data import kanjivg kanji.store   make a store from KanjiVG
  mapreduce-rnn buckets kanji.store               what its length buckets save
  mapreduce-rnn train kanji.store                 all GPUs, or 2 CPU workers
  mapreduce-rnn compare kanji.store               1 device against 6, as the paper
  mapreduce-rnn report runs/NAME                  draw a run, finished or not

exit codes: 0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal
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
        where = f"; go on with {stop.go_on}" if stop.go_on else ""
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
    for command in (train, compare, data, buckets, report, remote):
        command.add_arguments(commands)
    return parser
