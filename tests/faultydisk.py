"""Disks that fill up, and processes that end, at any step of writing files.

A step is a call that changes a disk: a write to a file, fsync, a rename, ... From the chosen step
on a full disk takes nothing more, and after a kill nothing happens at all: what a program does to
tidy up behind an exception does not happen either.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

GROWING = ("mkdir", "fsync")
OTHERS = ("rename", "replace", "unlink", "rmdir")
NEVER = 10**9


class Killed(BaseException):
    """The process has ended here. Nothing catches it."""


class Disk:
    """Counts steps and fails from one on."""

    def __init__(self, last: int, error: BaseException) -> None:
        self.steps = 0
        self._last = last
        self._error = error

    def step(self) -> None:
        self.steps += 1
        if self.steps > self._last:
            raise self._error

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            self.step()
            return call(*arguments, **named)

        return counting

    def opening(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def opened(*arguments: Any, **named: Any) -> Any:
            file = call(*arguments, **named)
            return _File(file, self) if file.writable() else file

        return opened


class _File:
    """A file to write; of the write in which the disk fails, one half arrives."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: Any) -> int:
        try:
            self._disk.step()
        except BaseException:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()


def killed_after(steps: int = NEVER) -> Any:
    """A context in which the process is killed after so many steps."""
    return _failing(Disk(steps, Killed()), (*GROWING, *OTHERS))


def full_after(steps: int = NEVER) -> Any:
    """A context in which the disk is full after so many steps; names can still be changed."""
    return _failing(Disk(steps, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), GROWING)


@contextmanager
def _failing(disk: Disk, calls: tuple[str, ...]) -> Iterator[Disk]:
    with ExitStack() as stack:
        for name in calls:
            stack.enter_context(mock.patch.object(os, name, disk.counted(getattr(os, name))))
        for module in (io, builtins):
            stack.enter_context(mock.patch.object(module, "open", disk.opening(open)))
        yield disk
