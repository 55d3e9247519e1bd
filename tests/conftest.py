"""Every test leaves no process, thread or open socket behind; one finished run serves many."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from runs_real import FinishedRun, finish_run
from stores import tiny_store

# Time limits of single examples would make tests fail on a busy machine.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


def _children() -> set[int]:
    """Process ids of this process's children, zombies included."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


def _sockets() -> set[str]:
    """Open sockets and eventfds of this process."""
    names: set[str] = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the descriptor of the listing itself
            continue
        if name.startswith(("socket:", "anon_inode:[eventfd")):
            names.add(name)
    return names


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    threads, children, sockets = set(threading.enumerate()), _children(), _sockets()
    yield
    assert set(threading.enumerate()) <= threads, "a thread was left behind"
    assert _children() <= children, "a process was left behind"
    assert _sockets() <= sockets, "a socket was left open"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny store, shared and only read."""
    return tiny_store(tmp_path_factory.mktemp("store") / "tiny")


@pytest.fixture(scope="session")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 sequences to train on and 4 for validation, shared and only read."""
    return tiny_store(tmp_path_factory.mktemp("store") / "small", n=20)


@pytest.fixture(scope="session")
def finished(store: Path, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """One run of 2 CPU workers over 3 epochs, made by the command line; only read."""
    return finish_run(store, tmp_path_factory.mktemp("runs") / "finished")
