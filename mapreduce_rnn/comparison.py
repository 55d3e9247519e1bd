"""Which runs a comparison is made of, and what those that are there already are worth. All pure.

A comparison is a grid: numbers of devices x numbers of buckets x seeds, all else equal. Each cell
is a run in a folder of its own, which its name describes: the same command finds it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from mapreduce_rnn.changes import Change, differences
from mapreduce_rnn.config import StopConfig, TrainConfig, fields, fixed_options, override
from mapreduce_rnn.text import counted

NO_BUCKETS = "none"
"""Shuffled batches, each padded to its own longest sequence."""

AUTO = "auto"

VARIED = frozenset({"buckets", "pad_to", "curriculum", "map_tasks", "reduce_option", "seed"})
"""Options that differ between cells: given by the grid, or resolved from what it gives."""

_NO_BUCKETS = {"buckets": 1, "pad_to": "longest", "curriculum": "none"}


class Progress(Enum):
    """How far the run of a cell has come; the value is what is said of it."""

    NEW = ""
    UNFINISHED = ": goes on"
    FINISHED = ": there already"


@dataclass(frozen=True)
class Cell:
    """One run of a comparison.

    Attributes:
        kind: "cpu" or "gpu".
        count: devices, and map tasks per round.
        buckets: a number, :data:`AUTO` or :data:`NO_BUCKETS`.
        simulated: whether the time of ``count`` devices is counted on fewer.
    """

    kind: str
    count: int
    buckets: int | str
    seed: int
    simulated: bool

    @property
    def name(self) -> str:
        """Of the run's folder."""
        return f"{self.kind}-{self.count}_buckets-{self.buckets}_seed-{self.seed}"

    @property
    def title(self) -> str:
        """ "6 CPU workers (simulated), 16 buckets, seed 1"."""
        devices = counted(self.count, f"{self.kind.upper()} worker")
        simulated = " (simulated)" if self.simulated else ""
        words = {NO_BUCKETS: "no buckets", AUTO: "automatic buckets"}
        buckets = words.get(str(self.buckets)) or counted(int(self.buckets), "bucket")
        return f"{devices}{simulated}, {buckets}, seed {self.seed}"

    @property
    def options(self) -> dict[str, Any]:
        """What the cell stands for, by name, as :func:`mapreduce_rnn.config.override` takes it."""
        buckets = _NO_BUCKETS if self.buckets == NO_BUCKETS else {"buckets": self.buckets}
        return {
            **self.devices,
            "simulate": self.simulated,
            "map_tasks": self.count,
            "seed": self.seed,
            **buckets,
        }

    @property
    def devices(self) -> dict[str, Any]:
        """The devices of :attr:`options`."""
        return {"gpus": str(self.count)} if self.kind == "gpu" else {"cpu_workers": self.count}


def grid(
    kind: str,
    counts: Sequence[int],
    buckets: Sequence[int | str],
    seeds: Sequence[int],
    config: TrainConfig,
    *,
    simulate: bool,
) -> dict[Cell, TrainConfig]:
    """The cells in the order in which they run, each with its options.

    Equal ones are one cell: one bucket is none where both give the same options. The time of a
    single device is never simulated: it is measured.

    Args:
        seeds: A comparison with one seed less is a part of this one, so the first seed goes first.
        config: The options that all have in common.

    Raises:
        UsageError: An option is beyond its limits.
    """
    drawn = (
        _plainest(Cell(kind, count, word, seed, simulate and count > 1), config)
        for seed, word, count in product(seeds, buckets, counts)
    )
    return {cell: _options(cell, config) for cell in drawn}


def _plainest(cell: Cell, config: TrainConfig) -> Cell:
    plain = dataclasses.replace(cell, buckets=NO_BUCKETS)
    return plain if _options(plain, config) == _options(cell, config) else cell


def _options(cell: Cell, config: TrainConfig) -> TrainConfig:
    return override(config, cell.options, "compare")


def progress(events: Iterable[Mapping[str, Any]], has: StopConfig, asked: StopConfig) -> Progress:
    """How far a run that is there has come.

    Args:
        events: Of its events.jsonl.
        has: When its newest session was to stop.
        asked: When it is to stop.
    """
    sessions = [e for e in events if e.get("event") in ("start", "end")]
    done = bool(sessions) and sessions[-1].get("done") is True  # a start says nothing of it
    return Progress.FINISHED if done and reaches(has, asked) else Progress.UNFINISHED


def reaches(has: StopConfig, asked: StopConfig) -> bool:
    """Whether no limit of ``has`` ends a run before ``asked`` does."""
    limits = ("epochs", "rounds", "max_seconds", "patience")
    pairs = [(getattr(has, name), getattr(asked, name)) for name in limits]
    goals = [None if stop.target_loss is None else -stop.target_loss for stop in (has, asked)]
    return all(_is_as_far(*pair) for pair in [*pairs, (goals[0], goals[1])])


def _is_as_far(has: float | None, asked: float | None) -> bool:
    return has is None or (asked is not None and has >= asked)


def to_go_on(cell: Cell, config: TrainConfig) -> dict[str, Any]:
    """How far, where and how safely the run of a cell goes on: options by name.

    None of devices where time is simulated: those stay.
    """
    others = {
        f.name: getattr(getattr(config, f.section), f.name)
        for f in fields()
        if not f.option.decides_result and f.section != "devices"
    }
    return others if cell.simulated else others | cell.devices


def difference(
    before: TrainConfig, now: TrainConfig, *, without: frozenset[str] = frozenset()
) -> Change | None:
    """The option that makes two runs another comparison; None: there is none.

    Of several the one that was rather given than resolved from others.

    Args:
        before: Resolved, as the run of a cell recorded it.
        now: Resolved.
        without: Options that may differ.
    """
    changes = differences(fixed_options(before), fixed_options(now), round=0)
    found = [change for change in changes if change.option not in without]
    return min(found, key=lambda change: change.option in VARIED, default=None)
