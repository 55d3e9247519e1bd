"""Every error the package raises on purpose.

    MapReduceRnnError            exit code 1
    ├── UsageError               exit code 2: a wrong option, value or combination
    ├── StoreError               a store that is missing, damaged or does not fit
    ├── ImportRefused            source data that cannot become a store
    ├── ProtocolError            bytes that are not a message of ours
    ├── ReduceError              contributions that cannot be averaged
    ├── CheckpointError          files of a run that are missing, damaged, misfit or unwritable
    ├── TrainingFailed           a run that cannot go on (workers gone, a task that raises)
    └── Interrupted              exit code 128 + signal number

The text of each is one line for a person: what was expected, what came, what to do.
"""

from __future__ import annotations

import signal


class MapReduceRnnError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class UsageError(MapReduceRnnError):
    """A wrong option, value or combination of options."""

    exit_code = 2


class StoreError(MapReduceRnnError):
    """A store that is missing, damaged or does not fit the model."""


class ImportRefused(MapReduceRnnError):
    """Source data that cannot become a store."""


class ProtocolError(MapReduceRnnError):
    """Bytes that are not a message of this protocol version."""


class ReduceError(MapReduceRnnError):
    """Contributions that cannot be averaged."""


class CheckpointError(MapReduceRnnError):
    """A file of a run that is missing, damaged, does not fit, or cannot be written."""


class TrainingFailed(MapReduceRnnError):
    """A run that cannot go on."""


class Interrupted(MapReduceRnnError):
    """A signal asked the run to stop; the last whole round is on disk.

    Attributes:
        go_on: What goes on from there ("--resume RUN"); None when nothing had begun.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum
        self.go_on: str | None = None
