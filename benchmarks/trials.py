"""What rules.py tries: settings, trials of them, and their records in a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from curve import Curve, Point

SETS = ("characters", "lines", "words")
"""KanjiVG characters, KanjiVG lines, UNIPEN words: folders of --data."""

TARGETS = {
    "characters": (15.0, 9.2, 7.0),
    "lines": (35.0, 20.0, 14.0),
    "words": (12.0, 6.5, 4.71),
}
"""Validation losses to reach, highest first. A trial ends at its last one."""

PASSES = {1: 10, 2: 14, 6: 20, 12: 30}
"""Passes over the data by slots: more slots need more of them, in less time each."""

BATCH_SIZE = 32  # the default of `train`
LARGE_BATCH = "large-batch"
"""In place of a rule: gradients of all devices averaged every batch, as data-parallel training
does. It trains as one slot, with a batch of N times the size."""

TARGET_REACHED = "target reached"


@dataclass(frozen=True)
class Setting:
    """Options of ``train`` that are tried; None: the default."""

    learning_rate: float
    reduce: str = "mean"
    reduce_option: str | None = None
    sync_steps: int | None = None
    optimizer_state: str = "keep"
    warmup: float | None = None
    batch_size: int | None = None

    @property
    def name(self) -> str:
        """In at most 44 characters, such as ``momentum zeta=0.5 /5 average 0.0125 w0.5``."""
        policy = {"average": "avg"}.get(self.optimizer_state, self.optimizer_state)
        over_slots = f"/{self.sync_steps or 'epoch'} {policy}"
        parts = (
            self.reduce,
            self.reduce_option,
            None if self.reduce == LARGE_BATCH else over_slots,
            f"{self.learning_rate:.3g}",
            self.warmup and f"w{self.warmup:g}",
            self.batch_size and f"b{self.batch_size}",
        )
        return " ".join(part for part in parts if part)

    def but(self, **changes: Any) -> Setting:
        """The same but for these."""
        return dataclasses.replace(self, **changes)


class Trial(NamedTuple):
    """A setting on a set of data."""

    data: str
    slots: int
    seed: int
    setting: Setting

    @property
    def key(self) -> str:
        """What tells it from all others, for people."""
        return f"{self.data} N={self.slots} seed {self.seed}: {self.setting.name}"

    @property
    def passes(self) -> int:
        """Over the data, at most."""
        return PASSES[self.slots]

    @property
    def target(self) -> float:
        """The loss at which it has nothing more to tell."""
        return TARGETS[self.data][-1]

    def options(self) -> dict[str, Any]:
        """Options of ``train``, by name."""
        options = {k: v for k, v in dataclasses.asdict(self.setting).items() if v is not None}
        if self.setting.reduce == LARGE_BATCH:
            options |= {"reduce": "mean", "batch_size": BATCH_SIZE * self.slots}
        if self.setting.reduce_option is not None:
            options["reduce_option"] = (self.setting.reduce_option,)
        return options | {"schedule": "constant", "epochs": self.passes, "seed": self.seed}


@dataclass(frozen=True)
class Record:
    """How a trial went."""

    curve: Curve  # elapsed: simulated seconds
    label_errors: tuple[float | None, ...]  # of the curve's points
    end: str
    cpu_seconds: float


Records = Mapping[Trial, Record]


def to_line(trial: Trial, record: Record) -> dict[str, Any]:
    """A record as a line of the file; its curve as epochs, seconds, loss, label error."""
    points = zip(record.curve, record.label_errors, strict=True)
    return {
        "kind": "trial",
        "key": trial.key,
        "data": trial.data,
        "slots": trial.slots,
        "seed": trial.seed,
        "setting": dataclasses.asdict(trial.setting),
        "passes": trial.passes,
        "target": trial.target,
        "curve": [[*point, error] for point, error in points],
        "end": record.end,
        "cpu_seconds": record.cpu_seconds,
    }


def from_lines(lines: list[dict[str, Any]]) -> dict[Trial, Record]:
    """Records that still count.

    Not those that ended at a target that is lower by now, or had other passes.
    """
    trials = [line for line in lines if line["kind"] == "trial"]
    records = {_trial(line): (line, _record(line)) for line in trials}
    return {trial: record for trial, (line, record) in records.items() if _counts(trial, line)}


def _trial(line: Mapping[str, Any]) -> Trial:
    return Trial(line["data"], line["slots"], line["seed"], Setting(**line["setting"]))


def _record(line: Mapping[str, Any]) -> Record:
    points = [(epochs, seconds, loss) for epochs, seconds, loss, _ in line["curve"]]
    return Record(
        curve=[Point(e, s, math.nan if loss is None else loss) for e, s, loss in points],
        label_errors=tuple(error for *_, error in line["curve"]),
        end=line["end"],
        cpu_seconds=line["cpu_seconds"],
    )


def _counts(trial: Trial, line: Mapping[str, Any]) -> bool:
    too_early = line["end"] == TARGET_REACHED and line["target"] > trial.target
    return line["passes"] == trial.passes and not too_early
