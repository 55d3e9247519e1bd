"""Real runs, started as a user starts them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SMALL = ("--units", "8", "--batch-size", "4", "--buckets", "3")
"""A model of under 5 000 parameters that trains an epoch of the tiny store in a blink."""


@dataclass(frozen=True)
class FinishedRun:
    """A run folder and what the command printed."""

    path: Path
    store: Path
    output: str

    def metrics(self) -> list[dict[str, Any]]:
        return lines(self.path / "metrics.jsonl")

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in lines(self.path / "events.jsonl") if e["event"] == kind]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def command(
    *arguments: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run ``mapreduce-rnn`` in a process of its own; nothing of it is checked."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mapreduce_rnn", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=timeout,
        check=False,
    )


def finish_run(store: Path, path: Path) -> FinishedRun:
    """Train the small model over 3 epochs on 2 CPU workers."""
    done = command("train", store, "--run-dir", path, "--cpu-workers", "2", "--epochs", "3", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return FinishedRun(path, store, done.stdout)


def result_bytes(path: Path) -> dict[str, str]:
    """sha256 of everything that equal runs must have in common.

    Of the checkpoints the last: which rounds before it were saved depends on the time they took.
    """
    last = max(p for p in (path / "checkpoints").iterdir())
    return _sums(path, last.iterdir())


def all_bytes(path: Path) -> dict[str, str]:
    """As :func:`result_bytes`, with every checkpoint: of runs that save each round."""
    return _sums(path, path.glob("checkpoints/*/*"))


def _sums(path: Path, saved: Iterable[Path]) -> dict[str, str]:
    files = [path / "model.safetensors", path / "metrics.jsonl", *sorted(saved)]
    return {
        str(f.relative_to(path)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in files
        if f.is_file()
    }
