"""Runs of the whole command in a process of its own, and what kills them and their workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from mapreduce_rnn.runlog import read_lines

Ended = Callable[[float], bool]
"""Waits so many seconds for the end of a run; whether it has come by then."""


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    """The command, under way; only what it says of errors is kept."""
    return subprocess.Popen(
        [sys.executable, "-m", "mapreduce_rnn", *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def killed_at_last(process: subprocess.Popen[str]) -> Iterator[None]:
    """Inside, a test may fail without waiting for what it started to end by itself."""
    try:
        yield
    finally:
        process.kill()


def ended_in(process: subprocess.Popen[str], seconds: float) -> bool:
    """Wait; whether the process has ended by then."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def workers_of(master: int) -> dict[int, int]:
    """Process id of each worker by its place, also of those that only start."""
    found = {}
    for child in children(master):
        with suppress(OSError):  # it has just gone
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if b"--place" in words:  # not so in a zombie, or between fork and exec
                found[int(words[words.index(b"--place") + 1])] = child
    return found


def children(process: int) -> Iterable[int]:
    """Process ids of the children, zombies included."""
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, listing.read_text().split())


def all_ready(events: Path, workers: int, ended: Ended) -> None:
    """Wait until so many workers have been ready."""
    deadline = time.monotonic() + 120
    while sum(event.get("what") == "ready" for event in read_lines(events).records) < workers:
        assert time.monotonic() < deadline
        assert not ended(0.02)


def kill_at_random(
    master: int, events: Path, moments: Random, ended: Ended, *, kills: int, pause: float
) -> None:
    """SIGKILL workers of a run, each after up to ``pause`` seconds more; it must outlast that."""
    done = 0
    while done < kills:
        assert not ended(moments.uniform(0, pause)), f"ended after {done} kills"
        done += kill_a_worker(master, events, moments)


def losses(events: Path) -> list[str]:
    """How each worker that was lost ended."""
    return [e["reason"] for e in read_lines(events).records if e.get("what") == "lost"]


def kill_a_worker(master: int, events: Path, moments: Random) -> bool:
    """SIGKILL one at random, whatever it does; whether there was one to be killed.

    A place that has lost two workers since one of it was ready is spared: a third would be taken
    for a place where no worker starts.
    """
    losses = _losses_in_a_row(events)
    victims = [pid for place, pid in workers_of(master).items() if losses[place] < 2]
    if victims:
        os.kill(moments.choice(sorted(victims)), signal.SIGKILL)
    return bool(victims)


def _losses_in_a_row(events: Path) -> Counter[int]:
    losses: Counter[int] = Counter()
    for event in read_lines(events).records:
        if event.get("what") == "ready":
            losses[event["place"]] = 0
        losses[event.get("place", -1)] += event.get("what") == "lost"
    return losses
