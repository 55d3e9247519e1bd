"""Folders of a comparison as ``compare`` leaves them, made without training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomli_w

import runs
from mapreduce_rnn.runlog import JsonLines


def write_cell(
    folder: Path,
    count: int,
    buckets: str = "8",
    seed: int = 1,
    *,
    rounds: int = 12,
    kind: str = "cpu",
    simulated: bool = True,
    end: dict[str, Any] | None = {"reason": "12 epochs done", "done": True},  # noqa: B006
    pace: float | None = None,
) -> Path:
    """A run folder directly in ``folder``, by the name that tells its setting.

    Args:
        end: of its end event; None: it has not ended.
        pace: seconds that a slot trains in a round; by devices and buckets if it isn't given.
    """
    path = folder / f"{kind}-{count}_buckets-{buckets}_seed-{seed}"
    path.mkdir(parents=True)
    config = runs.config("cuda" if kind == "gpu" else "cpu") | {"run": {"seed": seed}}
    (path / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    with JsonLines(path / "metrics.jsonl") as metrics:
        for n in range(1, rounds + 1):
            metrics.write(runs.metrics_line(n, 0.3) | loss(n, count, buckets, seed))
    busy = pace if pace is not None else usual_pace(count, buckets, seed)
    with JsonLines(path / "events.jsonl") as events:
        events.write(start_event(count, kind, simulated))
        for n in range(1, rounds + 1):
            events.write(round_event(n, count, busy, simulated))
        if end is not None:
            events.write({"event": "end", "time": 1e9, "seconds": 99.0, **end})
    return path


def usual_pace(count: int, buckets: str, seed: int) -> float:
    """Seconds of a slot: fewer with more buckets, and a share of the whole."""
    padding = 2.5 / int(buckets) if buckets.isdigit() else {"none": 3.0, "auto": 0.1}[buckets]
    return (60 + seed) * (1 + padding) / count


def loss(n: int, count: int, buckets: str, seed: int) -> dict[str, Any]:
    """Falls with the rounds, more slowly on more devices and a little so with more buckets."""
    slower = 1 + 0.06 * (count - 1) + 0.01 * (int(buckets) if buckets.isdigit() else 0)
    validation = runs.metrics_line(n, 0.3)["validation"]
    falling = 7 + 70 * 2.718 ** (-n / (4 * slower)) + seed / 5
    error = 0.3 + 0.7 * 2.718 ** (-n / (4 * slower)) + seed / 100
    return {"validation": validation | {"loss": falling, "label_error": error}}


def start_event(count: int, kind: str, simulated: bool) -> dict[str, Any]:
    workers = 1 if simulated else count
    return runs.start_event(kind) | {
        "workers": workers, "devices": [kind] * workers,
        "simulated_devices": count if simulated else None,
        "command": ["mapreduce-rnn", "train", "stores/kanji", f"--{kind}-workers", str(count)],
    }  # fmt: skip


def round_event(n: int, count: int, busy: float, simulated: bool) -> dict[str, Any]:
    """A round of ``count`` map tasks, of which each takes a little longer than the one before."""
    taken = [busy * (1 + 0.02 * slot) for slot in range(count)]
    starts = [sum(taken[:slot]) + slot if simulated else 0.0 for slot in range(count)]
    tasks = [
        runs.task("map", slot, busy + 1, busy, start) | ({"worker": 0} if simulated else {})
        for slot, (busy, start) in enumerate(zip(taken, starts, strict=True))
    ]
    side_by_side = max(taken) + count + 0.1
    measured = sum(taken) + count + 0.1 if simulated else max(taken) + 1.1
    counted = side_by_side if simulated else measured
    scores = [
        runs.task("score", slot, 2.0, 1.8, 2.0 * slot if simulated else 0.0)
        for slot in range(count)
    ]
    return {
        "event": "round", "time": 1e9 + n, "round": n, "elapsed": n * (counted + 0.5 + 0.2),
        "map_seconds": measured, "reduce_seconds": 0.5, "checkpoint_seconds": 0.2,
        "validation_seconds": 2.0 * count + 0.1 if simulated else 2.1, "tasks": tasks + scores,
        **({"simulated": {"devices": count, "map_seconds": side_by_side}} if simulated else {}),
    }  # fmt: skip
