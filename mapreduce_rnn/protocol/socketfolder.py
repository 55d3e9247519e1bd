"""Where the local socket of a run lies.

Each folder is locked by the process that made it. The kernel ends a lock with its process, so a
folder that can be locked was left by a run that was killed: the next run removes it. (The number
of a process would not do: it may be used again, and containers that share a /tmp do not share
their processes.)
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mapreduce_rnn.errors import UsageError

PATH_BYTES = 100  # a socket's path; Linux takes 107, and some tools show one in a longer form
PREFIX = "mapreduce-"
RANDOM_CHARACTERS = 8  # that tempfile.mkdtemp adds to a prefix
SOCKET = "master"


class SocketFolder:
    """A new folder that only this user can enter, short enough to hold a socket.

    Attributes:
        path: Of the folder.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Make it, and remove those that killed runs have left beside it.

        Args:
            environ: The first of XDG_RUNTIME_DIR, TMPDIR and /tmp that fits and can be written
                to is used.

        Raises:
            UsageError: None does.
        """
        base = _usable_base(environ)
        _remove_left_behind(base)
        self.path, self._lock = _made(base)

    def remove(self) -> None:
        """With the socket in it. A second time does nothing."""
        if self._lock < 0:
            return
        with suppress(OSError):  # swept away with the whole of /tmp, say
            _remove(self.path)
        os.close(self._lock)
        self._lock = -1


def _made(base: str) -> tuple[str, int]:
    """A new folder and the descriptor that holds its lock.

    Another run may take it for left behind before it is locked: then it is made again.
    """
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=base)
        with suppress(BlockingIOError, FileNotFoundError):
            return path, _lock(path)


def _remove_left_behind(base: str) -> None:
    """Socket folders that no process holds; one in which anything else lies is not ours."""
    for path in Path(base).glob(f"{PREFIX}{'?' * RANDOM_CHARACTERS}"):
        with suppress(OSError):  # in use, another user's, not ours, or gone by now
            lock = _lock(path)
            try:
                _remove(path)
            finally:
                os.close(lock)


def _lock(path: str | Path) -> int:
    """A descriptor with the lock of a folder.

    Raises:
        BlockingIOError: Another process has it.
        FileNotFoundError: The folder is gone, maybe since it was locked.
        OSError: It cannot be locked.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(path)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove(path: str | Path) -> None:
    socket = Path(path, SOCKET)
    if socket.is_socket():
        socket.unlink()
    os.rmdir(path)


def _usable_base(environ: Mapping[str, str]) -> str:
    candidates = [environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR"), "/tmp"]
    reasons = []
    for base in map(os.path.abspath, filter(None, candidates)):
        reason = _unusable(base)
        if reason is None:
            return base
        reasons.append(reason)
    raise UsageError(
        f"no folder for the local socket ({'; '.join(reasons)}): set TMPDIR to a folder that can "
        f"be written to and whose path leaves the socket's under {PATH_BYTES} bytes"
    )


def _unusable(base: str) -> str | None:
    """Why a folder cannot hold a socket, None if it can."""
    sample = os.path.join(base, PREFIX + "?" * RANDOM_CHARACTERS, SOCKET)
    if len(os.fsencode(sample)) >= PATH_BYTES:
        return f"{base}: a socket in it would have {len(os.fsencode(sample))} bytes"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base}: cannot be written to"
    return None
