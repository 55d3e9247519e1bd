"""The command ``mapreduce-rnn``, which is also ``python -m mapreduce_rnn``.

Signals are seen to before anything is imported, since imports take most of a start and an
exception in the middle of one can come out as another. Only while Python itself starts, a tenth of
a second, a signal cannot be answered by anything of ours.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType


def main() -> int:
    """Run the command that this process was started for; returns its exit code."""
    _on_signals(_end)
    from mapreduce_rnn import cli

    code = cli.main()
    # Python puts the default back before it leaves, which takes torch a while: a second Ctrl-C in
    # that time would change the exit code of what is over.
    _on_signals(signal.SIG_IGN)
    return code


def _on_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, handler)


def _end(signum: int, frame: FrameType | None) -> None:
    """At once. Whatever makes a file, a socket or a process has a handler of its own."""
    os.write(2, f"mapreduce-rnn: stopped by {signal.Signals(signum).name}\n".encode())
    os._exit(128 + signum)


if __name__ == "__main__":
    sys.exit(main())
