"""Files that are on disk, not only on their way there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mapreduce_rnn.errors import CheckpointError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Errors of the operating system inside become a CheckpointError that begins with ``what``."""
    try:
        yield
    except OSError as error:
        advice = "; make room, then go on with --resume" if error.errno in _NO_ROOM else ""
        raise CheckpointError(f"cannot write {what}: {reason(error)}{advice}") from error


def reason(error: Exception) -> str:
    """What went wrong, and with which file where the error knows, without its folder."""
    if isinstance(error, OSError) and error.strerror:
        name = f"{Path(error.filename).name}: " if error.filename else ""
        return f"{name}{error.strerror}"
    return str(error)


@contextmanager
def synced(path: Path) -> Iterator[BinaryIO]:
    """A file to write anew; its bytes are on disk when the block ends without an exception."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that someone may be reading: complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Put names in a folder on disk: a rename counts only from then on."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
