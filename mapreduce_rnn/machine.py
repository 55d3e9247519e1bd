"""What a run was made with: command, versions, processor. For events.jsonl, not for results."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from pathlib import Path

import mapreduce_rnn


def command() -> list[str]:
    """The command line of this process, as a user would type it."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py" and program.parent.name == "mapreduce_rnn":
        return ["python", "-m", "mapreduce_rnn", *sys.argv[1:]]
    return [program.name, *sys.argv[1:]]


def versions() -> dict[str, str]:
    """Versions of what has a hand in the result."""
    packages = ("torch", "numpy", "pyzmq", "msgpack")
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"mapreduce_rnn": mapreduce_rnn.__version__, "python": platform.python_version()} | found


def cpu() -> str:
    """Name of the processor, as Linux tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
