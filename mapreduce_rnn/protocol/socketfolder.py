"""Where the local socket of a run lies."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping

from mapreduce_rnn.errors import UsageError

PATH_BYTES = 100  # a socket's path; Linux takes 107, and some tools show one in a longer form
SOCKET = "master"


def make_socket_folder(environ: Mapping[str, str]) -> str:
    """Make a new folder that only this user can enter, short enough to hold a socket.

    Args:
        environ: The first of XDG_RUNTIME_DIR, TMPDIR and /tmp that fits and can be written to
            is used.

    Raises:
        UsageError: None does.
    """
    candidates = [environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR"), "/tmp"]
    reasons = []
    for base in filter(None, candidates):
        reason = _unusable(os.path.abspath(base))
        if reason is None:
            return tempfile.mkdtemp(prefix="mapreduce-", dir=os.path.abspath(base))
        reasons.append(reason)
    raise UsageError(
        f"no folder for the local socket ({'; '.join(reasons)}): set TMPDIR to a folder that can "
        f"be written to and whose path leaves the socket's under {PATH_BYTES} bytes"
    )


def _unusable(base: str) -> str | None:
    """Why a folder cannot hold a socket, None if it can."""
    sample = os.path.join(base, "mapreduce-12345678", SOCKET)
    if len(os.fsencode(sample)) >= PATH_BYTES:
        return f"{base}: a socket in it would have {len(os.fsencode(sample))} bytes"
    if not os.access(base, os.W_OK | os.X_OK):
        return f"{base}: cannot be written to"
    return None
