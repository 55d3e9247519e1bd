"""A worker does not outlive the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(parent: int) -> None:
    """Let the kernel SIGKILL this process when its parent ends, however it ends.

    Asked for by the worker itself: between fork and exec (``preexec_fn``) Python code may
    deadlock in a master that has threads. The parent may be gone before the request counts, so
    it is compared afterwards; then the worker ends at once.

    Args:
        parent: Process id of the master, from the command line.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"prctl(PR_SET_PDEATHSIG): {os.strerror(code)}")
    if os.getppid() != parent:
        sys.exit(f"the master (process {parent}) has ended: nothing to do")
