"""``mapreduce-rnn report``."""

from __future__ import annotations

import argparse
from typing import Any

from mapreduce_rnn import runfolder
from mapreduce_rnn.commands import add_command
from mapreduce_rnn.signals import interruptible

DESCRIPTION = """\
Draw report.html and figures/ from the files of a run or of a comparison, finished
or not, and write the numbers of their curves to curves.csv.
"""

EPILOG = """\
examples:
  mapreduce-rnn report runs/kanji-20260101-120000
  mapreduce-rnn report latest
  mapreduce-rnn report comparisons/kanji
"""


def add_arguments(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = add_command(
        subparsers, "report", "draw the figures and report.html of a run or a comparison",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument(
        "folder", metavar="FOLDER", help="folder of a run or of a comparison, or `latest` (run)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run ``report``; returns the exit code."""
    folder = runfolder.find(args.folder)
    from mapreduce_rnn.report import write_report

    with interruptible():
        print(write_report(folder))
    return 0
