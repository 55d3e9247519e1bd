"""Runs whose workers have a fault. The seam is the command that a launcher starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import faulty_worker
from faulty_worker import Fault
from mapreduce_rnn import session
from mapreduce_rnn.launch.local import LocalLauncher

TOLD = {
    Fault.KILLED_BEFORE_START: r"worker 0 is gone: signal 9",
    Fault.IMPORT_ERROR: r"worker 0 is gone: exit code 1",
    Fault.KILLED_IN_TASK: r"worker \d is gone: signal 9",
    Fault.KILLED_WHILE_SENDING: r"worker \d is gone: signal 9",
    Fault.STOPPED: r"worker \d is gone: silent for",
    Fault.HUNG: r"worker \d is gone: hung: no step for",
    Fault.SLOW: r"",
    Fault.DISK_FULL: r"slot 1 in round 2 raised on worker \d:\n(.|\n)*No space left on device",
    Fault.CORRUPT_ANSWER: r"malformed(.|\n)*worker \d is gone: hung: no step for",
    Fault.DUPLICATE_ANSWER: r"discarded its answer to training of slot 1 in round 2",
    Fault.LATE_ANSWER: r"discarded its answer to training of slot 1 in round 1",
    Fault.NOT_FINITE_ANSWER: r"slot 1 left out: .*not finite",
}
"""What master.log says, as a regular expression."""


@contextmanager
def faulty(*faults: Fault, always: bool = False, seed: int | None = None) -> Iterator[None]:
    """Every run inside that is started in this process has workers with faults.

    See :class:`faulty_worker.Fault` for when they happen.
    """
    when = "always" if always else "once" if seed is None else str(seed)
    kinds = ",".join(fault.name for fault in faults)
    command = (sys.executable, "-P", str(Path(faulty_worker.__file__)), kinds, when)
    with mock.patch.object(session, "LocalLauncher", partial(LocalLauncher, command=command)):
        yield
