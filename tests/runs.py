"""A small run folder as training writes it, made without training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tomli_w

from mapreduce_rnn.runlog import JsonLines, write_json

ATTRIBUTION = "KanjiVG, (c) Ulrich Apel, CC BY-SA 3.0, kanjivg.tagaini.net"
CONSTANT = 0.931


def write_run(
    path: Path,
    rounds: int = 12,
    *,
    ended: bool = True,
    device: str = "cpu",
    floor: float = 0.3,
    changes: dict[int, dict[str, Any]] | None = None,
) -> Path:
    """Write a run of ``rounds`` epochs whose label error falls towards ``floor``.

    ``changes`` replaces fields of the metrics of single rounds; without ``ended`` the run stands
    as it does before its end event.
    """
    path.mkdir(parents=True)
    (path / "config.toml").write_text(tomli_w.dumps(config(device)), encoding="utf-8")
    with JsonLines(path / "metrics.jsonl") as metrics:
        for n in range(1, rounds + 1):
            metrics.write(metrics_line(n, floor) | (changes or {}).get(n, {}))
    with JsonLines(path / "events.jsonl") as events:
        events.write(start_event(device))
        for n in range(1, rounds + 1):
            events.write(round_event(n))
        if ended:
            events.write(
                {"event": "end", "time": 1e9 + 99, "reason": "10 epochs done",
                 "best_round": rounds, "seconds": 9.5 * rounds}
            )  # fmt: skip
    if ended:
        write_json(path / "examples.json", examples())
        (path / "model.safetensors").touch()
    return path


def config(device: str) -> dict[str, Any]:
    return {
        "model": {"layers": 1, "units": 96, "dropout": 0.0, "kernel": "padded"},
        "mapreduce": {"reduce": "momentum", "reduce_option": ["eta=0.5"], "local_epochs": 1},
        "stop": {"epochs": 30},
        "store": {"path": "stores/kanji", "fingerprint": "0" * 64},
        "plan": {
            "slots": 2, "threads": 1, "kernel": "padded", "parameters": 122437,
            "train_sequences": 5773, "validation_sequences": 643, "infeasible": 12,
            "boundaries": [58, 94, 136, 187, 256, 358, 541, 1427], "expected_padding": 0.026,
            "planned_cost": [3.1e6, 1.9e6, 1.5e6, 1.3e6, 1.2e6, 1.12e6, 1.07e6, 1.03e6, 1.01e6],
            "bucket_choice": "8 of up to 9 buckets: 2.0 % above the planned cost of 9",
            "constant_label_error": CONSTANT, "steps_per_epoch": 182, "device": device,
            "attribution": ATTRIBUTION,
        },
    }  # fmt: skip


def metrics_line(n: int, floor: float) -> dict[str, Any]:
    left = math.exp(-n / 4)
    error = floor + (1 - floor) * left
    return {
        "round": n, "epoch": n, "epochs_done": float(n),
        "train_loss": 5 + 80 * left, "learning_rate": 0.005 / n,
        "weights": [2887, 2886], "skipped_steps": 0, "rejected": [],
        "validation": {
            "loss": 7 + 70 * left, "label_error": error, "edits": round(8730 * error),
            "reference": 8730, "sequences": 643,
        },
    }  # fmt: skip


def start_event(device: str) -> dict[str, Any]:
    return {
        "event": "start", "time": 1e9, "host": "workshop", "cpu": "Example CPU 3000",
        "command": ["mapreduce-rnn", "train", "stores/kanji", "--cpu-workers", "2"],
        "versions": {"mapreduce-rnn": "0.1.0", "python": "3.11.2", "torch": "2.13.0"},
        "devices": [device, device], "workers": 2,
    }  # fmt: skip


def round_event(n: int) -> dict[str, Any]:
    return {
        "event": "round", "time": 1e9 + 9 * n, "round": n, "elapsed": 8.1 * n, "map_seconds": 8.0,
        "reduce_seconds": 0.05, "validation_seconds": 1.2, "checkpoint_seconds": 0.05,
        "tasks": [task("map", s, 7.9, 7.4 + 0.2 * s) for s in range(2)]
        + [task("score", s, 1.1, 1.0) for s in range(2)],
    }  # fmt: skip


def task(kind: str, slot: int, seconds: float, busy: float, start: float = 0.0) -> dict[str, Any]:
    return {
        "kind": kind, "slot": slot, "worker": slot, "attempt": 1, "start": start,
        "seconds": seconds, "busy_seconds": busy,
    }  # fmt: skip


def examples() -> dict[str, Any]:
    """Labels are Japanese, which the figures' font lacks; the points spell loose arcs."""
    read = [
        (["木"], ["木"], 0), (["氵", "㇐", "口"], ["水", "㇐"], 2), (["木", "口"], [], 2),
        (["㇐"] * 12, ["㇐"] * 11, 1), (["日", "月"], ["日", "月"], 0), (["木"], ["口", "木"], 1),
    ]  # fmt: skip
    items = [
        {"id": f"line-{n}", "reference": reference, "hypothesis": hypothesis, "edits": edits,
         "points": strokes(n)}
        for n, (reference, hypothesis, edits) in enumerate(read)
    ]  # fmt: skip
    pen = {"x": 0, "y": 1, "pen_up": 4}
    return {"attribution": ATTRIBUTION, "pen": pen, "items": items}


def strokes(n: int) -> list[list[float]]:
    points = [
        [20 * character + 8 * math.sin(t / 3 + stroke), 8 * math.cos(t / 5 - stroke), int(t == 0)]
        for character in range(1 + n % 3)
        for stroke in range(3)
        for t in range(9)
    ]
    return [*points, [4.0, 4.0, 1]]  # the last stroke is a dot
