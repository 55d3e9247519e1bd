"""The files a run writes line by line: strict JSON lines, and master.log.

JSON has no NaN and no infinity, and many readers refuse Python's spelling of them. So a float
that isn't finite is written as null, here and in every other JSON file of a run. The keys of a
line are sorted and floats have their shortest exact form: equal records are equal bytes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from mapreduce_rnn.errors import CheckpointError
from mapreduce_rnn.ondisk import write_whole, writing

_LOGGER = "mapreduce_rnn"


def dumps(value: Any) -> str:
    """``value`` as one line of strict JSON, pure ASCII, keys sorted, without a line end.

    Tuples become arrays; floats that aren't finite become null.

    Raises:
        TypeError: For what JSON can't hold, a numpy integer or a key that is no text, say; the
            message names the place. Nothing is turned into text in silence.
    """
    return json.dumps(_strict(value, "$"), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _strict(value: Any, place: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_strict(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, place): _strict(item, f"{place}.{key}") for key, item in value.items()}
    raise TypeError(f"JSON can't hold {place}: {type(value).__name__} {value!r}")


def _key(key: Any, place: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"JSON can't hold {place}: key {key!r} is no text")
    return key


def loads(text: str | bytes) -> Any:
    """Read strict JSON: NaN and Infinity raise ValueError, as all else that isn't JSON."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def write_json(path: Path, value: Any) -> None:
    """Write one strict JSON file, complete or not at all."""
    write_whole(path, f"{dumps(value)}\n".encode("ascii"))


class JsonLines:
    """Appends records to a file, one line each, unbuffered so that a reader sees them at once.

    What follows the last line end, left by a master that was killed in the middle of a line, is
    cut off on opening: a new record must not be glued to half an old one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by close()
        self._file.truncate(_whole_lines(path))

    def write(self, record: Mapping[str, Any]) -> int:
        """Append a record; returns the file's size in bytes, for :func:`truncate`.

        Raises:
            CheckpointError: The disk is full, say; what is left of the line is cut off later.
        """
        line = memoryview(dumps(record).encode("ascii") + b"\n")
        with writing(str(self._path)):
            while line:  # the last block of a disk may take a part of it
                line = line[self._file.write(line) :]
        return self._file.tell()

    def sync(self) -> None:
        """Put what was written on disk: a power cut takes none of it."""
        with writing(str(self._path)):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _whole_lines(path: Path) -> int:
    """Bytes up to and with the last line end."""
    with open(path, "rb") as file:
        return sum(len(line) for line in file if line.endswith(b"\n"))


@dataclass(frozen=True)
class Lines:
    """The records of a JSON lines file up to the first damaged line."""

    records: tuple[dict[str, Any], ...]
    problem: str | None  # what is wrong with the file, as one line for a person


def read_lines(path: Path) -> Lines:
    """Read a JSON lines file; a damaged line ends the reading and is named, nothing is raised.

    A line without its line end is damaged too: it is being written, or its writer was killed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Lines((), f"{path.name} is missing")
    records: list[dict[str, Any]] = []
    for line in data.splitlines(keepends=True):
        record = _record(line)
        if record is None:
            place = f"{path.name} is damaged at line {len(records) + 1}"
            return Lines(tuple(records), f"{place}: it was read up to there")
        records.append(record)
    return Lines(tuple(records), None)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and line.endswith(b"\n") else None


def truncate(path: Path, size: int) -> None:
    """Cut a file back to its first ``size`` bytes, as when a run resumes from a checkpoint.

    Raises:
        CheckpointError: The file is shorter, so it isn't the one that the checkpoint counted; or
            it cannot be cut.
    """
    found = path.stat().st_size if path.exists() else 0
    if found < size:
        raise CheckpointError(
            f"{path}: expected the {size} bytes that the checkpoint counted, got {found};"
            " put the run's own file back or start a new run"
        )
    with writing(str(path)), open(path, "ab") as file:
        file.truncate(size)
        os.fsync(file.fileno())


class _LogFile(logging.FileHandler):
    """A log that cannot be written, on a full disk, stops no run and says nothing."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def log_to(path: Path) -> Iterator[logging.Logger]:
    """Send the package's log records of level INFO and up to a file (appended) as well.

    The file is closed and the logger's level put back at the end, whatever happens.
    """
    logger = logging.getLogger(_LOGGER)
    handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
