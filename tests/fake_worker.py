"""A process that a launcher starts in place of a worker; its first argument says what it does."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

from mapreduce_rnn.workers.lifeline import die_with_parent


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour", choices=("report", "fail", "wait", "ignore"))
    for option in ("connect", "run", "store", "place", "name", "device", "parent"):
        parser.add_argument(f"--{option}")
    options = parser.parse_args()
    die_with_parent(int(options.parent))
    if options.behaviour == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report = {"options": vars(options), "environment": dict(os.environ), "session": os.getsid(0)}
    print(json.dumps(report | {"pid": os.getpid()}), flush=True)
    while options.behaviour in ("wait", "ignore"):
        signal.pause()
    return 3 if options.behaviour == "fail" else 0


sys.exit(main())
