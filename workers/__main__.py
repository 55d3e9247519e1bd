"""``python -P -m mapreduce_rnn.workers``: a worker process, started by the master.

It is tied to the master before it imports torch, which takes seconds, or longer on a busy machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mapreduce_rnn.workers.lifeline import die_with_parent


def main() -> int:
    """Entry point; the options are written by the launcher, not by people."""
    options = _parser().parse_args()
    die_with_parent(options.parent)
    from mapreduce_rnn.workers.main import work

    return work(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mapreduce_rnn.workers", description=__doc__)
    parser.add_argument("--connect", required=True, help="address of the master's socket")
    parser.add_argument("--run", required=True, help="run id; messages of another are refused")
    parser.add_argument("--store", required=True, type=Path)
    parser.add_argument("--place", required=True, type=int)
    parser.add_argument("--name", required=True, help="name on the master's socket")
    parser.add_argument("--device", required=True, help="cpu or cuda:<token>")
    parser.add_argument("--parent", required=True, type=int, help="process id of the master")
    return parser


if __name__ == "__main__":
    sys.exit(main())
