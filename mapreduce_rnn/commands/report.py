"""``mapreduce-rnn report``."""

from __future__ import annotations

import argparse
from typing import Any

from mapreduce_rnn import runfolder
from mapreduce_rnn.commands import add_command
from mapreduce_rnn.signals import interruptible

DESCRIPTION = "Draw report.html and figures/ of a run from its files, finished or not."

EPILOG = """\
example:
  mapreduce-rnn report runs/kanji-20260101-120000
"""


def add_arguments(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = add_command(
        subparsers, "report", "draw a run's figures and report.html",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("run_dir", metavar="RUN", help="run folder, or `latest`")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run ``report``; returns the exit code."""
    run_dir = runfolder.find(args.run_dir)
    from mapreduce_rnn.report import write_report

    with interruptible():
        print(write_report(run_dir))
    return 0
