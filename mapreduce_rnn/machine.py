"""What a run was made with: command, versions, processor. For events.jsonl, not for results.

A result is a function of store, config, package version and device type, and its last bits of
processor and torch build too. A run may go on where these differ, but not in silence.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mapreduce_rnn

_COMPUTING = ("mapreduce_rnn", "torch", "numpy")  # of versions(): the others only carry bytes


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


def moved(records: Sequence[Mapping[str, Any]], round: int) -> str | None:
    """What has a hand in the result and is not as it was where a round was computed, in one line.

    Args:
        records: Of events.jsonl; the last ``start`` is that of the session which goes on.
        round: The one after which it goes on.
    """
    then, now = _machines(records, round)
    differences = [
        f"{what} {then[what]} -> {value}"
        for what, value in now.items()
        if then.get(what, value) != value
    ]
    if not differences:
        return None
    return (
        f"{', '.join(differences)} from round {round + 1} on: the result may not be that of a run "
        "that never stopped"
    )


def _machines(
    records: Sequence[Mapping[str, Any]], round: int
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """What computed a round, as far as its event was written, and what goes on; empty: unknown."""
    now: Mapping[str, str] = {}
    then = now
    for record in records:
        if record.get("event") == "start":
            now = _computing(record)
        elif record.get("event") == "round" and record["round"] <= round:
            then = now
    return then, now


def _computing(start: Mapping[str, Any]) -> dict[str, str]:
    kind = start["devices"][0].partition(":")[0]  # all places of a run are of one
    versions = {name: start["versions"][name] for name in _COMPUTING if name in start["versions"]}
    return {"device": kind, "processor": start["cpu"], **versions}
